// oneDNN as the bar for convolutions and products, loaded when the program runs; absent where it, or its header, is not
// installed.
#pragma once

#include <cstdint>
#include <functional>

#include "sheaf/array.h"

namespace bench {

/// x: [batch, extent, extent, in], or [batch, in, extent, extent]; kernel: [size, size, in / groups, out]. Padding is
/// SAME for odd sizes, f32.
struct ConvShape {
  std::int64_t batch, extent, in, out, size, stride = 1, groups = 1;
  bool channels_first = false;
  std::int64_t padding() const { return size / 2; }
  std::int64_t result_extent() const { return (extent + 2 * padding() - size) / stride + 1; }
  double flops() const {
    return 2.0 * static_cast<double>(batch * result_extent() * result_extent() * out * size * size * in / groups);
  }
};
enum class ConvPass { forward, input_gradient, kernel_gradient };

/// The pass over these buffers: images and results as the user has them; the kernel in whatever order
/// oneDNN likes best, reordered once and outside the time. `to` gets the pass's result, a kernel as the operand.
/// Empty: not installed, or refused.
struct OneDnnConv {
  std::function<void()> run;
  std::function<void(float* to)> read_result;
};
OneDnnConv onednn_conv(const ConvShape& shape, ConvPass pass, float* x, float* kernel, float* y);

/// Row-major out[rows, columns] = x[rows, terms] y[terms, columns], where a transposed operand is stored the other way
/// round. Elements: f32; bf16, and f32 for the result; or i8, and i32 for the result.
struct ProductShape {
  std::int64_t rows, columns, terms;
  sheaf::DType dtype = sheaf::f32;
  bool transposes_x = false, transposes_y = false;
  double flops() const { return 2.0 * static_cast<double>(rows * columns * terms); }
};
/// Operands as the user has them. Empty: not installed, or refused.
std::function<void()> onednn_product(const ProductShape& shape, void* x, void* y, void* out);

}  // namespace bench
