// KIR: the loop nests that templates build and emitters print. Scalar, imperative, fully typed, static shapes; one
// nest serves the CPU emitter, the CUDA emitter and the interpreter. Invariant: every value is defined once, before
// its uses and in an enclosing block, and its meaning is exact, so all targets agree to the bit.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "codegen/kir/index.h"
#include "ir/scalar.h"
#include "sheaf/dtype.h"
#include "sheaf/precision.h"

namespace sheaf::kir {

using BufferId = int;  // < Kernel::params.size(): a parameter; else Phase::scratch[id - params.size()]
using LocalId = int;   // into Phase::locals

/// Reductions accumulate in this many lanes on every target, whatever its vector width: the order of additions is part
/// of the result's value.
inline constexpr int kLanes = 64;
/// Elements of a reduction that one set of lanes takes before the leaves' totals are added pairwise.
inline constexpr std::int64_t kLeaf = 16384;

// ---- values -----------------------------------------------------------------------------------------------------
// As in ScalarFn, f16, bf16 and f8 appear only as operand or result of load, store, convert and bitcast.

/// One ScalarOp other than arg and constant. Operand count is ir::arity(op).
struct Scalar {
  ir::ScalarOp op;
  std::array<ValueId, 3> in = {-1, -1, -1};
};
struct Constant {
  std::uint64_t bits = 0;
};
/// buffers[buffer][index], or `other` (a value of the same dtype; -1: zero bits) where the bool `mask` is false. The
/// index is in bounds wherever the mask holds, and is not evaluated for memory access elsewhere.
struct Load {
  BufferId buffer = -1;
  Index index;
  ValueId mask = -1;   // -1: always
  ValueId other = -1;
};
/// Reads a mutable local. A local of kLanes lanes is read inside a vector loop only, at the lane of the loop's axis.
struct Get {
  LocalId local = -1;
};
/// The index itself, as i64, or as i32 where its range allows.
struct IndexValue {
  Index index;
};
/// lo <= index < hi, as bool.
struct InRange {
  Index index;
  std::int64_t lo = 0, hi = 0;
};
using Expr = std::variant<Scalar, Constant, Load, Get, IndexValue, InRange>;

// ---- statements -------------------------------------------------------------------------------------------------
struct Stmt;
using Block = std::vector<Stmt>;

/// Defines `value` (its dtype is Phase::values[value]).
struct Let {
  ValueId value = -1;
  Expr expr;
};
/// Writes a mutable local; lanes as for Get.
struct Assign {
  LocalId local = -1;
  ValueId value = -1;
};
struct Store {
  BufferId buffer = -1;
  Index index;
  ValueId value = -1;
  ValueId mask = -1;   // -1: always
  /// CUDA, of parameters: add, mul, min or max of what is there and the value, of 16 bits and more, in one step.
  std::optional<ir::ScalarOp> update = std::nullopt;
};
enum class LoopKind : std::uint8_t {
  serial,
  unroll,   // serial, and short enough to repeat the body
  vector,   // iterations are independent: run them in lockstep, `width` at a time, the tail masked or narrower
  thread,   // CUDA only: one iteration per thread of the block
};
/// Where the bool `where` holds, a loop has `extent` steps instead of its axis's: at least one, and no more than those.
struct Rest {
  ValueId where = -1;
  std::int64_t extent = 0;
};
/// Runs the body for axis = 0 .. Phase::axes[axis].extent - 1. Vector loops hold no other loop and no If. A vector loop
/// that touches lane locals has extent <= kLanes and width kLanes; lanes at or beyond the extent keep their values.
struct For {
  AxisId axis = -1;
  LoopKind kind = LoopKind::serial;
  int width = 0;  // vector: lanes to emit; 0: the emitter's choice
  Block body;
  ValueId limit = -1;  // GPU, serial: an i64; ends before the step of this number
  /// CPU, serial and vector: one body does for all units, though the last has less to do. A vector loop that has it is
  /// of a multiple of kLanes steps elsewhere, and touches no lane locals.
  std::optional<Rest> rest = std::nullopt;
};
/// Combines the kLanes lanes of several locals (the state of one reduction, e.g. value and index) by the fixed tree
/// lane[l] = combine(lane[l], lane[l + h]) for h = 32, 16, 8, 4, 2, 1, and defines `results` as what lane 0 then holds.
/// The locals' contents afterwards are unspecified. combine[i] yields part i from (left parts..., right parts...).
struct LaneReduce {
  std::vector<LocalId> locals;
  std::vector<ir::ScalarFn> combine;
  std::vector<ValueId> results;
};
/// Not inside a vector loop.
struct If {
  ValueId condition = -1;
  Block then;
};
/// CUDA only: all threads of the block. CPU targets and the interpreter reject it.
struct Barrier {};

struct Stmt : std::variant<Let, Assign, Store, For, LaneReduce, If, Barrier> {
  using variant::variant;
};

// ---- kernels ----------------------------------------------------------------------------------------------------
struct Axis {
  std::string name;
  std::int64_t extent = 1;
};
struct Local {
  DType dtype = DType::f32;
  int lanes = 1;  // 1 or kLanes; uninitialised until assigned
};
struct Scratch {
  enum class Space : std::uint8_t { thread, shared };  // shared: CUDA, by the threads of a block
  DType dtype = DType::f32;
  std::int64_t count = 0;
  Space space = Space::thread;
};

/// A body run for axis 0 ("unit") = 0 .. extent - 1, in any order and on any threads: units never touch the same
/// element of a parameter unless both read, or both update it. Everything but the parameters belongs to the phase, so
/// phases stand alone.
struct Phase {
  std::vector<Axis> axes;  // axes[0] is the parallel one
  std::vector<DType> values;  // by ValueId
  std::vector<Local> locals;
  std::vector<Scratch> scratch;  // laid out in order, each at a multiple of 64 bytes
  IndexPool indices;
  Block body;
  std::int64_t unit_ps = 1000;  // estimated picoseconds per unit on one CPU core
  int threads = 1;  // GPU: that share a unit; 1: as many as its loops can use
};

struct Param {
  enum class Access : std::uint8_t { read, write, read_write, temporary };  // temporary: arena space, phase to phase
  DType dtype = DType::f32;
  std::int64_t count = 0;  // elements
  Access access = Access::read;
  int alignment = 16;  // of its address, in bytes: a power of two, 16 at most
};

/// out[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n], each dim a list (row-major, outermost first), accumulated
/// in `accumulate` and rounded once. Operands are read through strides in elements. The order is part of the value:
/// from +0, k row-major, one fused multiply-add per term (integers: wrapping multiply and add; bool: or of ands), but
/// where tensor cores multiply: those have an order of their own, and round f32 where `precision` permits it.
struct Contract {
  struct Dims {
    std::vector<std::int64_t> extents;
    std::vector<std::int64_t> lhs_strides, rhs_strides, out_strides;  // one per extent; zero where absent
  };
  /// CPU: zeros around an operand, the left one as long as nobody has exchanged them. Its offset and strides are those
  /// of an array of `padded` extents, in which what lies in memory, an array of `extents`, begins at `low`.
  struct Padding {
    std::vector<std::int64_t> padded, low, extents;
  };
  Dims batch, m, n, k;
  std::optional<Padding> padding = std::nullopt;
  std::int64_t lhs_offset = 0, rhs_offset = 0, out_offset = 0;
  BufferId result = 2;  // the parameter that out is
  DType lhs = DType::f32, rhs = DType::f32, out = DType::f32, accumulate = DType::f32;
  Precision precision = Precision::full;  // other than full only of products of f32
};

struct Attention;  // codegen/kir/attention.h

struct Kernel {
  std::string name;  // op list; the key is the hash of the text
  std::vector<Param> params;
  std::vector<Phase> phases;  // run one after the other
  /// Of the first two parameters. An operand that is a temporary is made by a phase, its prologue, one element at a
  /// time; what follows the contraction is a phase, the epilogue, whose axes 0, 1 and 2 are batch, row and column: it
  /// reads the contraction's result nowhere but there, once; and perhaps one that ends totals of its columns (codegen/
  /// kir/contract.h). So an emitter may make operands where it needs them, and let the epilogue have each sum at once.
  std::optional<Contract> contract = std::nullopt;
  /// Without phases as well, of CUDA alone.
  std::shared_ptr<const Attention> attention = nullptr;
};

/// Up to where the next one begins.
std::int64_t aligned_bytes(const Scratch& scratch);
std::int64_t scratch_bytes(const Phase& phase);

}  // namespace sheaf::kir
