// Checkpoints, custom rules and linear solves: the user's functions are traced, held against each other, and become the
// regions of one equation. Integers have no tangents in programs: a rule sees zeros in their place.
#include "sheaf/custom.h"

#include <fmt/format.h>

#include <optional>

#include "ir/manual.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "passes/emit.h"
#include "trace/apply.h"
#include "trace/recorder.h"
#include "trace/region_op.h"

namespace sheaf {
namespace detail {
namespace {

using passes::Mask;

template <class T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
template <class T>
std::vector<T> part(const std::vector<T>& v, std::size_t from, std::size_t count) {
  return {v.begin() + static_cast<std::ptrdiff_t>(from), v.begin() + static_cast<std::ptrdiff_t>(from + count)};
}

std::string text(const LeafType& t) { return ir::to_string(t.type); }

Mask floats(std::span<const LeafType> types) {
  Mask m;
  for (const LeafType& t : types) m.push_back(is_differentiable(t.type.dtype()));
  return m;
}
Mask all(std::size_t n) { return Mask(n, true); }

// f without the parameters not kept, which are zero, and without the results not kept.
ir::FunctionRef keeping(const ir::FunctionRef& f, const Mask& params, const Mask& results) {
  ir::Builder b(f->name());
  ir::Values args = passes::clone_params(b, *f, params);
  for (std::size_t i = 0; i < args.size(); ++i)
    if (!args[i]) args[i] = b.zeros(f->params()[i].type());
  return b.finish(passes::where(passes::inline_into(b, *f, args), results));
}

std::vector<Array> leaves_of(const FlatCall& call) {
  std::vector<Array> leaves;
  for (const Array* x : call.leaves()) leaves.push_back(*x);
  return leaves;
}

// One equation over captures and the leaves of `f`.
template <class Attrs>
std::vector<Array> apply_op(const char* who, const ir::OpDef& op, const Attrs& attrs, const Captures& captures,
                            const FlatCall& f, std::span<const ir::FunctionRef> regions,
                            std::span<const LeafType> results, Loc loc) {
  const std::vector<ir::Type> types = regions[0]->param_types();
  return apply_program(
      who, captures.arrays() + leaves_of(f), types, weak_of(results), loc, [&](ir::Builder& b, const ir::Values& in) {
        return b.emit_all(&op, in, std::make_shared<const Attrs>(attrs), {regions.begin(), regions.end()});
      });
}

// ---- what rules return, against what they stand for ----

void check_tree(const char* who, const char* part_name, const std::vector<std::string>& wanted,
                const std::vector<std::string>& given, Loc loc) {
  if (wanted != given)
    throw TypeError(loc, fmt::format("{}: {} returns another tree than it must\n  must be: {}\n  is: {}", who,
                                     part_name, list_of(wanted), list_of(given)));
}

// Where one step makes the one type of the other.
std::string fix_of(ir::Type wanted, ir::Type given) {
  if (wanted.dims() != given.dims()) return "";
  if (wanted.dtype() != given.dtype()) return fmt::format("; return convert(.., {})", name(wanted.dtype()));
  const ir::Axes sums = ir::without(given.varying(), wanted.varying());
  return sums.empty() ? "" : fmt::format("; return psum(.., \"{}\")", sums[0]);
}

void check_types(const char* who, const char* part_name, const char* noun, const std::vector<std::string>& paths,
                 std::span<const LeafType> wanted, std::span<const LeafType> given, bool integers, Loc loc) {
  std::string wrong;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].type == given[i].type || (!integers && !is_differentiable(wanted[i].type.dtype()))) continue;
    wrong += fmt::format("\n  {} {}: must be {}, is {}{}", noun, leaf_name(paths[i], "the result"), text(wanted[i]),
                         text(given[i]), fix_of(wanted[i].type, given[i].type));
  }
  if (!wrong.empty())
    throw TypeError(loc, fmt::format("{}: {} returns another type than it must{}", who, part_name, wrong));
}

// The paths of element `k` of a tuple.
std::vector<std::string> element(const Structure& s, std::size_t k) {
  const std::string prefix = fmt::format("[{}]", k);
  std::vector<std::string> paths;
  for (const std::string& p : s.paths)
    if (p.starts_with(prefix)) paths.push_back(p.substr(prefix.size()));
  return paths;
}

