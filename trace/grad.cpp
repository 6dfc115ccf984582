// Derivatives of flat calls: trace, transform the Function, apply the result.
#include "sheaf/grad.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/manual.h"
#include "ir/op.h"
#include "passes/transforms.h"
#include "sheaf/ops.h"
#include "trace/messages.h"
#include "trace/recorder.h"
#include "trace/region_op.h"
#include "trace/trace_call.h"

namespace sheaf::detail {
namespace {

passes::Mask with_captured(passes::Mask mask, const Traced& t) {
  mask.resize(t.function->params().size(), false);
  return mask;
}

// Leaves that can have a tangent.
passes::Mask differentiable(std::span<const LeafType> types) {
  passes::Mask mask;
  for (const LeafType& t : types) mask.push_back(is_differentiable(t.type.dtype()));
  return mask;
}

Array zeros_of(ir::Type type, Loc loc) { return zeros(type.dims(), type.dtype(), loc); }

// Tangents or cotangents given for values of these types; those of integers are dropped.
std::vector<Array> checked_tangents(std::string_view who, std::string_view noun, std::span<const Array* const> given,
                                    std::span<const LeafType> wanted, const std::vector<std::string>& places, Loc loc) {
  if (given.size() != wanted.size())
    throw TypeError(loc, fmt::format("{}: {} {}s for {} leaves", who, given.size(), noun, wanted.size()));
  std::vector<Array> out;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!is_differentiable(wanted[i].type.dtype())) continue;
    const LeafType t = leaf_type(*given[i], loc);
    if (t.type.dims() != wanted[i].type.dims())
      throw ShapeError(loc, fmt::format("{}: the {} of {} must be {}, not {}", who, noun, places[i],
                                        ir::to_string(wanted[i].type), ir::to_string(t.type)));
    const std::optional<LeafType> both = meet(t, wanted[i]);
    if ((!both || both->type != wanted[i].type) && !t.is_weak)
      throw TypeError(loc, fmt::format("{}: the {} of {} must be {}, not {}", who, noun, places[i],
                                       ir::to_string(wanted[i].type), ir::to_string(t.type)));
    out.push_back(*given[i]);
  }
  return out;
}

std::vector<std::string> result_places(const Structure& s) {
  std::vector<std::string> places;
  for (const std::string& path : s.paths) places.push_back(path.empty() ? "the result" : "result " + path);
  return places;
}

// All results: those in `out` come from `have`, in order, the others are zero.
std::vector<Array> with_zeros(std::span<const Array> have, const passes::Mask& out, std::span<const LeafType> types,
                              Loc loc) {
  std::vector<Array> all;
  std::size_t next = 0;
  for (std::size_t j = 0; j < out.size(); ++j) all.push_back(out[j] ? have[next++] : zeros_of(types[j].type, loc));
  return all;
}

// Leaves with a gradient, of those in `wanted`.
passes::Mask with_gradient(const char* who, const FlatCall& call, std::span<const LeafType> types, passes::Mask wanted,
                           const GradOptions& options, Loc loc) {
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (!wanted[i] || is_differentiable(types[i].type.dtype())) continue;
    if (!options.allow_int)
      throw TypeError(loc,
                      fmt::format("{}: {} is {}; only floats have gradients. Pass it in an argument that is not "
                                  "differentiated, or give {} {{.allow_int = true}}, which makes its gradient zero",
                                  who, leaf_places(call)[i], ir::to_string(types[i].type), who));
    wanted[i] = false;
  }
  return wanted;
}

void check_value(const char* who, const Traced& t, Loc loc) {
  const ir::Type value = t.results[0].type;
  if (const ir::Axes& axes = value.manual().reduced; !axes.empty())
    throw ShardingError(loc, fmt::format("{}: the function returns {}, which is reduced along \"{}\", so that its "
                                         "cotangent is no one value: return pmean(.., \"{}\")",
                                         who, ir::to_string(value), axes[0], axes[0]));
  if (value.rank() != 0)
    throw ShapeError(loc, fmt::format("{}: the function must return a scalar, not {}; reduce it with sum() or mean()",
                                      who, ir::to_string(value)));
  if (!is_float(value.dtype()))
    throw TypeError(loc, fmt::format("{}: the function must return a float, not {}", who, ir::to_string(value)));
}

}  // namespace

