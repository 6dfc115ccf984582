// Attention where queries or keys lie on several devices. A window is between places in the whole, so it becomes a mask
// of them; parts of the keys are each attended to on their own, and the logs of their sums tell how much each counts.
#include <limits>

#include "ir/ops/attention.h"
#include "ir/shard.h"

namespace sheaf::ir::ops {
namespace {

// bool[1.., 1, T, S]: which keys of this device its queries meet, as far as the window says.
Value meeting(const Shard& s, int queries, int keys) {
  const Attention a = with_near_window(s.whole);
  const int rank = s.whole.in(0).rank();
  Builder& b = s.b;
  Shape dims(rank, 1);
  dims[rank - 2] = s.local_size(queries);
  dims[rank - 1] = s.local_size(keys);
  const auto places = [&](int factor, std::int64_t dim) {
    const Value first = convert_to(s.offset({factor}), DType::i64);
    return b.emit(iota, {}, Iota{.shape = dims, .dim = {dim}, .dtype = DType::i64}) + first;
  };
  const Value distance = places(keys, rank - 1) - places(queries, rank - 2);
  const Value is_near = b.emit(le, {distance, number(distance, static_cast<double>(a.after))});
  const Value is_late = b.emit(ge, {distance, number(distance, -static_cast<double>(a.before))});
  if (a.after < 0) return is_late;
  return a.before < 0 ? is_near : b.emit(and_, {is_near, is_late});
}

// Both masks, any dim of either being 1.
Value both(Value x, Value y) {
  Shape dims = x.dims();
  for (int d = 0; d < x.rank(); ++d)
    if (dims[d] == 1) dims[d] = y.dims()[d];
  const DimList all = dim_range(0, x.rank());
  return x.builder().emit(and_, {broadcast_to(x, dims, all), broadcast_to(y, dims, all)});
}

// Means over parts of the keys, weighted by how much of the sum each part is.
Values combined(const Shard& s, int keys, Value mean, Value lse) {
  Builder& b = s.b;
  const Value none = number(lse, -std::numeric_limits<double>::infinity());
  Shape one = lse.dims();
  one.insert(one.begin(), 1);
  const Value all = s.all_parts(reshape_to(lse, one), keys, 0);
  const Value top = reduce_dims(all, ReduceKind::max, {0});
  const Value shift = where(b.emit(eq, {top, none}), b.zeros(top.type()), top);
  const Value sums = b.emit(exp, {all - broadcast_to(shift, all.dims(), dim_range(1, shift.rank()))});
  const Value total = shift + b.emit(log, {reduce_dims(sums, ReduceKind::sum, {0})});
  const Value weight = where_or_zero(b.emit(ne, {lse, none}), b.emit(exp, {lse - total}));
  const Value share = convert_to(mean, lse.dtype()) * along_values(weight, mean.dims());
  const Value whole = b.emit(all_reduce, {share}, AllReduce{.axes = s.axes(keys)});
  return {convert_to(whole, mean.dtype()), total};
}

}  // namespace

Values localize_attention(const Shard& s) {
  Attention a = s.whole.attrs<Attention>();
  const int length = s.whole.in(0).rank() - 3;
  const int queries = s.factors.in[0][length][0], keys = s.factors.in[1][length][0];
  Values operands = s.operands;
  if ((a.before >= 0 || a.after >= 0) && (s.is_split(queries) || s.is_split(keys))) {
    const Value near = meeting(s, queries, keys);
    const auto place = operands.begin() + 3 + a.bias;
    if (a.mask) *place = both(*place, near);
    else operands.insert(place, near);
    a.mask = true;
    a.before = a.after = -1;
  }
  const Values local = s.b.emit_all(s.whole.op, std::move(operands), std::make_shared<const Attention>(a));
  if (s.whole.op != &attention || !s.is_split(keys)) return local;
  return combined(s, keys, local[0], local[1]);
}

}  // namespace sheaf::ir::ops
