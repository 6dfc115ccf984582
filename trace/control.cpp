// Loops and branches: bodies are traced, made to agree in the types they exchange, and become regions of one equation.
#include "sheaf/control.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/manual.h"
#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "passes/emit.h"
#include "trace/axes.h"
#include "trace/promotion.h"
#include "trace/recorder.h"
#include "trace/region_op.h"

namespace sheaf::detail {
namespace {

std::string text(const LeafType& t) { return ir::to_string(t.type); }

// ---- carries ----

struct Loop {
  std::string who;
  Loc loc;
  std::vector<std::string> names;  // of the body's arguments
};

void check_carry_tree(const Loop& loop, const FlatCall& body, const std::string& statics, const Structure& result,
                      const std::vector<std::string>& leaving) {
  const std::vector<std::string> entering = body.arguments()[0].paths;
  if (leaving != entering)
    throw TypeError(loop.loc, fmt::format("{}: the carry must leave the body as the tree it enters as\n  enters: {}\n  "
                                          "leaves: {}",
                                          loop.who, list_of(entering), list_of(leaving)));
  if (!result.statics.starts_with(statics))
    throw TypeError(loop.loc, fmt::format("{}: the carry must leave the body as the tree it enters as; its numbers, "
                                          "texts or sizes differ, which are static: make an Array of what changes",
                                          loop.who));
}

// What differs only along manual axes, of which one is unreduced along some.
std::string cast_fix(ir::Type in, ir::Type out) {
  for (const std::string& axis : out.manual().unreduced)
    if (ir::along(in.manual(), axis) != Along::unreduced)
      return fmt::format("start from pcast({}, \"{}\", {{.to = Along::unreduced}}) or return psum(.., \"{}\")",
                         ir::along(in.manual(), axis) == Along::varying ? ".." : fmt::format("pcast(.., \"{}\")", axis),
                         axis, axis);
  return fmt::format("start from psum(.., \"{}\")", ir::without(in.manual().unreduced, out.manual().unreduced)[0]);
}

std::string carry_fix(const LeafType& in, const LeafType& out) {
  const std::string_view enter = name(in.type.dtype()), leave = name(out.type.dtype());
  if (in.type.with_manual({}) == out.type.with_manual({})) return cast_fix(in.type, out.type);
  if (in.type.dims() == out.type.dims())
    return fmt::format("start from convert(.., {}) or return convert(.., {})", leave, enter);
  return fmt::format("start from {} or return {}", text(out), text(in));
}

// The types the carry has at every step: C++ numbers it starts from take the dtype that the body returns, and what
// comes to differ along manual axes does so from the start.
Traced trace_body(const Loop& loop, const FlatCall& body, const std::string& statics, std::vector<LeafType>& carry,
                  const std::vector<LeafType>& rows, bool is_pair) {
  for (;;) {
    std::vector<LeafType> leaves = carry;
    leaves.insert(leaves.end(), rows.begin(), rows.end());
    const WithResultTypes converted(body, carry);
    Traced t = trace_call(converted, {.what = loop.who, .name = loop.who, .args = loop.names, .loc = loop.loc}, leaves);
    std::vector<std::string> leaving;
    for (const std::string& path : t.structure.paths)
      if (!is_pair || path.starts_with("[0]")) leaving.push_back(is_pair ? path.substr(3) : path);
    check_carry_tree(loop, body, statics, t.structure, leaving);
    std::string wrong;
    std::vector<LeafType> next = carry;
    for (std::size_t i = 0; i < carry.size(); ++i) {
      const std::optional<LeafType> both = meet(carry[i], t.results[i]);
      LeafType kept = carry[i];
      if (both) kept.type = kept.type.with_manual(both->type.manual());
      if (both && (carry[i].is_weak || both->type == kept.type)) next[i] = carry[i].is_weak ? *both : kept;
      else
        wrong += fmt::format("\n  {} enters as {}, leaves as {}: {}", leaf_name(leaving[i], "it"), text(carry[i]),
                             text(t.results[i]), carry_fix(carry[i], t.results[i]));
    }
    if (!wrong.empty())
      throw TypeError(loop.loc,
                      fmt::format("{}: the carry must leave the body with the type it enters with{}", loop.who, wrong));
    if (next == carry) return t;
    carry = std::move(next);
  }
}

// A body that is there for its effects alone still gives something: every equation has a result.
ir::FunctionRef with_a_result(const ir::FunctionRef& f) {
  if (!f->results().empty()) return f;
  ir::Builder b(f->name());
  passes::inline_into(b, *f, passes::clone_params(b, *f, passes::Mask(f->params().size(), true)));
  return b.finish({b.constant(i32, 0)});
}

// What a loop reads only as cast along manual axes is cast once, before it: then its cotangents are added up over the
// steps on each device, and once over the devices.
ir::FunctionRef cast_outside(const ir::FunctionRef& f, std::size_t consts, std::size_t carry) {
  if (manual_axes().empty()) return f;
  ir::ValueTable<const ir::Eqn*> cast(*f);
  ir::ValueTable<char> stays(*f, 0);
  for (const ir::Eqn* e : f->eqns())
    for (const ir::Value v : e->operands) {
      stays[v] = stays[v] || e->op != &ir::ops::pcast || (cast[v] && cast[v] != e);
      cast[v] = e;
    }
  for (const ir::Value r : f->results()) stays[r] = true;
  ir::Builder b(f->name());
  ir::Values params;
  for (std::size_t i = 0; i < f->params().size(); ++i) {
    const ir::Value p = f->params()[i];
    const bool is_carry = i >= consts && i < consts + carry;
    const bool moves = cast[p] && !stays[p] && !is_carry;
    params.push_back(b.param(moves ? cast[p]->out().type() : p.type(), p.name()));
  }
  return b.finish(passes::emit_each(b, *f, params, [](ir::Builder& to, const ir::Eqn& e, ir::Values operands) {
    if (e.op == &ir::ops::pcast && operands[0].type() == e.out().type()) return operands;
    return to.clone(e, std::move(operands));
  }));
}

// ---- scan ----

std::int64_t scan_length(const std::string& who, const FlatCall& body, const ScanOptions& options,
                         std::span<const LeafType> xs, Loc loc) {
  const std::vector<std::string> paths = body.arguments()[1].paths;
  std::optional<std::int64_t> length = options.length;
  if (length && *length < 0)
    throw ShapeError(loc, fmt::format("{}: the length must not be negative, and is {}", who, *length));
  bool differ = false;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    if (xs[i].type.rank() == 0)
      throw ShapeError(
          loc, fmt::format("{}: {} is {} and has no axis 0 to go along", who, leaf_name(paths[i], "xs"), text(xs[i])));
    const std::int64_t n = xs[i].type.dims()[0];
    differ |= length && *length != n;
    length = length.value_or(n);
  }
  if (differ) {
    std::string message = fmt::format("{}: the arrays of xs must have the same length", who);
    if (options.length) message += fmt::format(", {} as .length says", *options.length);
    for (std::size_t i = 0; i < xs.size(); ++i)
      message += fmt::format("\n  {}: {}, length {}", leaf_name(paths[i], "xs"), text(xs[i]), xs[i].type.dims()[0]);
    throw ShapeError(loc, message);
  }
  if (!length) throw TypeError(loc, fmt::format("{}: xs has no arrays{}", who, who == "scan" ? "; give .length" : ""));
  return *length;
}

std::vector<ir::Type> types_of(std::span<const LeafType> leaves) {
  std::vector<ir::Type> types;
  for (const LeafType& t : leaves) types.push_back(t.type);
  return types;
}

template <class T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<Array> leaves_of(const FlatCall& call) {
  std::vector<Array> leaves;
  for (const Array* x : call.leaves()) leaves.push_back(*x);
  return leaves;
}

}  // namespace

