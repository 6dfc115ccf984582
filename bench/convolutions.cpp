// Convolutions of the shapes that LeNet, ResNet and MobileNet have, forward and both gradients, against oneDNN.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <algorithm>

#include "measure.h"
#include "onednn.h"

namespace bench {
namespace {

using namespace sheaf;

Work ours(const ConvShape& s, ConvPass pass, const Array& x, const Array& kernel, const Array& y, Array& result) {
  const std::int64_t p = s.padding(), high = (s.result_extent() - 1) * s.stride + s.size - p - s.extent;
  const Conv options{.strides = {s.stride, s.stride},
                     .padding = {{p, high}, {p, high}},
                     .groups = s.groups,
                     .input = s.channels_first ? "NCHW" : "NHWC"};
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
  const auto images = [&](std::int64_t extent, std::int64_t channels) {
    return s.channels_first ? Shape{s.batch, channels, extent, extent} : Shape{s.batch, extent, extent, channels};
  };
  const Array x = wave_array(1, images(s.extent, s.in)),
              kernel = wave_array(2, {s.size, s.size, s.in / s.groups, s.out}), y = wave_array(3, images(e, s.out));
  Array result;
  const Work work = ours(s, pass, x, kernel, y, result);
  work();

  Floats a = floats_of(x), b = floats_of(kernel), c = floats_of(y);
  std::vector<Side> others;
  if (const OneDnnConv reference = onednn_conv(s, pass, a.data(), b.data(), c.data()); reference.run) {
    reference.run();
    Floats theirs(static_cast<std::size_t>(result.size()));
    reference.read_result(theirs.data());
    check_agreement(result, theirs, 1e-4);
    others.push_back(side("oneDNN", reference.run, options));
  }
  constexpr const char* kPasses[] = {"forward", "input_gradient", "kernel_gradient"};
  Result r = compare(work, std::move(others), options,
                     {fmt::format("conv {} {} {} {} {} {} {} {:d} {}", s.batch, s.extent, s.in, s.out, s.size, s.stride,
                                  s.groups, s.channels_first, kPasses[static_cast<int>(pass)]),
                      values_of([&] { return result; })});
  r.note = fmt::format("{:.0f} GF/s", s.flops() / r.ours * 1e-9);
  return r;
}

// "conv 3 x 3, 64 to 128, 28 x 28, batch 8, stride 2"
std::string name_of(const ConvShape& s) {
  std::string name = fmt::format("conv {0} x {0}, ", s.size);
  if (s.groups > 1 && s.groups == s.in) name += fmt::format("{} each alone", s.in);
  else if (s.in == s.out) name += fmt::format("{}", s.in);
  else name += fmt::format("{} to {}", s.in, s.out);
  name += fmt::format(", {0} x {0}, batch {1}", s.extent, s.batch);
  if (s.stride > 1) name += fmt::format(", stride {}", s.stride);
  return s.channels_first ? name + ", NCHW" : name;
}

}  // namespace

std::vector<Row> convolution_rows() {
  static constexpr ConvShape kShapes[] = {
      // LeNet
      {.batch = 128, .extent = 28, .in = 1, .out = 32, .size = 5},
      {.batch = 128, .extent = 14, .in = 32, .out = 64, .size = 5},
      // ResNet
      {.batch = 4, .extent = 224, .in = 3, .out = 64, .size = 7, .stride = 2},
      {.batch = 8, .extent = 56, .in = 64, .out = 64, .size = 3},
      {.batch = 1, .extent = 28, .in = 128, .out = 128, .size = 3},
      {.batch = 32, .extent = 28, .in = 128, .out = 128, .size = 3},
      {.batch = 1, .extent = 14, .in = 256, .out = 256, .size = 3},
      {.batch = 32, .extent = 14, .in = 256, .out = 256, .size = 3},
      {.batch = 8, .extent = 7, .in = 512, .out = 512, .size = 3},
      {.batch = 8, .extent = 56, .in = 128, .out = 128, .size = 3, .stride = 2},
      {.batch = 8, .extent = 56, .in = 64, .out = 256, .size = 1},
      {.batch = 1, .extent = 14, .in = 256, .out = 64, .size = 1},
      {.batch = 8, .extent = 56, .in = 128, .out = 256, .size = 1, .stride = 2},
      {.batch = 8, .extent = 28, .in = 128, .out = 128, .size = 3, .channels_first = true},
      {.batch = 8, .extent = 28, .in = 128, .out = 256, .size = 1, .channels_first = true},
      // MobileNet
      {.batch = 8, .extent = 56, .in = 128, .out = 128, .size = 3, .groups = 128},
      {.batch = 8, .extent = 56, .in = 128, .out = 128, .size = 3, .stride = 2, .groups = 128},
      {.batch = 8, .extent = 28, .in = 192, .out = 192, .size = 7, .groups = 192},
  };
  constexpr const char* kPasses[] = {"", ", d input", ", d kernel"};
  std::vector<Row> rows;
  for (const ConvShape& s : kShapes)
    for (int pass = 0; pass < 3; ++pass)
      rows.push_back({name_of(s) + kPasses[pass], "", [s, pass](const Options& options) {
                        return convolution(s, static_cast<ConvPass>(pass), options);
                      }});
  return rows;
}

}  // namespace bench
