// Eager execution of library functions by small cached programs, and the same functions as equations of a trace.
#include "trace/apply.h"

#include <absl/container/inlined_vector.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ir/manual.h"
#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "runtime/cache.h"
#include "trace/messages.h"
#include "trace/recorder.h"
#include "trace/runnable.h"

namespace sheaf {
namespace {

// What an equation's inference says is wrong; `apply` adds the operands.
struct RuleError {
  std::string message;
  enum class Of : std::uint8_t { shape, dtype, manual } of = Of::shape;
};

using EagerPtr = std::shared_ptr<const Runnable>;

auto& eager_programs() {
  static auto& cache = *new runtime::SingleFlightMap<std::string, EagerPtr>;
  return cache;
}

std::string role(std::size_t k, std::size_t count) {
  if (count == 1) return "operand";
  if (count == 2) return k == 0 ? "lhs" : "rhs";
  return fmt::format("operand {}", k);
}

template <class List, class Get>
std::string describe_all(const List& list, Get array) {
  std::vector<Named> named;
  for (std::size_t k = 0; k < list.size(); ++k) named.push_back({role(k, list.size()), array(list[k])});
  return describe(named);
}

[[noreturn]] void rethrow(const RuleError& e, std::string_view name, std::span<const Input> inputs, Loc loc) {
  const std::string text =
      fmt::format("{}: {}{}", name, e.message, describe_all(inputs, [](const Input& x) { return x.array; }));
  if (e.of == RuleError::Of::dtype) throw TypeError(loc, text);
  if (e.of == RuleError::Of::manual) throw ShardingError(loc, text);
  throw ShapeError(loc, text);
}

// A type as part of a key: types are interned.
std::int64_t type_key(ir::Type t) { return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(&t.data())); }

ir::Type input_type(const Input& x, Loc loc) {
  if (!x.array) return ir::Type(x.dtype, {});
  const ArrayNode& node = node_of(*x.array, loc);
  return node.kind == ArrayNode::Kind::number ? ir::Type(x.dtype, {}) : node.type;
}

EagerPtr record(std::string_view name, std::span<const Input> inputs, Loc loc, Rule rule, bool weak) {
  ir::Builder b{std::string(name)};
  b.set_loc(loc);
  ir::Values params, values;
  for (const Input& x : inputs) params.push_back(b.param(input_type(x, loc)));
  for (std::size_t i = 0; i < inputs.size(); ++i) values.push_back(ir::ops::convert_to(params[i], inputs[i].dtype));
  ir::Values results = rule(b, values);
  const std::size_t n = results.size();
  return std::make_shared<const Runnable>(b.finish(std::move(results)),
                                          RunnableOptions{.weak = std::vector<bool>(n, weak)});
}

std::vector<Array> apply_eagerly(std::string_view name, RuleKey key, std::span<const Input> inputs, Loc loc, Rule rule,
                                 bool weak) {
  key.add(std::string(name));
  for (const Input& x : inputs) key.add(type_key(input_type(x, loc))).add(static_cast<std::int64_t>(x.dtype));
  const auto program = eager_programs().get_or_make(
      key.bytes(), [&]() -> absl::StatusOr<EagerPtr> { return record(name, inputs, loc, rule, weak); });
  check(program.status(), loc);
  absl::InlinedVector<Array, 3> numbers;
  numbers.reserve(inputs.size());
  absl::InlinedVector<const Array*, 3> arrays;
  for (const Input& x : inputs) {
    if (!x.array) numbers.emplace_back(x.number, loc);
    arrays.push_back(x.array ? x.array : &numbers.back());
  }
  return (*program)->run(arrays, loc, loc);
}

}  // namespace

Input::Input(const Operand& x) : Input(x, x.dtype()) {}
Input::Input(const Operand& x, DType as) : array(x.array()), number(x.number()), dtype(as) {}

RuleKey& RuleKey::add(double v) {
  std::uint64_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  return add_bits(bits);
}

namespace {

// Complex numbers become complex or bool: which real number is meant is for the user to say.
void check_conversions(std::span<const Input> inputs, Loc loc) {
  for (const Input& x : inputs) {
    const DType from = x.array ? node_of(*x.array, loc).type.dtype() : x.number.dtype();
    if (is_complex(from) && !is_complex(x.dtype) && !is_bool(x.dtype))
      throw RuleError{fmt::format("no conversion from {} to {}: take real(), imag() or abs()", sheaf::name(from),
                                  sheaf::name(x.dtype)),
                      RuleError::Of::dtype};
    if (from != x.dtype && x.dtype == DType::token)
      throw RuleError{fmt::format("no conversion from {} to {}", sheaf::name(from), sheaf::name(x.dtype)),
                      RuleError::Of::dtype};
  }
}

}  // namespace

std::vector<Array> apply(std::string_view name, RuleKey key, std::span<const Input> inputs, Loc own, Rule rule,
                         bool weak) {
  const Loc loc = UserLine::or_own(own);
  Recorder* r = Recorder::current();
  try {
    check_conversions(inputs, loc);
    if (!r) return apply_eagerly(name, std::move(key), inputs, loc, rule, weak);
    ir::Builder& b = r->builder();
    b.set_loc(loc);
    ir::Values values;
    values.reserve(inputs.size());
    for (const Input& x : inputs)
      values.push_back(x.array ? r->lift(*x.array, loc, x.dtype) : r->number(x.number, x.dtype));
    const ir::Values results = rule(b, values);
    std::vector<Array> out;
    out.reserve(results.size());
    for (const ir::Value v : results) out.push_back(r->wrap(v, weak, loc));
    return out;
  } catch (const RuleError& e) { rethrow(e, name, inputs, loc); }
}