std::vector<Array> scan(const char* who, const FlatCall& body, const std::string& carry_statics,
                        const ScanOptions& options, Structure& result) {
  const Loc loc = UserLine::or_own(body.loc());
  const std::vector<LeafType> types = leaf_types(body);
  const auto carries = static_cast<std::ptrdiff_t>(body.leaf_counts()[0]);
  std::vector<LeafType> carry(types.begin(), types.begin() + carries);
  const std::vector<LeafType> xs(types.begin() + carries, types.end());
  const std::int64_t length = scan_length(who, body, options, xs, loc);
  if (options.unroll < 1)
    throw TypeError(loc, fmt::format("scan: unroll must be at least 1, and is {}", options.unroll));
  std::vector<LeafType> rows = xs;
  for (LeafType& t : rows) t.type = t.type.with_dims(Shape(t.type.dims().begin() + 1, t.type.dims().end()));

  Traced t = trace_body({who, loc, {"carry", "x"}}, body, carry_statics, carry, rows, true);
  const Traced* const regions[] = {&t};
  const Captures captures(regions);
  const ir::FunctionRef region = cast_outside(with_a_result(captures.first(t)), captures.arrays().size(), carry.size());
  const ir::ops::Scan attrs{.consts = static_cast<int>(captures.arrays().size()),
                            .carry = static_cast<int>(carries),
                            .length = length,
                            .reverse = options.reverse,
                            .unroll = options.unroll};
  result = t.structure;
  return apply_program(who, captures.arrays() + leaves_of(body), captures.types() + types_of(carry) + types_of(xs),
                       weak_of(t.results), loc, [&](ir::Builder& b, const ir::Values& in) {
                         ir::Values out =
                             b.emit_all(&ir::ops::scan, in, std::make_shared<const ir::ops::Scan>(attrs), {region});
                         out.resize(t.results.size());
                         return out;
                       });
}

