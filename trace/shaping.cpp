// Functions that move elements without computing on them.
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

using Dims = std::vector<std::int64_t>;
using ir::ops::DimList;

[[noreturn]] void throw_shape(std::string_view name, const std::string& what, const Operand& x) {
  const Named named{"operand", x.array()};
  throw ShapeError(UserLine::or_own(x.loc()), fmt::format("{}: {}{}", name, what, describe({&named, 1})));
}

Array reshape_to(std::string_view name, Operand x, const Shape& shape) {
  if (x.array() && x.shape() == shape) return *x.array();
  return apply1(name, RuleKey().add(shape), {x}, x.loc(),
                [&](ir::Builder&, const ir::Values& in) { return ir::Values{ir::ops::reshape_to(in[0], shape)}; });
}

}  // namespace

Array reshape(Operand x, const Shape& shape) {
  Shape full = shape;
  const std::int64_t size = num_elements(x.shape());
  std::int64_t known = 1;
  auto open = full.end();
  for (auto d = full.begin(); d != full.end(); ++d) {
    if (*d == -1 && open == full.end()) open = d;
    else if (*d < 0)
      throw_shape("reshape", fmt::format("the shape {} may have one -1 and no other negative extent", to_string(shape)),
                  x);
    else known *= *d;
  }
  if (open != full.end()) {
    if (known == 0 || size % known != 0)
      throw_shape("reshape", fmt::format("{} elements do not fill the shape {}", size, to_string(shape)), x);
    *open = size / known;
  } else if (known != size) {
    throw_shape("reshape", fmt::format("{} elements do not fill the shape {}", size, to_string(shape)), x);
  }
  return reshape_to("reshape", x, full);
}

Array ravel(Operand x) { return reshape_to("ravel", x, {num_elements(x.shape())}); }

Array squeeze(Operand x, const Dims& axes) {
  const Shape shape = x.shape();
  Shape left;
  const Dims gone = checked_axes("squeeze", x, axes, x.loc());
  for (const std::int64_t a : gone)
    if (shape[a] != 1) throw_shape("squeeze", fmt::format("axis {} has extent {}, not 1", a, shape[a]), x);
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (axes.empty() ? shape[d] != 1 : !ir::ops::lists(gone, static_cast<std::int64_t>(d))) left.push_back(shape[d]);
  return reshape_to("squeeze", x, left);
}

Array expand_dims(Operand x, const Dims& axes) {
  const std::int64_t rank = x.rank() + static_cast<std::int64_t>(axes.size());
  Dims places;
  for (std::int64_t a : axes) {
    if (a < -rank || a >= rank)
      throw_shape("expand_dims", fmt::format("axis {} is out of range for a result of rank {}", a, rank), x);
    if (a < 0) a += rank;
    if (ir::ops::lists(places, a)) throw_shape("expand_dims", fmt::format("axis {} is listed twice", a), x);
    places.push_back(a);
  }
  const Shape shape = x.shape();
  Shape wider;
  std::size_t next = 0;
  for (std::int64_t d = 0; d < rank; ++d) wider.push_back(ir::ops::lists(places, d) ? 1 : shape[next++]);
  return reshape_to("expand_dims", x, wider);
}

Array transpose(Operand x, const Dims& perm) {
  Dims full = checked_axes("transpose", x, perm, x.loc());
  if (perm.empty())
    for (std::int64_t d = x.rank(); d-- > 0;) full.push_back(d);
  if (static_cast<int>(full.size()) != x.rank())
    throw_shape("transpose", fmt::format("perm {} must list all {} dims", to_string(perm), x.rank()), x);
  return apply1("transpose", RuleKey().add(full), {x}, x.loc(),
                [&](ir::Builder&, const ir::Values& in) { return ir::Values{ir::ops::permute(in[0], full)}; });
}

Array swapaxes(Operand x, int a, int b) {
  Dims perm = ir::ops::dim_range(0, x.rank());
  std::swap(perm[checked_axis("swapaxes", x, a, x.loc())], perm[checked_axis("swapaxes", x, b, x.loc())]);
  return transpose(x, perm);
}

Array moveaxis(Operand x, int from, int to) {
  const int f = checked_axis("moveaxis", x, from, x.loc()), t = checked_axis("moveaxis", x, to, x.loc());
  Dims perm = ir::ops::dim_range(0, x.rank());
  perm.erase(perm.begin() + f);
  perm.insert(perm.begin() + t, f);
  return transpose(x, perm);
}

