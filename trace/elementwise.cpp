// Elementwise functions and operators: promotion and broadcasting happen here, once; ops see equal dtypes and shapes.
#include <absl/container/inlined_vector.h>
#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "sheaf/ops.h"
#include "trace/apply.h"
#include "trace/messages.h"
#include "trace/promotion.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

bool is_weak(const Operand& x) {
  if (!x.array()) return x.number().kind() != Number::Kind::boolean;
  return node_of(*x.array(), x.loc()).is_weak;
}

// lhs and rhs of two, else operand 0, 1, ...
std::vector<Named> named(std::span<const Operand> operands) {
  std::vector<Named> all;
  for (std::size_t k = 0; k < operands.size(); ++k)
    all.push_back({operands.size() == 2 ? (k ? "rhs" : "lhs") : fmt::format("operand {}", k), operands[k].array()});
  return all;
}

// Whether the operands are of one shape, but for numbers, and become this dtype without anything to be said.
bool are_alike(const ir::OpDef& op, std::span<const Operand> operands, DType dtype) {
  if (!ir::contains(op.types, dtype)) return false;
  const Shape* shape = nullptr;
  for (const Operand& x : operands) {
    if (is_complex(x.dtype()) && !is_complex(dtype)) return false;
    if (!x.array()) continue;
    const Shape& own = node_of(*x.array(), x.loc()).type.dims();
    if (own.empty()) continue;
    if (shape && *shape != own) return false;
    shape = &own;
  }
  return true;
}

// One equation of a trace, as most lines of most programs are: written down without the detour that broadcasting and
// programs of their own take. No Array where it takes that, if only to say what is wrong.
Array traced_alike(Recorder& r, std::string_view name, const ir::OpDef& op, std::span<const Operand> operands,
                   DType dtype, bool weak) {
  if (!are_alike(op, operands, dtype)) return {};
  check_fits(name, operands, dtype);
  const Loc loc = UserLine::or_own(operands[0].loc());
  ir::Builder& b = r.builder();
  b.set_loc(loc);
  ir::Values values;
  values.reserve(operands.size());
  for (const Operand& x : operands)
    values.push_back(x.array() ? r.lift(*x.array(), loc, dtype) : r.number(x.number(), dtype));
  const absl::StatusOr<ir::Value> made = b.try_emit_one(&op, std::move(values));
  return made.ok() ? r.wrap(*made, weak, loc) : Array();
}

Array apply_elementwise(std::string_view name, const ir::OpDef& op, std::span<const Operand> operands, DType dtype,
                        bool weak) {
  const Loc loc = operands[0].loc();
  if (Recorder* r = Recorder::current())
    if (Array x = traced_alike(*r, name, op, operands, dtype, weak); x.has_value()) return x;
  const Shape shape = broadcast_shapes(name, operands, loc);
  check_fits(name, operands, dtype);
  absl::InlinedVector<Input, 3> inputs;
  for (const Operand& x : operands) inputs.emplace_back(x, dtype);
  const auto rule = [&](ir::Builder& b, const ir::Values& in) {
    ir::Values full = in;
    for (ir::Value& v : full)
      if (v.rank() > 0) v = broadcast_value(b, v, shape);
    return emit(b, op, std::move(full));
  };
  return apply(name, RuleKey(), inputs, loc, rule, weak)[0];
}

Array comparison(const ir::OpDef& op, Operand x, Operand y) {
  const Operand both[] = {x, y};
  return apply_elementwise(op.name, op, both, promote(both).dtype, false);
}

Array logical(std::string_view name, const ir::OpDef& op, Operand x, Operand y) {
  const Operand both[] = {x, y};
  return apply_elementwise(name, op, both, bool_, false);
}

Array unary(const ir::OpDef& op, Operand x) { return elementwise(op.name, op, {x}); }
Array unary_float(const ir::OpDef& op, Operand x) { return elementwise_float(op.name, op, {x}); }

}  // namespace

