// A device reads a run of parts, or of what they end in. Those come by permutations, so many as the longest run has
// parts that are not the device's own; put in order, they hold the device's rows where its position says.
#include "ir/ops/halo.h"

#include <algorithm>

namespace sheaf::ir::ops {
namespace {

using List = std::vector<std::int64_t>;

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }

bool all_equal(const List& list) {
  return std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) == list.end();
}

bool is_zero(Value fill) {
  if (!fill.eqn() || fill.eqn()->op != &constant) return false;
  const Literal value = literal_of(*fill.eqn());
  return std::all_of(value.data(), value.data() + value.bytes(), [](std::byte b) { return b == std::byte{0}; });
}

// `length` elements along dim from per_part[part] on.
Value slice_at_part(const Shard& s, Value x, int dim, int factor, const List& per_part, std::int64_t length) {
  if (all_equal(per_part)) return slice_dim(x, dim, per_part[0], per_part[0] + length);
  const Value start = at_part(s, factor, per_part, position_dtype(x.dims()[dim]));
  return s.b.emit(dynamic_slice, {x, reshape_to(start, {1})},
                  DynamicSlice{.dims = {dim}, .sizes = {length}, .index_dim = {0}});
}

// The parts that a device reads, from the first on: of each the i-th is one piece, and a permutation brings it. Where a
// part is the i-th of several devices it takes as many permutations, one device of each part in every one of them.
class Halo {
 public:
  Halo(const Shard& s, Value x, int dim, int factor, const List& from, std::int64_t length)
      : s_(s), x_(x), dim_(dim), factor_(factor), length_(length), own_(x.dims()[dim]) {
    for (const std::int64_t at : from) {
      first_.push_back(floor_div(at, own_));
      within_.push_back(at - first_.back() * own_);
    }
  }

  /// `length` elements from from[part] on, zeros for those beyond the dim.
  Value run() const {
    const auto [least, most] = std::minmax_element(within_.begin(), within_.end());
    const std::int64_t pieces = floor_div(*most + length_ - 1, own_) + 1;
    Values rows;
    for (std::int64_t i = 0; i < pieces; ++i)
      rows.push_back(piece(i, i == 0 ? *least : 0, std::min(*most + length_ - i * own_, own_)));
    List start;
    for (const std::int64_t at : within_) start.push_back(at - *least);
    const Value all = rows.size() == 1 ? rows[0] : s_.b.emit(concatenate, rows, Concatenate{.dim = {dim_}});
    return slice_at_part(s_, all, dim_, factor_, start, length_);
  }

 private:
  // Elements [begin, end) of the i-th part that each device reads.
  Value piece(std::int64_t i, std::int64_t begin, std::int64_t end) const {
    const std::int64_t parts = std::ssize(first_);
    std::vector<Ppermute> turns;
    List turn_of(first_.size(), 0), sent(first_.size(), 0);
    bool is_own = true;
    for (std::int64_t to = 0; to < parts; ++to) {
      const std::int64_t sender = first_[to] + i;
      if (within_[to] + length_ <= i * own_) continue;
      is_own = is_own && sender == to;
      if (sender < 0 || sender >= parts) continue;
      turn_of[to] = sent[sender]++;
      if (turn_of[to] == std::ssize(turns)) turns.push_back({.axes = s_.axes(factor_)});
      turns[turn_of[to]].sources.push_back(sender);
      turns[turn_of[to]].targets.push_back(to);
    }
    const Value rows = slice_dim(x_, dim_, begin, end);
    if (turns.empty()) return s_.b.zeros(rows.type());
    if (is_own) return rows;
    Value arrived = s_.b.emit(ppermute, {rows}, turns[0]);
    for (std::size_t t = 1; t < turns.size(); ++t) {
      const Value turn = at_part(s_, factor_, turn_of, DType::i32);
      const Value is_later = s_.b.emit(ge, {turn, number(turn, static_cast<double>(t))});
      arrived = where(is_later, s_.b.emit(ppermute, {rows}, turns[t]), arrived);
    }
    return arrived;
  }

