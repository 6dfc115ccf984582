// OpenBLAS as the bar for matrix products, loaded when the program runs, so that the benchmark builds without it.
// Absent where it is not installed; the rows say so.
#pragma once

#include <string>

namespace bench {

struct OpenBlas {
  /// Row-major out[m, n] = x[m, k] y[k, n], where a transposed operand is stored the other way round.
  void multiply(bool transpose_x, bool transpose_y, int m, int n, int k, const float* x, const float* y,
                float* out) const;
  std::string core;  // the kernel it has chosen, "Cooperlake"

  using Sgemm = void (*)(int order, int transpose_x, int transpose_y, int m, int n, int k, float alpha, const float* x,
                         int ldx, const float* y, int ldy, float beta, float* out, int ldo);
  Sgemm sgemm = nullptr;
};

/// Null: not installed.
const OpenBlas* openblas();

/// Starts the program again, once, with the environment in which OpenBLAS picks the best kernels for this CPU.
void start_with_best_openblas(char** argv);

}  // namespace bench