// ---- while ----

namespace {

void check_condition(const Traced& test, Loc loc) {
  const ir::Type held = test.results[0].type;
  if (held.dtype() != bool_ || held.rank() != 0)
    throw TypeError(loc,
                    fmt::format("while_loop: the condition must return a bool scalar, not {}{}", ir::to_string(held),
                                is_bool(held.dtype()) ? "; reduce it with any() or all()" : ""));
}

// Body and condition. Where devices go on for different numbers of steps, all that the loop computes differs.
std::pair<Traced, Traced> trace_while(const Loop& loop, const FlatCall& condition, const FlatCall& body,
                                      const std::string& statics, std::vector<LeafType>& carry) {
  for (ir::Axes decided;;) {
    const ChoiceScope choice(decided, loop.who, loop.loc);
    for (const LeafType& t : carry) check_none_is_unreduced(t.type, loop.loc);
    carry = varied(std::move(carry), decided);
    Traced step = trace_body(loop, body, statics, carry, {}, false);
    Traced test =
        trace_call(condition, {.what = loop.who, .name = loop.who, .args = loop.names, .loc = loop.loc}, carry);
    check_condition(test, loop.loc);
    const ir::Axes decides = test.results[0].type.varying();
    if (ir::without(decides, decided).empty()) return {std::move(step), std::move(test)};
    decided = decides;
  }
}

}  // namespace

std::vector<Array> while_loop(const char* who, const FlatCall& condition, const FlatCall& body,
                              const std::string& carry_statics, const WhileOptions& options, Structure& result) {
  const Loc loc = UserLine::or_own(body.loc());
  if (options.max_trips && *options.max_trips < 0)
    throw TypeError(loc, fmt::format("while_loop: max_trips must not be negative, and is {}", *options.max_trips));
  std::vector<LeafType> carry = leaf_types(body);
  const auto [step, test] = trace_while({who, loc, {"carry"}}, condition, body, carry_statics, carry);
  const Traced *const tests[] = {&test}, *const steps[] = {&step};
  const Captures of_test(tests), of_step(steps);
  const ir::FunctionRef region = cast_outside(of_step.first(step), of_step.arrays().size(), carry.size());
  const ir::ops::While attrs{.cond_consts = static_cast<int>(of_test.arrays().size()),
                             .body_consts = static_cast<int>(of_step.arrays().size()),
                             .max_trips = options.max_trips.value_or(-1)};
  result = step.structure;
  return apply_program(who, of_test.arrays() + of_step.arrays() + leaves_of(body),
                       of_test.types() + of_step.types() + types_of(carry), weak_of(carry), loc,
                       [&](ir::Builder& b, const ir::Values& in) {
                         return b.emit_all(&ir::ops::while_, in, std::make_shared<const ir::ops::While>(attrs),
                                           {of_test.first(test), region});
                       });
}