void check_fits(std::string_view name, std::span<const Operand> operands, DType dtype) {
  if (!is_int(dtype)) return;
  for (const Operand& x : operands) {
    const ArrayNode* node = x.array() ? &node_of(*x.array(), x.loc()) : nullptr;
    if (node && node->kind != ArrayNode::Kind::number) continue;
    const Number n = node ? node->number : x.number();
    if (n.kind() != Number::Kind::integer) continue;
    const std::int64_t v = n.as_int();
    if (n.is_above_i64() ? dtype == u64 : holds(dtype, v)) continue;
    const std::string text = n.is_above_i64() ? fmt::format("{}", static_cast<std::uint64_t>(v)) : fmt::format("{}", v);
    throw TypeError(UserLine::or_own(x.loc()), fmt::format("{}: {} does not fit in {}{}", name, text,
                                                           sheaf::name(dtype), describe(named(operands))));
  }
}

bool holds(DType integer, std::int64_t value) {
  const int bits = 8 * size_bytes(integer) - (is_signed_int(integer) ? 1 : 0);
  if (value < 0 && !is_signed_int(integer)) return false;
  return bits >= 63 || (value < 0 ? ~value : value) >> bits == 0;
}

DType floating(DType t) { return is_differentiable(t) ? t : f32; }

Promoted promote(std::span<const Operand> operands) {
  std::optional<DType> strong;
  bool weak_float = false, weak_int = false;
  DType weak = bool_;
  for (const Operand& x : operands) {
    const DType t = x.dtype();
    if (!is_weak(x)) {
      strong = strong ? sheaf::promote(*strong, t) : t;
      continue;
    }
    weak_float |= is_float(t);
    weak_int |= is_int(t);
    weak = sheaf::promote(weak, t);
  }
  if (!strong) return {weak, true};
  if (weak_float && !is_differentiable(*strong)) return {f32, false};
  if (weak_int && is_bool(*strong)) return {i32, false};
  return {*strong, false};
}

Shape broadcast_shapes(std::string_view name, std::span<const Operand> operands, Loc loc) {
  Shape shape;
  for (const Operand& x : operands) {
    if (!x.array()) continue;
    const Shape& s = node_of(*x.array(), x.loc()).type.dims();
    if (s == shape) continue;
    if (s.size() > shape.size()) shape.insert(shape.begin(), s.size() - shape.size(), 1);
    for (std::size_t d = 0; d < s.size(); ++d) {
      std::int64_t& n = shape[shape.size() - s.size() + d];
      if (n == 1) n = s[d];
      if (s[d] == 1 || s[d] == n) continue;
      std::string shapes;
      for (const Operand& each : operands) shapes += (shapes.empty() ? "" : " and ") + to_string(each.shape());
      throw ShapeError(UserLine::or_own(loc), fmt::format("{}: shapes {} cannot be broadcast together{}", name, shapes,
                                                          describe(named(operands))));
    }
  }
  return shape;
}

ir::Value broadcast_value(ir::Builder& b, ir::Value x, const Shape& shape) {
  if (x.dims() == shape) return x;
  const int first = static_cast<int>(shape.size()) - x.rank();
  return emit1(b, ir::ops::broadcast, {x},
               ir::ops::Broadcast{.shape = shape, .dims = ir::ops::dim_range(first, x.rank())});
}

Array elementwise(std::string_view name, const ir::OpDef& op, std::initializer_list<Operand> operands) {
  const std::span all(operands.begin(), operands.size());
  const Promoted p = promote(all);
  return apply_elementwise(name, op, all, p.dtype, p.is_weak);
}

Array elementwise_float(std::string_view name, const ir::OpDef& op, std::initializer_list<Operand> operands) {
  const std::span all(operands.begin(), operands.size());
  const Promoted p = promote(all);
  return apply_elementwise(name, op, all, floating(p.dtype), p.is_weak);
}

