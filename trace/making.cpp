// Arrays from nothing: constants, ranges and positions. While tracing they are equations, so nothing large is ever
// baked into a program.
#include <fmt/format.h>

#include <cmath>

#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "sheaf/ops.h"
#include "trace/apply.h"
#include "trace/promotion.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

// A range start, start + step, ...: floats are made in f64 and rounded once.
Array range(std::int64_t count, Number start, Number step, DType dtype, Loc loc) {
  const DType wide = is_float(dtype) ? f64 : dtype;
  const Input inputs[] = {Input(Operand(start, loc), wide), Input(Operand(step, loc), wide)};
  const auto rule = [&](ir::Builder& b, const ir::Values& in) -> ir::Values {
    const ir::Value i = emit1(b, ir::ops::iota, {}, ir::ops::Iota{.shape = {count}, .dim = {0}, .dtype = wide});
    return {ir::ops::convert_to(in[0] + in[1] * i, dtype)};
  };
  return apply("arange", RuleKey().add(count).add(static_cast<std::int64_t>(dtype)), inputs, loc, rule)[0];
}

}  // namespace

Array full(const Shape& shape, Operand value, std::optional<DType> dtype) {
  check_shape("full", shape, value.loc());
  const Operand all[] = {value};
  const bool fits = value.rank() <= static_cast<int>(shape.size());
  if (!fits)
    throw ShapeError(UserLine::or_own(value.loc()),
                     fmt::format("full: {} does not broadcast to {}", to_string(value.shape()), to_string(shape)));
  const DType to = dtype.value_or(promote(all).dtype);
  check_fits("full", all, to);
  return apply1("full", RuleKey().add(shape), {Input(value, to)}, value.loc(),
                [&](ir::Builder& b, const ir::Values& in) { return ir::Values{broadcast_value(b, in[0], shape)}; });
}

Array zeros(const Shape& shape, DType dtype, Loc loc) {
  check_shape("zeros", shape, loc);
  return full(shape, Operand(0, loc), dtype);
}
Array ones(const Shape& shape, DType dtype, Loc loc) {
  check_shape("ones", shape, loc);
  return full(shape, Operand(1, loc), dtype);
}
Array zeros_like(Operand x) { return zeros(x.shape(), x.dtype(), x.loc()); }
Array ones_like(Operand x) { return ones(x.shape(), x.dtype(), x.loc()); }
Array full_like(Operand x, Operand value) { return full(x.shape(), value, x.dtype()); }

Array arange(Number stop, std::optional<DType> dtype, Loc loc) { return arange(0, stop, 1, dtype, loc); }

Array arange(Number start, Number stop, Number step, std::optional<DType> dtype, Loc loc) {
  if (step.as_double() == 0) throw ShapeError(UserLine::or_own(loc), "arange: the step is 0");
  bool floats = false, wide = false;
  for (const Number n : {start, stop, step}) {
    floats |= n.kind() == Number::Kind::floating;
    wide |= n.dtype() == i64;
  }
  const double length = std::ceil((stop.as_double() - start.as_double()) / step.as_double());
  if (!(length < 9e15)) throw ShapeError(UserLine::or_own(loc), "arange: the range is not finite");
  return range(static_cast<std::int64_t>(std::max(length, 0.0)), start, step,
               dtype.value_or(floats ? f32
                              : wide ? i64
                                     : i32),
               loc);
}

Array linspace(double start, double stop, std::int64_t count, DType dtype, Loc loc) {
  if (count < 0) throw ShapeError(UserLine::or_own(loc), fmt::format("linspace: {} values", count));
  if (count == 1) return full({1}, Operand(start, loc), dtype);
  const Input inputs[] = {Input(Operand(start, loc), f64), Input(Operand(stop, loc), f64)};
  const auto rule = [&](ir::Builder& b, const ir::Values& in) -> ir::Values {
    // (1 - t) start + t stop hits both ends exactly.
    const ir::Value i = emit1(b, ir::ops::iota, {}, ir::ops::Iota{.shape = {count}, .dim = {0}, .dtype = f64});
    const ir::Value t = i / static_cast<double>(count - 1);
    return {emit1(b, ir::ops::convert, {(1.0 - t) * in[0] + t * in[1]}, ir::ops::Convert{.to = dtype})};
  };
  return apply("linspace", RuleKey().add(count).add(static_cast<std::int64_t>(dtype)), inputs, loc, rule)[0];
}

Array iota(const Shape& shape, int dim, DType dtype, Loc loc) {
  check_shape("iota", shape, loc);
  const int rank = static_cast<int>(shape.size());
  if (dim < -rank || dim >= rank)
    throw ShapeError(UserLine::or_own(loc),
                     fmt::format("iota: axis {} is out of range for the shape {}", dim, to_string(shape)));
  const int d = dim < 0 ? dim + rank : dim;
  return apply(
      "iota", RuleKey().add(shape).add(std::int64_t{d}).add(static_cast<std::int64_t>(dtype)), {}, loc,
      [&](ir::Builder& b, const ir::Values&) {
        return ir::Values{emit1(b, ir::ops::iota, {}, ir::ops::Iota{.shape = shape, .dim = {d}, .dtype = dtype})};
      })[0];
}

Array eye(std::int64_t n, DType dtype, Loc loc) {
  check_shape("eye", {n}, loc);
  return compose("eye", RuleKey().add(n).add(static_cast<std::int64_t>(dtype)), {}, loc, [&](std::span<const Array>) {
    return std::vector{convert(iota({n, n}, 0) == iota({n, n}, 1), dtype)};
  })[0];
}

}  // namespace sheaf
