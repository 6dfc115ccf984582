// Sets of axes, and the rule of ops that know no axes: linear ops take unreduced sums part by part.
#include "ir/manual.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/ops/attrs.h"
#include "ir/rewrite.h"

namespace sheaf::ir {
namespace {

bool has(const Axes& axes, const std::string& axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

std::string told(const Eqn& e, int k) { return fmt::format("operand {} ({})", k, to_string(e.in(k).type())); }

Axes unreduced_in(const Values& operands) {
  Axes all;
  for (const Value v : operands) all = joined(all, v.type().manual().unreduced);
  return all;
}

bool is_zero(Value v) {
  const auto c = constant_value(v);
  return c && (is_complex(c->dtype()) ? c->get_part(0, 0) == 0 && c->get_part(0, 1) == 0 : c->get(0) == 0);
}

// How operands meet along an axis that some of them are unreduced along.
class Sum {
 public:
  Sum(const Eqn& e, const Linear& how, std::string axis) : e_(e), how_(how), axis_(std::move(axis)) {
    while (at(first_) != Along::unreduced) ++first_;
  }

  absl::Status check() const {
    int holders = 0;
    for (int k = 0; k < e_.num_in(); ++k) {
      if (at(k) == Along::unreduced && !takes(k))
        return wrong(fmt::format("{} is yet to be summed along \"{}\", and the op is not linear in it: psum it first",
                                 told(e_, k), axis_));
      if (at(k) == Along::varying && !(takes(k) && is_jointly()))
        return wrong(fmt::format("{} is yet to be summed along \"{}\", along which {} differs", told(e_, first_), axis_,
                                 told(e_, k)));
      holders += at(k) == Along::unreduced;
      if (takes(k) && is_jointly() && at(k) != Along::unreduced && !is_zero(e_.in(k)))
        return wrong(fmt::format("{} is yet to be summed along \"{}\", and {} is not: psum the one, or cast the other",
                                 told(e_, first_), axis_, told(e_, k)));
    }
    if (holders > 1 && !is_jointly())
      return wrong(
          fmt::format("{} and another operand are yet to be summed along \"{}\": a product of sums is no sum "
                      "of products",
                      told(e_, first_), axis_));
    return absl::OkStatus();
  }

  // What operand k is to be along the axis.
  Along wanted(int k) const {
    if (takes(k) && (is_jointly() || at(k) == Along::unreduced)) return Along::unreduced;
    return is_jointly() ? at(k) : Along::reduced;
  }

 private:
  static absl::Status wrong(const std::string& what) { return absl::InvalidArgumentError(what); }
  Along at(int k) const { return along(e_.in(k).type().manual(), axis_); }
  bool is_jointly() const { return how_.kind == Linear::Kind::jointly; }
  bool takes(int k) const { return how_.kind != Linear::Kind::none && is_linear_in(how_, k); }

  const Eqn& e_;
  const Linear& how_;
  std::string axis_;
  int first_ = 0;  // that is unreduced
};

Value cast(Value x, const Axes& axes, Along to) {
  return axes.empty() ? x : x.builder().emit(ops::pcast, {x}, ops::Pcast{.axes = axes, .to = to});
}

}  // namespace

bool are_invarying(const Values& values) {
  return std::all_of(values.begin(), values.end(), [](Value v) { return v.type().manual() == Manual{}; });
}

Along along(const Manual& m, const std::string& axis) {
  if (has(m.varying, axis)) return Along::varying;
  if (has(m.unreduced, axis)) return Along::unreduced;
  return has(m.reduced, axis) ? Along::reduced : Along::invarying;
}

Manual with_axes(Manual m, const Axes& axes, Along to) {
  m = {without(m.varying, axes), without(m.unreduced, axes), without(m.reduced, axes)};
  Axes sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  if (to == Along::varying) m.varying = joined(m.varying, sorted);
  if (to == Along::unreduced) m.unreduced = joined(m.unreduced, sorted);
  if (to == Along::reduced) m.reduced = joined(m.reduced, sorted);
  return m;
}

Type cotangent_type(Type t) {
  Manual m = t.manual();
  std::swap(m.unreduced, m.reduced);
  return t.with_manual(std::move(m));
}

std::vector<Type> cotangent_types(std::vector<Type> types) {
  for (Type& t : types) t = cotangent_type(t);
  return types;
}

std::optional<Manual> common(const Manual& a, const Manual& b) {
  if (a.unreduced != b.unreduced) return std::nullopt;
  const Axes varying = joined(a.varying, b.varying);
  const Axes others = joined(varying, joined(a.reduced, b.reduced));
  if (without(others, a.unreduced) != others) return std::nullopt;
  return Manual{varying, a.unreduced, without(joined(a.reduced, b.reduced), varying)};
}

absl::StatusOr<Meeting> meet(const Eqn& e) {
  Meeting m{.operands = std::vector<Manual>(e.operands.size()), .results = {}};
  if (are_invarying(e.operands)) return m;
  const Axes sums = unreduced_in(e.operands);
  Manual all;
  for (const Value v : e.operands) {
    all.varying = joined(all.varying, without(v.type().varying(), sums));
    all.reduced = joined(all.reduced, without(v.type().manual().reduced, sums));
  }
  all.reduced = without(all.reduced, all.varying);
  std::fill(m.operands.begin(), m.operands.end(), all);
  m.results = with_axes(all, sums, Along::unreduced);
  if (sums.empty()) return m;
  const Linear how = linear_of(e);
  for (const std::string& axis : sums) {
    const Sum sum(e, how, axis);
    if (absl::Status s = sum.check(); !s.ok()) return s;
    for (int k = 0; k < e.num_in(); ++k) m.operands[k] = with_axes(m.operands[k], {axis}, sum.wanted(k));
  }
  return m;
}

Value casted(Value x, const Manual& wanted) {
  if (x.type().manual() == wanted) return x;
  const bool is_nothing = !wanted.unreduced.empty() && is_zero(x);
  Axes differ, reduce, sum;
  for (const std::string& axis : wanted.varying)
    if (const Along now = along(x.type().manual(), axis); now == Along::invarying || now == Along::reduced)
      differ.push_back(axis);
  for (const std::string& axis : wanted.reduced)
    if (along(x.type().manual(), axis) == Along::invarying) reduce.push_back(axis);
  for (const std::string& axis : wanted.unreduced) {
    const Along now = along(x.type().manual(), axis);
    if (!is_nothing || now == Along::unreduced) continue;
    sum.push_back(axis);
    if (now != Along::varying) differ.push_back(axis);
  }
  return cast(cast(cast(x, reduce, Along::reduced), differ, Along::varying), sum, Along::unreduced);
}

}  // namespace sheaf::ir
