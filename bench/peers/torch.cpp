// libtorch as a side of the benchmark, in a process of its own that speaks as bench/peers/serve.py does: its threads,
// its allocator and its OpenBLAS are set by the environment it is started in, and nothing else includes its headers.
#include <ATen/Parallel.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "../inputs.h"

namespace bench {
namespace {

using torch::Tensor;
namespace F = torch::nn::functional;
using Shape = std::vector<std::int64_t>;

using Call = std::function<Tensor()>;  // of a repetition; what it computes, or nothing
using Words = std::vector<std::string>;
using MakeRow = Call (*)(const Words&);

std::int64_t number(const Words& words, std::size_t i) { return std::stoll(words.at(i)); }

Tensor wave(std::uint32_t seed, const Shape& shape, float scale = 1) {
  Tensor x = torch::empty(shape);
  float* to = x.data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) to[i] = wave_at(seed, static_cast<std::size_t>(i)) * scale;
  return x;
}
Tensor weights(std::uint32_t seed, const Shape& shape) { return wave(seed, shape, weight_scale(shape[0])); }
Tensor labels(std::int64_t count, std::int64_t classes) {
  return torch::arange(count, torch::kLong).mul_(7919).remainder_(classes);
}

// Without a tape.
template <class Body>
Call plain(Body body) {
  return [body]() mutable {
    const torch::NoGradGuard guard;
    return body();
  };
}

// ---- loops ----
Call chain(const Words& w) {
  return plain([x = wave(1, {number(w, 0)})] {
    Tensor v = torch::clamp_min(x * 1.5 + 0.25, -0.5);
    v = torch::clamp_min(v * 0.75 + 0.125, 0.0625);
    v = torch::clamp_min(v * 1.25 - 0.5, -0.25);
    return v + 1.0;
  });
}

Tensor tanh_exp(const Tensor& u, const Tensor& v) {
  const Tensor t = torch::tanh(u * v + 0.5), e = torch::exp(t - u);
  return torch::clamp_min((e * v + t) / (e + 1.5), 0.125) * 0.75;
}
Call tanh_exp_chain(const Words& w) {
  return plain([x = wave(1, {number(w, 0)}), y = wave(2, {number(w, 0)})] { return tanh_exp(x, y); });
}

Call softmax(const Words& w) {
  return plain([x = wave(3, {number(w, 0), number(w, 1)})] { return torch::softmax(x, -1); });
}

Call layer_norm(const Words& w) {
  const std::int64_t n = number(w, 1);
  return plain([n, x = wave(3, {number(w, 0), n}), scale = wave(4, {n}), shift = wave(5, {n})] {
    return torch::layer_norm(x, {n}, scale, shift, 1e-5);
  });
}

Call cross_entropy(const Words& w) {
  return plain([x = wave(3, {number(w, 0), number(w, 1)}), y = labels(number(w, 0), number(w, 1))] {
    return torch::cross_entropy_loss(x, y);
  });
}
Call cross_entropy_gradient(const Words& w) {
  const Tensor x = wave(3, {number(w, 0), number(w, 1)}).requires_grad_(true);
  return [x, y = labels(number(w, 0), number(w, 1))] {
    return torch::autograd::grad({torch::cross_entropy_loss(x, y)}, {x})[0];
  };
}

// ---- products, convolutions, attention ----
Call matmul(const Words& w) {
  const std::int64_t m = number(w, 0), n = number(w, 1), k = number(w, 2);
  const bool tx = w.at(4) == "1", ty = w.at(5) == "1";
  Tensor x = wave(1, tx ? Shape{k, m} : Shape{m, k}), y = wave(2, ty ? Shape{n, k} : Shape{k, n});
  if (w.at(3) == "i8") return {};
  if (w.at(3) == "bf16") x = x.to(torch::kBFloat16), y = y.to(torch::kBFloat16);
  if (tx) x = x.t();
  if (ty) y = y.t();
  return plain([x, y] { return torch::matmul(x, y); });
}

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  Tensor scores = torch::matmul(q.transpose(1, 2), k.transpose(1, 2).transpose(2, 3)) * scale;
  const Tensor later = torch::ones({q.size(1), q.size(1)}, torch::kBool).triu(1);
  return torch::matmul(torch::softmax(scores.masked_fill(later, -1e9), -1), v.transpose(1, 2)).transpose(1, 2);
}
struct Attention {
  explicit Attention(const Words& w) {
    const Shape shape{number(w, 0), number(w, 1), number(w, 2), number(w, 3)};
    for (std::uint32_t seed = 1; seed <= 3; ++seed) x.push_back(wave(seed, shape));
  }
  Tensor run() const { return attend(x[0], x[1], x[2]); }
  std::vector<Tensor> x;
};
Call attention(const Words& w) {
  return plain([a = Attention(w)] { return a.run(); });
}
Call attention_gradient(const Words& w) {
  Attention a(w);
  for (Tensor& t : a.x) t.requires_grad_(true);
  return [a] {
    const auto g = torch::autograd::grad({a.run().square().sum()}, {a.x[0], a.x[1], a.x[2]});
    return g[0] + g[1] + g[2];
  };
}