// ---- counted loops ----

std::optional<std::int64_t> fori_length(const Operand& low, const Operand& high) {
  if (low.array() || high.array()) return {};
  return std::max<std::int64_t>(0, high.number().as_int() - low.number().as_int());
}

std::pair<Array, Array> fori_bounds(const Operand& low, const Operand& high) {
  const Loc loc = UserLine::or_own(low.loc());
  for (const auto& [bound, role] : {std::pair(&low, "lower"), std::pair(&high, "upper")})
    if (!is_int(bound->dtype()) || bound->rank() != 0)
      throw TypeError(loc, fmt::format("fori_loop: the {} bound must be an integer scalar, not {}{}", role,
                                       name(bound->dtype()), to_string(bound->shape())));
  const Operand both[] = {low, high};
  const DType dtype = promote(both).dtype;
  return {convert(low, dtype), convert(high, dtype)};
}

// ---- branches ----

namespace {

std::string branch_name(bool is_cond, std::size_t k) {
  if (is_cond) return k == 0 ? "if_true" : "if_false";
  return fmt::format("branch {}", k);
}

void check_which(bool is_cond, const Operand& which, std::size_t branches, Loc loc) {
  const char* who = is_cond ? "cond" : "switch_";
  if (branches == 0) throw TypeError(loc, "switch_: there are no branches");
  const bool is_number = !which.array();
  const std::string given = is_number ? std::string(name(which.dtype())) : type_text(*which.array());
  if (is_cond && is_number) return;
  if (which.rank() == 0 && (is_cond ? is_bool(which.dtype()) : is_int(which.dtype()))) return;
  const char* fix = "";
  if (is_cond)
    fix =
        is_bool(which.dtype()) ? "; choose per element with where(), or reduce it with any() or all()" : "; compare it";
  throw TypeError(loc, fmt::format("{}: the {} must be {} scalar, not {}{}", who, is_cond ? "predicate" : "index",
                                   is_cond ? "a bool" : "an integer", given, fix));
}

void check_branch_trees(bool is_cond, std::span<const Traced> traced, Loc loc) {
  const char* who = is_cond ? "cond" : "switch_";
  for (std::size_t k = 1; k < traced.size(); ++k) {
    const Structure &a = traced[0].structure, &b = traced[k].structure;
    if (a.paths != b.paths)
      throw TypeError(
          loc, fmt::format("{}: the branches must return the same tree\n  {} returns {}\n  {} returns {}", who,
                           branch_name(is_cond, 0), list_of(a.paths), branch_name(is_cond, k), list_of(b.paths)));
    if (a.statics != b.statics)
      throw TypeError(loc,
                      fmt::format("{}: the branches must return the same tree; numbers, texts or sizes differ between "
                                  "{} and {}, which are static: return Arrays",
                                  who, branch_name(is_cond, 0), branch_name(is_cond, k)));
  }
}

// The types all branches return, C++ numbers following arrays; they differ as the choice does.
std::vector<LeafType> common_types(bool is_cond, std::span<const Traced> traced, const ir::Axes& decided, Loc loc) {
  std::vector<LeafType> common = varied(traced[0].results, decided);
  std::string wrong;
  for (std::size_t j = 0; j < common.size(); ++j) {
    std::size_t from = 0;
    for (std::size_t k = 1; k < traced.size(); ++k) {
      const std::optional<LeafType> both = meet(common[j], traced[k].results[j]);
      if (!both) {
        const std::string& path = traced[0].structure.paths[j];
        wrong += fmt::format("\n  {}: {} from {}, {} from {}", leaf_name(path, "the result"), text(common[j]),
                             branch_name(is_cond, from), text(traced[k].results[j]), branch_name(is_cond, k));
        break;
      }
      if (*both == traced[k].results[j] && *both != common[j]) from = k;
      common[j] = *both;
    }
  }
  if (!wrong.empty())
    throw TypeError(loc, fmt::format("{}: the branches must return the same types; convert or reshape what one of them "
                                     "returns{}",
                                     is_cond ? "cond" : "switch_", wrong));
  return common;
}

std::vector<Traced> trace_branches(bool is_cond, std::span<const FlatCall* const> branches,
                                   const std::vector<LeafType>& types, const ir::Axes& decided, Loc loc) {
  const char* who = is_cond ? "cond" : "switch_";
  const ChoiceScope choice(decided, who, loc);
  const Tracing how{.what = who, .name = who, .loc = loc, .precise = has_precise_number(*branches[0])};
  std::vector<Traced> traced;
  for (const FlatCall* f : branches) traced.push_back(trace_call(*f, how, types));
  check_branch_trees(is_cond, traced, loc);
  const std::vector<LeafType> common = common_types(is_cond, traced, decided, loc);
  for (std::size_t k = 0; k < branches.size(); ++k)
    if (traced[k].results != common) traced[k] = trace_call(WithResultTypes(*branches[k], common), how, types);
  return traced;
}

// The branch's number as the op wants it: i32, within the branches where i32 is too small to hold it.
ir::Value as_index(ir::Builder& b, ir::Value v, std::size_t branches) {
  if (is_int(v.dtype()) && size_bytes(v.dtype()) >= 4 && v.dtype() != i32) {
    const ir::Value last = b.constant(v.dtype(), static_cast<double>(branches - 1));
    v = b.emit(ir::ops::clamp, {b.constant(v.dtype(), 0), v, last});
  }
  return ir::ops::convert_to(v, i32);
}

}  // namespace

