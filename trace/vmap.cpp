// vmap of flat calls: the function is traced on one example and batched as a program.
#include "sheaf/vmap.h"

#include <fmt/format.h>

#include <algorithm>

#include "passes/transforms.h"
#include "trace/axes.h"
#include "trace/mapped_axes.h"
#include "trace/messages.h"
#include "trace/recorder.h"
#include "trace/trace_call.h"

namespace sheaf::detail {
namespace {

void check_unmapped(const Traced& t, const std::vector<int>& in, const std::vector<int>& out,
                    const passes::MappedAxis& axis, Loc loc) {
  if (std::find(out.begin(), out.end(), -1) == out.end()) return;
  const passes::Batch b = passes::batch(t.function, in, axis);
  for (std::size_t j = 0; j < out.size(); ++j)
    if (out[j] < 0 && b.out_dims[j] >= 0)
      throw ShapeError(loc,
                       fmt::format("vmap: result {}{} depends on a mapped argument, so its out axis cannot be none", j,
                                   t.structure.paths[j]));
}

}  // namespace

std::vector<Array> vmap(const FlatCall& call, const VmapOptions& options, Structure& result,
                        std::vector<std::size_t> (*result_counts)(const Structure&)) {
  const Loc loc = UserLine::or_own(call.loc());
  const std::vector<LeafType> types = leaf_types(call);
  std::vector<int> in = leaf_axes("vmap", call, options.in, types, loc);
  const std::int64_t size = mapped_size("vmap", call, options.size, types, in, loc);
  const std::vector<LeafType> example = without_axes(types, in);
  check_is_no_mesh_axis(options.axis_name, "vmap", loc);
  Traced t = [&] {
    const AxisScope scope(options.axis_name, size);
    return trace_call(call, {.what = "vmap", .name = "vmap", .loc = loc}, example);
  }();
  passes::MappedAxis axis(size, options.axis_name);
  if (!options.spmd_axis_name.empty()) axis.spread = {options.spmd_axis_name};
  in.resize(t.function->params().size(), -1);
  const std::vector<int> out = result_axes("vmap", options.out, t, result_counts(t.structure), loc);
  check_unmapped(t, in, out, axis, loc);
  const ir::FunctionRef f = passes::vmap(t.function, in, out, axis);
  result = std::move(t.structure);
  return apply_function(f, inputs_of(call, t), loc);
}

}  // namespace sheaf::detail
