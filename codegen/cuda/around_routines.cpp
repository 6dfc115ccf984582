// One text for both precisions. None of this is worth more than plain loops: the routines take far longer.
#include "codegen/cuda/around_routines.h"

#include <fmt/format.h>

#include "codegen/cuda/emit.h"
#include "codegen/cuda/prelude.h"
#include "codegen/fingerprint.h"
#include "codegen/kir/kir.h"

namespace sheaf::codegen {
namespace {

constexpr const char* kEntries[] = {"check", "copy", "turned", "permutation"};

/// {0}: the type; {1}: the beginning of the symbols.
constexpr const char* kText = R"(
extern "C" __global__ void {1}_check(const {0}* in, int rows, int columns, int row_stride, long long batch_stride, int part, int* is_bad) {{
  const {0}* matrix = in + blockIdx.x * batch_stride;
  int bad = 0;
  for (long long at = threadIdx.x; at < (long long)rows * columns; at += blockDim.x) {{
    const int i = (int)(at / columns), j = (int)(at % columns);
    if (part == 1 ? j < i : part == 2 ? j > i : part == 3 && i != j) continue;
    const {0} x = matrix[(long long)i * row_stride + j];
    if (!(x - x == 0)) bad = 1;
  }}
  bad = __syncthreads_or(bad);
  if (threadIdx.x == 0) is_bad[blockIdx.x] = bad;
}}
extern "C" __global__ void {1}_copy(const {0}* in, {0}* out, int rows, int columns, long long in_row, long long in_column, long long in_batch, long long out_row, long long out_column, long long out_batch, int part, const int* is_bad, const int* info, int bad_is_nan, const int* turned, int turns) {{
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= (long long)rows * columns) return;
  const int g = (int)blockIdx.y, i = (int)(at / columns), j = (int)(at % columns);
  {0} x = in[g * in_batch + i * in_row + j * in_column];
  if (turns == 1 && turned[(long long)g * columns + j]) x = -x;
  if (turns == 2 && turned[(long long)g * rows + i]) x = -x;
  if (part == 1 ? j < i : part == 2 ? j > i : part == 3 && i != j) x = 0;
  if ((is_bad && is_bad[g] != 0) || (info && info[g] != 0)) x = bad_is_nan ? ({0})__uint_as_float(0x7fc00000u) : 0;
  out[g * out_batch + i * out_row + j * out_column] = x;
}}
extern "C" __global__ void {1}_turned(const {0}* in, int components, int vectors, long long component, long long vector, long long batch_stride, int* turned) {{
  const int j = (int)(blockIdx.x * blockDim.x + threadIdx.x), g = (int)blockIdx.y;
  if (j >= vectors) return;
  const {0}* at = in + g * batch_stride + j * vector;
  double largest = 0;
  for (int i = 0; i < components; ++i) {{
    const double x = at[i * component], size = x < 0 ? -x : x;
    if (size > largest) largest = size;
  }}
  int is_turned = 0;
  for (int i = 0; i < components; ++i) {{
    const double x = at[i * component], size = x < 0 ? -x : x;
    if (size >= 0.3 * largest) {{
      is_turned = x < 0;
      break;
    }}
  }}
  turned[(long long)g * vectors + j] = is_turned;
}}
extern "C" __global__ void {1}_permutation(int* pivots, int* permutation, int pivot_count, int rows, int batch) {{
  const int g = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (g >= batch) return;
  int* p = pivots + (long long)g * pivot_count;
  int* order = permutation + (long long)g * rows;
  for (int i = 0; i < rows; ++i) order[i] = i;
  for (int k = 0; k < pivot_count; ++k) {{
    const int with = p[k] - 1, moved = order[with];
    p[k] = with;
    order[with] = order[k];
    order[k] = moved;
  }}
}}
)";

}  // namespace

KernelCode around_routines(DType dtype, const Target& target) {
  const std::string symbol = fmt::format("sheaf_around_routines_{}", name(dtype));
  KernelCode code{.name = fmt::format("around_routines_{}", name(dtype)),
                  .key = "",
                  .target = target,
                  .kir = nullptr,
                  .functions = fmt::format(kText, cuda_type(dtype), symbol),
                  .phases = {}};
  code.key = fingerprint(fmt::format("{}\n{}", key_of(target), cuda_program(code.functions)));
  auto nest = std::make_shared<kir::Kernel>();  // there is none
  nest->name = code.name;
  code.kir = std::move(nest);
  for (const char* entry : kEntries)
    code.phases.push_back({.entry = fmt::format("{}_{}", symbol, entry), .threads = kAroundThreads});
  return code;
}

}  // namespace sheaf::codegen