// Images as they lie: channels last is a view. The kernel is turned outside of the time.
Call conv(const Words& w) {
  const std::int64_t batch = number(w, 0), extent = number(w, 1), in = number(w, 2), out = number(w, 3),
                     size = number(w, 4), stride = number(w, 5), groups = number(w, 6), before = size / 2;
  const bool is_first = w.at(7) == "1";
  const std::int64_t extent_out = (extent + 2 * before - size) / stride + 1;
  const auto images = [&](std::uint32_t seed, std::int64_t e, std::int64_t c) {
    return is_first ? wave(seed, {batch, c, e, e}) : wave(seed, {batch, e, e, c}).permute({0, 3, 1, 2});
  };
  const auto as_given = [is_first](const Tensor& x) { return is_first ? x : x.permute({0, 2, 3, 1}); };
  const Tensor x = images(1, extent, in), y = images(3, extent_out, out);
  const Tensor kernel = wave(2, {size, size, in / groups, out}).permute({3, 2, 0, 1}).contiguous();
  if (w.at(8) == "forward")
    return plain([=] { return as_given(torch::conv2d(x, kernel, {}, stride, before, 1, groups)); });
  const bool is_input = w.at(8) == "input_gradient";
  return plain([=] {
    const auto [dx, dw, db] =
        torch::convolution_backward(y, x, kernel, c10::nullopt, {stride, stride}, {before, before}, {1, 1}, false,
                                    {0, 0}, groups, {is_input, !is_input, false});
    return is_input ? as_given(dx) : dw.permute({2, 3, 1, 0});
  });
}

// ---- training steps ----
struct Dense {
  Dense(std::uint32_t seed, std::int64_t in, std::int64_t out) : W(weights(seed, {in, out})), b(torch::zeros({out})) {}
  Tensor operator()(const Tensor& x) const { return torch::matmul(x, W) + b; }
  Tensor W, b;
};

std::vector<Tensor> trained(std::vector<Tensor> parameters) {
  for (Tensor& p : parameters) p.requires_grad_(true);
  return parameters;
}

template <class Optimizer, class Loss>
Call step(std::shared_ptr<Optimizer> optimizer, Loss loss) {
  return [=] {
    optimizer->zero_grad();
    const Tensor value = loss();
    value.backward();
    optimizer->step();
    return value.detach();
  };
}
auto adam(const std::vector<Tensor>& parameters) {
  return std::make_shared<torch::optim::Adam>(trained(parameters), torch::optim::AdamOptions(1e-3));
}

Call mlp(const Words& w) {
  const std::int64_t width = number(w, 0), batch = number(w, 1);
  const std::vector<Dense> m{Dense(1, width, width), Dense(2, width, width), Dense(3, width, width)};
  const std::vector<Tensor> p = trained({m[0].W, m[0].b, m[1].W, m[1].b, m[2].W, m[2].b});
  const auto loss = [m, x = wave(4, {batch, width}), y = wave(5, {batch, width})] {
    return torch::mse_loss(m[2](torch::relu(m[1](torch::relu(m[0](x))))), y);
  };
  return step(std::make_shared<torch::optim::SGD>(p, torch::optim::SGDOptions(0.05)), loss);
}

