// Models that nobody made a layout rule for, spread over eight devices by layouts alone: values and gradients are those
// of one device, and what is sent is what a person would have sent.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

const Mesh& mesh() {
  static const Mesh m = [] {
    ensure_devices(8);
    return Mesh({{"d", 2}, {"t", 4}});
  }();
  return m;
}

Array numbers(const Shape& shape, double phase = 0) {
  return sin(1.7 * reshape(arange(num_elements(shape), f32), shape) + phase);
}
Array integers(const Shape& shape, std::int64_t below) {
  return mod(reshape(arange(num_elements(shape)), shape) * 7 + 3, below);
}

double difference(const Array& a, const Array& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return 1;
  if (is_complex(a.dtype())) return std::max(difference(real(a), real(b)), difference(imag(a), imag(b)));
  const std::vector<double> x = convert(a, f64).to_vector<double>(), y = convert(b, f64).to_vector<double>();
  double most = 0, scale = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    scale = std::max(scale, std::abs(y[i]));
    most = std::max(most, std::isnan(x[i]) ? 1 : std::abs(x[i] - y[i]));
  }
  return most / scale;
}

/// "all_reduce t 64 x2": what is sent, sorted; in a loop, of one step.
std::string sent(const CollectiveReport& report) {
  std::map<std::string, int> counts;
  for (const Collective& c : report.entries)
    ++counts[fmt::format("{}{} {} {}", c.times == 1 ? "" : fmt::format("{} times ", c.times), c.op,
                         fmt::join(c.axes, "+"), c.payload_bytes)];
  std::string text;
  for (const auto& [line, n] : counts) text += fmt::format("{}{}\n", line, n > 1 ? fmt::format(" x{}", n) : "");
  return text;
}

template <class T>
std::vector<Array> leaves(const T& tree) {
  std::vector<Array> all;
  tree_map(
      [&](const Array& x) {
        all.push_back(x);
        return x;
      },
      tree);
  return all;
}

/// f of arguments that lie so, against f of the same on one device; what it sends, of which the less usual models say
/// nothing here.
template <class F, class... A>
std::string spread(const F& f, const std::vector<PartitionSpec>& specs, const A&... arguments) {
  const auto step = jit(f);
  const std::vector<Array> want = leaves(std::tuple(step(arguments...)));
  const auto placed = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::tuple{device_put(arguments, mesh(), specs.at(I))...};
  }(std::index_sequence_for<A...>());
  const std::vector<Array> got = leaves(std::tuple(std::apply(step, placed)));
  REQUIRE(got.size() == want.size());
  for (std::size_t j = 0; j < want.size(); ++j) {
    INFO("result ", j);
    CHECK(difference(got[j], want[j]) < 2e-5);
  }
  const auto report = [&](const auto&... x) { return step.trace(x...).lower().collectives(); };
  const CollectiveReport all = std::apply(report, placed);
  INFO(all.text);
  return sent(all);
}

template <class F>
auto with_gradients(F f) {
  return [f](const auto&... x) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return value_and_grad<static_cast<int>(I)...>(f)(x...);
    }(std::index_sequence_for<decltype(x)...>());
  };
}

}  // namespace

TEST_CASE("convolutions on batch and channels") {
  // NHWC, HWIO
  const auto f = [](const Array& x, const Array& k1, const Array& k2) {
    const Array h = relu(conv(x, k1, {.padding = "SAME"}));
    return mean(square(conv(h, k2, {.padding = "SAME"})));
  };
  CHECK(spread(with_gradients(f), {P("d"), P(none, none, none, "t"), P(none, none, "t")}, numbers({4, 8, 8, 4}),
               numbers({3, 3, 4, 8}), numbers({3, 3, 8, 4})) ==
        "all_reduce d 580\n"
        "all_reduce t 2048 x2\n");
}

TEST_CASE("a network that contracts, expands and joins what it had") {
  const auto f = [](const Array& x, const Array& down, const Array& up, const Array& out) {
    const Array a = relu(conv(x, down, {.strides = {2, 2}, .padding = "SAME"}));
    const Array b = repeat(repeat(a, 2, 1), 2, 2);
    const Array c = concatenate({x, conv(b, up, {.padding = "SAME"})}, 3);
    return mean(square(conv(c(slice(), slice(1, 7), slice(1, 7)), out, {.padding = "VALID"})));
  };
  spread(with_gradients(f), {P("d", "t"), P(), P(), P()}, numbers({4, 8, 8, 4}), numbers({3, 3, 4, 8}),
         numbers({3, 3, 8, 4}), numbers({1, 1, 8, 4}));
}

