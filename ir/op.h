// One op = one data sheet. An `OpDef` holds everything the rest of Sheaf knows about an op: attributes, shapes,
// factors, derivative, batching, lowering, reference semantics, cost and samples; every rule is data or an IR -> IR
// function. Adding an op: a definition in ir/ops/<family>.cpp, a line in ops.def, a declaration in trace/sheaf/ops.h.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <string_view>
#include <vector>

#include "ir/attrs.h"
#include "ir/factors.h"
#include "ir/graph.h"
#include "ir/literal.h"
#include "ir/lowering.h"
#include "ir/target.h"

namespace sheaf::ir {

enum class Dtypes : std::uint8_t {
  any,
  floating,
  integral,
  numeric,
  boolean,
  bits /* bool or int */,
  differentiable,
  real /* int or float */,
  ordered /* bool, int or float */,
  any_number /* bool, int, float or complex */
};
bool contains(Dtypes set, DType t);
std::string_view name(Dtypes set);

/// Which operands the op is linear in. jointly: f is one linear map of all of them (add, concatenate, select's cases);
/// separately: linear in each with the others fixed (mul, dot).
struct Linear {
  enum class Kind : std::uint8_t { none, jointly, separately } kind = Kind::none;
  std::uint32_t operands = 0;
};
constexpr Linear jointly(std::uint32_t operands) { return {Linear::Kind::jointly, operands}; }
constexpr Linear separately(std::uint32_t operands) { return {Linear::Kind::separately, operands}; }
inline constexpr std::uint32_t all_operands = ~0u;  // however many there are
/// Operand k is among those; a list of more than 32 operands is all or none.
constexpr bool is_linear_in(Linear l, int k) { return l.operands == all_operands || (k < 32 && (l.operands >> k & 1)); }

/// Where a fresh dim is listed when exactly `operands` carry it.
struct BatchSlot {
  std::uint32_t operands = 0;
  std::span<const std::string_view> append;     // dims fields that gain the fresh dim's position
  std::string_view size_one = "";               // a per-dim field whose entry there is 1 instead of neutral
};

/// A complex value as two real ones of its dims. `im` is null where the value is real to begin with.
struct Parts {
  Value re, im;
};

/// An operand of a batched equation: the value, and where its batch dim is; -1: not batched.
struct Batched {
  Value value;
  int dim = -1;
};

/// A derivative rule that is absent on purpose says why.
enum class Absent : std::uint8_t {
  none,             // the rule is there, or derived
  integer_result,   // results carry no tangent
  piecewise_constant,  // the derivative is zero wherever it exists
  by_definition,    // the op exists to have none: stop_gradient
  no_operands,
  plan_only,        // occurs only in plans
  by_region,        // transforms go through the regions: passes/regions.h
};

struct Cost {
  double flops = 0;
  double bytes = 0;
};

struct Shard;

struct OpDef {
  std::string_view name = "";
  std::string_view doc = "";
  int arity = -1;                     // -1: any number of operands
  int num_results = 1;
  Dtypes types = Dtypes::any;         // of every operand; `dtypes` may narrow it
  AttrsDef attrs = {};
  bool is_elementwise = false;        // operands are of the result's shape or rank 0
  bool callee_by_name = false;        // the region is a function of the module, named in the text (call)

  // Shapes. `factors` rejects bad shapes; the results' dims are read off it. `dtypes` gives the results' dtypes (null:
  // that of operand 0) and rejects bad ones. Region ops set `infer` instead of both.
  absl::StatusOr<Factors> (*factors)(const Eqn&) = nullptr;
  absl::StatusOr<std::vector<DType>> (*dtypes)(const Eqn&) = nullptr;
  absl::StatusOr<std::vector<Type>> (*infer)(const Eqn&) = nullptr;
  Effects (*effects)(const Eqn&) = nullptr;  // null: none, plus those of the regions

