// The kernels around a routine of a library of linear algebra on a GPU: they bring matrices into its order and back,
// turn vectors to the sign that ir/orientation.h chooses, and make NaN of what has no factors, without the host.
#pragma once

#include "codegen/program.h"

namespace sheaf::codegen {

/// Which of the functions, in the order of the kernel's phases; each for all matrices of a batch.
enum class AroundRoutine : int {
  /// Is any element not finite? A block per matrix.
  ///   (const T* in, int rows, int columns, int row_stride, long long batch_stride, int part, int* is_bad)
  check,
  /// Elements of `part`, zeros elsewhere; threads over a matrix, blocks.y over the batch.
  ///   (const T* in, T* out, int rows, int columns, long long in_row, in_column, in_batch, out_row, out_column,
  ///   out_batch,
  ///    int part, const int* is_bad, const int* info, int bad_is_nan, const int* turned, int turns)
  /// A matrix that is bad, or whose info is not 0, becomes all NaN, or zeros.
  copy,
  /// Which vectors have to be negated. A thread per vector, blocks.y over the batch.
  ///   (const T* in, int components, int vectors, long long component, long long vector, long long batch_stride,
  ///    int* turned)
  turned,
  /// Pivots from one on to pivots from zero on, and the permutation that they come to. A thread per matrix.
  ///   (int* pivots, int* permutation, int pivot_count, int rows, int batch)
  permutation,
};

/// Of `check` and `copy`.
enum class Part : int { all, upper, lower, diagonal };

/// Of `copy`: what `turned` counts.
enum class Turns : int { none, columns, rows };

inline constexpr int kAroundThreads = 256;

KernelCode around_routines(DType dtype, const Target& target);

}  // namespace sheaf::codegen