// ---- operators ----
Array operator+(Operand x, Operand y) { return elementwise("add", ir::ops::add, {x, y}); }
Array operator-(Operand x, Operand y) { return elementwise("sub", ir::ops::sub, {x, y}); }
Array operator*(Operand x, Operand y) { return elementwise("mul", ir::ops::mul, {x, y}); }
Array operator/(Operand x, Operand y) { return elementwise("div", ir::ops::div, {x, y}); }
Array operator%(Operand x, Operand y) { return elementwise("rem", ir::ops::rem, {x, y}); }
Array operator-(Operand x) { return unary(ir::ops::neg, x); }
Array operator+(Operand x) { return to_array(x); }
Array operator!(const Array& x) { return logical_not(Operand(x, x.made_at())); }
Array operator~(Operand x) { return unary(ir::ops::not_, x); }
Array operator&(Operand x, Operand y) { return elementwise("and", ir::ops::and_, {x, y}); }
Array operator|(Operand x, Operand y) { return elementwise("or", ir::ops::or_, {x, y}); }
Array operator^(Operand x, Operand y) { return elementwise("xor", ir::ops::xor_, {x, y}); }
Array operator<<(Operand x, Operand y) { return elementwise("shl", ir::ops::shl, {x, y}); }
Array operator>>(Operand x, Operand y) {
  const Operand both[] = {x, y};
  return is_unsigned_int(promote(both).dtype) ? elementwise("shr", ir::ops::shr_logical, {x, y})
                                              : elementwise("shr", ir::ops::shr_arith, {x, y});
}
Array operator==(Operand x, Operand y) { return comparison(ir::ops::eq, x, y); }
Array operator!=(Operand x, Operand y) { return comparison(ir::ops::ne, x, y); }
Array operator<(Operand x, Operand y) { return comparison(ir::ops::lt, x, y); }
Array operator<=(Operand x, Operand y) { return comparison(ir::ops::le, x, y); }
Array operator>(Operand x, Operand y) { return comparison(ir::ops::gt, x, y); }
Array operator>=(Operand x, Operand y) { return comparison(ir::ops::ge, x, y); }

Array& Array::operator+=(Operand y) & { return *this = Operand(*this, y.loc()) + y; }
Array& Array::operator-=(Operand y) & { return *this = Operand(*this, y.loc()) - y; }
Array& Array::operator*=(Operand y) & { return *this = Operand(*this, y.loc()) * y; }
Array& Array::operator/=(Operand y) & { return *this = Operand(*this, y.loc()) / y; }
Array& Array::operator%=(Operand y) & { return *this = Operand(*this, y.loc()) % y; }
Array& Array::operator&=(Operand y) & { return *this = Operand(*this, y.loc()) & y; }
Array& Array::operator|=(Operand y) & { return *this = Operand(*this, y.loc()) | y; }
Array& Array::operator^=(Operand y) & { return *this = Operand(*this, y.loc()) ^ y; }
Array& Array::operator<<=(Operand y) & { return *this = Operand(*this, y.loc()) << y; }
Array& Array::operator>>=(Operand y) & { return *this = Operand(*this, y.loc()) >> y; }

