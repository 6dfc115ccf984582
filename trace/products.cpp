// Contractions in NumPy's clothes: all of them are one `dot` equation with the right dims, and a transpose where NumPy
// wants another order.
#include <fmt/format.h>

#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "sheaf/ops.h"
#include "trace/apply.h"
#include "trace/messages.h"
#include "trace/precision.h"
#include "trace/promotion.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

using Dims = std::vector<std::int64_t>;

Array contract(std::string_view name, Operand x, Operand y, const DotDims& d, const Dims& perm = {}) {
  const Operand both[] = {x, y};
  const DType dtype = promote(both).dtype;
  const DType computed = is_bool(dtype) ? i32 : dtype;
  const Precision precision = precision_of(d.precision, computed);
  RuleKey key;
  key.add(d.lhs)
      .add(d.rhs)
      .add(d.lhs_batch)
      .add(d.rhs_batch)
      .add(perm)
      .add(static_cast<std::int64_t>(d.dtype.value_or(DType::token)))
      .add(static_cast<std::int64_t>(precision));
  return apply1(name, std::move(key), {Input(x, computed), Input(y, computed)}, x.loc(),
                [&](ir::Builder& b, const ir::Values& in) {
                  ir::ops::Dot attrs;
                  attrs.lhs.assign(d.lhs.begin(), d.lhs.end());
                  attrs.rhs.assign(d.rhs.begin(), d.rhs.end());
                  attrs.lhs_batch.assign(d.lhs_batch.begin(), d.lhs_batch.end());
                  attrs.rhs_batch.assign(d.rhs_batch.begin(), d.rhs_batch.end());
                  if (d.dtype && *d.dtype != computed) attrs.dtype = *d.dtype;
                  attrs.precision = precision;
                  const ir::Value v = emit1(b, ir::ops::dot, in, std::move(attrs));
                  return ir::Values{perm.empty() ? v : ir::ops::permute(v, perm)};
                });
}

[[noreturn]] void throw_shapes(std::string_view name, const std::string& what, const Operand& x, const Operand& y) {
  const Named named[] = {{"lhs", x.array()}, {"rhs", y.array()}};
  throw ShapeError(UserLine::or_own(x.loc()), fmt::format("{}: {}{}", name, what, describe(named)));
}

}  // namespace

Array dot_general(Operand x, Operand y, const DotDims& dims) {
  DotDims d = dims;
  d.lhs = checked_axes("dot_general", x, dims.lhs, x.loc());
  d.rhs = checked_axes("dot_general", y, dims.rhs, x.loc());
  d.lhs_batch = checked_axes("dot_general", x, dims.lhs_batch, x.loc());
  d.rhs_batch = checked_axes("dot_general", y, dims.rhs_batch, x.loc());
  return contract("dot_general", x, y, d);
}

Array dot(Operand x, Operand y, const ProductOptions& options) {
  if (x.rank() == 0 || y.rank() == 0) return elementwise("dot", ir::ops::mul, {x, y});
  const std::int64_t last = x.rank() - 1, over = y.rank() == 1 ? 0 : y.rank() - 2;
  return contract("dot", x, y, {.lhs = {last}, .rhs = {over}, .precision = options.precision});
}

Array matmul(Operand x, Operand y, const ProductOptions& options) {
  const int m = x.rank(), n = y.rank();
  if (m == 0 || n == 0) throw_shapes("matmul", "a scalar is no matrix: use *", x, y);
  if (n <= 2) return contract("matmul", x, y, {.lhs = {m - 1}, .rhs = {0}, .precision = options.precision});
  // Leading dims are a batch, broadcast where they differ.
  const Shape xs = x.shape(), ys = y.shape();
  const Shape x_lead(xs.begin(), xs.end() - std::min(m, 2)), y_lead(ys.begin(), ys.end() - 2);
  Shape lead = x_lead.size() >= y_lead.size() ? x_lead : y_lead;
  for (std::size_t i = 1; i <= lead.size(); ++i) {
    const std::int64_t a = i <= x_lead.size() ? x_lead[x_lead.size() - i] : 1;
    const std::int64_t b = i <= y_lead.size() ? y_lead[y_lead.size() - i] : 1;
    if (a != b && a != 1 && b != 1)
      throw_shapes(
          "matmul",
          fmt::format("leading dims {} and {} cannot be broadcast together", to_string(x_lead), to_string(y_lead)), x,
          y);
    lead[lead.size() - i] = a == 1 ? b : a;
  }
  return compose1("matmul", key_of(options), {x, y}, x.loc(), [&](std::span<const Array> in) {
    const auto with_lead = [&](const Array& a, int keep) {
      Shape shape = lead;
      shape.insert(shape.end(), a.shape().end() - keep, a.shape().end());
      return broadcast_to(a, shape);
    };
    const std::int64_t k = static_cast<std::int64_t>(lead.size());
    const Dims batch = ir::ops::dim_range(0, static_cast<int>(k));
    const bool is_vector = m == 1;
    return contract("matmul", with_lead(in[0], is_vector ? 1 : 2), with_lead(in[1], 2),
                    {.lhs = {is_vector ? k : k + 1},
                     .rhs = {k},
                     .lhs_batch = batch,
                     .rhs_batch = batch,
                     .precision = options.precision});
  });
}

Array outer(Operand x, Operand y) {
  const UserLine line(x.loc());
  return reshape(x, {-1, 1}) * reshape(y, {1, -1});
}

}  // namespace sheaf
