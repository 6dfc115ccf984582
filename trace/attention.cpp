// Attention for users: dtypes promote, bias and mask get the dims they lack, and the rest is one equation.
#include "ir/ops/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "sheaf/nn.h"
#include "trace/apply.h"
#include "trace/messages.h"
#include "trace/precision.h"
#include "trace/promotion.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

constexpr std::string_view kName = "dot_product_attention";

ir::ops::Attention attributes(const Operand& query, const AttentionOptions& o) {
  ir::ops::Attention a{.bias = o.bias.has_value(), .mask = o.mask.has_value()};
  if (o.window) {
    a.before = o.window->first;
    a.after = o.window->second;
  }
  if (o.causal) a.after = 0;
  const std::int64_t features = query.rank() == 0 ? 0 : query.shape().back();
  // Of no features all scores are 0, whatever the scale.
  a.scale = o.scale.value_or(features == 0 ? 1 : 1 / std::sqrt(static_cast<double>(features)));
  return a;
}

Shape with_rank(const Shape& dims, int rank) {
  Shape shape(static_cast<std::size_t>(std::max(rank - static_cast<int>(dims.size()), 0)), 1);
  shape.insert(shape.end(), dims.begin(), dims.end());
  return shape;
}

}  // namespace

Array dot_product_attention(Operand query, Operand key, Operand value, const AttentionOptions& o) {
  const Loc loc = UserLine::or_own(query.loc());
  const Operand three[] = {query, key, value};
  const DType dtype = floating(promote(three).dtype);
  ir::ops::Attention a = attributes(query, o);
  a.precision = precision_of(o.precision, dtype);
  std::vector<Named> named{{"query", query.array()}, {"key", key.array()}, {"value", value.array()}};
  std::vector<Input> inputs{Input(query, dtype), Input(key, dtype), Input(value, dtype)};
  ir::Type extra[2];
  for (const auto& [x, role, k] : {std::tuple(&o.bias, "bias", 0), std::tuple(&o.mask, "mask", 1)}) {
    if (!*x) continue;
    named.push_back({role, &**x});
    inputs.emplace_back(**x);
    extra[k] = ir::Type((*x)->dtype(), with_rank((*x)->shape(), query.rank()));
  }
  const auto type = [&](const Operand& x) { return ir::Type(dtype, x.shape()); };
  const auto text = [&](std::string_view what) { return fmt::format("{}: {}{}", kName, what, describe(named)); };
  if (o.window && (o.window->first < 0 || o.window->second < 0))
    throw ShapeError(
        loc, text(fmt::format("the window {{{}, {}}} must not be negative", o.window->first, o.window->second)));
  if (absl::Status s = ir::ops::check_attention_dtypes(type(query), type(key), type(value), extra[0], extra[1]);
      !s.ok())
    throw TypeError(loc, text(std::string(s.message())));
  if (absl::Status s = ir::ops::check_attention_dims(a, type(query), type(key), type(value), extra[0], extra[1]);
      !s.ok())
    throw ShapeError(loc, text(std::string(s.message())));
  RuleKey rule;
  rule.add(a.scale).add(a.before).add(a.after).add(std::int64_t{a.bias}).add(std::int64_t{a.mask});
  rule.add(static_cast<std::int64_t>(a.precision));
  return apply(kName, std::move(rule), inputs, loc, [&](ir::Builder& b, const ir::Values& in) {
    ir::Values operands = in;
    for (std::size_t k = 3; k < operands.size(); ++k)
      operands[k] = ir::ops::reshape_to(operands[k], with_rank(operands[k].dims(), operands[0].rank()));
    return ir::Values{emit1(b, ir::ops::attention, std::move(operands), a)};
  })[0];
}

}  // namespace sheaf