Array broadcast_to(Operand x, const Shape& shape) {
  const Shape from = x.shape();
  bool fits = from.size() <= shape.size();
  for (std::size_t d = 0; fits && d < from.size(); ++d) {
    const std::int64_t n = shape[shape.size() - from.size() + d];
    fits = from[d] == n || from[d] == 1;
  }
  if (!fits)
    throw_shape("broadcast_to", fmt::format("{} does not broadcast to {}", to_string(from), to_string(shape)), x);
  return apply1("broadcast_to", RuleKey().add(shape), {x}, x.loc(),
                [&](ir::Builder& b, const ir::Values& in) { return ir::Values{broadcast_value(b, in[0], shape)}; });
}

Array concatenate(const std::vector<Array>& parts, int axis, Loc loc) {
  if (parts.empty()) throw ShapeError(UserLine::or_own(loc), "concatenate: no arrays");
  std::vector<Operand> operands;
  for (const Array& p : parts) operands.emplace_back(p, loc);
  const int dim = checked_axis("concatenate", operands[0], axis, loc);
  std::vector<Input> inputs;
  const DType dtype = promote(operands).dtype;
  for (const Operand& x : operands) {
    Shape a = x.shape(), b = parts[0].shape();
    if (a.size() == b.size()) a[dim] = b[dim] = 0;
    if (a != b) {
      std::vector<Named> named;
      for (std::size_t k = 0; k < parts.size(); ++k) named.push_back({fmt::format("part {}", k), &parts[k]});
      throw ShapeError(UserLine::or_own(loc),
                       fmt::format("concatenate: the parts must agree in all dims but {}{}", dim, describe(named)));
    }
    inputs.emplace_back(x, dtype);
  }
  return apply("concatenate", RuleKey().add(std::int64_t{dim}), inputs, loc, [&](ir::Builder& b, const ir::Values& in) {
    if (in.size() == 1) return in;
    return ir::Values{emit1(b, ir::ops::concatenate, in, ir::ops::Concatenate{.dim = {dim}})};
  })[0];
}

Array stack(const std::vector<Array>& parts, int axis, Loc loc) {
  if (parts.empty()) throw ShapeError(UserLine::or_own(loc), "stack: no arrays");
  std::vector<Operand> operands;
  for (const Array& p : parts) operands.emplace_back(p, loc);
  for (const Array& p : parts) {
    if (p.shape() == parts[0].shape()) continue;
    std::vector<Named> named;
    for (std::size_t k = 0; k < parts.size(); ++k) named.push_back({fmt::format("part {}", k), &parts[k]});
    throw ShapeError(UserLine::or_own(loc), "stack: the parts must have the same shape" + describe(named));
  }
  return compose("stack", RuleKey().add(std::int64_t{axis}), operands, loc, [&](std::span<const Array> in) {
    std::vector<Array> rows;
    for (const Array& x : in) rows.push_back(expand_dims(x, {axis}));
    return std::vector{concatenate(rows, axis)};
  })[0];
}

std::vector<Array> split(Operand x, int parts, int axis) {
  const int dim = checked_axis("split", x, axis, x.loc());
  const std::int64_t n = x.shape()[dim];
  if (parts <= 0 || n % parts != 0)
    throw_shape("split", fmt::format("axis {} of extent {} does not split into {} equal parts", dim, n, parts), x);
  const std::int64_t part = n / parts;
  const Input inputs[] = {x};
  return apply("split", RuleKey().add(std::int64_t{parts}).add(std::int64_t{dim}), inputs, x.loc(),
               [&](ir::Builder&, const ir::Values& in) {
                 ir::Values out;
                 for (std::int64_t k = 0; k < parts; ++k)
                   out.push_back(ir::ops::slice_dim(in[0], dim, k * part, (k + 1) * part));
                 return out;
               });
}

