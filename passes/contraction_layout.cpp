// Permutations of a contraction's result, judged by the role of each dim: batch, row or column.
#include "passes/contraction_layout.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/schedule.h"

namespace sheaf::passes {

using namespace ir;

namespace {

// The step in memory from one element of v to the next along `dim`.
std::int64_t step_along(Value v, std::size_t dim, absl::FunctionRef<bool(Value)> is_stored) {
  if (!v.eqn() || is_stored(v) || !is_strided_view(*v.eqn())) return strides_of(v.dims())[dim];
  const Value from = v.eqn()->in(0);
  const Lowering l = v.eqn()->op->lower(*v.eqn());
  if (const auto* windows = std::get_if<lowering::Windows>(&l)) {
    const std::size_t rank = from.dims().size();
    if (dim >= rank)
      return windows->dilations[dim - rank] *
             step_along(from, static_cast<std::size_t>(windows->dims[dim - rank]), is_stored);
    const auto at = std::find(windows->dims.begin(), windows->dims.end(), static_cast<std::int64_t>(dim));
    const std::int64_t stride = at == windows->dims.end() ? 1 : windows->strides[at - windows->dims.begin()];
    return stride * step_along(from, dim, is_stored);
  }
  const auto& view = std::get<lowering::View>(l);
  std::int64_t step = 0;
  for (std::size_t d = 0; d < view.source.size(); ++d)
    if (view.source[d] == static_cast<int>(dim)) step += view.stride[d] * step_along(from, d, is_stored);
  return step;
}

}  // namespace

bool keeps_columns(const Eqn& dot, const Eqn& transpose, absl::FunctionRef<bool(Value)> is_stored) {
  const auto& a = dot.attrs<ops::Dot>();
  const auto batch = std::ssize(a.lhs_batch);
  const std::int64_t rows_end = dot.in(0).rank() - std::ssize(a.lhs);  // the batch, then the rows
  std::vector<std::int64_t> perm;
  for (std::int64_t d : transpose.attrs<ops::Transpose>().perm)
    if (dot.out().dims()[d] != 1) perm.push_back(d);
  if (perm.empty()) return true;
  const auto is_batch = [&](std::int64_t d) { return d < batch; };
  const auto is_row = [&](std::int64_t d) { return d >= batch && d < rows_end; };
  // Rows are neighbours in their order, and so are columns.
  for (const auto& run : {std::pair(batch, rows_end), {rows_end, std::int64_t{dot.out().rank()}}}) {
    const auto is_of_run = [&](std::int64_t d) { return d >= run.first && d < run.second; };
    const auto first = std::find_if(perm.begin(), perm.end(), is_of_run);
    const auto last = std::find_if_not(first, perm.end(), is_of_run);
    if (!std::is_sorted(first, last) || std::any_of(last, perm.end(), is_of_run)) return false;
  }
  const std::int64_t innermost = perm.back();
  const bool has_columns = std::any_of(perm.begin(), perm.end(), [&](auto d) { return !is_batch(d) && !is_row(d); });
  if (has_columns) return innermost >= rows_end;
  if (is_row(innermost)) return true;
  return step_along(dot.in(0), static_cast<std::size_t>(a.lhs_batch[innermost]), is_stored) == 1 &&
         step_along(dot.in(1), static_cast<std::size_t>(a.rhs_batch[innermost]), is_stored) == 1;
}

bool has_short_windows(Value v) {
  if (!is_sliding(v)) return false;
  while (v.eqn()->op != &ops::sliding_windows) v = v.eqn()->in(0);
  const auto& windows = v.eqn()->attrs<ops::SlidingWindows>();
  std::int64_t elements = 1, places = 1;
  for (const std::int64_t size : windows.sizes) elements *= size;
  for (const std::int64_t d : windows.dims) places *= v.dims()[d];
  return elements <= places;
}

}  // namespace sheaf::passes