  const Shard& s_;
  Value x_;
  int dim_, factor_;
  List first_, within_;  // of each device: the first part it reads, and where in it
  std::int64_t length_, own_;
};

// The fill where an element lies beyond the dim, in which there are `size`.
Value filled(const Shard& s, Value x, int dim, int factor, const List& from, std::int64_t size, Value fill) {
  const std::int64_t length = x.dims()[dim];
  const bool is_inside =
      std::all_of(from.begin(), from.end(), [&](std::int64_t i) { return i >= 0 && i + length <= size; });
  if (is_inside || is_zero(fill)) return x;
  const Value place = s.b.emit(iota, {}, Iota{.shape = x.dims(), .dim = {dim}, .dtype = DType::i64}) +
                      at_part(s, factor, from, DType::i64);
  const Value is_element = s.b.emit(
      and_, {s.b.emit(ge, {place, number(place, 0)}), s.b.emit(lt, {place, number(place, static_cast<double>(size))})});
  return where(is_element, x, broadcast_to(fill, x.dims(), {}));
}

}  // namespace

Footprint Footprint::of_windows(const Shard& s, int results, std::int64_t first, std::int64_t stride, std::int64_t span,
                                std::int64_t spread) {
  const std::int64_t count = s.local_size(results);
  Footprint f{.starts = {}, .length = (count - 1) * stride + span, .spread = spread};
  for (std::int64_t r = 0; r < s.ways(results); ++r) f.starts.push_back(first + r * count * stride);
  return f;
}

Value with_halo(const Shard& s, Value x, int dim, int factor, const Footprint& want, Value fill) {
  List from, shift;
  for (const std::int64_t start : want.starts) {
    from.push_back(floor_div(start, want.spread));
    shift.push_back(start - from.back() * want.spread);
  }
  const std::int64_t length = (want.length + 2 * want.spread - 2) / want.spread;
  const std::int64_t size = x.dims()[dim] * std::ssize(want.starts);
  const Value rows = filled(s, Halo(s, x, dim, factor, from, length).run(), dim, factor, from, size, fill);
  if (want.spread == 1) return rows;
  const DimList zeros(x.rank(), 0);
  Pad between{.low = zeros, .high = zeros, .interior = zeros};
  between.interior[dim] = between.high[dim] = want.spread - 1;
  const Value spread = s.b.emit(pad, {rows, fill}, std::move(between));
  return slice_at_part(s, spread, dim, factor, shift, want.length);
}

Value at_part(const Shard& s, int factor, const List& per_part, DType dtype) {
  const std::int64_t n = std::ssize(per_part), step = n > 1 ? per_part[1] - per_part[0] : 0;
  bool is_linear = true;
  for (std::int64_t r = 0; r < n; ++r) is_linear = is_linear && per_part[r] == per_part[0] + r * step;
  const auto constant_of = [&](std::int64_t v) {
    Literal l(Type(dtype, {}));
    l.set_int(0, v);
    return s.b.constant(l);
  };
  if (is_linear && step == 0) return constant_of(per_part[0]);
  if (is_linear) return convert_to(s.part(factor), dtype) * constant_of(step) + constant_of(per_part[0]);
  Literal list(Type(dtype, {n}));
  for (std::int64_t r = 0; r < n; ++r) list.set_int(r, per_part[r]);
  const Value own = s.b.emit(dynamic_slice, {s.b.constant(list), reshape_to(s.part(factor), {1})},
                             DynamicSlice{.dims = {0}, .sizes = {1}, .index_dim = {0}});
  return reshape_to(own, {});
}

bool splits_rows(const Eqn&, const Factors& factors, int factor, std::int64_t ways) {
  return factors.factors[factor].size >= ways;
}

}  // namespace sheaf::ir::ops
