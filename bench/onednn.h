// oneDNN as the bar for convolutions, loaded when the program runs; absent where it, or its header, is not installed.
#pragma once

#include <cstdint>
#include <functional>

namespace bench {

/// x: [batch, extent, extent, in], kernel: [size, size, in, out], SAME padding for odd sizes, f32.
struct ConvShape {
  std::int64_t batch, extent, in, out, size, stride;
  std::int64_t padding() const { return size / 2; }
  std::int64_t result_extent() const { return (extent + 2 * padding() - size) / stride + 1; }
  double flops() const {
    return 2.0 * static_cast<double>(batch * result_extent() * result_extent() * out * size * size * in);
  }
};
enum class ConvPass { forward, input_gradient, kernel_gradient };

/// The pass over these buffers: images and results channels last, as the user has them; the kernel in whatever order
/// oneDNN likes best, reordered once and outside the time. `to` gets the pass's result, a kernel as [size, size, in,
/// out]. Empty: not installed, or refused.
struct OneDnnConv {
  std::function<void()> run;
  std::function<void(float* to)> read_result;
};
OneDnnConv onednn_conv(const ConvShape& shape, ConvPass pass, float* x, float* kernel, float* y);

}  // namespace bench