std::vector<Array> branch(bool is_cond, const Operand& which, std::span<const FlatCall* const> branches,
                          Structure& result) {
  const Loc loc = UserLine::or_own(which.loc());
  check_which(is_cond, which, branches.size(), loc);
  // Where devices choose different branches, all that goes in and comes out differs.
  const ir::Axes decided = which.array() ? leaf_type(*which.array(), loc).type.varying() : ir::Axes{};
  const std::vector<LeafType> own = leaf_types(*branches[0]);
  {
    const ChoiceScope choice(decided, is_cond ? "cond" : "switch_", loc);
    for (const LeafType& t : own) check_none_is_unreduced(t.type, loc);
  }
  const std::vector<LeafType> types = varied(own, decided);
  const std::vector<Traced> traced = trace_branches(is_cond, branches, types, decided, loc);
  std::vector<const Traced*> regions;
  for (const Traced& t : traced) regions.push_back(&t);
  const Captures captures(regions);
  std::vector<ir::FunctionRef> functions;
  for (const Traced& t : traced) functions.push_back(captures.first(t));
  if (is_cond) std::reverse(functions.begin(), functions.end());  // false is 0

  const Array index = which.array() ? *which.array()
                      : is_cond     ? Array(which.number().as_double() != 0, loc)
                                    : Array(which.number(), loc);
  std::vector<ir::Type> inputs{ir::Type(index.dtype(), {}).with_varying(decided)};
  inputs = inputs + captures.types();
  for (std::size_t i = 0; i < types.size(); ++i)
    inputs.push_back(functions[0]->params()[captures.arrays().size() + i].type());
  result = traced[0].structure;
  return apply_program(is_cond ? "cond" : "switch_",
                       std::vector<Array>{index} + captures.arrays() + leaves_of(*branches[0]), inputs,
                       weak_of(traced[0].results), loc, [&](ir::Builder& b, const ir::Values& in) {
                         ir::Values operands = in;
                         operands[0] = as_index(b, in[0], branches.size());
                         std::vector<ir::FunctionRef> bodies;
                         for (const ir::FunctionRef& f : functions) bodies.push_back(with_a_result(f));
                         ir::Values out = b.emit_all(&ir::ops::cond, std::move(operands), nullptr, std::move(bodies));
                         out.resize(traced[0].results.size());
                         return out;
                       });
}

}  // namespace sheaf::detail
