// The attribute structs of all ops, in one place because transforms, codegen and the API build them. Field types say
// which tensor's dims they speak about (ir/attrs.h).
#pragma once

#include "ir/attrs.h"
#include "ir/lowering.h"
#include "ir/schedule.h"
#include "sheaf/precision.h"

namespace sheaf::ir {

inline constexpr std::string_view kOutOfBoundsWords[] = {"clip", "fill", "promise"};
template <>
inline constexpr std::span<const std::string_view> enum_words<lowering::OutOfBounds> = kOutOfBoundsWords;
inline constexpr std::string_view kCombineWords[] = {"add", "set", "min", "max", "mul"};
template <>
inline constexpr std::span<const std::string_view> enum_words<lowering::Scatter::Combine> = kCombineWords;
inline constexpr std::string_view kCumulativeWords[] = {"sum", "prod", "max", "min", "logsumexp"};  // affine has its op
template <>
inline constexpr std::span<const std::string_view> enum_words<lowering::Recurrence::Kind> = kCumulativeWords;
inline constexpr std::string_view kPrecisionWords[] = {"full", "tf32"};
template <>
inline constexpr std::span<const std::string_view> enum_words<Precision> = kPrecisionWords;

/// What a checkpoint saves of its region: nothing, everything, the results of dots (or of dots without batch dims), the
/// values of given names, or all but those.
enum class Policy : std::uint8_t { nothing, everything, dots, dots_without_batch, names, except_names };
inline constexpr std::string_view kPolicyWords[] = {"nothing", "everything",  "dots", "dots_without_batch",
                                                    "names",   "except_names"};
template <>
inline constexpr std::span<const std::string_view> enum_words<Policy> = kPolicyWords;

namespace ops {

struct Convert {
  DType to = DType::f32;
};
struct Bitcast {
  DType to = DType::f32;
};

struct ReducePrecision {
  int exponent_bits = 8;
  int mantissa_bits = 23;
};

/// A dense value: row-major bytes as lower-case hex. Rank-0 constants print inline as `1.5:f32`.
struct Constant {
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims = {};
  std::string hex = {};
};
struct Iota {
  PerDim<out(0), Neutral::size> shape = {};
  Dims<out(0)> dim = {};
  DType dtype = DType::i32;
};

/// Result dim dims[d] is operand dim d (equal, or 1 in the operand); all others are new.
struct Broadcast {
  PerDim<out(0), Neutral::size> shape = {};
  DimMap<in(0), out(0)> dims = {};
};
struct Reshape {
  PerDim<out(0), Neutral::size> shape = {};
};
/// Result dim d is operand dim perm[d].
struct Transpose {
  DimMap<out(0), in(0)> perm = {};
};
struct Slice {
  PerDim<in(0), Neutral::zero> start = {};
  PerDim<in(0), Neutral::size> limit = {};
  PerDim<in(0), Neutral::one> stride = {};
};
/// Operands: x, fill (rank 0). Negative low and high crop.
struct Pad {
  PerDim<in(0), Neutral::zero> low = {}, high = {}, interior = {};
};
struct Concatenate {
  Dims<in(0)> dim = {};
};
struct Reverse {
  Dims<in(0)> dims = {};
};

struct Reduce {
  ReduceKind kind = ReduceKind::sum;
  Dims<in(0)> dims = {};
};
struct ArgReduce {
  Dims<in(0)> dim = {};
  DType dtype = DType::i32;
};

/// The running reduction along `dim`, from its end if `reverse`.
struct Cumulative {
  lowering::Recurrence::Kind kind = lowering::Recurrence::Kind::sum;
  Dims<in(0)> dim = {};
  bool reverse = false;
};
/// Operands: a, b. out[i] = a[i] * out[i - 1] + b[i] along `dim`; the first is b's.
struct Recurrence {
  Dims<in(0)> dim = {};
  bool reverse = false;
};

/// Window m slides along dims[m]: sizes[m] elements, dilations[m] apart, from every strides[m]-th. One entry per window
/// in each list. Result dims: x's with the windows' counts, then the windows' sizes.
struct SlidingWindows {
  Dims<in(0)> dims = {};
  std::vector<std::int64_t> sizes = {}, strides = {}, dilations = {};
};

/// base_dilation - 1 identities between elements, then `low` before and `high` after (negative ones crop), then
/// windows.
struct ReduceWindow {
  ReduceKind kind = ReduceKind::sum;
  PerDim<in(0), Neutral::one> window = {}, strides = {};
  PerDim<in(0), Neutral::zero> low = {}, high = {};
  PerDim<in(0), Neutral::one> base_dilation = {}, window_dilation = {};
};

/// Result dims: batch, lhs free, rhs free. dtype: of the result ("preferred type"); accumulation is at least f32 wide.
struct Dot {
  Dims<in(0)> lhs = {};  // contracted
  Dims<in(1)> rhs = {};
  Dims<in(0)> lhs_batch = {};
  Dims<in(1)> rhs_batch = {};
  DType dtype = DType::token;  // token: the operands' dtype
  Precision precision = Precision::full;  // what products of f32 may lose; its transposes have the same
};

/// Operands: query [batch.., T, N, H], key [batch.., S, K, H] and value [batch.., S, K, V], N being a multiple of K; if
/// `bias`, what is added to the scores; if `mask`, which of them count. Both are [batch.., N, T, S], any dim of which
/// may be 1. Query t meets the keys from t - before to t + after; -1: without bound. derives_bias: the derivatives have
/// one of the bias.
struct Attention {
  double scale = 1;
  std::int64_t before = -1, after = -1;
  bool bias = false, mask = false, derives_bias = false;
  Precision precision = Precision::full;  // of its products
};

/// Every dim of lhs, rhs and the result has one role. Shared dims of the three are one index. Features pair up and are
/// summed, as are the positions in a window of rhs, which slides over lhs padded by `low` and `high` zeros (negative:
/// cropped) after lhs_dilation - 1 zeros went between its elements. The lists by spatial dim may be empty: 1, and no
/// padding. groups: the first lhs feature is [groups, rhs feature], the first rhs output [groups, outputs of each].
/// batch_groups: the first lhs batch is [batch_groups, result batch], the first rhs output [batch_groups, outputs of
/// each].
struct Conv {
  Dims<in(0)> lhs_shared = {}, lhs_batch = {}, lhs_feature = {}, lhs_spatial = {};
  Dims<in(1)> rhs_shared = {}, rhs_feature = {}, rhs_spatial = {}, rhs_output = {};
  Dims<out(0)> out_shared = {}, out_batch = {}, out_spatial = {}, out_feature = {};
  std::vector<std::int64_t> strides = {}, low = {}, high = {}, lhs_dilation = {}, rhs_dilation = {};
  std::int64_t groups = 1, batch_groups = 1;
  DType dtype = DType::token;  // of the result; token: the operands' dtype
  Precision precision = Precision::full;
};

/// Operands: x, starts (integer, index vector of size |dims| along index_dim). Starts wrap once when negative, then
/// clamp.
struct DynamicSlice {
  Dims<in(0)> dims = {};
  std::vector<std::int64_t> sizes = {};
  Dims<in(0)> batch = {};
  Dims<in(1)> starts_batch = {};
  Dims<in(1)> index_dim = {};
};
/// Operands: x, update, starts.
struct DynamicUpdateSlice {
  Dims<in(0)> dims = {};
  Dims<in(0)> batch = {};
  Dims<in(2)> starts_batch = {};
  Dims<in(2)> index_dim = {};
};
/// Operands: x, indices (index vector along index_dim). StableHLO's dimension numbers.
struct Gather {
  Dims<out(0), true> offset_dims = {};
  Dims<in(0)> collapsed = {};
  Dims<in(0)> start_index_map = {};
  Dims<in(0)> operand_batch = {};
  Dims<in(1)> indices_batch = {};
  Dims<in(1)> index_dim = {};
  PerDim<in(0), Neutral::size> slice_sizes = {};
  lowering::OutOfBounds mode = lowering::OutOfBounds::clip;
  // Mode fill reads NaN, the lowest int, the largest unsigned or true; if `has_fill`, the value with these bits: with 0
  // it is a linear map.
  bool has_fill = false;
  std::int64_t fill_bits = 0;
  bool deterministic = true;  // of the scatter that is its transpose
};
/// Operands: x, indices, updates.
struct Scatter {
  lowering::Scatter::Combine combine = lowering::Scatter::Combine::add;
  Dims<in(2), true> update_window_dims = {};
  Dims<in(0)> inserted = {};
  Dims<in(0)> scatter_dims = {};
  Dims<in(0)> operand_batch = {};
  Dims<in(1)> indices_batch = {};
  Dims<in(1)> index_dim = {};
  bool unique = false;
  bool sorted = false;  // the places windows start at ascend: the gradient of mul need not sort
  bool deterministic = true;  // else what meets in one place may be combined in any order, but for set
};

struct Sort {
  Dims<in(0)> dim = {};
  int num_keys = 1;
};

struct TopK {
  Dims<in(0)> dim = {};
  std::int64_t k = 0;
};

/// Operands: a, b. Solves op(a) x = b, op(a) being the triangle of a, or its transpose.
struct TriangularSolve {
  bool lower = true;
  bool transposed = false;
  bool unit_diagonal = false;
};

/// Operands: key u32[.., 2]; if there is one more, for each key the counter u64[..] of the first element. The counter
/// is the 64-bit flat index over the result dims not in result_batch, in an array of extents `whole` of which those
/// dims may be a part; empty: they are all of it.
struct RandomBits {
  PerDim<out(0), Neutral::size> shape = {};
  Dims<in(0)> key_batch = {};
  Dims<out(0)> result_batch = {};
  DType dtype = DType::u32;
  std::vector<std::int64_t> whole = {};
};

// Collectives: `axes` are named axes, major to minor, `size` the product of their sizes. `tiled`: blocks of a dim, not
// a dim of their own, are exchanged.
struct AllReduce {
  Axes axes = {};
  ReduceKind kind = ReduceKind::sum;
};
/// `to`: what the result is along the axes of a mesh: varying, invarying or reduced. `backward`: of a derivative; such
/// a gather is never the same as one of the forward pass, so that what was gathered need not be kept until then.
struct AllGather {
  Axes axes = {};
  std::int64_t size = 0;
  std::int64_t dim = 0;
  bool tiled = false;
  Along to = Along::varying;
  bool backward = false;
};
struct ReduceScatter {
  Axes axes = {};
  std::int64_t size = 0;
  std::int64_t dim = 0;
  bool tiled = false;
  ReduceKind kind = ReduceKind::sum;
};
struct Ppermute {
  Axes axes = {};
  std::vector<std::int64_t> sources = {};
  std::vector<std::int64_t> targets = {};
};
struct AllToAll {
  Axes axes = {};
  std::int64_t size = 0;
  std::int64_t split = 0;
  std::int64_t concat = 0;
  bool tiled = false;
};
/// `manual`: the axes are a mesh's, of a shard_map around.
struct AxisIndex {
  Axes axes = {};
  bool manual = false;
};
struct Pscatter {
  Axes axes = {};
  std::int64_t size = 0;
  std::int64_t dim = 0;
  bool tiled = false;
};
struct Pcast {
  Axes axes = {};
  Along to = Along::varying;
};

/// Specs are texts of ir/sharding.h, one per operand and result; `manual` are the mesh axes its body is written for.
struct ShardMap {
  std::string mesh = {};
  std::vector<std::string> in = {};
  std::vector<std::string> out = {};
  Axes manual = {};
  bool unchecked = false;
};
struct WithSharding {
  std::string mesh = {};
  std::string spec = {};
};

struct Check {
  std::string message = {};
};
/// `pure`: may be dropped where no result is read, and called more or less often than written.
struct CallbackAttrs {
  std::string name = {};
  int slot = -1;
  std::vector<std::string> dtypes = {};
  std::vector<std::int64_t> ranks = {};
  std::vector<std::int64_t> shapes = {};
  std::int64_t lanes = 1;
  bool pure = false;
};

/// Counts of the operands' roles; the rest are stacks.
struct Scan {
  int consts = 0;
  int carry = 0;
  std::int64_t length = 0;
  bool reverse = false;
  std::int64_t unroll = 1;
};
/// Counts of the operands' roles; the rest is the carry. max_trips -1: without bound.
struct While {
  int cond_consts = 0;
  int body_consts = 0;
  std::int64_t max_trips = -1;
};
struct Checkpoint {
  Policy policy = Policy::nothing;
  std::vector<std::string> names = {};
  bool recomputes = false;
};
struct CheckpointName {
  std::string name = {};
};
/// The first `consts` operands are captures, which these rules give no derivative.
struct CustomJvp {
  int consts = 0;
};
struct CustomVjp {
  int consts = 0;
};
struct CustomLinear {
  int residuals = 0;
};
struct CustomLinearSolve {
  int consts = 0;
};

/// A step of a plan: the fusion group is the region, `schedule` the template it is built by, `tile` the two dims of the
/// results that tile_transpose cuts. Result j lies in the buffer of the function's result `outputs[j]` or, where that
/// is -1, in the arena at byte `offsets[j]`; `in_place[j]` is the operand whose place it takes, or -1. Of a host step:
/// its regions' arenas begin at `frame`; `spares` holds, for each carry of a loop, the offset of a second buffer, or -1
/// where the body overwrites the carry in place, and then, of a while, where its condition lies.
struct Kernel {
  std::string name = {};
  Schedule schedule = Schedule::none;
  std::vector<std::int64_t> tile = {};
  std::vector<std::int64_t> outputs = {};
  std::vector<std::int64_t> offsets = {};
  std::vector<std::int64_t> in_place = {};
  std::int64_t frame = -1;
  std::vector<std::int64_t> spares = {};
  bool in_order = false;
};

}  // namespace ops
}  // namespace sheaf::ir