std::vector<std::string> argument_paths(const FlatCall& f) {
  std::vector<std::string> paths;
  const std::vector<Argument> arguments = f.arguments();
  for (std::size_t k = 0; k < arguments.size(); ++k)
    for (const std::string& p : arguments[k].paths) paths.push_back(fmt::format("[{}]{}", k, p));
  return paths;
}

// As with ops without regions: a rule has one answer for all arguments. A sum stays one.
std::vector<LeafType> differing_together(std::vector<LeafType> types) {
  const ir::Axes all = varying_of(types);
  for (LeafType& t : types) t = varied(t, ir::without(all, t.type.manual().unreduced));
  return types;
}

Tracing tracing(const char* who, Loc loc) { return {.what = who, .name = who, .loc = loc}; }

}  // namespace

// ---- checkpoint ----

std::vector<Array> checkpoint(const FlatCall& f, const Saved& saved, Structure& result) {
  const Loc loc = UserLine::or_own(f.loc());
  Tracing how = tracing("checkpoint", loc);
  how.precise = has_precise_number(f);
  Traced t = trace_call(f, how, leaf_types(f));
  const Traced* const regions[] = {&t};
  const Captures captures(regions);
  const ir::FunctionRef body = captures.first(t);
  const ir::ops::Checkpoint attrs{.policy = static_cast<ir::Policy>(saved.what), .names = saved.names};
  result = std::move(t.structure);
  return apply_op("checkpoint", ir::ops::checkpoint, attrs, captures, f, {&body, 1}, t.results, loc);
}

// ---- custom_jvp ----

namespace {

// The forward rule: arguments and tangents -> results and tangents, like those of `value`.
Traced trace_forward_rule(const char* who, const FlatCall& rule, const std::vector<LeafType>& types,
                          const Traced& value, Loc loc) {
  const std::size_t outs = value.results.size();
  Traced both = trace_call(WithResultTypes(rule, value.results + value.results), tracing(who, loc), types + types);
  const std::vector<std::string>& paths = value.structure.paths;
  check_tree(who, "the rule", paths, element(both.structure, 0), loc);
  check_tree(who, "the rule", paths, element(both.structure, 1), loc);
  check_types(who, "the rule", "result", paths, value.results, part(both.results, 0, outs), true, loc);
  check_types(who, "the rule", "tangent of", paths, value.results, part(both.results, outs, outs), false, loc);
  return both;
}

// Its region: integers have no tangents there.
ir::FunctionRef forward_rule_region(const Captures& captures, const Traced& both, const std::vector<LeafType>& types,
                                    const Traced& value) {
  return keeping(captures.first(both), all(captures.arrays().size() + types.size()) + floats(types),
                 all(value.results.size()) + floats(value.results));
}

}  // namespace

std::vector<Array> custom_jvp(const FlatCall& f, const FlatCall& rule, Structure& result) {
  constexpr const char* who = "custom_jvp";
  const Loc loc = UserLine::or_own(f.loc());
  const std::vector<LeafType> types = differing_together(leaf_types(f));
  Traced value = trace_call(f, tracing(who, loc), types);
  const Traced both = trace_forward_rule(who, rule, types, value, loc);

  const Traced* const regions[] = {&value, &both};
  const Captures captures(regions);
  const std::size_t consts = captures.arrays().size();
  const ir::FunctionRef functions[] = {captures.first(value), forward_rule_region(captures, both, types, value)};
  result = std::move(value.structure);
  return apply_op(who, ir::ops::custom_jvp, ir::ops::CustomJvp{static_cast<int>(consts)}, captures, f, functions,
                  value.results, loc);
}

// ---- custom_vjp ----

