// Convolutions of the shapes that LeNet and ResNet have, forward and both gradients, against oneDNN.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <algorithm>

#include "measure.h"
#include "onednn.h"

namespace bench {
namespace {

using namespace sheaf;

Floats floats_of(const Array& x) {
  const std::vector<float> values = x.to_vector<float>();
  Floats out(values.size());
  std::copy(values.begin(), values.end(), out.data());
  return out;
}

Work ours(const ConvShape& s, ConvPass pass, const Array& x, const Array& kernel, const Array& y, Array& result) {
  const std::int64_t p = s.padding(), high = (s.result_extent() - 1) * s.stride + s.size - p - s.extent;
  const Conv options{.strides = {s.stride, s.stride}, .padding = {{p, high}, {p, high}}};
  const auto loss = [options](Array a, Array b, Array c) { return sum(conv(a, b, options) * c); };
  auto forward = jit([options](Array a, Array b) { return conv(a, b, options); }, {.name = "conv"});
  auto input = jit([loss](Array a, Array b, Array c) { return grad([&](Array v) { return loss(v, b, c); })(a); },
                   {.name = "conv_input_gradient"});
  auto weights = jit([loss](Array a, Array b, Array c) { return grad([&](Array v) { return loss(a, v, c); })(b); },
                     {.name = "conv_kernel_gradient"});
  return [=, &result]() mutable {
    switch (pass) {
      case ConvPass::forward: result = forward(x, kernel); break;
      case ConvPass::input_gradient: result = input(x, kernel, y); break;
      case ConvPass::kernel_gradient: result = weights(x, kernel, y); break;
    }
    result.wait();
  };
}

Result convolution(const ConvShape& s, ConvPass pass, const Options& options) {
  const std::int64_t e = s.result_extent();
  const Array x = random::normal(random::key(1), {s.batch, s.extent, s.extent, s.in});
  const Array kernel = random::normal(random::key(2), {s.size, s.size, s.in, s.out});
  const Array y = random::normal(random::key(3), {s.batch, e, e, s.out});
  Array result;
  const Work work = ours(s, pass, x, kernel, y, result);
  const auto rate = [&](double seconds) { return fmt::format("{:.0f} GF/s", s.flops() / seconds * 1e-9); };

  Floats a = floats_of(x), b = floats_of(kernel), c = floats_of(y);
  const OneDnnConv reference = onednn_conv(s, pass, a.data(), b.data(), c.data());
  if (!reference.run) {
    const double seconds = seconds_of(work, options);
    return {.ours = seconds, .note = rate(seconds) + ", oneDNN is not installed"};
  }
  work();
  reference.run();
  Floats theirs(static_cast<std::size_t>(result.size()));
  reference.read_result(theirs.data());
  check_agreement(result, theirs, 1e-4);
  Result r = compare(work, reference.run, options);
  r.note = rate(r.ours);
  return r;
}

}  // namespace

std::vector<Row> convolution_rows() {
  struct Named {
    const char* name;
    ConvShape shape;
  };
  const Named shapes[] = {{"LeNet 1, 28 x 28, 5 x 5, 1 to 32", {128, 28, 1, 32, 5, 1}},
                          {"LeNet 2, 14 x 14, 5 x 5, 32 to 64", {128, 14, 32, 64, 5, 1}},
                          {"ResNet 56 x 56, 3 x 3, 64", {8, 56, 64, 64, 3, 1}},
                          {"ResNet 28 x 28, 3 x 3, 128", {8, 28, 128, 128, 3, 1}},
                          {"ResNet 14 x 14, 3 x 3, 256", {8, 14, 256, 256, 3, 1}},
                          {"ResNet 7 x 7, 3 x 3, 512", {8, 7, 512, 512, 3, 1}},
                          {"ResNet 56 x 56, 1 x 1, 64 to 256", {8, 56, 64, 256, 1, 1}},
                          {"ResNet 56 x 56, 3 x 3, 128, stride 2", {8, 56, 128, 128, 3, 2}}};
  constexpr const char* kPasses[] = {"", ", d input", ", d kernel"};
  std::vector<Row> rows;
  for (const Named& n : shapes)
    for (int pass = 0; pass < 3; ++pass)
      rows.push_back({fmt::format("conv {}{}", n.name, kPasses[pass]), "oneDNN", [n, pass](const Options& options) {
                        return convolution(n.shape, static_cast<ConvPass>(pass), options);
                      }});
  return rows;
}

}  // namespace bench