Call cnn(const Words& w) {
  const std::int64_t batch = number(w, 0);
  const auto kernel = [](std::uint32_t seed, std::int64_t in, std::int64_t out) {
    return wave(seed, {3, 3, in, out}, 0.1f).permute({3, 2, 0, 1}).contiguous();
  };
  const Tensor first = kernel(1, 1, 16), first_b = torch::zeros({16}), second = kernel(2, 16, 32),
               second_b = torch::zeros({32});
  const Dense hidden(3, 7 * 7 * 32, 128), out(4, 128, 10);
  const Tensor images = wave(5, {batch, 1, 28, 28}), classes = labels(batch, 10);  // of one channel, which is last too
  const auto loss = [=] {
    Tensor x = torch::max_pool2d(torch::relu(torch::conv2d(images, first, first_b, 1, 1)), 2);
    x = torch::max_pool2d(torch::relu(torch::conv2d(x, second, second_b, 1, 1)), 2);
    x = x.permute({0, 2, 3, 1}).reshape({batch, 7 * 7 * 32});  // the order of the other sides' features
    return torch::cross_entropy_loss(out(torch::relu(hidden(x))), classes);
  };
  return step(adam({first, first_b, second, second_b, hidden.W, hidden.b, out.W, out.b}), loss);
}

struct Block {
  Tensor scale_a, shift_a, scale_b, shift_b, qkv, mix, feed_in, feed_out;
};

Call transformer(const Words& w) {
  const std::int64_t layers = number(w, 0), batch = number(w, 1), time = number(w, 2), width = number(w, 3),
                     heads = number(w, 4), vocabulary = number(w, 5);
  const Tensor tokens = wave(91, {vocabulary, width}, 0.05f), positions = wave(92, {time, width}, 0.05f);
  const Tensor scale = torch::ones({width}), shift = torch::zeros({width});
  std::vector<Tensor> all{tokens, positions, scale, shift};
  std::vector<Block> blocks;
  for (std::uint32_t i = 0; i < layers; ++i) {
    const Block b{.scale_a = torch::ones({width}),
                  .shift_a = torch::zeros({width}),
                  .scale_b = torch::ones({width}),
                  .shift_b = torch::zeros({width}),
                  .qkv = weights(8 * i + 1, {width, 3 * width}),
                  .mix = weights(8 * i + 2, {width, width}),
                  .feed_in = weights(8 * i + 3, {width, 4 * width}),
                  .feed_out = weights(8 * i + 4, {4 * width, width})};
    all.insert(all.end(), {b.scale_a, b.shift_a, b.scale_b, b.shift_b, b.qkv, b.mix, b.feed_in, b.feed_out});
    blocks.push_back(b);
  }
  const Tensor text = labels(batch * (time + 1), vocabulary).reshape({batch, time + 1});
  const auto norm = [width](const Tensor& x, const Tensor& s, const Tensor& t) {
    return torch::layer_norm(x, {width}, s, t, 1e-5);
  };
  const auto loss = [=] {
    Tensor x = torch::embedding(tokens, text.slice(1, 0, time)) + positions;
    for (const Block& b : blocks) {
      const auto parts = torch::matmul(norm(x, b.scale_a, b.shift_a), b.qkv).split(width, -1);
      const auto heads_of = [&](std::size_t i) { return parts[i].reshape({batch, time, heads, width / heads}); };
      x = x + torch::matmul(attend(heads_of(0), heads_of(1), heads_of(2)).reshape({batch, time, width}), b.mix);
      x = x + torch::matmul(torch::gelu(torch::matmul(norm(x, b.scale_b, b.shift_b), b.feed_in), "tanh"), b.feed_out);
    }
    const Tensor logits = torch::matmul(norm(x, scale, shift), tokens.t());
    return torch::cross_entropy_loss(logits.reshape({-1, vocabulary}), text.slice(1, 1, time + 1).reshape({-1}));
  };
  return step(adam(all), loss);
}