// ---- one argument ----
Array abs(Operand x) { return unary(ir::ops::abs, x); }
Array sign(Operand x) { return unary(ir::ops::sign, x); }
Array floor(Operand x) { return unary_float(ir::ops::floor, x); }
Array ceil(Operand x) { return unary_float(ir::ops::ceil, x); }
Array round(Operand x) { return unary_float(ir::ops::round, x); }
Array sqrt(Operand x) { return unary_float(ir::ops::sqrt, x); }
Array rsqrt(Operand x) { return unary_float(ir::ops::rsqrt, x); }
Array cbrt(Operand x) { return unary_float(ir::ops::cbrt, x); }
Array square(Operand x) { return elementwise("square", ir::ops::mul, {x, x}); }
Array reciprocal(Operand x) { return elementwise_float("reciprocal", ir::ops::div, {Operand(1.0, x.loc()), x}); }
Array exp(Operand x) { return unary_float(ir::ops::exp, x); }
Array exp2(Operand x) { return unary_float(ir::ops::exp2, x); }
Array expm1(Operand x) { return unary_float(ir::ops::expm1, x); }
Array log(Operand x) { return unary_float(ir::ops::log, x); }
Array log2(Operand x) { return unary_float(ir::ops::log2, x); }
Array log1p(Operand x) { return unary_float(ir::ops::log1p, x); }
Array sin(Operand x) { return unary_float(ir::ops::sin, x); }
Array cos(Operand x) { return unary_float(ir::ops::cos, x); }
Array tan(Operand x) { return unary_float(ir::ops::tan, x); }
Array asin(Operand x) { return unary_float(ir::ops::asin, x); }
Array acos(Operand x) { return unary_float(ir::ops::acos, x); }
Array atan(Operand x) { return unary_float(ir::ops::atan, x); }
Array sinh(Operand x) { return unary_float(ir::ops::sinh, x); }
Array cosh(Operand x) { return unary_float(ir::ops::cosh, x); }
Array tanh(Operand x) { return unary_float(ir::ops::tanh, x); }
Array asinh(Operand x) { return unary_float(ir::ops::asinh, x); }
Array acosh(Operand x) { return unary_float(ir::ops::acosh, x); }
Array atanh(Operand x) { return unary_float(ir::ops::atanh, x); }
Array logistic(Operand x) { return unary_float(ir::ops::logistic, x); }
Array erf(Operand x) { return unary_float(ir::ops::erf, x); }
Array erfc(Operand x) { return unary_float(ir::ops::erfc, x); }
Array erf_inv(Operand x) { return unary_float(ir::ops::erf_inv, x); }
Array lgamma(Operand x) { return unary_float(ir::ops::lgamma, x); }
Array digamma(Operand x) { return unary_float(ir::ops::digamma, x); }
Array popcount(Operand x) { return unary(ir::ops::popcount, x); }
Array clz(Operand x) { return unary(ir::ops::clz, x); }
Array is_finite(Operand x) { return unary_float(ir::ops::is_finite, x); }
Array isnan(Operand x) { return comparison(ir::ops::ne, x, x); }
Array isinf(Operand x) {
  return compose1("isinf", RuleKey(), {x}, x.loc(),
                  [](std::span<const Array> in) { return abs(in[0]) == std::numeric_limits<double>::infinity(); });
}
Array logical_not(Operand x) {
  return apply1("logical_not", RuleKey(), {Input(x, bool_)}, x.loc(),
                [](ir::Builder& b, const ir::Values& in) { return emit(b, ir::ops::not_, in); });
}
Array stop_gradient(Operand x) {
  return apply1("stop_gradient", RuleKey(), {x}, x.loc(),
                [](ir::Builder& b, const ir::Values& in) { return emit(b, ir::ops::stop_gradient, in); });
}
Array convert(Operand x, DType dtype) {
  return apply1("convert", RuleKey(), {Input(x, dtype)}, x.loc(),
                [](ir::Builder&, const ir::Values& in) { return in; });
}
namespace {

Array bitcast_of_one_size(Operand x, DType dtype) {
  return apply1("bitcast", RuleKey().add(static_cast<std::int64_t>(dtype)), {x}, x.loc(),
                [&](ir::Builder& b, const ir::Values& in) {
                  return ir::Values{emit1(b, ir::ops::bitcast, in, ir::ops::Bitcast{.to = dtype})};
                });
}

DType unsigned_of_size(int bytes) { return bytes == 1 ? u8 : bytes == 2 ? u16 : bytes == 4 ? u32 : u64; }

bool has_free_bits(DType t) { return !is_bool(t) && !is_complex(t) && t != DType::token; }

// Each element's parts, the lowest first, along a new last dim.
Array in_parts(const Array& x, DType dtype) {
  const int from = size_bytes(x.dtype()), to = size_bytes(dtype);
  const DType word = unsigned_of_size(from);
  const Array shifts = arange(from / to, word) * (8 * to);
  const Array parts = shift_right_logical(expand_dims(bitcast_of_one_size(x, word), {-1}), shifts);
  return bitcast_of_one_size(convert(parts, unsigned_of_size(to)), dtype);
}

// The last dim's elements, the lowest first, as one.
Array from_parts(const Array& x, DType dtype) {
  const int from = size_bytes(x.dtype()), to = size_bytes(dtype);
  const DType word = unsigned_of_size(to);
  const Array parts = convert(bitcast_of_one_size(x, unsigned_of_size(from)), word);
  const Array shifted = parts << (arange(to / from, word) * (8 * from));
  return bitcast_of_one_size(convert(sum(shifted, {.axes = {-1}}), word), dtype);
}

}  // namespace

Array bitcast(Operand x, DType dtype) {
  const int from = size_bytes(x.dtype()), to = size_bytes(dtype);
  if (from == to || !has_free_bits(x.dtype()) || !has_free_bits(dtype)) return bitcast_of_one_size(x, dtype);
  const Shape shape = x.shape();
  if (from < to && (shape.empty() || shape.back() != to / from)) {
    const Named operand{"operand", x.array()};
    throw ShapeError(UserLine::or_own(x.loc()),
                     fmt::format("bitcast: {} of {} make one {}: the last dim must be {}{}", to / from,
                                 sheaf::name(x.dtype()), sheaf::name(dtype), to / from, describe({&operand, 1})));
  }
  return compose1(
      "bitcast", RuleKey().add(static_cast<std::int64_t>(dtype)), {x}, x.loc(),
      [&](std::span<const Array> in) { return from > to ? in_parts(in[0], dtype) : from_parts(in[0], dtype); });
}

