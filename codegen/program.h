// `Program`: what codegen hands to the runtime. Plain data: kernels as loop nests plus a key, the launch shape of each,
// and the ordered steps with the buffers they touch. The runtime loads and runs it, and never re-plans.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "codegen/target.h"
#include "ir/cost.h"
#include "ir/lowering.h"
#include "ir/type.h"
#include "sheaf/source.h"

namespace sheaf::kir {
struct Kernel;
}

namespace sheaf::codegen {

/// Where a kernel parameter lives. A slot is an address that a loop sets before each of its steps.
struct BufferRef {
  enum class Space : std::uint8_t { input, output, arena, constant, slot };
  Space space = Space::arena;
  std::int64_t index = 0;  // input, output, constant, slot: which; arena: byte offset (a multiple of 64)
  std::int64_t bytes = 0;
};

/// A matrix in a buffer of which a GPU copies boxes, in elements: `pitch` from the beginning of a row to the next.
/// Boxes lie in shared memory with rows of 128 bytes, exchanged as the driver's swizzle of that width does.
struct TensorMap {
  int buffer = 0;  // of the kernel's parameters
  DType dtype = DType::bf16;
  std::int64_t offset = 0, columns = 0, rows = 0, pitch = 0;
  int box_columns = 0, box_rows = 0;
};

/// A parameter that is the addresses of `count` of a step's buffers, one behind the other.
struct PointerRun {
  int first = 0, count = 1;
};

/// One phase of a kernel. Phases run one after the other. On a CPU: a function
/// `void f(void* const* buffers, int64_t begin, int64_t end, std::byte* scratch)` that may be run for disjoint
/// [begin, end) of [0, extent) on any threads in any order. On a GPU: a function of the buffers, run by `extent` blocks
/// of `threads` threads.
struct Phase {
  std::string entry;  // symbol
  std::int64_t extent = 1;  // units of parallel work
  std::int64_t unit_ps = 1000;  // estimated picoseconds per unit; below ~8 us in all the caller runs it alone
  std::int64_t scratch_bytes = 0;  // CPU: per thread; 64-byte aligned, uninitialised
  int threads = 1;  // GPU: of a block
  std::int64_t shared_bytes = 0;  // GPU: of shared memory that a block asks for when it is launched
  std::vector<TensorMap> maps = {};  // GPU: parameters after the buffers
  std::vector<PointerRun> parameters = {};  // GPU: what it is given of the buffers; empty: each by itself
};

struct KernelCode {
  std::string name;  // op list + hash: what a profile shows
  std::string key;  // hex of hash(text, key_of(target))
  Target target = {};
  std::shared_ptr<const kir::Kernel> kir;
  std::string functions = {};  // GPU: the kernel as CUDA text, without the prelude
  std::vector<Phase> phases;
  Loc loc = {};  // the user's line of the first step that runs it
};

struct Control;

struct Step {
  int kernel = 0;  // index into Program::kernels
  std::vector<BufferRef> buffers;  // in the order of the kernel's parameters
  Loc loc;  // the user's line of the group's hero
  std::shared_ptr<const Control> control = nullptr;  // if set, the step is this and no kernel
  ir::Work work = {};  // of a kernel, library call or collective: what a profile says of it
  bool joins_next = false;  // CPU: is launched together with the next step, which is a kernel as well
};

/// A loop. Each step reads the carries at slots `from` and writes them at slots `to`, alternating between two buffers
/// so that the last step writes `result`; where the body overwrites a carry in place the two slots are one. Row t of a
/// stack is the t-th run of row_bytes.
struct Loop {
  struct Carry {
    int from = 0, to = 0;
    BufferRef start, result, spare;
    bool in_place() const { return from == to; }
  };
  struct Row {
    int slot = 0;
    BufferRef stack;
    std::int64_t row_bytes = 0;
  };

