// From the equation to the description: dims become steps in memory, those of 1 that are read for every index none.
#include "codegen/kir/attention.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/check.h"
#include "ir/op.h"
#include "ir/ops/attention.h"
#include "ir/schedule.h"

namespace sheaf::kir {
namespace {

using Array = Attention::Array;
using ir::ops::AttentionRoles;

constexpr std::int64_t kFewRows = 64;    // of one head: a tile of one block
constexpr std::int64_t kPartKeys = 512;  // enough for results of parts to be small beside them

/// The order of an array's dims after those of the batch.
enum class Layout { row_head_column, head_row_column, head_row };

std::int64_t step(ir::Type type, const std::vector<std::int64_t>& strides, int dim) {
  return type.dim(dim) == 1 ? 0 : strides[dim];
}

Array array_of(BufferId buffer, ir::Type type, Layout layout) {
  const std::vector<std::int64_t> strides = ir::strides_of(type.dims());
  const int batch = type.rank() - (layout == Layout::head_row ? 2 : 3);
  Array a{.buffer = buffer, .dtype = type.dtype()};
  for (int d = 0; d < batch; ++d) a.batch.push_back(step(type, strides, d));
  a.head = step(type, strides, layout == Layout::row_head_column ? batch + 1 : batch);
  a.row = step(type, strides, layout == Layout::row_head_column ? batch : batch + 1);
  if (layout != Layout::head_row) a.column = step(type, strides, batch + 2);
  return a;
}

class Maker {
 public:
  explicit Maker(const ir::Function& body) : body_(body), e_(equation(body)) {
    for (ir::Value p : body.params()) add_param(p.type(), Param::Access::read);
    for (ir::Value r : body.results()) add_param(r.type(), Param::Access::write);
  }

  Kernel make() {
    const ir::ops::AttentionSizes n(e_);
    const ir::ops::Attention attrs = ir::ops::with_near_window(e_);
    const AttentionRoles roles(attrs);
    a_ = {.kind = e_.op == &ir::ops::attention ? Attention::Kind::forward : Attention::Kind::backward,
          .batch = n.batch,
          .queries = n.queries,
          .keys = n.keys,
          .key_heads = n.key_heads,
          .group = n.group,
          .features = n.features,
          .values = n.values,
          .scale = attrs.scale,
          .before = attrs.before,
          .after = attrs.after};
    a_.query = operand(0, Layout::row_head_column);
    a_.key = operand(1, Layout::row_head_column);
    a_.value = operand(2, Layout::row_head_column);
    a_.bias = operand(roles.bias, Layout::head_row_column);
    a_.mask = operand(roles.mask, Layout::head_row_column);
    if (a_.kind == Attention::Kind::forward) add_results();
    else add_backward(attrs, roles);
    kernel_.attention = std::make_shared<const Attention>(std::move(a_));
    return std::move(kernel_);
  }

 private:
  static const ir::Eqn& equation(const ir::Function& body) {
    const ir::Eqn& e = *body.eqns().back();
    SHEAF_CHECK(ir::nest_of(e) == ir::Nest::attention, "an attention is what its kernel ends with");
    return e;
  }

  BufferId add_param(ir::Type type, Param::Access access) {
    kernel_.params.push_back({type.dtype(), type.num_elements(), access});
    return static_cast<BufferId>(kernel_.params.size()) - 1;
  }
  Array operand(int k, Layout layout) const {
    if (k < 0) return {};
    const ir::Value in = ir::ops::converts(e_, k) ? e_.in(k).eqn()->in(0) : e_.in(k);
    return array_of(in.index(), in.type(), layout);
  }
  /// Result j of the equation; none where nobody reads it.
  Array result(int j, Layout layout) const {
    const ir::Values& wanted = body_.results();
    const auto it = std::find(wanted.begin(), wanted.end(), e_.out(j));
    if (it == wanted.end()) return {};
    const auto buffer = static_cast<BufferId>(std::ssize(body_.params()) + (it - wanted.begin()));
    return array_of(buffer, e_.out(j).type(), layout);
  }