  // Derivatives; a null tangent or cotangent is a zero. jvp: `e` has been emitted in `b`; one tangent per operand and
  // per result. A jvp that is there is used for every tangent; linear ops need none. transpose: `e` is of the linear
  // program, so take only types and attributes from it; `operands` are its operands in `b`, null where linear; `cts`
  // those of the results (not all null); the answer has one entry per operand, null for zero and for the non-linear
  // ones, else of that operand's type.
  Linear linear = {};
  Linear (*linear_when)(const Eqn&) = nullptr;  // instead of `linear`, where it depends on the attributes
  Values (*jvp)(Builder& b, const Eqn& e, const Values& tangents) = nullptr;
  Values (*transpose)(Builder& b, const Eqn& e, const Values& operands, const Values& cts) = nullptr;
  Absent no_jvp = Absent::none;

  // Batching. Null: derived from `factors` with these slots and checked by it.
  std::span<const BatchSlot> slots = {};
  std::vector<Batched> (*batch)(Builder& b, const Eqn& e, std::span<const Batched> operands,
                                std::int64_t size) = nullptr;

  // Collectives: the named axes they go over, and the op where one of those is being vectorised.
  const Axes& (*axes)(const Eqn&) = nullptr;
  std::vector<Batched> (*over)(Builder& b, const Eqn& e, const std::string& axis, std::span<const Batched> operands,
                               std::int64_t size) = nullptr;
  // What the results are along manual axes. Null: what the operands are together, to which a Builder casts them
  // (ir/manual.h), or what the regions' results are.
  absl::StatusOr<Manual> (*manual)(const Eqn&) = nullptr;
  bool varies_as_operands = false;  // result k as operand k: none is cast
  // Ops with regions: what the parameter that operand k feeds is along manual axes; a Builder casts the operand to it.
  Manual (*feeds)(const Eqn&, int k) = nullptr;

  // Partitioning (ir/shard.h). What one device computes where a split factor is absolute, of class M or combined in a
  // way of its own: results as `factors` says, sharded where their factors are split, and still to be combined over
  // split R factors, but for those of combine `custom`, which are combined already.
  Values (*localize)(const Shard& shard) = nullptr;
  // Whether `localize` does with this factor so many parts; it is asked of such factors alone. Null: of those that are
  // absolute or combined in their own way, but of none of class M.
  bool (*splits)(const Eqn& e, const Factors& factors, int factor, std::int64_t ways) = nullptr;

  // For code generation: what it means, or the equations it stands for, which take its place after all transforms.
  Lowering (*lower)(const Eqn&) = nullptr;
  Values (*expand)(Builder& b, const Eqn& e, const Values& operands) = nullptr;
  // Of an op that has both: whether code generation for the target takes it by its lowering. Null: never.
  bool (*has_kernel)(const Eqn& e, const Target& target) = nullptr;
  // Where an operand or a result is complex: the results' parts, by the real equations that take the place of `e`
  // (ir/complex.h). Null: part by part or product by product, as the op is linear.
  std::vector<Parts> (*on_parts)(Builder& b, const Eqn& e, std::span<const Parts> operands) = nullptr;
  void (*eval)(const Eqn&, std::span<const Literal> in, std::span<Literal> out) = nullptr;  // out is sized and zeroed
  Cost (*cost)(const Eqn&) = nullptr;  // null: ir/cost.h reads it off the lowering
  double ulp = 0;  // stated error of f32 against the reference; 0: exact to the bit
  std::vector<std::string_view> (*samples)() = nullptr;  // "dot f32[2, 3], f32[3, 4] {lhs=[1], rhs=[0]}"
};

/// The results' types: dtypes and dims from the op's own rules.
absl::StatusOr<std::vector<Type>> infer(const Eqn& e);
/// The only result's type where operands of one plain type, and numbers beside them, say it: that of most equations.
/// Null where it takes `infer` to tell it, or what is wrong.
Type infer_alone(const Eqn& e);
/// By name in the text; null when there is none.
Op find_op(std::string_view name);
std::span<const Op> all_ops();
Cost cost_of(const Eqn& e);
/// The value of a `constant`.
Literal literal_of(const Eqn& e);
/// Sets of axes, sorted by name.
Axes joined(Axes a, const Axes& b);
Axes without(Axes a, const Axes& b);
/// What `e` is linear in, by its attributes.
Linear linear_of(const Eqn& e);

namespace ops {
#define SHEAF_OP(name) extern const OpDef name;
#include "ir/ops.def"
#undef SHEAF_OP
}  // namespace ops

}  // namespace sheaf::ir
