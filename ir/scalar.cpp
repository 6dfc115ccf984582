// ScalarOp names and the builder of scalar DAGs. Every node is pushed through one place that folds constants with
// `eval_op` and value-numbers, so two ways of writing the same expression share nodes.
// Invariant: a finished function holds the nodes its result needs, operands first, in an order that depends on nothing
// but the expression.
#include "ir/scalar.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "ir/check.h"
#include "ir/scalar_expr.h"

namespace sheaf::ir {
namespace {

// The operand dtypes an op is defined on; `special` ops have their own builder calls.
enum class Domain { special, real, number, integer, bits, word, any };

struct ScalarOpInfo {
  std::string_view name;
  int arity;
  Domain domain;
  bool is_commutative = false;
};

constexpr ScalarOpInfo kOps[] = {
    {"arg", 0, Domain::special},
    {"constant", 0, Domain::special},
    {"add", 2, Domain::number, true},
    {"sub", 2, Domain::number},
    {"mul", 2, Domain::number, true},
    {"div", 2, Domain::number},
    {"rem", 2, Domain::number},
    {"neg", 1, Domain::number},
    {"abs", 1, Domain::number},
    {"min", 2, Domain::any, true},
    {"max", 2, Domain::any, true},
    {"fma", 3, Domain::real, true},
    {"sqrt", 1, Domain::real},
    {"floor", 1, Domain::real},
    {"ceil", 1, Domain::real},
    {"trunc", 1, Domain::real},
    {"round_even", 1, Domain::real},
    {"eq", 2, Domain::any, true},
    {"ne", 2, Domain::any, true},
    {"lt", 2, Domain::any},
    {"le", 2, Domain::any},
    {"gt", 2, Domain::any},
    {"ge", 2, Domain::any},
    {"and", 2, Domain::bits, true},
    {"or", 2, Domain::bits, true},
    {"xor", 2, Domain::bits, true},
    {"not", 1, Domain::bits},
    {"shl", 2, Domain::integer},
    {"shr_arith", 2, Domain::integer},
    {"shr_logical", 2, Domain::integer},
    {"mul_hi", 2, Domain::word, true},
    {"clz", 1, Domain::integer},
    {"popcount", 1, Domain::integer},
    {"select", 3, Domain::any},
    {"convert", 1, Domain::special},
    {"bitcast", 1, Domain::special},
};
static_assert(std::size(kOps) == static_cast<std::size_t>(ScalarOp::bitcast) + 1);

const ScalarOpInfo& info(ScalarOp op) { return kOps[static_cast<std::size_t>(op)]; }

bool is_comparison(ScalarOp op) { return op >= ScalarOp::eq && op <= ScalarOp::ge; }

bool accepts(ScalarOp op, DType t) {
  const bool is_real = t == DType::f32 || t == DType::f64;
  switch (info(op).domain) {
    case Domain::special: return false;
    case Domain::real: return is_real;
    case Domain::number: return is_real || is_int(t);
    case Domain::integer: return is_int(t);
    case Domain::bits: return is_int(t) || is_bool(t);
    case Domain::word: return t == DType::u32 || t == DType::u64;
    case Domain::any: return is_real || is_int(t) || is_bool(t);
  }
  return false;
}

bool is_narrow_float(DType t) { return is_float(t) ? size_bytes(t) < 4 : t == DType::f8e4m3 || t == DType::f8e5m2; }

bool is_exact_in_f32(DType t) { return is_narrow_float(t) || is_bool(t) || (is_int(t) && size_bytes(t) < 4); }

}  // namespace

std::string_view name(ScalarOp op) { return info(op).name; }
int arity(ScalarOp op) { return info(op).arity; }

ScalarBuilder::Ref ScalarBuilder::push(ScalarNode node) {
  ScalarNode key = node;
  if (info(node.op).is_commutative && key.in[0] > key.in[1]) std::swap(key.in[0], key.in[1]);
  const auto [entry, is_new] = numbering_.try_emplace(key, static_cast<int>(fn_.nodes.size()));
  if (is_new) fn_.nodes.push_back(node);
  return {entry->second};
}

ScalarBuilder::Ref ScalarBuilder::fold_or_push(ScalarNode node) {
  std::uint64_t in[3] = {};
  for (int k = 0; k < arity(node.op); ++k) {
    const ScalarNode& operand = fn_.nodes[node.in[k]];
    if (operand.op != ScalarOp::constant) return push(node);
    in[k] = operand.bits;
  }
  const int typed = node.op == ScalarOp::select ? 1 : 0;
  return constant_bits(node.dtype, eval_op(node.op, fn_.nodes[node.in[typed]].dtype, node.dtype, in));
}

ScalarBuilder::Ref ScalarBuilder::arg(int index, DType dtype) {
  // `token` marks an argument not declared yet; `finish` insists that none is left.
  if (std::size_t(index) >= fn_.args.size()) fn_.args.resize(index + 1, DType::token);
  SHEAF_CHECK(fn_.args[index] == DType::token || fn_.args[index] == dtype, "argument declared with two dtypes");
  fn_.args[index] = dtype;
  return push({.op = ScalarOp::arg, .dtype = dtype, .index = index});
}

ScalarBuilder::Ref ScalarBuilder::constant(DType dtype, double value) {
  return constant_bits(dtype, to_bits(dtype, value));
}

ScalarBuilder::Ref ScalarBuilder::constant_bits(DType dtype, std::uint64_t bits) {
  return push({.op = ScalarOp::constant, .dtype = dtype, .bits = bits});
}

ScalarBuilder::Ref ScalarBuilder::emit(ScalarOp op, Ref a, Ref b, Ref c) {
  const Ref in[3] = {a, b, c};
  ScalarNode node{.op = op};
  const int typed = op == ScalarOp::select ? 1 : 0;
  SHEAF_CHECK(in[typed].node >= 0);
  const DType operands = dtype(in[typed]);
  SHEAF_CHECK(accepts(op, operands), fmt::format("{} of {}", name(op), sheaf::name(operands)));
  for (int k = 0; k < arity(op); ++k) {
    SHEAF_CHECK(in[k].node >= 0 && dtype(in[k]) == (k < typed ? DType::bool_ : operands),
                fmt::format("operand {} of {}", k, name(op)));
    node.in[k] = in[k].node;
  }
  node.dtype = is_comparison(op) ? DType::bool_ : operands;
  if (op == ScalarOp::select) {
    if (b.node == c.node) return b;
    const ScalarNode& condition = fn_.nodes[a.node];
    if (condition.op == ScalarOp::constant) return condition.bits & 1 ? b : c;
  }
  return fold_or_push(node);
}

ScalarBuilder::Ref ScalarBuilder::convert(Ref a, DType to) {
  const DType from = dtype(a);
  if (from == to) return a;
  if (is_narrow_float(to) && from != DType::f32) {
    return convert(is_exact_in_f32(from) ? convert(a, DType::f32) : round_to_odd_f32(a), to);
  }
  if (is_narrow_float(from) && to != DType::f32) return convert(convert(a, DType::f32), to);
  return fold_or_push({.op = ScalarOp::convert, .dtype = to, .in = {a.node, -1, -1}});
}

// `a` in f32, rounded to odd: an inexact result gets an odd last bit, on whichever side of `a`. Rounding that once
// more, to a type at least two bits shorter, gives what one rounding of `a` would (Boldo and Melquiond, "Emulation of
// FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
ScalarBuilder::Ref ScalarBuilder::round_to_odd_f32(Ref a) {
  Expr x{this, a};
  if (x.dtype() == DType::i64 || x.dtype() == DType::u64) {
    // The same idea in integers: past 2^52 the low 12 bits only matter as "something is there". Then f64 holds x.
    const Expr high = is_signed_int(x.dtype()) ? shr_arith(x, 52) : shr_logical(x, 52);
    const Expr is_big = (high != 0.0) & (high != high.like_bits(~std::uint64_t{0}));
    const Expr low_bits = x.like(0xfff);
    const Expr sticky = select((x & low_bits) != 0.0, x.like(0x800), x.like(0));
    x = select(is_big, (x & !low_bits) | sticky, x);
  }
  x = ir::convert(x, DType::f64);
  const Expr nearest = ir::convert(x, DType::f32);
  const Expr back = ir::convert(nearest, DType::f64);
  // Toward zero first, which also brings an overflow back; then the odd bit. NaN stays NaN.
  const Expr is_too_far = ir::convert(ir::abs(back) > ir::abs(x), DType::i32);
  const Expr is_inexact = ir::convert(back != x, DType::i32);
  return from_int_bits((to_int_bits(nearest) - is_too_far) | is_inexact).ref;
}

ScalarBuilder::Ref ScalarBuilder::bitcast(Ref a, DType to) {
  if (dtype(a) == to) return a;
  SHEAF_CHECK(size_bytes(dtype(a)) == size_bytes(to) && !is_bool(to));
  return fold_or_push({.op = ScalarOp::bitcast, .dtype = to, .in = {a.node, -1, -1}});
}

ScalarBuilder::Ref ScalarBuilder::call(const ScalarFn& fn, std::span<const Ref> args) {
  SHEAF_CHECK(args.size() == fn.args.size());
  std::vector<Ref> refs;
  refs.reserve(fn.nodes.size());
  for (const ScalarNode& node : fn.nodes) {
    const auto operand = [&](int k) { return node.in[k] < 0 ? Ref{} : refs[node.in[k]]; };
    switch (node.op) {
      case ScalarOp::arg:
        SHEAF_CHECK(dtype(args[node.index]) == node.dtype);
        refs.push_back(args[node.index]);
        break;
      case ScalarOp::constant: refs.push_back(constant_bits(node.dtype, node.bits)); break;
      case ScalarOp::convert: refs.push_back(convert(operand(0), node.dtype)); break;
      case ScalarOp::bitcast: refs.push_back(bitcast(operand(0), node.dtype)); break;
      default: refs.push_back(emit(node.op, operand(0), operand(1), operand(2))); break;
    }
  }
  return refs[fn.result];
}

// Numbers the nodes anew by a walk from the result: those it does not need fall away, and the order is that of the
// operands, not that of the calls, in which compilers evaluate the arguments of one expression differently.
ScalarFn ScalarBuilder::finish(Ref result) {
  for (DType t : fn_.args) SHEAF_CHECK(t != DType::token, "an argument was never declared");
  ScalarFn finished;
  finished.args = fn_.args;
  std::vector<int> renumbered(fn_.nodes.size(), -1);
  std::vector<int> pending = {result.node};
  while (!pending.empty()) {
    const int i = pending.back();
    const std::size_t depth = pending.size();
    ScalarNode node = fn_.nodes[i];
    for (int k = arity(node.op) - 1; k >= 0; --k) {  // the first operand ends on top of the stack
      if (renumbered[node.in[k]] < 0) pending.push_back(node.in[k]);
    }
    if (pending.size() > depth) continue;
    pending.pop_back();
    if (renumbered[i] >= 0) continue;  // reached before through another user
    for (int k = 0; k < arity(node.op); ++k) node.in[k] = renumbered[node.in[k]];
    renumbered[i] = static_cast<int>(finished.nodes.size());
    finished.nodes.push_back(node);
  }
  finished.result = renumbered[result.node];
  fn_ = {};
  numbering_.clear();
  return finished;
}

std::string print(const ScalarFn& fn) {
  std::string text;
  for (std::size_t i = 0; i < fn.nodes.size(); ++i) {
    const ScalarNode& node = fn.nodes[i];
    text += fmt::format("%{} = {} {}", i, sheaf::name(node.dtype), name(node.op));
    if (node.op == ScalarOp::arg) text += fmt::format(" {}", node.index);
    if (node.op == ScalarOp::constant) {
      text += is_float(node.dtype) ? fmt::format(" {}", from_bits(node.dtype, node.bits))
                                   : fmt::format(" 0x{:x}", node.bits);
    }
    for (int k = 0; k < arity(node.op); ++k) text += fmt::format("{} %{}", k ? "," : "", node.in[k]);
    text += '\n';
  }
  return text + fmt::format("return %{}\n", fn.result);
}

}  // namespace sheaf::ir
