// ScalarOp names and the builder of scalar DAGs. Every node is pushed through one place that folds constants with
// `eval_op` and value-numbers, so two ways of writing the same expression share nodes.
// Invariant: operands precede their users, and a finished function holds no node its result does not need.
#include "ir/scalar.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "ir/check.h"

namespace sheaf::ir {
namespace {

struct ScalarOpInfo {
  std::string_view name;
  int arity;
  bool is_commutative = false;
};

constexpr ScalarOpInfo kOps[] = {
    {"arg", 0},                     {"constant", 0},    {"add", 2, true},
    {"sub", 2},                     {"mul", 2, true},   {"div", 2},
    {"rem", 2},                     {"neg", 1},         {"abs", 1},
    {"min", 2, true},               {"max", 2, true},   {"fma", 3, true},
    {"sqrt", 1},                    {"floor", 1},       {"ceil", 1},
    {"trunc", 1},                   {"round_even", 1},  {"eq", 2, true},
    {"ne", 2, true},                {"lt", 2},          {"le", 2},
    {"gt", 2},                      {"ge", 2},          {"and", 2, true},
    {"or", 2, true},                {"xor", 2, true},   {"not", 1},
    {"shl", 2},                     {"shr_arith", 2},   {"shr_logical", 2},
    {"mul_hi", 2, true},            {"clz", 1},         {"popcount", 1},
    {"select", 3},                  {"convert", 1},     {"bitcast", 1},
};
static_assert(std::size(kOps) == static_cast<std::size_t>(ScalarOp::bitcast) + 1);

const ScalarOpInfo& info(ScalarOp op) { return kOps[static_cast<std::size_t>(op)]; }

bool is_comparison(ScalarOp op) { return op >= ScalarOp::eq && op <= ScalarOp::ge; }

// Whether `op` is defined on operands of `dtype`.
bool accepts(ScalarOp op, DType dtype) {
  const bool is_real = dtype == DType::f32 || dtype == DType::f64;
  switch (op) {
    case ScalarOp::arg: case ScalarOp::constant: case ScalarOp::convert: case ScalarOp::bitcast: return false;
    case ScalarOp::add: case ScalarOp::sub: case ScalarOp::mul: case ScalarOp::div: case ScalarOp::rem:
    case ScalarOp::neg: case ScalarOp::abs:
      return is_real || is_int(dtype);
    case ScalarOp::fma: case ScalarOp::sqrt: case ScalarOp::floor: case ScalarOp::ceil: case ScalarOp::trunc:
    case ScalarOp::round_even:
      return is_real;
    case ScalarOp::and_: case ScalarOp::or_: case ScalarOp::xor_: case ScalarOp::not_:
      return is_int(dtype) || is_bool(dtype);
    case ScalarOp::shl: case ScalarOp::shr_arith: case ScalarOp::shr_logical: case ScalarOp::clz:
    case ScalarOp::popcount:
      return is_int(dtype);
    case ScalarOp::mul_hi: return dtype == DType::u32 || dtype == DType::u64;
    case ScalarOp::min: case ScalarOp::max: case ScalarOp::eq: case ScalarOp::ne: case ScalarOp::lt: case ScalarOp::le:
    case ScalarOp::gt: case ScalarOp::ge: case ScalarOp::select:
      return is_real || is_int(dtype) || is_bool(dtype);
  }
  return false;
}

}  // namespace

std::string_view name(ScalarOp op) { return info(op).name; }
int arity(ScalarOp op) { return info(op).arity; }

ScalarBuilder::Ref ScalarBuilder::push(ScalarNode node) {
  if (info(node.op).is_commutative && node.in[0] > node.in[1]) std::swap(node.in[0], node.in[1]);
  const auto [entry, is_new] = numbering_.try_emplace(node, static_cast<int>(fn_.nodes.size()));
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
  return fold_or_push({.op = ScalarOp::convert, .dtype = to, .in = {a.node, -1, -1}});
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

ScalarFn ScalarBuilder::finish(Ref result) {
  for (DType t : fn_.args) SHEAF_CHECK(t != DType::token, "an argument was never declared");
  std::vector<char> is_needed(fn_.nodes.size(), 0);
  is_needed[result.node] = 1;
  for (int i = result.node; i >= 0; --i) {
    if (!is_needed[i]) continue;
    for (int operand : fn_.nodes[i].in) {
      if (operand >= 0) is_needed[operand] = 1;
    }
  }
  ScalarFn finished;
  finished.args = fn_.args;
  std::vector<int> renumbered(fn_.nodes.size(), -1);
  for (std::size_t i = 0; i < fn_.nodes.size(); ++i) {
    if (!is_needed[i]) continue;
    ScalarNode node = fn_.nodes[i];
    for (int& operand : node.in) {
      if (operand >= 0) operand = renumbered[operand];
    }
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
