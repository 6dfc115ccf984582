// Attention and its derivatives as one loop over the blocks in which some query meets some key, and around it one over
// parts of a large batch. Invariant: what a loop carries is as large as its results, and a step holds the scores of one
// block.
#include <functional>
#include <limits>

#include "ir/ops/attention_blocks.h"

namespace sheaf::ir::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What one step makes of the carried stacks.
using Step = std::function<Values(const Values& stacks, const Values& carried, const AttentionPlace& at)>;

Values present(const Values& values) {
  Values some;
  for (Value v : values)
    if (v) some.push_back(v);
  return some;
}

// The entries of `some`, with null where `like` is.
Values with_absent(const Values& like, std::span<const Value> some) {
  Values values;
  std::size_t next = 0;
  for (Value v : like) values.push_back(v ? some[next++] : v);
  return values;
}

using Places = std::vector<std::pair<std::int64_t, std::int64_t>>;

Value indices(Builder& b, const Places& places, std::int64_t Places::value_type::* of) {
  Literal list(Type(DType::i32, {std::ssize(places), 1}));
  for (std::int64_t i = 0; i < list.size(); ++i) list.set_int(i, places[i].*of);
  return b.constant(list);
}

// One step for each place. The only block of all is no loop.
Values loop(Builder& b, const BlockedAttention& blocks, const Values& stacks, const Values& start, const Step& step) {
  const Places places = blocks.places();
  if (places.empty()) return start;
  if (blocks.grid().row_blocks * blocks.grid().column_blocks == 1) return step(stacks, start, {});
  Builder body("block");
  body.set_loc(b.loc(), b.how());
  Values operands = present(stacks);
  const std::size_t consts = operands.size();
  operands.insert(operands.end(), start.begin(), start.end());
  Values params;
  for (Value v : operands) params.push_back(body.param(v.type()));
  const Type index(DType::i32, {1});
  const Value row = body.param(index), column = body.param(index);
  const Values carried(params.begin() + static_cast<std::ptrdiff_t>(consts), params.end());
  const Values results = step(with_absent(stacks, params), carried, {row, column});
  operands.push_back(indices(b, places, &Places::value_type::first));
  operands.push_back(indices(b, places, &Places::value_type::second));
  const Scan attrs{
      .consts = static_cast<int>(consts), .carry = static_cast<int>(start.size()), .length = std::ssize(places)};
  return b.emit_all(&scan, std::move(operands), std::make_shared<const Scan>(attrs), {body.finish(results)});
}

// The carried stack with `block` added to the one there; the only block is the sum.
Value accumulated(Value stack, Value block, const Values& at) {
  return with_block(stack, at[0] ? block_of(stack, at) + block : block, at);
}

Value exp_of(Value x) { return x.builder().emit(exp, {x}); }

// What the loops of both derivatives read, and its blocks with their weights.
Values stacks_of(const BlockedAttention& blocks) {
  return {blocks.query(), blocks.key(), blocks.value(), blocks.bias(), blocks.mask(), blocks.lse()};
}

struct Weighted {
  Values row, column, both;  // the place
  Value query, key, value, weights;

  Weighted(const BlockedAttention& blocks, const Values& stacks, const AttentionPlace& at)
      : row{at.row},
        column{at.column},
        both{at.row, at.column},
        query(block_of(stacks[0], row)),
        key(block_of(stacks[1], column)),
        value(block_of(stacks[2], column)) {
    const Value s = blocks.scores(query, key, block_of(stacks[3], both), block_of(stacks[4], both), at);
    weights = exp_of(s - blocks.beside(block_of(stacks[5], row), s));
  }
};

