// Ops that say how derivatives are to be taken, and compute nothing of their own: checkpoint, custom rules, and the
// barrier that keeps a recomputation apart from what it repeats. Once the transforms are done they are replaced by the
// region that computes their value.
#include "ir/manual.h"
#include "ir/ops/regions.h"
#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {
namespace {

Lowering lower_region(const Eqn&) { return lowering::Region{}; }

absl::StatusOr<std::vector<Type>> infer_checkpoint(const Eqn& e) {
  if (absl::Status s = region_count(e, 1); !s.ok()) return s;
  if (absl::Status s = takes(*e.regions[0], e.in_types()); !s.ok()) return s;
  return e.regions[0]->result_types();
}

std::vector<Type> differentiable(const std::vector<Type>& types) {
  std::vector<Type> floats;
  for (Type t : types)
    if (is_differentiable(t.dtype())) floats.push_back(t);
  return floats;
}

absl::Status captured_fit(const Eqn& e, int consts) {
  if (consts >= 0 && consts <= e.num_in()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("consts={} does not fit {} operands", consts, e.num_in()));
}

// Operands, tangents of the floats past `consts` -> results, tangents of floats.
absl::Status is_forward_rule(const Function& rule, const Eqn& e, int consts) {
  const std::vector<Type> in = e.in_types(), out = e.regions[0]->result_types();
  const std::vector<Type> args = slice_of(in, consts, in.size() - consts);
  if (absl::Status s = takes(rule, joined(in, differentiable(args))); !s.ok()) return s;
  return returns(rule, joined(out, differentiable(out)));
}

absl::StatusOr<std::vector<Type>> infer_custom_jvp(const Eqn& e) {
  const int consts = e.attrs<CustomJvp>().consts;
  if (absl::Status s = region_count(e, 2); !s.ok()) return s;
  if (absl::Status s = captured_fit(e, consts); !s.ok()) return s;
  if (absl::Status s = takes(*e.regions[0], e.in_types()); !s.ok()) return s;
  if (absl::Status s = is_forward_rule(*e.regions[1], e, consts); !s.ok()) return s;
  return e.regions[0]->result_types();
}

absl::StatusOr<std::vector<Type>> infer_custom_vjp(const Eqn& e) {
  const int consts = e.attrs<CustomVjp>().consts;
  if (e.regions.size() != 4)
    if (absl::Status s = region_count(e, 3); !s.ok()) return s;
  if (absl::Status s = captured_fit(e, consts); !s.ok()) return s;
  const Function &f = *e.regions[0], &forward = *e.regions[1], &backward = *e.regions[2];
  const std::vector<Type> in = e.in_types(), out = f.result_types(), forward_out = forward.result_types();
  if (absl::Status s = takes(f, in); !s.ok()) return s;
  if (absl::Status s = takes(forward, in); !s.ok()) return s;
  if (forward_out.size() < out.size() || slice_of(forward_out, 0, out.size()) != out)
    return absl::InvalidArgumentError(forward.name() + " must return what " + f.name() + " does, then residuals");
  const std::vector<Type> residuals = slice_of(forward_out, out.size(), forward_out.size() - out.size());
  const std::vector<Type> captured = slice_of(in, 0, consts), args = slice_of(in, consts, in.size() - consts);
  const std::vector<Type> cts = cotangent_types(differentiable(out));
  if (absl::Status s = takes(backward, joined(joined(captured, residuals), cts)); !s.ok()) return s;
  if (absl::Status s = returns(backward, cotangent_types(differentiable(args))); !s.ok()) return s;
  if (e.regions.size() == 4)
    if (absl::Status s = is_forward_rule(*e.regions[3], e, consts); !s.ok()) return s;
  return out;
}

// Region 0 maps residuals and cotangents of the results to cotangents of the tangents; region 1, residuals and tangents
// to tangents of the results.
absl::StatusOr<std::vector<Type>> infer_custom_linear(const Eqn& e) {
  const int residuals = e.attrs<CustomLinear>().residuals;
  if (e.regions.size() != 2)
    if (absl::Status s = region_count(e, 1); !s.ok()) return s;
  const Function& backward = *e.regions[0];
  const std::vector<Type> params = backward.param_types(), in = e.in_types();
  if (residuals < 0 || residuals > e.num_in() || static_cast<std::size_t>(residuals) > params.size())
    return absl::InvalidArgumentError(fmt::format("residuals={} does not fit {} operands", residuals, e.num_in()));
  const std::vector<Type> given = slice_of(in, 0, residuals), tangents = slice_of(in, residuals, in.size() - residuals);
  const std::vector<Type> cts = slice_of(params, residuals, params.size() - residuals);
  const std::vector<Type> results = cotangent_types(cts);
  if (absl::Status s = takes(backward, joined(given, cts)); !s.ok()) return s;
  if (absl::Status s = returns(backward, cotangent_types(tangents)); !s.ok()) return s;
  if (e.regions.size() == 2) {
    if (absl::Status s = takes(*e.regions[1], in); !s.ok()) return s;
    if (absl::Status s = returns(*e.regions[1], results); !s.ok()) return s;
  }
  return results;
}

absl::StatusOr<std::vector<Type>> infer_custom_solve(const Eqn& e) {
  const int consts = e.attrs<CustomLinearSolve>().consts;
  if (e.regions.size() != 2 && e.regions.size() != 3)
    return absl::InvalidArgumentError(fmt::format("takes 2 or 3 regions, not {}", e.regions.size()));
  if (absl::Status s = captured_fit(e, consts); !s.ok()) return s;
  const std::vector<Type> in = e.in_types();
  const std::vector<Type> b = slice_of(in, consts, in.size() - consts);
  for (const FunctionRef& f : e.regions) {
    if (absl::Status s = takes(*f, in); !s.ok()) return s;
    if (absl::Status s = returns(*f, b); !s.ok()) return s;
  }
  return b;
}

// Residuals are parameters of the backward map; it returns cotangents of the tangents.
Manual feeds_linear(const Eqn& e, int k) {
  const std::int64_t residuals = e.attrs<CustomLinear>().residuals;
  if (k < residuals) return manual_of_param(e, 0, k);
  if (e.regions.empty() || k - residuals >= std::ssize(e.regions[0]->results())) return {};
  return cotangent_type(e.regions[0]->results()[k - residuals].type()).manual();
}

void eval_first(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  eval_into(*e.regions[0], in, out);
}

void eval_barrier(const Eqn&, std::span<const Literal> in, std::span<Literal> out) {
  std::copy(in.begin(), in.end(), out.begin());
}

// Each tangent and cotangent stands behind a barrier of its own kind; absent ones stay absent.
Values through_barrier(Builder& b, const Values& values) {
  Values present, all(values.size());
  for (Value v : values)
    if (v) present.push_back(v);
  const Values behind = b.emit_all(&barrier, present);
  for (std::size_t k = 0, next = 0; k < values.size(); ++k)
    if (values[k]) all[k] = behind[next++];
  return all;
}

std::vector<Batched> batch_barrier(Builder& b, const Eqn&, std::span<const Batched> in, std::int64_t) {
  Values values;
  for (const Batched& x : in) values.push_back(x.value);
  const Values outs = b.emit_all(&barrier, values);
  std::vector<Batched> out;
  for (std::size_t k = 0; k < in.size(); ++k) out.push_back({outs[k], in[k].dim});
  return out;
}

}  // namespace

