// Which attentions a GPU computes in a kernel of their own (codegen/cuda/attention.h); all others stand for the loop of
// attention_expand.cpp. The choice is by types and attributes alone.
#include <limits>

#include "ir/ops/attention.h"

namespace sheaf::ir::ops {
namespace {

constexpr int kTensorCores = 80;  // compute capability: copies to shared memory on their own, bf16
constexpr std::int64_t kMostFeatures = 256;
// Places in a length are counted in 32 bits, with room for a tile and a window beyond the end.
constexpr std::int64_t kMostPlaces = 1 << 30;

bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }

/// Rows are copied 16 bytes at a time.
bool is_copied(std::int64_t features) { return features > 0 && features <= kMostFeatures && features % 8 == 0; }

bool is_narrow(Type t) { return t.num_elements() > 0 && t.dim(t.rank() - 3) < kMostPlaces; }

bool fits(const Eqn& e, const Target& target) {
  if (target.compute_capability() < kTensorCores || !is_half(e.in(0).dtype())) return false;
  const AttentionSizes n(e);
  const AttentionRoles roles(e.attrs<Attention>());
  if (!is_copied(n.features) || !is_copied(n.values)) return false;
  if (!is_narrow(e.in(0).type()) || !is_narrow(e.in(1).type())) return false;
  return roles.bias < 0 || is_half(e.in(roles.bias).dtype()) || e.in(roles.bias).dtype() == DType::f32;
}

}  // namespace

Lowering lower_attention(const Eqn& e) {
  using Kind = lowering::Attention::Kind;
  return lowering::Attention{e.op == &attention            ? Kind::forward
                             : e.op == &attention_backward ? Kind::backward
                                                           : Kind::tangent};
}

bool attention_has_kernel(const Eqn& e, const Target& target) { return fits(e, target); }

/// The gradient of a bias is summed over examples and heads, not over queries or keys.
bool attention_backward_has_kernel(const Eqn& e, const Target& target) {
  if (!fits(e, target)) return false;
  if (!e.attrs<Attention>().derives_bias) return true;
  const AttentionSizes n(e);
  const Shape& bias = e.out(3).dims();
  return bias.end()[-2] == n.queries && bias.back() == n.keys;
}

bool converts(const Eqn& e, int k) {
  if (e.op != &attention_backward || k != AttentionRoles(e.attrs<Attention>()).linear) return false;
  const Eqn* made = e.in(k).eqn();
  return made && made->op == &convert && made->in(0).dtype() == e.in(0).dtype();
}

}  // namespace sheaf::ir::ops