std::vector<Array> compose(std::string_view name, RuleKey key, std::span<const Operand> operands, Loc own, Body body) {
  const Loc loc = UserLine::or_own(own);
  const UserLine line(loc);
  std::vector<Array> arrays;
  for (const Operand& x : operands) arrays.push_back(to_array(x));
  key.add(std::string(name));
  for (const Array& x : arrays) {
    const ArrayNode& node = node_of(x, loc);
    if (node.kind == ArrayNode::Kind::traced && !Recorder::current()) throw_leaked(node, loc);
    key.add(type_key(node.type)).add(std::int64_t{node.is_weak});
  }
  if (Recorder::current()) return body(arrays);

  const auto make = [&]() -> absl::StatusOr<EagerPtr> {
    Recorder r{std::string(name), loc, std::string(name)};
    std::vector<Array> params;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const ArrayNode& node = *arrays[i].node();
      params.push_back(
          r.param(node.type, node.is_weak, {.shown = "", .in_text = "", .place = fmt::format("operand {}", i)}, true));
    }
    const std::vector<Array> results = body(params);
    std::vector<bool> weak;
    for (const Array& x : results) weak.push_back(x.node()->is_weak);
    const ir::FunctionRef f = r.finish(results, loc);
    SHEAF_CHECK(r.captured().empty(), "a library function captured an array");
    return std::make_shared<const Runnable>(f, RunnableOptions{.weak = std::move(weak)});
  };
  const auto program = eager_programs().get_or_make(key.bytes(), make);
  check(program.status(), loc);
  std::vector<const Array*> pointers;
  for (const Array& x : arrays) pointers.push_back(&x);
  return (*program)->run(pointers, loc, loc);
}

Array compose1(std::string_view name, RuleKey key, std::initializer_list<Operand> operands, Loc loc,
               absl::FunctionRef<Array(std::span<const Array>)> body) {
  return compose(name, std::move(key), std::span(operands.begin(), operands.size()), loc,
                 [&](std::span<const Array> x) { return std::vector<Array>{body(x)}; })[0];
}

ir::Values emit(ir::Builder& b, const ir::OpDef& op, ir::Values operands, std::shared_ptr<const void> attrs) {
  for (const ir::Value v : operands)
    if (!ir::contains(op.types, v.dtype()))
      throw RuleError{fmt::format("takes {}, not {}", ir::name(op.types), name(v.dtype())), RuleError::Of::dtype};
  if (!attrs && op.attrs.make) attrs = op.attrs.make();
  absl::StatusOr<ir::Values> values = b.try_emit(&op, operands, attrs);
  if (values.ok()) return *std::move(values);
  const ir::Eqn e{.op = &op, .operands = operands, .attributes = attrs};
  const bool is_manual = !(op.manual ? op.manual(e).status() : ir::meet(e).status()).ok();
  const RuleError::Of of = op.dtypes && !op.dtypes(e).ok() ? RuleError::Of::dtype
                           : is_manual                     ? RuleError::Of::manual
                                                           : RuleError::Of::shape;
  throw RuleError{std::string(values.status().message()), of};
}

ir::Value emit1(ir::Builder& b, const ir::OpDef& op, ir::Values operands) {
  return emit(b, op, std::move(operands))[0];
}

ir::Value constant(ir::Builder& b, Number v, DType dtype) {
  if (v.kind() == Number::Kind::floating || !is_int(dtype)) return b.constant(dtype, v.as_double());
  ir::Literal literal(ir::Type(dtype, {}));
  literal.set_int(0, v.as_int());
  return b.constant(literal);
}

void check_shape(std::string_view name, const Shape& shape, Loc loc) {
  const bool is_negative = std::any_of(shape.begin(), shape.end(), [](std::int64_t n) { return n < 0; });
  if (!is_negative && num_elements(shape) < kMaxElements) return;
  throw ShapeError(UserLine::or_own(loc), fmt::format("{}: the shape {} has {}", name, to_string(shape),
                                                      is_negative ? "a negative extent" : "too many elements"));
}

int checked_axis(std::string_view name, const Operand& x, std::int64_t axis, Loc loc) {
  const int rank = x.rank();
  if (axis < -rank || axis >= rank) {
    const Named named{"operand", x.array()};
    throw ShapeError(UserLine::or_own(loc),
                     fmt::format("{}: axis {} is out of range for rank {}{}", name, axis, rank, describe({&named, 1})));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<std::int64_t> checked_axes(std::string_view name, const Operand& x, const std::vector<std::int64_t>& axes,
                                       Loc loc) {
  std::vector<std::int64_t> out;
  for (const std::int64_t axis : axes) {
    const std::int64_t a = checked_axis(name, x, axis, loc);
    if (std::find(out.begin(), out.end(), a) != out.end()) {
      const Named named{"operand", x.array()};
      throw ShapeError(UserLine::or_own(loc),
                       fmt::format("{}: axis {} is listed twice{}", name, axis, describe({&named, 1})));
    }
    out.push_back(a);
  }
  return out;
}

}  // namespace sheaf