TEST_CASE("a recurrent network whose hidden state is split") {
  const auto f = [](const Array& xs, const Array& wx, const Array& wh, const Array& out) {
    const Array h0 = zeros({xs.shape()[1], wh.shape()[0]});
    const Array h =
        scan([&](const Array& c, const Array& x) { return std::pair(tanh(dot(x, wx) + dot(c, wh)), none); }, h0, xs)
            .first;
    return mean(square(dot(h, out)));
  };
  CHECK(spread(with_gradients(f), {P(none, "d"), P(none, "t"), P(none, "t"), P("t")}, numbers({5, 4, 8}),
               numbers({8, 16}), numbers({16, 16}), numbers({16, 4})) ==
        "5 times all_gather t 128 x2\n"
        "5 times all_reduce t 64\n"
        "5 times reduce_scatter t 128\n"
        "all_reduce d 452\n"
        "all_reduce t 32\n");
}

TEST_CASE("a beam search over a vocabulary that is split") {
  const auto f = [](const Array& table, const Array& head, const Array& first) {
    Array tokens = first, scores = zeros(first.shape());  // [batch, beam]
    const std::int64_t batch = first.shape()[0], beam = first.shape()[1], words = head.shape()[1];
    for (int i = 0; i < 2; ++i) {
      const Array next = log_softmax(dot(take(table, tokens), head)) + expand_dims(scores, {2});
      const auto [values, at] = top_k(reshape(next, {batch, beam * words}), beam);
      scores = values;
      tokens = mod(at, words);
    }
    return std::tuple(tokens, sort(scores), argsort(scores));
  };
  CHECK(spread(f, {P("t"), P(none, "t"), P("d")}, numbers({16, 8}), numbers({8, 16}, 1), integers({2, 3}, 16)) ==
        "all_gather t 192 x2\n"
        "all_reduce t 12 x4\n"
        "all_reduce t 96 x2\n");
}

TEST_CASE("attention with fewer heads of keys than devices") {
  const auto f = [](const Array& x, const Array& wq, const Array& wk, const Array& wv, const Array& wo) {
    const Array q = einsum("bsm,mhd->bshd", x, wq), k = einsum("bsm,mhd->bshd", x, wk),
                v = einsum("bsm,mhd->bshd", x, wv);
    return mean(square(einsum("bshd,hdm->bsm", dot_product_attention(q, k, v, {.causal = true}), wo)));
  };
  spread(with_gradients(f), {P("d"), P(none, "t"), P(), P(), P("t")}, numbers({4, 8, 16}), numbers({16, 8, 4}),
         numbers({16, 2, 4}), numbers({16, 2, 4}, 1), numbers({8, 4, 16}));
}

TEST_CASE("a step of Adam that clips by the norm of all gradients") {
  struct Net {
    Array a, b;
  };
  const auto f = [](const Array& x, const Array& y, const Array& a, const Array& b) {
    const Net net{a, b};
    const Adam adam{.weight_decay = 0.01};
    const auto loss = [&](const Net& n) {
      return mean(square(dot(tanh(dot(x, n.a)), n.b) - y)) + 1e-3 * mean(abs(n.a));
    };
    const auto [value, g] = value_and_grad(loss)(net);
    const auto [next, state] = adam.step(net, adam.init(net), clip_by_global_norm(g, 0.1), 1e-2);
    return std::tuple(value, next.a, next.b, state.m.a, state.v.b);
  };
  CHECK(spread(f, {P("d"), P("d"), P(none, "t"), P("t")}, numbers({8, 8}), numbers({8, 4}), numbers({8, 16}),
               numbers({16, 4})) ==
        "all_reduce d 192\n"
        "all_reduce d+t 4\n"
        "all_reduce t 4\n"
        "all_reduce t 64\n");
  CHECK(spread(f, {P({"d", "t"}), P({"d", "t"}), P({"d", "t"}), P({"d", "t"})}, numbers({8, 8}), numbers({8, 4}),
               numbers({8, 16}), numbers({16, 4})) ==
        "all_gather d+t 256 x2\n"
        "all_gather d+t 512\n"
        "all_reduce d+t 8\n"
        "reduce_scatter d+t 768\n");
}

