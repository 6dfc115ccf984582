// The algebra of `simplify`: every rule is an equation that holds to the bit for all inputs of its dtypes, NaN,
// infinities and -0 included (so no x + 0 = x for floats: -0 + 0 is +0). Each right side is smaller than its left, or
// moves a shape change nearer to the inputs, so rewriting ends.
#include <algorithm>

#include "ir/ops/attrs.h"
#include "ir/schedule.h"
#include "passes/simplify.h"

namespace sheaf::passes {

using namespace ir;

namespace {

bool on_integers(const Eqn& e) { return is_int(e.out().dtype()); }
bool on_floats(const Eqn& e) { return is_float(e.out().dtype()); }

template <class V>
std::optional<Value> when_identity(bool identity, V v) {
  return identity ? std::optional<Value>(v) : std::nullopt;
}

std::optional<Value> same_type(Builder&, const Eqn& e) {
  return when_identity(e.in(0).type() == e.out().type(), e.in(0));
}

std::optional<Value> identity_transpose(Builder&, const Eqn& e) {
  const auto& perm = e.attrs<ops::Transpose>().perm;
  return when_identity(std::is_sorted(perm.begin(), perm.end()), e.in(0));
}

std::optional<Value> transpose_of_transpose(Builder& b, const Eqn& e) {
  const Eqn* inner = e.in(0).eqn();
  if (!inner || inner->op != &ops::transpose) return std::nullopt;
  ops::Transpose t;
  for (std::int64_t d : e.attrs<ops::Transpose>().perm) t.perm.push_back(inner->attrs<ops::Transpose>().perm[d]);
  return b.emit(ops::transpose, {inner->in(0)}, std::move(t));
}

std::optional<Value> reshape_of_reshape(Builder& b, const Eqn& e) {
  const Eqn* inner = e.in(0).eqn();
  if (!inner || inner->op != &ops::reshape) return std::nullopt;
  return b.emit(ops::reshape, {inner->in(0)}, e.attrs<ops::Reshape>());
}

std::optional<Value> broadcast_of_broadcast(Builder& b, const Eqn& e) {
  const Eqn* inner = e.in(0).eqn();
  if (!inner || inner->op != &ops::broadcast) return std::nullopt;
  const auto& outer_dims = e.attrs<ops::Broadcast>().dims;
  ops::Broadcast c{.shape = e.attrs<ops::Broadcast>().shape, .dims = {}};
  for (std::int64_t d : inner->attrs<ops::Broadcast>().dims) c.dims.push_back(outer_dims[d]);
  return b.emit(ops::broadcast, {inner->in(0)}, std::move(c));
}

std::optional<Value> identity_broadcast(Builder&, const Eqn& e) {
  const auto& dims = e.attrs<ops::Broadcast>().dims;
  return when_identity(e.in(0).type() == e.out().type() && std::is_sorted(dims.begin(), dims.end()), e.in(0));
}

std::optional<Value> reduce_of_nothing(Builder&, const Eqn& e) {
  return when_identity(e.attrs<ops::Reduce>().dims.empty(), e.in(0));
}

std::optional<Value> concatenate_of_one(Builder&, const Eqn& e) { return when_identity(e.num_in() == 1, e.in(0)); }

std::optional<Value> full_slice(Builder&, const Eqn& e) {
  const auto& stride = e.attrs<ops::Slice>().stride;
  const bool unit = std::all_of(stride.begin(), stride.end(), [](std::int64_t s) { return s == 1; });
  return when_identity(unit && e.in(0).type() == e.out().type(), e.in(0));
}

std::optional<Value> empty_pad(Builder&, const Eqn& e) {
  const auto& p = e.attrs<ops::Pad>();
  const auto zero = [](const std::vector<std::int64_t>& v) {
    return std::all_of(v.begin(), v.end(), [](std::int64_t x) { return x == 0; });
  };
  return when_identity(zero(p.low) && zero(p.high) && zero(p.interior), e.in(0));
}

std::optional<Value> reverse_of_nothing(Builder&, const Eqn& e) {
  for (std::int64_t d : e.attrs<ops::Reverse>().dims)
    if (e.in(0).dims()[d] != 1) return std::nullopt;
  return e.in(0);
}

std::optional<Value> select_by_constant(Builder&, const Eqn& e) {
  const auto p = constant_value(e.in(0));
  if (!p) return std::nullopt;
  const Value chosen = e.in(p->bits(0) ? 1 : 2);
  return when_identity(chosen.type() == e.out().type(), chosen);
}

// A dot reads its operands through any permutation, as long as the free dims keep their order.
template <class DimList>
bool through_transpose(const Eqn* t, DimList& contract, DimList& batch) {
  const auto& perm = t->attrs<ops::Transpose>().perm;
  std::vector<std::int64_t> free;
  for (std::int64_t d = 0; d < t->out().rank(); ++d)
    if (std::find(contract.begin(), contract.end(), d) == contract.end() &&
        std::find(batch.begin(), batch.end(), d) == batch.end())
      free.push_back(perm[d]);
  if (!std::is_sorted(free.begin(), free.end())) return false;
  for (std::int64_t& d : contract) d = perm[d];
  for (std::int64_t& d : batch) d = perm[d];
  return true;
}

std::optional<Value> dot_of_transpose(Builder& b, const Eqn& e) {
  ops::Dot dot = e.attrs<ops::Dot>();
  Values operands = e.operands;
  // What sliding windows meet is laid out for them (passes/grouping.cpp): its permutation says how.
  if (is_sliding(operands[0]) != is_sliding(operands[1])) return std::nullopt;
  const auto is_transpose = [](Value v) { return v.eqn() && v.eqn()->op == &ops::transpose; };
  bool changed = false;
  if (is_transpose(operands[0]) && through_transpose(operands[0].eqn(), dot.lhs, dot.lhs_batch)) {
    operands[0] = operands[0].eqn()->in(0);
    changed = true;
  }
  if (is_transpose(operands[1]) && through_transpose(operands[1].eqn(), dot.rhs, dot.rhs_batch)) {
    operands[1] = operands[1].eqn()->in(0);
    changed = true;
  }
  if (!changed) return std::nullopt;
  return b.emit(ops::dot, std::move(operands), std::move(dot));
}

std::vector<Rule> make_rules() {
  const Pattern x = variable(0), y = variable(1), p = variable(2);
  return {
      // Arithmetic. Multiplication by one and subtraction of +0 keep every bit of every float, NaN payloads aside.
      rule("x * 1 = x", match(ops::mul, x, number(1)), x),
      rule("1 * x = x", match(ops::mul, number(1), x), x),
      rule("x / 1 = x", match(ops::div, x, number(1)), x),
      rule("x - 0 = x", match(ops::sub, x, number(0)), x),
      rule("x + -0 = x", match(ops::add, x, number(-0.0)), x, on_floats),
      rule("x + 0 = x", match(ops::add, x, number(0)), x, on_integers),
      rule("0 + x = x", match(ops::add, number(0), x), x, on_integers),
      rule("x * 0 = 0", match(ops::mul, x, number(0)), number(0), on_integers),
      rule("x - x = 0", match(ops::sub, x, x), number(0), on_integers),
      rule("-(-x) = x", match(ops::neg, match(ops::neg, x)), x),
      rule("x + -y = x - y", match(ops::add, x, match(ops::neg, y)), match(ops::sub, x, y)),
      rule("x - -y = x + y", match(ops::sub, x, match(ops::neg, y)), match(ops::add, x, y)),
      rule("not not x = x", match(ops::not_, match(ops::not_, x)), x),
      rule("x and x = x", match(ops::and_, x, x), x),
      rule("x or x = x", match(ops::or_, x, x), x),
      rule("select p x x = x", match(ops::select, p, x, x), x),
      rule("select constant x y = x or y", ops::select, select_by_constant),
      // Shape changes that change nothing, and pairs that are one.
      rule("convert x to its own dtype = x", ops::convert, same_type),
      rule("bitcast x to its own dtype = x", ops::bitcast, same_type),
      rule("reshape x to its own shape = x", ops::reshape, same_type),
      rule("reshape (reshape x) = reshape x", ops::reshape, reshape_of_reshape),
      rule("transpose x by the identity = x", ops::transpose, identity_transpose),
      rule("transpose (transpose x) = transpose x", ops::transpose, transpose_of_transpose),
      rule("broadcast x to its own shape = x", ops::broadcast, identity_broadcast),
      rule("broadcast (broadcast x) = broadcast x", ops::broadcast, broadcast_of_broadcast),
      rule("slice of everything = x", ops::slice, full_slice),
      rule("pad by nothing = x", ops::pad, empty_pad),
      rule("reverse of dims of size 1 = x", ops::reverse, reverse_of_nothing),
      rule("concatenate x = x", ops::concatenate, concatenate_of_one),
      rule("reduce over no dims = x", ops::reduce, reduce_of_nothing),
      rule("dot (transpose x) y = dot x y", ops::dot, dot_of_transpose),
      // Only the gradient knew it; after differentiation it is the identity.
      rule("stop_gradient x = x", ops::stop_gradient, same_type),
  };
}

}  // namespace

std::span<const Rule> simplify_rules() {
  static const auto& rules = *new std::vector<Rule>(make_rules());
  return rules;
}

}  // namespace sheaf::passes
