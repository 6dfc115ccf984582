// By dim: a slice is a padding by less than nothing. Two in a row are one where what the first took away is not in
// sight, and it never is where a join covers it.
#include "passes/sharding/shifts.h"

#include <algorithm>
#include <optional>

#include "ir/builder.h"
#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "ir/shard.h"
#include "passes/emit.h"

namespace sheaf::passes {

using namespace ir;

namespace {

using List = std::vector<std::int64_t>;

bool all_are(const List& list, std::int64_t v) {
  return std::all_of(list.begin(), list.end(), [&](std::int64_t x) { return x == v; });
}

/// x with `low` and `high` elements more, or fewer, around each dim.
struct Move {
  Value x, fill;  // fill is null for a slice: nothing is added
  List low, high;
};

std::optional<Move> move_of(Value v) {
  const Eqn* e = v.eqn();
  if (e && e->op == &ops::slice) {
    const auto& a = e->attrs<ops::Slice>();
    if (!all_are(a.stride, 1)) return std::nullopt;
    Move m{.x = e->in(0), .fill = {}, .low = a.start, .high = e->in(0).dims()};
    for (std::size_t d = 0; d < m.low.size(); ++d) {
      m.low[d] = -m.low[d];
      m.high[d] = a.limit[d] - m.high[d];
    }
    return m;
  }
  if (e && e->op == &ops::pad) {
    const auto& a = e->attrs<ops::Pad>();
    if (!all_are(a.interior, 0)) return std::nullopt;
    return Move{.x = e->in(0), .fill = e->in(1), .low = a.low, .high = a.high};
  }
  return std::nullopt;
}

Value emitted(Builder& b, const Move& m) {
  const auto adds = [](std::int64_t n) { return n > 0; };
  if (std::none_of(m.low.begin(), m.low.end(), adds) && std::none_of(m.high.begin(), m.high.end(), adds)) {
    if (all_are(m.low, 0) && all_are(m.high, 0)) return m.x;
    ops::Slice attrs{.start = {}, .limit = {}, .stride = List(m.low.size(), 1)};
    for (std::size_t d = 0; d < m.low.size(); ++d) {
      attrs.start.push_back(-m.low[d]);
      attrs.limit.push_back(m.x.dims()[d] + m.high[d]);
    }
    return b.emit(ops::slice, {m.x}, std::move(attrs));
  }
  ops::Pad attrs{.low = {}, .high = {}, .interior = List(m.low.size(), 0)};
  attrs.low.assign(m.low.begin(), m.low.end());
  attrs.high.assign(m.high.begin(), m.high.end());
  return b.emit(ops::pad, {m.x, m.fill ? m.fill : b.constant(m.x.dtype(), 0)}, std::move(attrs));
}

// First one, then the other: null where elements that the first took away would be seen again, or two fills.
std::optional<Move> joined(const Move& first, const Move& second) {
  Move m = first;
  if (first.fill && second.fill && first.fill != second.fill) return std::nullopt;
  if (second.fill) m.fill = second.fill;
  for (std::size_t d = 0; d < m.low.size(); ++d) {
    const bool sees_low = first.low[d] < 0 && second.low[d] > 0, sees_high = first.high[d] < 0 && second.high[d] > 0;
    if (sees_low || sees_high) return std::nullopt;
    m.low[d] += second.low[d];
    m.high[d] += second.high[d];
  }
  return m;
}

Value merged(Value v) {
  const std::optional<Move> second = move_of(v);
  const std::optional<Move> first = second ? move_of(second->x) : std::nullopt;
  const std::optional<Move> both = first ? joined(*first, *second) : std::nullopt;
  return both ? emitted(v.builder(), *both) : v;
}

// Each operand of a join that is moved becomes an array of the result's size, so a long one stays as it is.
constexpr int kMostJoined = 4;

// Each operand moved to its place in an array of the result's size; of a slice what it was cut from, whose other
// elements the neighbours' places cover.
Value join_of_moves(Value v) {
  const Eqn& e = *v.eqn();
  const auto d = static_cast<std::size_t>(e.attrs<ops::Concatenate>().dim[0]);
  const auto is_cut = [&](Value x) { return x.eqn() && x.eqn()->op == &ops::slice && move_of(x); };
  if (e.num_in() > kMostJoined || std::none_of(e.operands.begin(), e.operands.end(), is_cut)) return v;
  Builder& b = v.builder();
  const auto along = static_cast<std::int64_t>(d);
  const Value place =
      b.emit(ops::iota, {}, ops::Iota{.shape = v.dims(), .dim = {along}, .dtype = position_dtype(v.dims()[d])});
  Value result;
  std::int64_t start = 0;
  for (const Value x : e.operands) {
    Move m{.x = x, .fill = {}, .low = List(x.rank(), 0), .high = List(x.rank(), 0)};
    if (const auto cut = is_cut(x) ? move_of(x) : std::nullopt) m = *cut;
    const std::int64_t size = x.dims()[d];
    m.low[d] += start;
    m.high[d] += v.dims()[d] - start - size;
    const Value moved = emitted(b, m);
    if (!result) {
      result = moved;
    } else {
      const Value is_before = b.emit(ops::lt, {place, number(place, static_cast<double>(start))});
      result = b.emit(ops::select, {is_before, result, moved});
    }
    start += size;
  }
  return result;
}

FunctionRef moved(const FunctionRef& f) {
  return remade(*f, [](Builder& b, const Eqn& e, Values operands) {
    std::vector<FunctionRef> regions;
    for (const FunctionRef& r : e.regions) regions.push_back(moved(r));
    Values outs = b.emit_all(e.op, std::move(operands), e.attributes, std::move(regions));
    if (e.op == &ops::slice || e.op == &ops::pad) outs[0] = merged(outs[0]);
    if (e.op == &ops::concatenate) outs[0] = join_of_moves(outs[0]);
    return outs;
  });
}

}  // namespace

FunctionRef shifts(const FunctionRef& f) { return f->mesh() ? moved(f) : f; }

}  // namespace sheaf::passes
