// Ops that do something besides computing: check and callback. They stay though nobody reads their results, run in the
// order of the program, and are part of the IR like any other; what they do on the host is named by text or by number.
#include <fmt/format.h>

#include "ir/callbacks.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "sheaf/error.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<std::vector<Type>> infer_check(const Eqn& e) {
  if (e.num_in() != 1 || e.in(0).type() != Type(DType::bool_, {}))
    return absl::InvalidArgumentError("takes one bool[]");
  return std::vector<Type>{Type(DType::token, {})};
}

// All examples must hold.
std::vector<Batched> batch_check(Builder& b, const Eqn& e, std::span<const Batched> in, std::int64_t) {
  const Value all = reduce_dims(in[0].value, ReduceKind::and_, {in[0].dim});
  return {{b.emit_all(&check, {all}, e.attributes)[0], -1}};
}

void eval_check(const Eqn& e, std::span<const Literal> in, std::span<Literal>) {
  if (!in[0].get_int(0)) throw RuntimeError(e.loc, "check failed: " + e.attrs<Check>().message);
}

// A callback without results gives a token, so that every equation has a result.
absl::StatusOr<std::vector<Type>> infer_callback(const Eqn& e) {
  std::vector<Type> types;
  const CallbackAttrs& a = e.attrs<CallbackAttrs>();
  if (a.dtypes.size() != a.ranks.size())
    return absl::InvalidArgumentError(fmt::format("{} dtypes but {} ranks", a.dtypes.size(), a.ranks.size()));
  std::size_t at = 0;
  for (std::size_t j = 0; j < a.dtypes.size(); ++j) {
    const std::optional<DType> dtype = parse_dtype(a.dtypes[j]);
    if (!dtype || a.ranks[j] < 0 || at + a.ranks[j] > a.shapes.size())
      return absl::InvalidArgumentError(fmt::format("dtypes, ranks and shapes do not describe result {}", j));
    const auto from = a.shapes.begin() + static_cast<std::ptrdiff_t>(at);
    types.push_back(Type(*dtype, Shape(from, from + a.ranks[j])));
    at += static_cast<std::size_t>(a.ranks[j]);
  }
  if (types.empty()) types.push_back(Type(DType::token, {}));
  return types;
}

// One call per example, in order: every operand gets the new dim in front, beside those of vmaps inside.
std::vector<Batched> batch_callback(Builder& b, const Eqn& e, std::span<const Batched> in, std::int64_t size) {
  Values operands;
  for (const Batched& x : in) {
    Shape dims = x.value.dims();
    if (x.dim < 0) {
      dims.insert(dims.begin(), size);
      operands.push_back(broadcast_to(x.value, dims, dim_range(1, x.value.rank())));
      continue;
    }
    DimList perm{x.dim};
    for (int d = 0; d < x.value.rank(); ++d)
      if (d != x.dim) perm.push_back(d);
    operands.push_back(permute(x.value, perm));
  }
  CallbackAttrs a = e.attrs<CallbackAttrs>();
  a.lanes *= size;
  std::vector<std::int64_t> shapes;
  std::size_t at = 0;
  for (std::int64_t& rank : a.ranks) {
    shapes.push_back(size);
    for (std::int64_t d = 0; d < rank; ++d) shapes.push_back(a.shapes[at++]);
    ++rank;
  }
  a.shapes = std::move(shapes);
  std::vector<Batched> out;
  for (Value v : b.emit_all(&callback, std::move(operands), std::make_shared<const CallbackAttrs>(std::move(a))))
    out.push_back({v, v.dtype() == DType::token ? -1 : 0});
  return out;
}

void eval_callback(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const CallbackAttrs& a = e.attrs<CallbackAttrs>();
  const absl::Status s = run_callback(a.slot, a.lanes, in, a.dtypes.empty() ? std::span<Literal>() : out);
  if (!s.ok()) throw RuntimeError(e.loc, a.name + ": " + std::string(s.message()));
}

}  // namespace

constinit const OpDef check = {
    .name = "check",
    .doc = "Ends the run with `message` and the user's line unless the operand holds.",
    .arity = 1,
    .attrs = attrs_of<Check>(),
    .infer = infer_check,
    .effects = [](const Eqn&) { return Effects::unordered; },
    .no_jvp = Absent::integer_result,
    .batch = batch_check,
    .lower = [](const Eqn& e) -> Lowering { return lowering::Check{e.attrs<Check>().message}; },
    .eval = eval_check,
    .samples = [] { return Samples{}; },
};

constinit const OpDef callback = {
    .name = "callback",
    .doc =
        "Calls function `slot` of the host (ir/callbacks.h) on the operands; the results are of `dtypes`, their dims, "
        "`ranks` of them each, one after another in `shapes`. Under vmap it is called once per example, in order; `lanes` is how "
        "many there are. It has no derivative.",
    .num_results = -1,
    .attrs = attrs_of<CallbackAttrs>(),
    .infer = infer_callback,
    .effects = [](const Eqn& e) { return e.attrs<CallbackAttrs>().pure ? Effects::none : Effects::ordered; },
    .no_jvp = Absent::by_definition,
    .batch = batch_callback,
    .lower = [](const Eqn& e) -> Lowering {
      const CallbackAttrs& a = e.attrs<CallbackAttrs>();
      return lowering::Callback{.name = a.name, .slot = a.slot, .lanes = a.lanes, .has_results = !a.dtypes.empty()};
    },
    .eval = eval_callback,
    .samples = [] { return Samples{}; },
};

}  // namespace sheaf::ir::ops
