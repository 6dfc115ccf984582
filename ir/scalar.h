// Scalar functions as data. A `ScalarFn` is a DAG over the closed set `ScalarOp`; exp, log, erf, ... are each
// written once as such a DAG (ir/scalar_functions.cpp), and every emitter and interpreter knows only the ops below.
// Invariant: the meaning of each ScalarOp is exact (IEEE 754 or two's complement): all targets agree to the bit.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sheaf/dtype.h"

namespace sheaf::ir {

// Operand dtypes are equal unless said otherwise, and the result has that dtype. Integers wrap. Only bool, ints, f32
// and f64 appear inside a DAG except as operand or result of `convert` and `bitcast`: f16 and bf16 compute in f32
// and round once per op.
enum class ScalarOp : std::uint8_t {
  arg,          // the index-th argument
  constant,     // `bits`, reinterpreted as dtype
  add,
  sub,
  mul,
  div,          // floats IEEE; ints truncate toward zero, x/0 = -1 (all ones), INT_MIN/-1 = INT_MIN: never traps
  rem,          // floats: fmod, sign of x; ints: C sign, x%0 = x, INT_MIN%-1 = 0
  neg,
  abs,     // abs(INT_MIN) = INT_MIN
  min,
  max,     // floats: NaN if either is NaN (quiet); -0 < +0
  fma,          // one rounding; floats only
  sqrt,
  floor,
  ceil,
  trunc,
  round_even,  // floats only
  eq,
  ne,
  lt,
  le,
  gt,
  ge,                // -> bool; NaN compares false but `ne` true
  and_,
  or_,
  xor_,
  not_,                 // bool or int; not_ of bool is logical
  shl,
  shr_arith,
  shr_logical,           // by an amount >= width (as unsigned): 0, or the sign for shr_arith
  mul_hi,       // high half of the full product; u32, u64
  clz,
  popcount,
  select,       // (bool, T, T) -> T
  convert,  // value conversion. float->int saturates, NaN->0; ->bool is x != 0; int->int wraps; ->float nearest even
  bitcast,  // same size
};

std::string_view name(ScalarOp op);
int arity(ScalarOp op);

struct ScalarNode {
  ScalarOp op = ScalarOp::arg;
  DType dtype = DType::f32;  // of the result
  int in[3] = {-1, -1, -1};  // nodes, all smaller than this one's index
  int index = 0;  // arg: which
  std::uint64_t bits = 0;  // constant: the value's bits, zero-extended
  bool operator==(const ScalarNode&) const = default;
  template <class H>
  friend H AbslHashValue(H h, const ScalarNode& n) {
    return H::combine(std::move(h), n.op, n.dtype, n.in[0], n.in[1], n.in[2], n.index, n.bits);
  }
};

struct ScalarFn {
  std::vector<DType> args;
  std::vector<ScalarNode> nodes;  // topologically sorted, value-numbered
  int result = -1;
  DType result_dtype() const { return nodes[result].dtype; }
  bool operator==(const ScalarFn&) const = default;
};

/// One node per line, "%3 = f32 fma %0, %1, %2", then "return %3": for dumps.
std::string print(const ScalarFn& fn);

/// A node of the DAG a ScalarBuilder is making. (Outside the builder, because a nested class's member initialisers
/// are not yet usable in the default arguments of its encloser.)
struct ScalarRef {
  int node = -1;
};

/// Builds DAGs; value-numbers, and folds constants with `eval`, so that what is emitted is minimal.
class ScalarBuilder {
 public:
  using Ref = ScalarRef;

  Ref arg(int index, DType dtype);
  Ref constant(DType dtype, double value);  // rounded to dtype
  Ref constant_bits(DType dtype, std::uint64_t bits);
  Ref emit(ScalarOp op, Ref a, Ref b = {}, Ref c = {});  // dtype by the rules above; not convert/bitcast
  /// Always one rounding. A `convert` node to or from a type narrower than f32 has f32 on its other side: conversions
  /// between such types and 64-bit ones become a few nodes, so that emitters need no more than the usual instructions.
  Ref convert(Ref a, DType to);
  Ref bitcast(Ref a, DType to);
  /// Inlines `fn` with the given arguments.
  Ref call(const ScalarFn& fn, std::span<const Ref> args);
  DType dtype(Ref a) const { return fn_.nodes[a.node].dtype; }
  ScalarFn finish(Ref result);

 private:
  Ref push(ScalarNode node);
  Ref fold_or_push(ScalarNode node);
  Ref round_to_odd_f32(Ref a);
  ScalarFn fn_;
  absl::flat_hash_map<ScalarNode, int> numbering_;
};

/// Evaluates one ScalarOp on raw bits (zero-extended to 64), exactly as every target must. `in` are the operand bits,
/// `in_dtype` the dtype of the first operand (of the second for select), `out` the result dtype.
std::uint64_t eval_op(ScalarOp op, DType in_dtype, DType out, const std::uint64_t in[3]);
/// Evaluates a whole DAG on raw bits.
std::uint64_t eval(const ScalarFn& fn, std::span<const std::uint64_t> args);

/// The dtype in which a DAG computes on values of `t`: f32 for the half types.
constexpr DType compute_dtype(DType t) { return accumulator(t); }

/// bits <-> double, rounding to `dtype` (nearest even, saturating for ints, NaN -> 0 for ints).
std::uint64_t to_bits(DType dtype, double value);
double from_bits(DType dtype, std::uint64_t bits);

/// The scalar function `name` over floats of `dtype` (f16, bf16, f32, f64), all arguments and the result of that dtype;
/// half types compute in f32 and round once. Built once per (name, dtype) and cached; never null for a known name.
/// Names: exp expm1 exp2 log log1p log2 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh logistic erf erfc
/// erf_inv pow atan2 cbrt rsqrt lgamma digamma.
const ScalarFn* scalar_function(std::string_view name, DType dtype);

/// The one-op function `op` over `dtype`; half types compute in f32 and round.
const ScalarFn& scalar_primitive(ScalarOp op, DType dtype);

/// Bounds are in ulps of the result, measured against long double by tests/ir/scalar_function_test.cpp. For f16 and
/// bf16 the f32 result is rounded once more: half an ulp, next to which the f32 error is nothing.
struct ScalarFunctionInfo {
  std::string_view name;
  int arity;
  double max_ulp_f32, max_ulp_f64;
  double (*reference)(double, double);  // libm in f64 (second argument unused for unary)
  long double (*reference_long)(long double, long double);
  // Functions with zeros at inconvenient places: the bounds are for x >= `lowest`, in ulps of max(|result|, `scale`).
  double scale = 0;
  double lowest = -std::numeric_limits<double>::infinity();
};
std::span<const ScalarFunctionInfo> scalar_functions();

}  // namespace sheaf::ir