constinit const OpDef checkpoint = {
    .name = "checkpoint",
    .doc =
        "Runs the region; when differentiated backwards, what `policy` does not save is computed again instead of kept "
        "(Chen et al., arXiv:1604.06174). `recomputes` marks the copy that does so.",
    .num_results = -1,
    .attrs = attrs_of<Checkpoint>(),
    .infer = infer_checkpoint,
    .no_jvp = Absent::by_region,
    .feeds = feeds_params,
    .lower = lower_region,
    .eval = eval_first,
};

constinit const OpDef checkpoint_name = unary({
    .name = "checkpoint_name",
    .doc = "x, under a name that policies of checkpoint can speak about.",
    .attrs = attrs_of<CheckpointName>(),
    .linear = jointly(all_operands),
    .transpose = [](Builder&, const Eqn&, const Values&, const Values& cts) -> Values { return {cts[0]}; },
    .lower =
        [](const Eqn& e) { return map_of(e, [](ScalarBuilder&, const std::vector<ScalarRef>& in) { return in[0]; }); },
    .samples =
        [] {
          return Samples{"checkpoint_name f32[2, 3] {name=\"h\"}", "checkpoint_name i32[3] {name=\"h\"}",
                         "checkpoint_name bf16[2] {name=\"h\"}", "checkpoint_name f16[2] {name=\"h\"}"};
        },
});