TEST_CASE("products of every kind") {
  const auto check = [](const std::string& spec, const Shape& a, const Shape& b, PartitionSpec p, PartitionSpec q) {
    INFO(spec);
    const auto f = [&](const Array& x, const Array& y) { return mean(square(einsum(spec, x, y))); };
    return spread(with_gradients(f), {p, q}, numbers(a), numbers(b, 1));
  };
  CHECK(check("ij,jk->ik", {8, 16}, {16, 4}, P("d", "t"), P("t")) ==
        "all_reduce d 68\n"
        "all_reduce t 64\n");
  CHECK(check("bij,bjk->bik", {4, 8, 16}, {4, 16, 4}, P("t", "d"), P("t")) ==
        "all_reduce d 256\n"
        "all_reduce d+t 4\n");
  CHECK(check("bij,bjk->ik", {4, 8, 16}, {4, 16, 4}, P("t", "d"), P("t")) ==
        "all_reduce d 260\n"
        "all_reduce t 64\n");
  CHECK(check("ij,kj->ikj", {8, 16}, {4, 16}, P(none, "t"), P("d", "t")) ==
        "all_reduce d 128\n"
        "all_reduce d+t 4\n");
  CHECK(check("ij,ij->", {8, 16}, {8, 16}, P("d", "t"), P("d", "t")) == "all_reduce d+t 4\n");
  CHECK(check("i,j->ij", {8}, {16}, P("d"), P("t")) ==
        "all_reduce d 16\n"
        "all_reduce d+t 4\n"
        "all_reduce t 16\n");
  CHECK(check("abcd,dcef->abef", {4, 2, 4, 4}, {4, 4, 2, 4}, P("d", none, "t"), P(none, "t")) ==
        "all_reduce d 132\n"
        "all_reduce t 128\n");
  check("ij,jk->ki", {8, 16}, {16, 8}, P("t"), P("t"));
}

TEST_CASE("linear algebra, batch by batch") {
  const auto f = [](const Array& m, const Array& b) {
    const Array a = matmul(m, swapaxes(m, 1, 2)) + 4.0 * eye(4);
    const Array l = linalg::cholesky(a);
    return mean(square(linalg::solve(a, b))) + mean(square(l)) + mean(log(linalg::det(a)));
  };
  CHECK(spread(with_gradients(f), {P({"d", "t"}), P({"d", "t"})}, numbers({8, 4, 4}), numbers({8, 4, 2})) ==
        "all_reduce d+t 4\n");
}

TEST_CASE("a Fourier transform as a product of complex numbers") {
  const auto f = [](const Array& x) {
    const std::int64_t n = x.shape()[1];
    const Array k = arange(n, f32), angle = outer(k, k) * (-2 * M_PI / static_cast<double>(n));
    const Array w = complex(cos(angle), sin(angle));
    const Array y = dot(complex(x, zeros_like(x)), w);
    return std::tuple(y, sum(square(abs(y))));
  };
  const auto g = [f](const Array& x) { return grad([&](const Array& v) { return std::get<1>(f(v)); })(x); };
  CHECK(spread(f, {P("d")}, numbers({4, 8})) == "all_reduce d 4\n");
  CHECK(spread(g, {P("d")}, numbers({4, 8})) == "");
  spread(f, {P("d", "t")}, numbers({4, 8}));
  spread(g, {P("d", "t")}, numbers({4, 8}));
}

TEST_CASE("running sums along a split dim") {
  const auto f = [](const Array& x) {
    return mean(cumsum(x, {.axis = 1}) * cumlogsumexp(x, {.axis = 1}) +
                cummax(x, {.axis = 1}) * cumprod(x, {.axis = 0}));
  };
  spread(with_gradients(f), {P("d", "t")}, numbers({4, 16}));
}

TEST_CASE("a loop that goes on until all devices are content") {
  const auto f = [](const Array& a, const Array& b) {
    const auto go = [](const std::pair<Array, Array>& c) { return (c.second < 50) & (linalg::norm(c.first) > 1e-3); };
    const auto body = [&](const std::pair<Array, Array>& c) {
      return std::pair(c.first - 0.1 * (dot(a, c.first) - b) * 0.3, c.second + 1);
    };
    return while_loop(go, body, std::pair(b, Array(0)));
  };
  CHECK(spread(f, {P("t"), P("t")}, 0.1 * numbers({16, 16}) + 2.0 * eye(16), numbers({16})) ==
        "-1 times all_gather t 64\n"
        "-1 times all_reduce t 4\n");
  CHECK(spread(f, {P(none, "t"), P("t")}, 0.1 * numbers({16, 16}) + 2.0 * eye(16), numbers({16})) ==
        "-1 times all_reduce t 4\n"
        "-1 times reduce_scatter t 64\n");
}
