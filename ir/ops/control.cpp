// Ops that run a region: call (a function of the module) and kernel (a step of a plan). Their types are the region's
// own: operands match its parameters one to one, results are its results.
#include <fmt/format.h>

#include "ir/eval.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/ops/dims.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<std::vector<Type>> infer_from_region(const Eqn& e) {
  if (e.regions.size() != 1)
    return absl::InvalidArgumentError(fmt::format("takes 1 region, not {}", e.regions.size()));
  const Function& f = *e.regions[0];
  const std::vector<Type> wanted = f.param_types();
  if (wanted.size() != e.operands.size())
    return absl::InvalidArgumentError(fmt::format("{} takes {} arguments, not {}", f.name(), wanted.size(), e.num_in()));
  for (int k = 0; k < e.num_in(); ++k)
    if (e.in(k).type() != wanted[k])
      return absl::InvalidArgumentError(fmt::format("argument {} of {} must be {}, not {}", k, f.name(),
                                                    to_string(wanted[k]), to_string(e.in(k).type())));
  return f.result_types();
}

absl::StatusOr<std::vector<Type>> infer_kernel(const Eqn& e) {
  const Kernel& a = e.attrs<Kernel>();
  absl::StatusOr<std::vector<Type>> types = infer_from_region(e);
  if (!types.ok()) return types;
  for (const auto& [field, list] : {std::pair("offsets", &a.offsets), std::pair("in_place", &a.in_place)})
    if (!list->empty() && list->size() != types->size())
      return absl::InvalidArgumentError(
          fmt::format("{}={} must have one entry for each of the {} results", field, to_string(*list), types->size()));
  for (std::int64_t k : a.in_place)
    if (k < -1 || k >= e.num_in())
      return absl::InvalidArgumentError(fmt::format("in_place={} must name operands or -1", to_string(a.in_place)));
  if (absl::Status s = check_schedule(a, *e.regions[0]); !s.ok()) return s;
  return types;
}

void eval_region(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  Literals results = sheaf::ir::eval(*e.regions[0], in);
  std::move(results.begin(), results.end(), out.begin());
}

// All the work of the region, but only its operands and results moved: what is inside a kernel stays in registers.
Cost region_cost(const Eqn& e) {
  Cost c;
  for (const Eqn* inner : e.regions[0]->eqns()) c.flops += cost_of(*inner).flops;
  for (Value v : e.operands) c.bytes += static_cast<double>(v.type().bytes());
  for (Value v : e.outs()) c.bytes += static_cast<double>(v.type().bytes());
  return c;
}

Cost call_cost(const Eqn& e) {
  Cost c;
  for (const Eqn* inner : e.regions[0]->eqns()) {
    const Cost part = cost_of(*inner);
    c.flops += part.flops;
    c.bytes += part.bytes;
  }
  return c;
}

}  // namespace

constinit const OpDef call = {
    .name = "call",
    .doc = "Runs a function of the module, `call @f %x, %y`, on the operands. Derivatives and batching are those of the "
           "callee.",
    .num_results = -1,
    .callee_by_name = true,
    .infer = infer_from_region,
    .lower = [](const Eqn&) -> Lowering { return lowering::Region{}; },
    .eval = eval_region,
    .cost = call_cost,
};

constinit const OpDef kernel = {
    .name = "kernel",
    .doc = "A step of a plan: the region is computed by one kernel of the template `schedule`; `tile` is the pair of "
           "dims that tile_transpose cuts. `offsets` places the results in the arena; `in_place[j]` is the operand "
           "result j overwrites, or -1.",
    .num_results = -1,
    .attrs = attrs_of<Kernel>(),
    .infer = infer_kernel,
    .no_jvp = Absent::plan_only,
    .lower = [](const Eqn&) -> Lowering { return lowering::Region{}; },
    .eval = eval_region,
    .cost = region_cost,
};

}  // namespace sheaf::ir::ops
