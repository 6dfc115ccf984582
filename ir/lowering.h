// What an op means to the code generators: a closed set of kinds, each plain data. Codegen switches over these and
// never over ops; an op that fits none of them needs a new kind, which is a change of every emitter.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "ir/attrs.h"
#include "ir/scalar.h"
#include "sheaf/precision.h"

namespace sheaf::ir::lowering {

/// out[i] = fn(in0[i], in1[i], ...); a rank-0 operand is read as in[].
struct Map {
  ScalarFn fn;
};

/// out[i] = in[j] with j[d] = offset[d] + stride[d] * i[source[d]], or offset[d] alone when source[d] < 0.
struct View {
  std::vector<int> source;
  std::vector<std::int64_t> stride, offset;
};

/// out[i.., k..] = in[j] with j = i but along dims[m], where j = i[dims[m]] * strides[m] + k[m] * dilations[m].
struct Windows {
  std::vector<std::int64_t> dims, strides, dilations;
};

/// out[i] = in[j], i and j being the same row-major position.
struct Reshape {};

/// out[i] = in[(i - low) / (interior + 1)] where that is exact and in range, else in1[] (the fill).
struct Pad {
  std::vector<std::int64_t> low, interior;
};

/// Operands one after another along dim.
struct Concatenate {
  int dim = 0;
};

/// out[i] = i[dim], converted to the result's dtype.
struct Iota {
  int dim = 0;
};

/// Threefry-2x32 bits; see ops/rng.cpp. Operand 0 is u32[batch.., 2], the counter the flat index over the other dims in
/// an array of extents `whole`, from operand 1, u64[batch..], on if there is one.
struct RandomBits {
  std::vector<std::int64_t> key_batch, result_batch, whole;
};

enum class OutOfBounds : std::uint8_t { clip, fill, promise };
/// Gather as in StableHLO, operand 1 the indices. `fill`: windows out of range read as `fill_bits`.
/// dynamic_slice is a Gather too, the only one whose negative starts wrap (once, before the clamp).
struct Gather {
  std::vector<std::int64_t> offset_dims, collapsed_dims, start_index_map, operand_batch, indices_batch, slice_sizes;
  int index_vector_dim = 0;
  OutOfBounds mode = OutOfBounds::clip;
  std::uint64_t fill_bits = 0;
  bool wrap = false;
};

/// out = in0 with in1 written at in2 (starts wrapped once and clamped): operand, update, starts[k].
struct UpdateSlice {
  std::vector<std::int64_t> dims, operand_batch, starts_batch;
  int index_dim = 0;
};

/// out = in0; for updates u in row-major order: out[...] = combine(out[...], u). Operands: operand, indices, updates.
/// Out-of-range windows are dropped. `set` keeps the last. Where the order does not matter to the user, it need not be
/// kept.
struct Scatter {
  enum class Combine : std::uint8_t { add, set, min, max, mul } combine = Combine::add;
  std::vector<std::int64_t> update_window_dims, inserted_dims, scatter_dims, operand_batch, indices_batch;
  int index_vector_dim = 0;
  bool is_unique = false;  // no position is written twice
  bool is_ordered = true;  // but for `set`, which always is
};

/// Reduction over dims in the fixed order of docs/numerics.md.
struct Reduce {
  ReduceKind kind = ReduceKind::sum;
  std::vector<std::int64_t> dims;
};
/// Index (result dtype) of the largest or smallest element along dim; NaN wins; the lowest index on ties.
struct ArgReduce {
  bool is_max = true;
  int dim = 0;
};

/// Along dim, from its beginning (its end if `is_reverse`): out[i] = combine(out[i - 1], in0[i]), the first being
/// in0's. logsumexp: log of the running sum of exp, scaled by the running maximum. affine: out[i] = in0[i] * out[i - 1]
/// + in1[i], one rounding, the first being in1's. The state is kept in `accumulate` and rounded to each result.
struct Recurrence {
  enum class Kind : std::uint8_t { sum, prod, max, min, logsumexp, affine } kind = Kind::sum;
  int dim = 0;
  bool is_reverse = false;
  DType accumulate = DType::f32;
};

/// dot_general: result dims = batch, lhs free, rhs free. Accumulates in `accumulate`; `precision`: of products of f32.
struct Contract {
  std::vector<std::int64_t> lhs_batch, rhs_batch, lhs_contract, rhs_contract;
  DType accumulate = DType::f32;
  Precision precision = Precision::full;
};

/// Attention or a derivative of it in one kernel, which never holds all scores at once (OpDef::has_kernel). Operands,
/// results and attributes as in the op.
struct Attention {
  enum class Kind : std::uint8_t { forward, tangent, backward } kind = Kind::forward;
};

/// Stable sort of all operands by the first `num_keys` along dim; NaN last, -0 equals +0.
struct Sort {
  int dim = 0;
  int num_keys = 1;
};

/// Loops and branches: steps of the plan that the host runs, around the kernels of their regions. Operands and results
/// as in ops scan, while, cond.
struct Scan {
  int consts = 0, carry = 0;
  std::int64_t length = 0;
  bool reverse = false;
};
struct While {
  int cond_consts = 0, body_consts = 0;
  std::int64_t max_trips = -1;
};
struct Branch {};

/// Ends the run unless the operand holds.
struct Check {
  std::string message;
};
/// Calls a function of the host, once for each of `lanes` examples.
struct Callback {
  std::string name;
  int slot = -1;
  std::int64_t lanes = 1;
  bool has_results = false;
};

/// A routine of the linear algebra library, for each of `batch` row-major matrices: a step of the plan that the host
/// runs. Operands and results as in the op of that name; rows x columns is the matrix, of triangular_solve the
/// right-hand side.
struct Library {
  enum class Routine : std::uint8_t { cholesky, triangular_solve, lu, qr, svd, eigh } routine = Routine::cholesky;
  std::int64_t batch = 1, rows = 0, columns = 0;
  bool lower = true, transposed = false, unit_diagonal = false;  // of triangular_solve
};

/// What the devices of a mesh do together: a step of the plan that all of them come to. Operands and results as in the
/// op of that name; `axes` are those of the function's mesh. axis_index: the coordinate that the axes span.
struct Collective {
  enum class Kind : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, ppermute, axis_index };
  Kind kind = Kind::all_reduce;
  Axes axes = {};
  ReduceKind reduce = ReduceKind::sum;
  bool tiled = false;
  int dim = 0;  // of all_gather, reduce_scatter
  int split = 0, concat = 0;  // of all_to_all
  std::vector<std::int64_t> sources = {}, targets = {};  // of ppermute: positions in the group
};

/// The operands themselves; no kernel may be shared across it.
struct Barrier {};

/// Runs its region: call and its like, gone before codegen (inlined), and kernels.
struct Region {};

}  // namespace sheaf::ir::lowering

namespace sheaf::ir {

using Lowering = std::variant<lowering::Map, lowering::View, lowering::Windows, lowering::Reshape, lowering::Pad,
                              lowering::Concatenate, lowering::Iota, lowering::RandomBits, lowering::Gather,
                              lowering::UpdateSlice, lowering::Scatter, lowering::Reduce, lowering::ArgReduce,
                              lowering::Recurrence, lowering::Contract, lowering::Attention, lowering::Sort,
                              lowering::Scan, lowering::While, lowering::Branch, lowering::Check, lowering::Callback,
                              lowering::Library, lowering::Collective, lowering::Barrier, lowering::Region>;

}  // namespace sheaf::ir