// ---- what the library itself costs ----
Call dispatch(const Words& w) {
  return plain([count = number(w, 0), x = torch::ones({8}), y = torch::ones({8})]() mutable {
    for (std::int64_t i = 0; i < count; ++i) y = y * 0.5 + x;
    return Tensor();
  });
}
Call round_trip(const Words&) {
  return plain([y = torch::ones({8})]() mutable {
    y = y * 0.5 + 1.0;
    return Tensor();
  });
}
Call eager(const Words&) {
  return plain([y = torch::ones({8})]() mutable {
    y = y * 0.5;
    return Tensor();
  });
}
Call scan(const Words& w) {
  return plain([x = wave(1, {number(w, 0), 8})] {
    Tensor c = torch::ones({8});
    for (std::int64_t i = 0; i < x.size(0); ++i) c = c * 0.5 + x[i];
    return c;
  });
}
Call new_process(const Words&) {
  return [] {
    if (std::system("/proc/$PPID/exe --ten-ops") != 0) throw std::runtime_error("a new process could not run");
    return Tensor();
  };
}

void ten_ops() {
  const Tensor x = torch::full({128, 128}, 0.5), t = torch::tanh(torch::exp((x + x) * x));
  const Tensor rows = torch::matmul(t, x + x).t().sum(1);
  if (!torch::where(rows.max() > 0, rows, torch::zeros_like(rows))[0].item<bool>()) std::abort();
}

const std::map<std::string, MakeRow> kRows = {
    {"chain", chain},
    {"tanh_exp_chain", tanh_exp_chain},
    {"softmax", softmax},
    {"layer_norm", layer_norm},
    {"cross_entropy", cross_entropy},
    {"cross_entropy_gradient", cross_entropy_gradient},
    {"matmul", matmul},
    {"attention", attention},
    {"attention_gradient", attention_gradient},
    {"conv", conv},
    {"mlp", mlp},
    {"cnn", cnn},
    {"transformer", transformer},
    {"dispatch", dispatch},
    {"round_trip", round_trip},
    {"eager", eager},
    {"scan", scan},
    {"new_process", new_process},
};

// As serve.py's values_of.
std::string values_of(const Call& call) {
  const Tensor first = call();
  std::ostringstream text;
  text << "values";
  if (!first.defined()) return text.str();
  const Tensor flat = first.detach().to(torch::kFloat).reshape({-1}).clone();
  if (flat.numel() > 1) {
    for (std::int64_t i = 0; i < 16; ++i) text << ' ' << flat[(flat.numel() - 1) * i / 15].item<float>();
    return text.str();
  }
  text << ' ' << flat.item<float>();
  for (int i = 0; i < 2; ++i) text << ' ' << call().item<float>();
  return text.str();
}

double now(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string answer(const Words& words, Call& call, clockid_t clock) {
  if (words.at(0) == "turn") {
    const std::int64_t count = number(words, 1);
    const double start = now(clock);
    for (std::int64_t i = 0; i < count; ++i) call();
    return std::to_string((now(clock) - start) / static_cast<double>(count) * 1e9) + "e-9";
  }
  call = {};
  const auto row = kRows.find(words.at(1));
  if (row != kRows.end()) call = row->second({words.begin() + 2, words.end()});
  return call ? values_of(call) : "none";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  at::set_num_threads(threads);
  const std::string option = argc > 3 ? argv[3] : "";
  if (option == "--ten-ops" || (argc > 1 && std::string(argv[1]) == "--ten-ops")) return ten_ops(), 0;
  const clockid_t clock = option == "--cpu" ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
  std::cout << "is libtorch " << TORCH_VERSION << std::endl;
  Call call;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream stream(line);
    const Words words{std::istream_iterator<std::string>(stream), {}};
    try {
      std::cout << answer(words, call, clock) << std::endl;
    } catch (const std::exception& e) { std::cout << "none " << first_line(e.what()) << std::endl; }
  }
}
