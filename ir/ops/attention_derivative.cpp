// Derivatives of attention's derivatives, by the formulas of attention.cpp differentiated once more. They hold all
// scores at once, in plain equations, which have derivatives of any order.
#include "ir/ops/attention_blocks.h"
#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {
namespace {

// x y over dims as BlockedAttention::product says, where both are there.
Value product(const BlockedAttention& blocks, Value x, int of_x, Value y, int of_y) {
  return x && y ? blocks.product(x, of_x, y, of_y) : Value();
}
Value times(Value x, Value y) { return x && y ? x * y : Value(); }
Value over_columns(Value x) { return x ? reduce_dims(x, ReduceKind::sum, {x.rank() - 1}) : x; }

// The one block of all: the operands, and the tangents of what the op is not linear in, null where there are none.
struct Whole {
  const Eqn& e;
  BlockedAttention blocks;
  Values empty{Value()}, both{Value(), Value()};
  Value query, key, value, p;
  Value d_query, d_key, d_value, dp;  // dp = p (d score - d lse)

  Whole(const Eqn& equation, const Values& tangents)
      : e(equation), blocks(e, e.operands, AttentionGrid::whole(AttentionSizes(e))) {
    const AttentionRoles roles(e.attrs<Attention>());
    query = block_of(blocks.query(), empty);
    key = block_of(blocks.key(), empty);
    value = block_of(blocks.value(), empty);
    const Value s = blocks.scores(query, key, block_of(blocks.bias(), both), block_of(blocks.mask(), both), {});
    p = s.builder().emit(exp, {s - blocks.beside(block_of(blocks.lse(), empty), s)});
    if (tangents[0]) d_query = block_of(blocks.scaled(tangents[0]), empty);
    if (tangents[1]) d_key = columns(tangents[1]);
    if (tangents[2]) d_value = columns(tangents[2]);
    Value ds = sum_of(product(blocks, d_query, 1, key, 1), product(blocks, query, 1, d_key, 1));
    if (a().bias && tangents[roles.bias])
      ds = sum_of(ds, blocks.spread(block_of(blocks.stack_scores(tangents[roles.bias]), both)));
    if (tangents[roles.lse]) ds = sum_of(ds, -blocks.beside(sums(tangents[roles.lse]), p));
    dp = times(p, ds);
  }

  const Attention& a() const { return e.attrs<Attention>(); }
  Value rows(Value x) const { return block_of(blocks.stack_rows(x), empty); }
  Value columns(Value x) const { return block_of(blocks.stack_columns(x), empty); }
  Value sums(Value x) const { return block_of(blocks.stack_sums(x, 0), empty); }
  Value stack(Value block) const {
    Shape dims = block.dims();
    dims.insert(dims.begin(), 1);
    return reshape_to(block, dims);
  }
};

// The op of the tangents of what it is linear in; nulls where there are none.
Values linear_part(Builder& b, const Eqn& e, const Values& tangents) {
  const int first = AttentionRoles(e.attrs<Attention>()).linear;
  Values operands(e.operands.begin(), e.operands.begin() + first);
  bool any = false;
  for (int k = first; k < e.num_in(); ++k) {
    any |= static_cast<bool>(tangents[k]);
    operands.push_back(or_zeros(b, tangents[k], e.in(k).type()));
  }
  return any ? b.emit_all(e.op, std::move(operands), e.attributes) : Values(e.num_out());
}

bool any_fixed(const Eqn& e, const Values& tangents) {
  const int first = AttentionRoles(e.attrs<Attention>()).linear;
  return std::any_of(tangents.begin(), tangents.begin() + first, [](Value t) { return static_cast<bool>(t); });
}

}  // namespace

// w = p ds and w v + p dv: dw = dp ds + p d2s, and d2s = dq dk^T of the one derivative and the other.
Values attention_tangent_jvp(Builder& b, const Eqn& e, const Values& tangents) {
  Values out = linear_part(b, e, tangents);
  if (!any_fixed(e, tangents)) return out;
  const Whole all(e, tangents);
  const BlockedAttention& blocks = all.blocks;
  const Value query = block_of(blocks.scaled(blocks.linear(0)), all.empty), key = all.columns(blocks.linear(1)),
              value = all.columns(blocks.linear(2));
  Value ds = blocks.product(query, 1, all.key, 1) + blocks.product(all.query, 1, key, 1);
  if (all.a().derives_bias) ds = ds + blocks.spread(block_of(blocks.stack_scores(blocks.linear(3)), all.both));
  const Value d2s = sum_of(product(blocks, query, 1, all.d_key, 1), product(blocks, all.d_query, 1, key, 1));
  const Value w = all.p * ds, dw = sum_of(times(all.dp, ds), times(all.p, d2s));
  const Value mean = sum_of(sum_of(product(blocks, dw, 1, all.value, 0), product(blocks, w, 1, all.d_value, 0)),
                            product(blocks, all.dp, 1, value, 0));
  if (mean) out[0] = sum_of(out[0], blocks.unstack_rows(all.stack(mean)));
  if (dw) out[1] = sum_of(out[1], blocks.unstack_sums(all.stack(over_columns(dw))));
  return out;
}

// ds = p g, g = ct v^T + ct_sum: d2s = dp g + p ct dv^T, and products of it and of ds, dp with what they meet.
Values attention_backward_jvp(Builder& b, const Eqn& e, const Values& tangents) {
  Values out = linear_part(b, e, tangents);
  if (!any_fixed(e, tangents)) return out;
  const Whole all(e, tangents);
  const BlockedAttention& blocks = all.blocks;
  const Value ct = all.rows(blocks.linear(0)), ct_sum = all.sums(blocks.linear(1));
  const Value of_weights = blocks.product(ct, 1, all.value, 1);
  const Value g = of_weights + blocks.beside(ct_sum, of_weights), ds = all.p * g;
  const Value d2s = sum_of(times(all.dp, g), times(all.p, product(blocks, ct, 1, all.d_value, 1)));
  const Value query = sum_of(product(blocks, d2s, 1, all.key, 0), product(blocks, ds, 1, all.d_key, 0));
  const Value key = sum_of(product(blocks, d2s, 0, all.query, 0), product(blocks, ds, 0, all.d_query, 0));
  const Value value = product(blocks, all.dp, 0, ct, 0);
  const auto add_to = [&](int j, Value x) { out[j] = sum_of(out[j], convert_to(x, e.out(j).dtype())); };
  if (query) add_to(0, blocks.unstack_rows(all.stack(query * all.a().scale)));
  if (key) add_to(1, blocks.unstack_columns(all.stack(key)));
  if (value) add_to(2, blocks.unstack_columns(all.stack(value)));
  if (all.a().derives_bias && d2s) {
    const Shape dims = blocks.bias().dims(), block(dims.begin() + 2, dims.end());
    const Value sum = with_block(blocks.bias(), blocks.gathered(d2s, block), all.both);
    add_to(3, blocks.unstack_scores(sum, e.out(3).dims()));
  }
  return out;
}

}  // namespace sheaf::ir::ops
