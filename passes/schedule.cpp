// Chooses the template of each kernel by what its body needs: a nest of its own, rows, or only index maps. Invariant:
// the choice depends on the body alone, so equal bodies become equal kernels wherever they stand.
#include "passes/schedule.h"

#include <algorithm>
#include <optional>

#include "ir/builder.h"
#include "ir/columns.h"
#include "ir/literal.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "passes/emit.h"

namespace sheaf::passes {

using namespace ir;

namespace {

// Rows longer than a leaf of the summation order (docs/numerics.md) can be split over threads, and are where there are
// fewer rows than this.
constexpr std::int64_t kLeaf = 16384;
constexpr std::int64_t kManyRows = 64;
// A shorter run along either dim of a tile leaves most of each cache line unused anyway.
constexpr std::int64_t kShortestTile = 8;
constexpr std::int64_t kShortestVector = 4;

// How a value's elements lie in one of the kernel's operands: the step in memory along each dim of the value.
using Steps = std::vector<std::int64_t>;
using Accesses = std::vector<Steps>;

void add(Accesses& to, Steps steps) {
  if (std::find(to.begin(), to.end(), steps) == to.end()) to.push_back(std::move(steps));
}

// A view's dims take their steps from the operand's dims they run along.
Steps through_view(const lowering::View& view, const Steps& in, std::size_t rank) {
  Steps out(rank, 0);
  for (std::size_t d = 0; d < in.size(); ++d)
    if (view.source[d] >= 0) out[view.source[d]] += in[d] * view.stride[d];
  return out;
}

// Of operand k of e, as the result of e sees it; nothing where that takes more than one step per dim.
std::optional<Steps> seen_through(const Eqn& e, const Lowering& l, int k, const Steps& in) {
  using namespace lowering;
  const Shape& dims = e.out().dims();
  if (const auto* view = std::get_if<View>(&l)) return through_view(*view, in, dims.size());
  if (std::holds_alternative<Reshape>(l)) {
    if (in == strides_of(e.in(k).dims())) return strides_of(dims);
    return std::nullopt;
  }
  const bool keeps_positions = std::holds_alternative<Map>(l) || std::holds_alternative<Pad>(l) ||
                               std::holds_alternative<Concatenate>(l) || std::holds_alternative<UpdateSlice>(l);
  if (keeps_positions && in.size() == dims.size()) return in;
  return std::nullopt;
}

// Every way the elements of v lie in an operand of the kernel, `of` being known for what v is made of.
Accesses accesses_of(const Eqn& e, const ValueTable<Accesses>& of) {
  Accesses all;
  if (e.op == &ops::constant) return all;
  const Lowering l = e.op->lower(e);
  for (int k = 0; k < e.num_in(); ++k)
    for (const Steps& in : of[e.in(k)])
      if (std::optional<Steps> steps = seen_through(e, l, k, in)) add(all, *std::move(steps));
  return all;
}

// Dims from d outwards that lie in memory like one dim: how many elements that is. Stops before dim `end`.
std::int64_t run_from(const Shape& dims, const Steps& steps, std::int64_t d, std::int64_t end) {
  std::int64_t run = dims[d];
  for (std::int64_t o = d - 1; o > end && steps[o] == steps[d] * run; --o) run *= dims[o];
  return run;
}

// The pair of dims to cut into tiles: an operand runs along the outer one while the result runs along the inner one.
//   transpose f32[500, 1000] -> f32[1000, 500]: [0, 1]
std::optional<std::vector<std::int64_t>> transposed_dims(const Shape& dims, const Steps& steps) {
  auto inner = static_cast<std::int64_t>(dims.size()) - 1;
  while (inner > 0 && dims[inner] == 1) --inner;
  if (inner <= 0 || steps[inner] == 0 || steps[inner] == 1) return std::nullopt;
  for (std::int64_t outer = 0; outer < inner; ++outer)
    if (steps[outer] == 1 && dims[outer] > 1 && run_from(dims, steps, outer, -1) >= kShortestTile &&
        run_from(dims, steps, inner, outer) >= kShortestVector)
      return std::vector<std::int64_t>{outer, inner};
  return std::nullopt;
}

std::vector<std::int64_t> tile_of(const Function& body) {
  for (Value r : body.results())
    if (r.dims() != body.results()[0].dims()) return {};
  ValueTable<Accesses> of(body);
  for (Value p : body.params()) of[p] = {strides_of(p.dims())};
  for (const Eqn* e : body.eqns())
    for (Value v : e->outs()) of[v] = accesses_of(*e, of);
  for (Value r : body.results())
    for (const Steps& steps : of[r])
      if (auto tile = transposed_dims(r.dims(), steps)) return *tile;
  return {};
}

// Totals of columns alone are better made by blocks of columns than by rows.
bool needs_rows(const Function& body, const Rows& rows) {
  for (const Eqn* e : body.eqns()) {
    if (nest_of(*e) != Nest::reduction) continue;
    const Lowering l = e->op->lower(*e);
    const auto* arg = std::get_if<lowering::ArgReduce>(&l);
    std::vector<std::int64_t> over = arg ? std::vector<std::int64_t>{arg->dim} : std::get<lowering::Reduce>(l).dims;
    std::sort(over.begin(), over.end());
    if (!are_leading(over, e->in(0).dims().size())) return true;
  }
  const Values results = body.results();
  return std::any_of(results.begin(), results.end(),
                     [&](Value r) { return r.type().num_elements() == rows.count * rows.length; });
}

// One unit takes a row through all reductions, unless the rows are so few and long that each is better split.
Schedule schedule_of_reductions(const Function& body) {
  const absl::StatusOr<Rows> rows = rows_of(body);
  const bool are_whole = rows.ok() && (rows->length <= kLeaf || rows->count >= kManyRows);
  return are_whole && needs_rows(body, *rows) ? Schedule::row : Schedule::reduce;
}

Schedule schedule_of(const Function& body) {
  for (const Eqn* e : body.eqns()) {
    switch (nest_of(*e)) {
      case Nest::none: break;
      case Nest::reduction: return schedule_of_reductions(body);  // that of a product's columns stands behind it
      case Nest::sort: return Schedule::sort;
      case Nest::scatter: return Schedule::scatter;
      case Nest::recurrence: return Schedule::recurrence;
      case Nest::contract: return Schedule::contract;
      case Nest::attention: return Schedule::attention;
      case Nest::host: return Schedule::host;
    }
  }
  return Schedule::map;
}

// A small window: worth a pass of its own over it, for the sake of leaving the rest where it is.
bool is_update(const Function& body) {
  const Eqn* update = body.results()[0].eqn();
  return body.results().size() == 1 && changed_param(body, 0) >= 0 && update->op == &ops::dynamic_update_slice &&
         is_small_update(*update);
}

ops::Kernel scheduled(const Eqn& e) {
  ops::Kernel kernel = e.attrs<ops::Kernel>();
  kernel.schedule = is_update(*e.regions[0]) ? Schedule::update : schedule_of(*e.regions[0]);
  kernel.tile.clear();
  if (kernel.schedule == Schedule::map) kernel.tile = tile_of(*e.regions[0]);
  if (!kernel.tile.empty()) kernel.schedule = Schedule::tile_transpose;
  return kernel;
}

}  // namespace

FunctionRef schedule(const FunctionRef& f) {
  return with_kernels(*f, [](const Eqn& e) {
    const ops::Kernel kernel = scheduled(e);
    const bool is_host = kernel.schedule == Schedule::host;
    return PlannedKernel{
        kernel, is_host ? with_regions(*e.regions[0], in_regions(host_step(*e.regions[0]), schedule)) : e.regions[0]};
  });
}

}  // namespace sheaf::passes