  void add_results() {
    a_.out = result(0, Layout::row_head_column);
    a_.lse = result(1, Layout::head_row);
    a_.parts = parts();
    if (a_.parts == 1) return;
    a_.part_out = of_parts(e_.out(0).dims(), Layout::row_head_column);
    a_.part_lse = of_parts(e_.out(1).dims(), Layout::head_row);
  }

  /// By the lengths alone, so that no sum depends on the batch or the heads beside it.
  std::int64_t parts() const {
    const std::int64_t rows = a_.queries == 1 ? a_.group : a_.queries;
    return rows <= kFewRows && a_.keys >= 2 * kPartKeys ? (a_.keys + kPartKeys - 1) / kPartKeys : 1;
  }
  Array of_parts(const Shape& dims, Layout layout) {
    const ir::Type type(DType::f32, dims);
    const BufferId buffer = add_param(type, Param::Access::temporary);
    kernel_.params.back().count *= a_.parts;
    return array_of(buffer, type, layout);
  }

  void add_backward(const ir::ops::Attention& attrs, const AttentionRoles& roles) {
    a_.lse = operand(roles.lse, Layout::head_row);
    a_.ct = operand(roles.linear, Layout::row_head_column);
    a_.ct_sum = operand(roles.linear + 1, Layout::head_row);
    a_.d_query = result(0, Layout::row_head_column);
    a_.d_key = result(1, Layout::row_head_column);
    a_.d_value = result(2, Layout::row_head_column);
    if (attrs.derives_bias) a_.d_bias = result(3, Layout::head_row_column);
    const ir::Type ct(a_.query.dtype, e_.in(roles.linear).dims()), sums = e_.in(roles.lse).type();
    a_.ct_half = a_.ct.dtype == ct.dtype()
                     ? a_.ct
                     : array_of(add_param(ct, Param::Access::temporary), ct, Layout::row_head_column);
    a_.shift = array_of(add_param(sums, Param::Access::temporary), sums, Layout::head_row);
  }

  const ir::Function& body_;
  const ir::Eqn& e_;
  Kernel kernel_;
  Attention a_;
};

}  // namespace

std::int64_t Attention::batches() const {
  std::int64_t n = 1;
  for (std::int64_t d : batch) n *= d;
  return n;
}

Kernel attention_kernel(const ir::Function& body) { return Maker(body).make(); }

std::string to_text(const Attention& a) {
  std::string out = fmt::format(
      "attention {} batch [{}] queries {} keys {} heads {} x {} features {} values {} scale {} before {} after {}\n",
      a.kind == Attention::Kind::forward ? "forward" : "backward", fmt::join(a.batch, ", "), a.queries, a.keys,
      a.key_heads, a.group, a.features, a.values, a.scale, a.before, a.after);
  const auto add = [&](const char* name, const Array& x) {
    if (x.is_there())
      out += fmt::format("  {} p{}: {} [{}] head {} row {} column {}\n", name, x.buffer, sheaf::name(x.dtype),
                         fmt::join(x.batch, ", "), x.head, x.row, x.column);
  };
  add("query", a.query);
  add("key", a.key);
  add("value", a.value);
  add("bias", a.bias);
  add("mask", a.mask);
  add("out", a.out);
  if (a.parts > 1) out += fmt::format("  parts {}\n", a.parts);
  add("part_out", a.part_out);
  add("part_lse", a.part_lse);
  add("lse", a.lse);
  add("ct", a.ct);
  add("ct_sum", a.ct_sum);
  add("d_query", a.d_query);
  add("d_key", a.d_key);
  add("d_value", a.d_value);
  add("d_bias", a.d_bias);
  add("ct_half", a.ct_half);
  add("shift", a.shift);
  return out;
}

}  // namespace sheaf::kir