// One step of attention. Carried: each row's largest score yet, and relative to that its sum of weights and of weighted
// values.
Values attend(const BlockedAttention& blocks, const Values& stacks, const Values& carried, const AttentionPlace& at) {
  const Values row{at.row}, column{at.column}, both{at.row, at.column};
  const Value s = blocks.scores(block_of(stacks[0], row), block_of(stacks[1], column), block_of(stacks[3], both),
                                block_of(stacks[4], both), at);
  Builder& b = s.builder();
  const DimList last{s.rank() - 1};
  const bool goes_on = blocks.grid().column_blocks > 1;
  const Value before = goes_on ? block_of(carried[0], row) : Value();
  const Value here = reduce_dims(s, ReduceKind::max, last);
  const Value top = goes_on ? b.emit(max, {before, here}) : here;
  // A row that meets no key has weights exp(-inf - 0) = 0.
  const Value is_none = b.emit(eq, {top, b.constant(top.dtype(), -kInfinity)});
  const Value shift = where(is_none, b.zeros(top.type()), top);
  const Value p = exp_of(s - blocks.beside(shift, s));
  Value total = reduce_dims(p, ReduceKind::sum, last);
  Value mean = blocks.product(p, 1, block_of(stacks[2], column), 0);
  if (goes_on) {
    const Value rescale = exp_of(before - shift);
    total = block_of(carried[1], row) * rescale + total;
    mean = block_of(carried[2], row) * blocks.beside(rescale, mean) + mean;
  }
  return {with_block(carried[0], top, row), with_block(carried[1], total, row), with_block(carried[2], mean, row)};
}

// Of the scores of one block, of all heads: about what stays in cache, and what is work enough to share among threads.
constexpr std::int64_t kCachedBytes = 2 << 20, kWorthBytes = 512 << 10;

// In how many parts the first batch dim is best taken, one after the other: many if all are too large for the cache.
std::int64_t parts_of(const Eqn& e) {
  const AttentionSizes n(e);
  const AttentionRoles roles(e.attrs<Attention>());
  if (n.batch.empty() || n.batch[0] < 2) return 1;
  // The cotangent of a bias of all is a sum over parts, which must not round in between.
  if (e.op == &attention_backward && e.num_out() > 3 && e.in(roles.bias).dims()[0] == 1) return 1;
  const AttentionGrid grid = AttentionGrid::of(e);
  std::int64_t bytes = size_bytes(accumulator(e.in(0).dtype())) * n.heads() * grid.rows * grid.columns;
  for (std::size_t d = 1; d < n.batch.size(); ++d) bytes *= n.batch[d];
  if (n.batch[0] * bytes <= kCachedBytes) return 1;
  std::int64_t parts = n.batch[0];
  while (parts > 1 && (n.batch[0] % parts != 0 || n.batch[0] / parts * bytes < kWorthBytes)) --parts;
  return parts;
}

Shape without_first(const Shape& dims) { return {dims.begin() + 1, dims.end()}; }

// The same op on each part. A part of one has no such dim.
Values by_parts(Builder& b, const Eqn& e, const Values& operands, std::int64_t parts) {
  const std::int64_t all = e.in(0).dims()[0], size = all / parts;
  Builder body("part");
  body.set_loc(b.loc(), b.how());
  Values args(operands.size()), consts, rows;
  for (std::size_t k = 0; k < operands.size(); ++k) {  // a bias or mask of all
    const Value x = operands[k];
    if (x.dims()[0] == all) continue;
    consts.push_back(x);
    args[k] = body.param(x.type());
    if (size == 1) args[k] = reshape_to(args[k], without_first(x.dims()));
  }
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const Value x = operands[k];
    if (x.dims()[0] != all) continue;
    rows.push_back(size == 1 ? x : reshape_to(x, concat({parts, size}, without_first(x.dims()))));
    args[k] = body.param(Type(x.dtype(), without_first(rows.back().dims())));
  }
  const FunctionRef part = body.finish(body.emit_all(e.op, args, e.attributes));
  const Scan attrs{.consts = static_cast<int>(consts.size()), .carry = 0, .length = parts};
  Values in = consts;
  in.insert(in.end(), rows.begin(), rows.end());
  Values out = b.emit_all(&scan, std::move(in), std::make_shared<const Scan>(attrs), {part});
  for (int j = 0; j < e.num_out(); ++j) out[j] = reshape_to(out[j], e.out(j).dims());
  return out;
}

}  // namespace

// Online softmax: Milakov and Gimelshein, arXiv:1805.02867.
Values expand_attention(Builder& b, const Eqn& e, const Values& operands) {
  if (const std::int64_t parts = parts_of(e); parts > 1) return by_parts(b, e, operands, parts);
  const BlockedAttention blocks(e, operands, AttentionGrid::of(e));
  const Type sums = blocks.sums_type(), rows = blocks.rows_type();
  const Values stacks{blocks.query(), blocks.key(), blocks.value(), blocks.bias(), blocks.mask()};
  const Values start{b.full(sums, -kInfinity), b.zeros(sums), b.zeros(rows)};
  const Values end =
      loop(b, blocks, stacks, start, [&](const Values& read, const Values& carried, const AttentionPlace& at) {
        return attend(blocks, read, carried, at);
      });
  const Value top = end[0], total = end[1], mean = end[2];
  const Value is_none = b.emit(eq, {total, b.constant(total.dtype(), 0)});
  const Value out = where(blocks.beside(is_none, mean), number(mean, 0), mean / blocks.beside(total, mean));
  return {convert_to(blocks.unstack_rows(out), e.out(0).dtype()), blocks.unstack_sums(top + b.emit(log, {total}))};
}