  std::int64_t length = -1;  // -1: while the condition holds
  bool reverse = false;
  std::vector<Carry> carries;
  std::vector<Row> rows;
  std::vector<Step> body;
  std::vector<Step> condition = {};  // writes one bool
  BufferRef holds = {};  // there
  std::int64_t max_trips = -1;  // of a while
};

/// Runs the branch at `index` (i32), clamped.
struct Branch {
  BufferRef index;
  std::vector<std::vector<Step>> branches;
};

/// Ends the run with `message` unless the bool at `holds` does.
struct Check {
  BufferRef holds;
  std::string message;
};

/// Calls slot `slot` of ir/callbacks.h.
struct Callback {
  std::string name;
  int slot = -1;
  std::int64_t lanes = 1;
  std::vector<BufferRef> operands, results;
  std::vector<ir::Type> operand_types, result_types;
};

/// out[g, i, j] = sum over k of a[g, i, k] * b[g, k, j]. Each matrix lies in column-major order, `leading` elements
/// from one column to the next, or is the transpose of one that does; out is none.
struct Product {
  struct Matrix {
    DType dtype = DType::f32;
    bool is_transposed = false;
    std::int64_t rows = 0, columns = 0;  // as it lies in memory
    std::int64_t leading = 0, offset = 0, batch_stride = 0;  // in elements
    auto operator<=>(const Matrix&) const = default;
  };
  std::int64_t batch = 1, rows = 0, columns = 0, terms = 0;
  Matrix a, b, out;
  bool is_exchanged = false;  // a is the second operand
  Precision precision = Precision::full;
  auto operator<=>(const Product&) const = default;
};

/// What a library of linear algebra does: one routine for each matrix of the batch, or a product of matrices.
struct LibraryCall {
  std::variant<ir::lowering::Library, Product> what;
  DType dtype = DType::f32;
  std::vector<BufferRef> operands, results;
  std::int64_t matrix_ps = 1000;  // estimated picoseconds per matrix
  int kernel = -1;  // GPU: around a routine (codegen/cuda/around_routines.h); index into Program::kernels
  std::vector<Step> otherwise = {};  // kernels that do a product where there is no library for it
};

/// The mesh's devices, by position in it, in the groups that one choice of axes makes: each device once, in the order
/// of the coordinate within its group. All groups are of one size.
using Groups = std::vector<std::vector<int>>;

/// An array as outer x n x inner bytes, of which block k of the n is [*, k, *].
struct Blocks {
  std::int64_t outer = 1, inner = 0;
};

/// What a group of n devices does together, all at the same step of the program; runtime/collectives.h. An axis_index
/// is only the device's own position in its group.
struct Collective {
  ir::lowering::Collective::Kind kind = ir::lowering::Collective::Kind::all_reduce;
  std::string name;  // for messages: "all_gather over data, model"
  int groups = 0;  // index into Program::groups
  BufferRef operand, result;
  DType dtype = DType::f32;  // of what is reduced
  ir::ReduceKind reduce = ir::ReduceKind::sum;
  Blocks from, to;  // how the operand is cut, and how the result is put together
  std::vector<int> source;  // of a ppermute, per position: from which, or -1 for zeros
  bool waits = true;  // until it is done; else an Await stands where that must be
};

/// Until the collective over these groups that was last begun is done.
struct Await {
  int groups = 0;
};

/// What the host does around kernels.
struct Control {
  std::variant<Loop, Branch, Check, Callback, LibraryCall, Collective, Await> what;
};

struct Constant {
  ir::Type type;
  std::vector<std::byte> data;
};

struct Program {
  std::string name;
  Target target = {};  // of all kernels
  std::vector<ir::Type> inputs, outputs;
  std::vector<Constant> constants;
  std::vector<KernelCode> kernels;
  std::vector<Step> steps;
  std::int64_t arena_bytes = 0;
  int num_slots = 0;
  int num_devices = 1;  // that run it together, each its own part
  std::vector<Groups> groups;  // that its collectives go over, each as often as some are under way at once
  bool has_products = false;  // in steps, nested ones too, for which the library is opened early
  std::vector<int> alias;  // per output: the donated input whose buffer it takes, or -1
};

}  // namespace sheaf::codegen
