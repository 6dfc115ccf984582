// Reductions over axes and what is composed of them.
#include <fmt/format.h>

#include <cmath>

#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "sheaf/ops.h"
#include "trace/apply.h"
#include "trace/messages.h"
#include "trace/promotion.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

using Axes = std::vector<std::int64_t>;

Axes reduced_axes(std::string_view name, const Operand& x, const Axes& axes) {
  return axes.empty() ? ir::ops::dim_range(0, x.rank()) : checked_axes(name, x, axes, x.loc());
}

Shape kept_shape(const Shape& shape, const Axes& axes) {
  Shape kept = shape;
  for (const std::int64_t a : axes) kept[a] = 1;
  return kept;
}

Array reduce(std::string_view name, ir::ReduceKind kind, Operand x, DType dtype, const Reduce& options) {
  const Axes axes = reduced_axes(name, x, options.axes);
  const Shape shape = x.shape();
  if (kind == ir::ReduceKind::max || kind == ir::ReduceKind::min)
    for (const std::int64_t a : axes)
      if (shape[a] == 0) {
        const Named named{"operand", x.array()};
        throw ShapeError(UserLine::or_own(x.loc()),
                         fmt::format("{}: axis {} is empty and has no {}{}", name, a, name, describe({&named, 1})));
      }
  return apply1(name, RuleKey().add(static_cast<std::int64_t>(kind)).add(axes).add(std::int64_t{options.keepdims}),
                {Input(x, dtype)}, x.loc(), [&](ir::Builder& b, const ir::Values& in) {
                  ir::Value v = in[0];
                  if (!axes.empty()) v = emit1(b, ir::ops::reduce, in, ir::ops::Reduce{.kind = kind, .dims = axes});
                  return ir::Values{options.keepdims ? ir::ops::reshape_to(v, kept_shape(shape, axes)) : v};
                });
}

Array arg_reduce(std::string_view name, const ir::OpDef& op, Operand x, std::optional<int> axis) {
  if (!axis && x.rank() != 1) return arg_reduce(name, op, Operand(ravel(x), x.loc()), 0);
  const int dim = checked_axis(name, x, axis.value_or(0), x.loc());
  if (x.shape()[dim] == 0) {
    const Named named{"operand", x.array()};
    throw ShapeError(UserLine::or_own(x.loc()),
                     fmt::format("{}: axis {} is empty{}", name, dim, describe({&named, 1})));
  }
  return apply1(name, RuleKey().add(std::int64_t{dim}), {x}, x.loc(), [&](ir::Builder& b, const ir::Values& in) {
    return ir::Values{emit1(b, op, in, ir::ops::ArgReduce{.dim = {dim}, .dtype = i32})};
  });
}

std::int64_t count_reduced(const Operand& x, const Axes& axes) {
  std::int64_t n = 1;
  for (const std::int64_t a : axes) n *= x.shape()[a];
  return n;
}

// What sums and products of narrow types count in: a hundred u8 pixels do not fit in u8.
DType countable(DType t) {
  if (is_bool(t) || (is_signed_int(t) && size_bytes(t) < 4)) return i32;
  return is_unsigned_int(t) && size_bytes(t) < 4 ? u32 : t;
}

using Running = ir::lowering::Recurrence::Kind;

Array cumulative(std::string_view name, Running kind, Operand x, DType dtype, const Cumulative& options) {
  const int dim = checked_axis(name, x, options.axis, x.loc());
  return apply1(name, RuleKey().add(std::int64_t{dim}).add(std::int64_t{options.reverse}), {Input(x, dtype)}, x.loc(),
                [&](ir::Builder& b, const ir::Values& in) {
                  return ir::Values{emit1(b, ir::ops::cumulative, in,
                                          ir::ops::Cumulative{.kind = kind, .dim = {dim}, .reverse = options.reverse})};
                });
}

// f16 and bf16 moments are computed in f32 and rounded once.
DType wide(DType t) { return is_differentiable(t) ? accumulator(t) : f32; }

RuleKey key_of(const Axes& axes, bool keepdims) { return std::move(RuleKey().add(axes).add(std::int64_t{keepdims})); }

}  // namespace