std::vector<Array> custom_vjp(const FlatCall& f, const FlatCall* rule, const FlatCall& forward,
                              const std::function<std::unique_ptr<FlatCall>(const Structure&)>& make_backward,
                              Structure& result) {
  const char* who = rule ? "custom_rule" : "custom_vjp";
  const Loc loc = UserLine::or_own(f.loc());
  const std::vector<LeafType> types = differing_together(leaf_types(f));
  Traced value = trace_call(f, tracing(who, loc), types);
  const std::size_t outs = value.results.size();
  const Traced ahead = trace_call(WithResultTypes(forward, value.results), tracing(who, loc), types);
  check_tree(who, "the forward function", value.structure.paths, element(ahead.structure, 0), loc);
  check_types(who, "the forward function", "result", value.structure.paths, value.results, part(ahead.results, 0, outs),
              true, loc);

  const std::vector<LeafType> residuals = part(ahead.results, outs, ahead.results.size() - outs);
  const std::unique_ptr<FlatCall> backward = make_backward(ahead.structure);
  const std::vector<LeafType> wanted = cotangents(types);
  const Traced back =
      trace_call(WithResultTypes(*backward, wanted), tracing(who, loc), residuals + cotangents(value.results));
  check_tree(who, "the backward function", argument_paths(f), back.structure.paths, loc);
  check_types(who, "the backward function", "cotangent", argument_paths(f), wanted, back.results, false, loc);

  std::optional<Traced> both;
  if (rule) both = trace_forward_rule(who, *rule, types, value, loc);

  std::vector<const Traced*> regions{&value, &ahead, &back};
  if (both) regions.push_back(&*both);
  const Captures captures(regions);
  const std::size_t consts = captures.arrays().size();
  std::vector<ir::FunctionRef> functions{
      captures.first(value), captures.first(ahead),
      keeping(captures.first(back), all(consts + residuals.size()) + floats(value.results), floats(types))};
  if (both) functions.push_back(forward_rule_region(captures, *both, types, value));
  result = std::move(value.structure);
  return apply_op(who, ir::ops::custom_vjp, ir::ops::CustomVjp{static_cast<int>(consts)}, captures, f, functions,
                  value.results, loc);
}

// ---- custom_linear_solve ----

std::vector<Array> custom_linear_solve(const FlatCall& matvec, const FlatCall& solve, const FlatCall* transpose_solve,
                                       Structure& result) {
  constexpr const char* who = "custom_linear_solve";
  const Loc loc = UserLine::or_own(matvec.loc());
  std::vector<LeafType> types = leaf_types(matvec);
  for (LeafType& t : types) {
    if (!is_differentiable(t.type.dtype()))
      throw TypeError(loc, fmt::format("{}: the right-hand side must be floats, not {}", who, text(t)));
    t.is_weak = false;
  }
  const std::vector<std::string> paths = matvec.arguments()[0].paths;
  std::vector<std::pair<const FlatCall*, const char*>> calls{{&matvec, "matvec"}, {&solve, "solve"}};
  if (transpose_solve) calls.emplace_back(transpose_solve, "transpose_solve");
  std::vector<Traced> traced;
  for (ir::Axes all = varying_of(types);;) {
    types = varied(std::move(types), all);
    traced.clear();
    for (const auto& [call, part_name] : calls)
      traced.push_back(trace_call(WithResultTypes(*call, types), tracing(who, loc), types));
    const ir::Axes before = all;
    for (const Traced& t : traced) all = ir::joined(std::move(all), varying_of(t.results));
    if (all == before) break;
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    check_tree(who, calls[i].second, paths, traced[i].structure.paths, loc);
    check_types(who, calls[i].second, "result", paths, types, traced[i].results, true, loc);
  }
  std::vector<const Traced*> regions;
  for (const Traced& t : traced) regions.push_back(&t);
  const Captures captures(regions);
  std::vector<ir::FunctionRef> functions;
  for (const Traced& t : traced) functions.push_back(captures.first(t));
  result = traced[1].structure;
  const ir::ops::CustomLinearSolve attrs{static_cast<int>(captures.arrays().size())};
  return apply_op(who, ir::ops::custom_linear_solve, attrs, captures, matvec, functions, types, loc);
}

}  // namespace detail

Array checkpoint_name(Operand x, const std::string& name) {
  return apply1("checkpoint_name", RuleKey().add(name), {x}, x.loc(), [&](ir::Builder& b, const ir::Values& in) {
    return ir::Values{emit1(b, ir::ops::checkpoint_name, in, ir::ops::CheckpointName{name})};
  });
}

}  // namespace sheaf