Array reduce_precision(Operand x, int exponent_bits, int mantissa_bits) {
  return apply1("reduce_precision", RuleKey().add(std::int64_t{exponent_bits}).add(std::int64_t{mantissa_bits}),
                {Input(x, floating(x.dtype()))}, x.loc(), [&](ir::Builder& b, const ir::Values& in) {
                  return ir::Values{
                      emit1(b, ir::ops::reduce_precision, in,
                            ir::ops::ReducePrecision{.exponent_bits = exponent_bits, .mantissa_bits = mantissa_bits})};
                });
}

// ---- several arguments ----
Array maximum(Operand x, Operand y) { return elementwise("maximum", ir::ops::max, {x, y}); }
Array minimum(Operand x, Operand y) { return elementwise("minimum", ir::ops::min, {x, y}); }
Array atan2(Operand y, Operand x) { return elementwise_float("atan2", ir::ops::atan2, {y, x}); }
Array logical_and(Operand x, Operand y) { return logical("logical_and", ir::ops::and_, x, y); }
Array logical_or(Operand x, Operand y) { return logical("logical_or", ir::ops::or_, x, y); }
Array logical_xor(Operand x, Operand y) { return logical("logical_xor", ir::ops::xor_, x, y); }
Array shift_right_logical(Operand x, Operand y) {
  return elementwise("shift_right_logical", ir::ops::shr_logical, {x, y});
}
Array clip(Operand x, Operand low, Operand high) {
  return elementwise("clip", ir::ops::clamp, {Operand(low), x, high});
}

// Integer powers of a fixed number are products, exact where the base's powers are; all else goes through pow.
Array pow(Operand x, Operand y) {
  constexpr std::int64_t kMaxFixed = 64;
  const bool is_fixed = !y.array() && y.number().kind() == Number::Kind::integer;
  const std::int64_t n = is_fixed ? y.number().as_int() : 0;
  if (!is_fixed || n > kMaxFixed || n < -kMaxFixed) return elementwise_float("pow", ir::ops::pow, {x, y});
  return compose1("pow", RuleKey().add(n), {x}, x.loc(), [&](std::span<const Array> in) {
    Array result = ones_like(in[0]), base = in[0];
    bool is_one = true;
    for (std::int64_t left = std::abs(n); left > 0; left /= 2) {
      if (left % 2) result = std::exchange(is_one, false) ? base : result * base;
      if (left > 1) base = base * base;
    }
    return n < 0 ? reciprocal(result) : result;
  });
}

Array mod(Operand x, Operand y) {
  return compose1("mod", RuleKey(), {x, y}, x.loc(), [](std::span<const Array> in) {
    const Array r = in[0] % in[1];
    return where((r != 0) & ((r < 0) != (in[1] < 0)), r + in[1], r);
  });
}

Array floor_divide(Operand x, Operand y) {
  return compose1("floor_divide", RuleKey(), {x, y}, x.loc(), [](std::span<const Array> in) {
    const Array q = in[0] / in[1], r = in[0] % in[1];
    const Array is_between = (r != 0) & ((r < 0) != (in[1] < 0));
    if (!is_float(q.dtype())) return where(is_between, q - 1, q);
    // By the remainder, so that it agrees with mod: 1 / 0.1 rounds to 10, and 0.1 fits nine times.
    const Array whole = round((in[0] - r) / in[1]);
    return where(in[1] == 0, stop_gradient(q), where(is_between, whole - 1, whole));
  });
}

Array where(Operand condition, Operand a, Operand b) {
  const Operand all[] = {condition, a, b}, cases[] = {a, b};
  const Promoted p = promote(cases);
  const Shape shape = broadcast_shapes("where", all, condition.loc());
  check_fits("where", cases, p.dtype);
  const auto rule = [&](ir::Builder& builder, const ir::Values& in) {
    ir::Values full;
    for (const ir::Value v : in) full.push_back(v.rank() == 0 ? v : broadcast_value(builder, v, shape));
    return emit(builder, ir::ops::select, std::move(full));
  };
  const Input inputs[] = {Input(condition, bool_), Input(a, p.dtype), Input(b, p.dtype)};
  return apply("where", RuleKey(), inputs, condition.loc(), rule, p.is_weak)[0];
}

}  // namespace sheaf