constinit const OpDef barrier = {
    .name = "barrier",
    .doc =
        "The operands, all of them computed before any reader of a result: equal equations on its two sides stay two.",
    .num_results = -1,
    .infer = [](const Eqn& e) -> absl::StatusOr<std::vector<Type>> { return e.in_types(); },
    .linear = jointly(all_operands),
    .jvp = [](Builder& b, const Eqn&, const Values& tangents) { return through_barrier(b, tangents); },
    .transpose = [](Builder& b, const Eqn&, const Values&, const Values& cts) { return through_barrier(b, cts); },
    .batch = batch_barrier,
    .varies_as_operands = true,
    .lower = [](const Eqn&) -> Lowering { return lowering::Barrier{}; },
    .eval = eval_barrier,
    .cost = [](const Eqn&) { return Cost{}; },
    .samples =
        [] {
          return Samples{"barrier f32[2, 3], i32[4]", "barrier f64[]", "barrier f32[0]", "barrier bf16[2], f16[3]"};
        },
};

constinit const OpDef custom_jvp = {
    .name = "custom_jvp",
    .doc =
        "Runs region 0; its forward derivative is region 1: operands, then a tangent of every float operand past the "
        "first `consts` -> results, then a tangent of every float result.",
    .num_results = -1,
    .attrs = attrs_of<CustomJvp>(),
    .infer = infer_custom_jvp,
    .no_jvp = Absent::by_region,
    .feeds = feeds_params,
    .lower = lower_region,
    .eval = eval_first,
};

constinit const OpDef custom_vjp = {
    .name = "custom_vjp",
    .doc =
        "Runs region 0. Differentiated, region 1 (the same, then residuals) runs forward and region 2 backward: the first "
        "`consts` operands, residuals, a cotangent of every float result -> a cotangent of every other float operand. "
        "Region 3, if there is one, is the forward derivative as in custom_jvp.",
    .num_results = -1,
    .attrs = attrs_of<CustomVjp>(),
    .infer = infer_custom_vjp,
    .no_jvp = Absent::by_region,
    .feeds = feeds_params,
    .lower = lower_region,
    .eval = eval_first,
};

constinit const OpDef custom_linear = {
    .name = "custom_linear",
    .doc =
        "The linear map of the operands past the first `residuals` whose transpose is region 0; region 1, if there is "
        "one, is the map itself.",
    .num_results = -1,
    .attrs = attrs_of<CustomLinear>(),
    .infer = infer_custom_linear,
    .no_jvp = Absent::by_region,
    .feeds = feeds_linear,
    .lower = lower_region,
};

constinit const OpDef custom_linear_solve = {
    .name = "custom_linear_solve",
    .doc =
        "The x with matvec(x) = b. Operands: consts, b. Regions, each consts, v -> v: matvec, solve and, where the "
        "derivative is to be taken backwards, the solve of the transposed map.",
    .num_results = -1,
    .attrs = attrs_of<CustomLinearSolve>(),
    .infer = infer_custom_solve,
    .no_jvp = Absent::by_region,
    .feeds = feeds_params,
    .lower = lower_region,
    .eval = [](const Eqn& e, std::span<const Literal> in,
               std::span<Literal> out) { eval_into(*e.regions[1], in, out); },
};

}  // namespace sheaf::ir::ops