Array sum(Operand x, const Reduce& o) { return reduce("sum", ir::ReduceKind::sum, x, countable(x.dtype()), o); }
Array prod(Operand x, const Reduce& o) { return reduce("prod", ir::ReduceKind::prod, x, countable(x.dtype()), o); }
Array max(Operand x, const Reduce& o) { return reduce("max", ir::ReduceKind::max, x, x.dtype(), o); }
Array min(Operand x, const Reduce& o) { return reduce("min", ir::ReduceKind::min, x, x.dtype(), o); }
Array any(Operand x, const Reduce& o) { return reduce("any", ir::ReduceKind::or_, x, bool_, o); }
Array all(Operand x, const Reduce& o) { return reduce("all", ir::ReduceKind::and_, x, bool_, o); }
Array argmax(Operand x, std::optional<int> axis) { return arg_reduce("argmax", ir::ops::argmax, x, axis); }
Array argmin(Operand x, std::optional<int> axis) { return arg_reduce("argmin", ir::ops::argmin, x, axis); }

Array mean(Operand x, const Reduce& o) {
  const Axes axes = reduced_axes("mean", x, o.axes);
  const double n = static_cast<double>(count_reduced(x, axes));
  const DType t = x.dtype(), result = is_differentiable(t) ? t : f32;
  if (axes.empty()) return convert(x, result);
  return compose1("mean", key_of(axes, o.keepdims), {x}, x.loc(), [&](std::span<const Array> in) {
    return convert(sum(convert(in[0], wide(t)), {.axes = axes, .keepdims = o.keepdims}) / n, result);
  });
}

Array var(Operand x, const Moments& o) {
  const Axes axes = reduced_axes("var", x, o.axes);
  const double n = static_cast<double>(count_reduced(x, axes) - o.ddof);
  const DType t = x.dtype(), result = is_differentiable(t) ? part_dtype(t) : f32;
  return compose1("var", std::move(key_of(axes, o.keepdims).add(std::int64_t{o.ddof})), {x}, x.loc(),
                  [&](std::span<const Array> in) {
                    const Array wide_x = convert(in[0], wide(t));
                    const Array centred = wide_x - mean(wide_x, {.axes = axes, .keepdims = true});
                    const Array squared = is_complex(t) ? real(centred * conj(centred)) : square(centred);
                    return convert(sum(squared, {.axes = axes, .keepdims = o.keepdims}) / n, result);
                  });
}

Array stddev(Operand x, const Moments& o) {
  const Axes axes = reduced_axes("stddev", x, o.axes);
  return compose1("stddev", std::move(key_of(axes, o.keepdims).add(std::int64_t{o.ddof})), {x}, x.loc(),
                  [&](std::span<const Array> in) {
                    return sqrt(var(in[0], {.axes = axes, .keepdims = o.keepdims, .ddof = o.ddof}));
                  });
}

Array cumsum(Operand x, const Cumulative& o) { return cumulative("cumsum", Running::sum, x, countable(x.dtype()), o); }
Array cumprod(Operand x, const Cumulative& o) {
  return cumulative("cumprod", Running::prod, x, countable(x.dtype()), o);
}
Array cummax(Operand x, const Cumulative& o) { return cumulative("cummax", Running::max, x, x.dtype(), o); }
Array cummin(Operand x, const Cumulative& o) { return cumulative("cummin", Running::min, x, x.dtype(), o); }
Array cumlogsumexp(Operand x, const Cumulative& o) {
  return cumulative("cumlogsumexp", Running::logsumexp, x, is_differentiable(x.dtype()) ? x.dtype() : f32, o);
}

Array linear_recurrence(Operand a, Operand b, const Cumulative& o) {
  const Operand both[] = {a, b};
  const Shape shape = broadcast_shapes("linear_recurrence", both, a.loc());
  const int dim = checked_axis("linear_recurrence", a.rank() >= b.rank() ? a : b, o.axis, a.loc());
  const DType dtype = floating(promote(both).dtype);
  return apply1(
      "linear_recurrence", RuleKey().add(std::int64_t{dim}).add(std::int64_t{o.reverse}),
      {Input(a, dtype), Input(b, dtype)}, a.loc(), [&](ir::Builder& builder, const ir::Values& in) {
        return ir::Values{emit1(builder, ir::ops::recurrence,
                                {broadcast_value(builder, in[0], shape), broadcast_value(builder, in[1], shape)},
                                ir::ops::Recurrence{.dim = {dim}, .reverse = o.reverse})};
      });
}

bool all_equal(Operand x, Operand y) {
  if (x.shape() != y.shape()) return false;
  const UserLine line(x.loc());
  const Array left = to_array(x), right = to_array(y);
  return all(left == right).item<bool>(x.loc());
}

}  // namespace sheaf
