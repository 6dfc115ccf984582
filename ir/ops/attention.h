// What the sheets of attention share with their expansions, second derivatives and reference: which operand is which,
// sizes by name, and what may be an operand.
#pragma once

#include "ir/op.h"
#include "ir/ops/rules.h"

namespace sheaf::ir::ops {

/// Which operand is which; -1: there is none. The derivatives take `lse` and then what they are linear in: the tangents
/// of query, key, value and maybe bias, or the cotangents of the tangent's two results.
struct AttentionRoles {
  explicit AttentionRoles(const Attention& a)
      : bias(a.bias ? 3 : -1), mask(a.mask ? 3 + a.bias : -1), lse(3 + a.bias + a.mask), linear(lse + 1) {}
  int bias, mask, lse, linear;
};

struct AttentionSizes {
  Shape batch;
  std::int64_t queries, keys, key_heads, group, features, values;  // T, S, K, N / K, H, V

  AttentionSizes(Type query, Type key, Type value);
  explicit AttentionSizes(const Eqn& e) : AttentionSizes(e.in(0).type(), e.in(1).type(), e.in(2).type()) {}
  std::int64_t heads() const { return key_heads * group; }
};

/// The attributes of e, a window no wider than its queries and keys: a wider one says the same, but a sum of places and
/// widths could overflow.
Attention with_near_window(const Eqn& e);

/// Query t and key s meet, as far as the window says.
inline bool meet(const Attention& a, std::int64_t t, std::int64_t s) {
  return (a.before < 0 || t - s <= a.before) && (a.after < 0 || s - t <= a.after);
}

/// Whether these can be operands of an attention: first their dtypes, then their dims. Null types are absent.
absl::Status check_attention_dtypes(Type query, Type key, Type value, Type bias, Type mask);
absl::Status check_attention_dims(const Attention& a, Type query, Type key, Type value, Type bias, Type mask);

/// sums [batch.., N, T], for each element of a result [batch.., T, N, V].
Value along_values(Value sums, const Shape& result);

/// What one device computes of each, where lengths are split.
Values localize_attention(const Shard& s);

/// The equations each stands for: a loop over blocks of scores.
Values expand_attention(Builder& b, const Eqn& e, const Values& operands);
Values expand_attention_tangent(Builder& b, const Eqn& e, const Values& operands);
Values expand_attention_backward(Builder& b, const Eqn& e, const Values& operands);

/// Whether a target has a kernel for it, and what that is of.
Lowering lower_attention(const Eqn& e);
bool attention_has_kernel(const Eqn& e, const Target& target);
bool attention_backward_has_kernel(const Eqn& e, const Target& target);

/// Its kernel makes its operand k itself, a conversion from the dtype of the first: the cotangent of an attention of
/// halves, which it computes with in halves.
bool converts(const Eqn& e, int k);

/// Second derivatives, of all scores at once.
Values attention_tangent_jvp(Builder& b, const Eqn& e, const Values& tangents);
Values attention_backward_jvp(Builder& b, const Eqn& e, const Values& tangents);

void eval_attention(const Eqn& e, std::span<const Literal> in, std::span<Literal> out);
void eval_attention_tangent(const Eqn& e, std::span<const Literal> in, std::span<Literal> out);
void eval_attention_backward(const Eqn& e, std::span<const Literal> in, std::span<Literal> out);

}  // namespace sheaf::ir::ops