Array pad(Operand x, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths, Operand value) {
  if (static_cast<int>(widths.size()) != x.rank())
    throw_shape("pad", fmt::format("{} pairs of widths for rank {}", widths.size(), x.rank()), x);
  const Shape shape = x.shape();
  Dims low, high;
  for (std::size_t d = 0; d < widths.size(); ++d) {
    low.push_back(widths[d].first);
    high.push_back(widths[d].second);
    if (shape[d] + low[d] + high[d] < 0)
      throw_shape("pad", fmt::format("axis {} of extent {} cannot lose {}", d, shape[d], -(low[d] + high[d])), x);
  }
  const Operand both[] = {x, value};
  check_fits("pad", both, x.dtype());
  return apply1("pad", RuleKey().add(low).add(high), {x, Input(value, x.dtype())}, x.loc(),
                [&](ir::Builder& b, const ir::Values& in) {
                  ir::ops::Pad attrs;
                  attrs.low.assign(low.begin(), low.end());
                  attrs.high.assign(high.begin(), high.end());
                  attrs.interior.assign(low.size(), 0);
                  return ir::Values{emit1(b, ir::ops::pad, in, std::move(attrs))};
                });
}

Array flip(Operand x, const Dims& axes) {
  const Dims dims = axes.empty() ? ir::ops::dim_range(0, x.rank()) : checked_axes("flip", x, axes, x.loc());
  return apply1("flip", RuleKey().add(dims), {x}, x.loc(), [&](ir::Builder& b, const ir::Values& in) {
    ir::ops::Reverse attrs;
    attrs.dims.assign(dims.begin(), dims.end());
    return ir::Values{dims.empty() ? in[0] : emit1(b, ir::ops::reverse, in, std::move(attrs))};
  });
}

Array roll(Operand x, std::int64_t shift, int axis) {
  const int dim = checked_axis("roll", x, axis, x.loc());
  const std::int64_t n = x.shape()[dim];
  const std::int64_t s = n == 0 ? 0 : (shift % n + n) % n;
  return apply1("roll", RuleKey().add(s).add(std::int64_t{dim}), {x}, x.loc(),
                [&](ir::Builder& b, const ir::Values& in) -> ir::Values {
                  if (s == 0) return in;
                  const ir::Value head = ir::ops::slice_dim(in[0], dim, n - s, n),
                                  tail = ir::ops::slice_dim(in[0], dim, 0, n - s);
                  return {emit1(b, ir::ops::concatenate, {head, tail}, ir::ops::Concatenate{.dim = {dim}})};
                });
}

Array tile(Operand x, const Dims& repeats) {
  for (const std::int64_t r : repeats)
    if (r < 0) throw_shape("tile", fmt::format("repeats {} must not be negative", to_string(repeats)), x);
  return compose1("tile", RuleKey().add(repeats), {x}, x.loc(), [&](std::span<const Array> in) {
    Shape shape = in[0].shape();
    Dims times = repeats;
    if (times.size() < shape.size()) times.insert(times.begin(), shape.size() - times.size(), 1);
    if (shape.size() < times.size()) shape.insert(shape.begin(), times.size() - shape.size(), 1);
    Shape narrow, wide, result;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      narrow.insert(narrow.end(), {1, shape[d]});
      wide.insert(wide.end(), {times[d], shape[d]});
      result.push_back(times[d] * shape[d]);
    }
    return reshape(broadcast_to(reshape(in[0], narrow), wide), result);
  });
}

Array repeat(Operand x, std::int64_t count, int axis) {
  const int dim = checked_axis("repeat", x, axis, x.loc());
  if (count < 0) throw_shape("repeat", fmt::format("count {} must not be negative", count), x);
  return compose1("repeat", RuleKey().add(count).add(std::int64_t{dim}), {x}, x.loc(), [&](std::span<const Array> in) {
    Shape wide = in[0].shape(), result = wide;
    wide.insert(wide.begin() + dim + 1, count);
    result[dim] *= count;
    return reshape(broadcast_to(expand_dims(in[0], {dim + 1}), wide), result);
  });
}

namespace {

Array triangle(std::string_view name, Operand x, int diagonal, bool lower) {
  if (x.rank() < 2) throw_shape(name, "needs at least two dims", x);
  return compose1(name, RuleKey().add(std::int64_t{diagonal}), {x}, x.loc(), [&](std::span<const Array> in) {
    const Shape last(in[0].shape().end() - 2, in[0].shape().end());
    const Array offset = iota(last, 1) - iota(last, 0);
    return where(lower ? offset <= diagonal : offset >= diagonal, in[0], zeros_like(in[0]));
  });
}

}  // namespace

Array tril(Operand x, int diagonal) { return triangle("tril", x, diagonal, true); }
Array triu(Operand x, int diagonal) { return triangle("triu", x, diagonal, false); }

}  // namespace sheaf