Values expand_attention_tangent(Builder& b, const Eqn& e, const Values& operands) {
  if (const std::int64_t parts = parts_of(e); parts > 1) return by_parts(b, e, operands, parts);
  const BlockedAttention blocks(e, operands, AttentionGrid::of(e));
  Values stacks = stacks_of(blocks);
  for (const Value v : {blocks.scaled(blocks.linear(0)), blocks.stack_columns(blocks.linear(1)),
                        blocks.stack_columns(blocks.linear(2))})
    stacks.push_back(v);
  stacks.push_back(e.attrs<Attention>().derives_bias ? blocks.stack_scores(blocks.linear(3)) : Value());
  const Step step = [&](const Values& read, const Values& carried, const AttentionPlace& at) -> Values {
    const Weighted w(blocks, read, at);
    Value ds = blocks.product(block_of(read[6], w.row), 1, w.key, 1) +
               blocks.product(w.query, 1, block_of(read[7], w.column), 1);
    if (read[9]) ds = ds + blocks.spread(block_of(read[9], w.both));
    const Value dp = w.weights * ds;
    const Value mean = blocks.product(dp, 1, w.value, 0) + blocks.product(w.weights, 1, block_of(read[8], w.column), 0);
    return {accumulated(carried[0], mean, w.row),
            accumulated(carried[1], reduce_dims(dp, ReduceKind::sum, {dp.rank() - 1}), w.row)};
  };
  const Values end = loop(b, blocks, stacks, {b.zeros(blocks.rows_type()), b.zeros(blocks.sums_type())}, step);
  return {blocks.unstack_rows(end[0]), blocks.unstack_sums(end[1])};
}

Values expand_attention_backward(Builder& b, const Eqn& e, const Values& operands) {
  if (const std::int64_t parts = parts_of(e); parts > 1) return by_parts(b, e, operands, parts);
  const BlockedAttention blocks(e, operands, AttentionGrid::of(e));
  const Attention& a = e.attrs<Attention>();
  Values stacks = stacks_of(blocks);
  stacks.push_back(blocks.stack_rows(blocks.linear(0)));
  stacks.push_back(blocks.stack_sums(blocks.linear(1), 0));
  const Step step = [&](const Values& read, const Values& carried, const AttentionPlace& at) {
    const Weighted w(blocks, read, at);
    const Value ct = block_of(read[6], w.row), dp = blocks.product(ct, 1, w.value, 1);
    const Value ds = w.weights * (dp + blocks.beside(block_of(read[7], w.row), dp));
    Values next{accumulated(carried[0], blocks.product(ds, 1, w.key, 0), w.row),
                accumulated(carried[1], blocks.product(ds, 0, w.query, 0), w.column),
                accumulated(carried[2], blocks.product(w.weights, 0, ct, 0), w.column)};
    if (a.derives_bias) {
      const Shape block(carried[3].dims().begin() + 2, carried[3].dims().end());
      next.push_back(accumulated(carried[3], blocks.gathered(ds, block), w.both));
    }
    return next;
  };
  Values start;
  for (int k = 0; k < 3 + a.derives_bias; ++k) start.push_back(b.zeros(stacks[k].type()));
  const Values end = loop(b, blocks, stacks, start, step);
  // Queries were scaled: the cotangent of a key has been by that, that of a query has to be.
  Values out{blocks.unstack_rows(end[0] * a.scale), blocks.unstack_columns(end[1]), blocks.unstack_columns(end[2])};
  if (a.derives_bias) out.push_back(blocks.unstack_scores(end[3], e.out(3).dims()));
  for (int k = 0; k < e.num_out(); ++k) out[k] = convert_to(out[k], e.out(k).dtype());
  return out;
}

}  // namespace sheaf::ir::ops