std::vector<Array> value_and_grad(const char* who, const FlatCall& call, std::span<const int> argnums,
                                  const GradOptions& options, Structure& result) {
  const Loc loc = UserLine::or_own(call.loc());
  const std::vector<LeafType> types = leaf_types(call);
  passes::Mask wanted;
  std::vector<std::size_t> first;  // leaf of each argument
  const std::span<const std::size_t> counts = call.leaf_counts();
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const bool listed = std::find(argnums.begin(), argnums.end(), static_cast<int>(k)) != argnums.end();
    if (listed && counts[k] == 0)
      throw TypeError(loc, fmt::format("{}: argument {} has no arrays: make the parameter an Array", who, k));
    first.push_back(wanted.size());
    wanted.insert(wanted.end(), counts[k], listed);
  }
  const passes::Mask wrt = with_gradient(who, call, types, wanted, options, loc);
  Traced t = trace_call(call, {.what = who, .name = who, .loc = loc}, types);
  check_value(who, t, loc);
  const ir::FunctionRef f = passes::value_and_grad(t.function, with_captured(wrt, t));
  std::vector<Array> out = apply_function(f, inputs_of(call, t), loc);
  result = std::move(t.structure);
  // The derivative lists gradients by parameter; the caller wants them in the order of argnums.
  const auto values = static_cast<std::ptrdiff_t>(t.results.size());
  std::vector<Array> gradients(types.size());
  auto next = out.begin() + values;
  for (std::size_t i = 0; i < types.size(); ++i)
    if (wanted[i]) gradients[i] = wrt[i] ? *next++ : zeros_of(types[i].type, loc);
  out.resize(t.results.size());
  for (const int k : argnums)
    for (std::size_t i = 0; i < counts[k]; ++i) out.push_back(gradients[first[k] + i]);
  return out;
}

std::vector<Array> jvp(const FlatCall& call, std::span<const Array* const> tangents, Structure& result) {
  const Loc loc = UserLine::or_own(call.loc());
  const std::vector<LeafType> types = leaf_types(call);
  const std::vector<Array> along = checked_tangents("jvp", "tangent", tangents, types, leaf_places(call), loc);
  Traced t = trace_call(call, {.what = "jvp", .name = "jvp", .loc = loc}, types);
  const passes::Mask instantiate = differentiable(t.results);
  const passes::Jvp d = passes::jvp(t.function, with_captured(differentiable(types), t), instantiate);
  std::vector<Array> inputs = inputs_of(call, t);
  inputs.insert(inputs.end(), along.begin(), along.end());
  const std::vector<Array> all = apply_function(d.function, inputs, loc);
  const std::span<const Array> span(all);
  std::vector<Array> out(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(t.results.size()));
  for (Array& tangent : with_zeros(span.subspan(t.results.size()), d.out, t.results, loc))
    out.push_back(std::move(tangent));
  result = std::move(t.structure);
  return out;
}

class LinearFunction {
 public:
  std::string who;                    // "linearize" or "vjp"
  std::string noun;                   // "tangent" or "cotangent"
  ir::FunctionRef function;           // residuals, then what it is applied to
  std::vector<Array> residuals;
  std::vector<LeafType> in, out;      // all leaves, with and without derivatives
  std::vector<std::string> in_places;
  passes::Mask out_mask;              // of `out`: what the function returns; the others are zero
};

Linearization linearize(const FlatCall& call) {
  const Loc loc = UserLine::or_own(call.loc());
  const std::vector<LeafType> types = leaf_types(call);
  Traced t = trace_call(call, {.what = "linearize", .name = "linearize", .loc = loc}, types);
  const passes::Linearized l = passes::linearize(t.function, with_captured(differentiable(types), t));
  std::vector<Array> all = apply_function(l.primal, inputs_of(call, t), loc);
  auto linear = std::make_shared<LinearFunction>();
  const auto results = static_cast<std::ptrdiff_t>(t.results.size());
  linear->who = "linearize", linear->noun = "tangent";
  linear->function = l.linear;
  linear->residuals.assign(all.begin() + results, all.end());
  linear->in = types, linear->in_places = leaf_places(call);
  linear->out = t.results, linear->out_mask = l.out;
  all.resize(t.results.size());
  return {std::move(all), std::move(t.structure), std::move(linear)};
}

Linearization vjp(const FlatCall& call) {
  const Loc loc = UserLine::or_own(call.loc());
  const std::vector<LeafType> types = leaf_types(call);
  Traced t = trace_call(call, {.what = "vjp", .name = "vjp", .loc = loc}, types);
  const passes::Vjp v = passes::vjp(t.function, with_captured(differentiable(types), t));
  std::vector<Array> all = apply_function(v.forward, inputs_of(call, t), loc);
  auto linear = std::make_shared<LinearFunction>();
  const auto results = static_cast<std::ptrdiff_t>(t.results.size());
  linear->who = "vjp", linear->noun = "cotangent";
  linear->function = v.backward;
  linear->residuals.assign(all.begin() + results, all.end());
  linear->in = cotangents(t.results), linear->in_places = result_places(t.structure);
  linear->out = cotangents(types), linear->out_mask = differentiable(types);
  all.resize(t.results.size());
  return {std::move(all), std::move(t.structure), std::move(linear)};
}

std::vector<Array> apply(const LinearFunction& f, std::span<const Array* const> leaves, Loc own) {
  const Loc loc = UserLine::or_own(own);
  std::vector<Array> inputs = f.residuals;
  for (Array& x : checked_tangents(f.who, f.noun, leaves, f.in, f.in_places, loc)) inputs.push_back(std::move(x));
  return with_zeros(apply_function(f.function, inputs, loc), f.out_mask, f.out, loc);
}

}  // namespace sheaf::detail
