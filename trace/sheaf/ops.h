// The functions on arrays. All of them broadcast as NumPy does, promote dtypes by sheaf::promote (C++ numbers are
// weak), work on concrete and traced arrays alike, and are differentiable wherever calculus says so. Wrong shapes throw
// ShapeError, wrong dtypes TypeError, with the line of the call.
#pragma once

#include <tuple>
#include <utility>

#include "sheaf/array.h"
#include "sheaf/precision.h"

namespace sheaf {

// ---- making arrays ----
Array zeros(const Shape& shape, DType dtype = f32, Loc loc = Loc::current());
Array ones(const Shape& shape, DType dtype = f32, Loc loc = Loc::current());
/// The value broadcast to a shape; its own dtype unless one is given.
Array full(const Shape& shape, Operand value, std::optional<DType> dtype = {});
Array zeros_like(Operand x);
Array ones_like(Operand x);
Array full_like(Operand x, Operand value);
/// 0, 1, ... below stop; f32 if a float is involved, else i32.
Array arange(Number stop, std::optional<DType> dtype = {}, Loc loc = Loc::current());
Array arange(Number start, Number stop, Number step = 1, std::optional<DType> dtype = {}, Loc loc = Loc::current());
/// `count` values from start to stop, both included.
Array linspace(double start, double stop, std::int64_t count, DType dtype = f32, Loc loc = Loc::current());
Array eye(std::int64_t n, DType dtype = f32, Loc loc = Loc::current());
/// Position along `dim`.
Array iota(const Shape& shape, int dim, DType dtype = i32, Loc loc = Loc::current());

// ---- elementwise, one argument ----
Array abs(Operand x);  // gradient at 0: 0; of a complex number its length, a float
Array sign(Operand x);  // -1, 0 or 1; NaN for NaN
Array floor(Operand x);
Array ceil(Operand x);
Array round(Operand x);  // half to even
Array sqrt(Operand x);
Array rsqrt(Operand x);
Array cbrt(Operand x);
Array square(Operand x);
Array reciprocal(Operand x);
Array exp(Operand x);
Array exp2(Operand x);
Array expm1(Operand x);
Array log(Operand x);
Array log2(Operand x);
Array log1p(Operand x);
Array sin(Operand x);
Array cos(Operand x);
Array tan(Operand x);
Array asin(Operand x);
Array acos(Operand x);
Array atan(Operand x);
Array sinh(Operand x);
Array cosh(Operand x);
Array tanh(Operand x);
Array asinh(Operand x);
Array acosh(Operand x);
Array atanh(Operand x);
Array logistic(Operand x);  // 1 / (1 + exp(-x))
Array erf(Operand x);
Array erfc(Operand x);
Array erf_inv(Operand x);
Array lgamma(Operand x);
Array digamma(Operand x);
Array popcount(Operand x);
Array clz(Operand x);  // leading zero bits
Array is_finite(Operand x);
Array isnan(Operand x);
Array isinf(Operand x);
Array logical_not(Operand x);
Array stop_gradient(Operand x);  // x, with derivative zero
/// To another dtype. Float to integer truncates and saturates, NaN gives 0; to bool: whether it is not zero.
Array convert(Operand x, DType dtype);
/// The same bits read as another dtype, least significant first: a larger dtype leaves a new last dim of its parts, a
/// smaller one takes such a dim away.
Array bitcast(Operand x, DType dtype);
/// x rounded to this many exponent and mantissa bits, half to even, in x's dtype; gradients are rounded likewise. What
/// is too large becomes infinite, what is below the normal numbers of fewer exponent bits zero.
Array reduce_precision(Operand x, int exponent_bits, int mantissa_bits);
/// re + i im, c128 if one is f64, else c64; the shapes broadcast. exp, log, sqrt, abs, pow, sums, products and all
/// shape functions take complex arrays; what has no complex meaning, as max or sort, throws TypeError. Gradients are
/// JAX's: of a real u at x + iy, du/dx - i du/dy.
Array complex(Operand re, Operand im);
/// The parts, in z's shape: f32 of c64, f64 of c128. A z that is not complex is its own real part, and has an imaginary
/// part of zeros in its dtype.
Array real(Operand z);
Array imag(Operand z);
Array conj(Operand z);  // in z's dtype: real(z) - i imag(z), and z itself where it is not complex
Array angle(Operand z);  // atan2(imag, real)

// ---- elementwise, several arguments ----
Array maximum(Operand x, Operand y);  // NaN wins; ties share the gradient
Array minimum(Operand x, Operand y);
Array pow(Operand x, Operand y);
Array atan2(Operand y, Operand x);
Array floor_divide(Operand x, Operand y);  // floor of the exact quotient: x is y floor_divide(x, y) + mod(x, y)
Array mod(Operand x, Operand y);  // the remainder with the divisor's sign
Array logical_and(Operand x, Operand y);
Array logical_or(Operand x, Operand y);
Array logical_xor(Operand x, Operand y);
Array shift_right_logical(Operand x, Operand y);
/// x limited to [low, high].
Array clip(Operand x, Operand low, Operand high);
/// a where the condition holds, else b; one branch's NaN never leaks into the other's value.
Array where(Operand condition, Operand a, Operand b);

// ---- reductions ----
/// Which axes are reduced (none listed: all), and whether they stay with extent 1.
struct Reduce {
  using IsLeftOut = void;  // jit(sum), vmap(sum) are called with options or without, as sum is
  std::vector<std::int64_t> axes = {};
  bool keepdims = false;
};
/// x: T[dims] -> T[dims without axes]. f16 and bf16 accumulate in f32 with one rounding; bool sums as i32.
Array sum(Operand x, const Reduce& options = {});
Array prod(Operand x, const Reduce& options = {});
Array mean(Operand x, const Reduce& options = {});  // of integers: f32
Array max(Operand x, const Reduce& options = {});  // NaN wins; of nothing: ShapeError
Array min(Operand x, const Reduce& options = {});
Array any(Operand x, const Reduce& options = {});
Array all(Operand x, const Reduce& options = {});
struct Moments {
  using IsLeftOut = void;
  std::vector<std::int64_t> axes = {};
  bool keepdims = false;
  int ddof = 0;  // divides by n - ddof
};
Array var(Operand x, const Moments& options = {});
Array stddev(Operand x, const Moments& options = {});
/// i32 position of the largest element along axis (of the flattened array without one); NaN wins, the first on ties.
Array argmax(Operand x, std::optional<int> axis = {});
Array argmin(Operand x, std::optional<int> axis = {});
/// The running reductions along `axis`, from its end if `reverse`: out[i] combines everything up to and with x[i].
struct Cumulative {
  using IsLeftOut = void;
  int axis = 0;
  bool reverse = false;
};
Array cumsum(Operand x, const Cumulative& options = {});  // bool sums as i32
Array cumprod(Operand x, const Cumulative& options = {});
Array cummax(Operand x, const Cumulative& options = {});  // NaN wins; ties share the gradient
Array cummin(Operand x, const Cumulative& options = {});
Array cumlogsumexp(Operand x, const Cumulative& options = {});  // log of the running sum of exp; never overflows
/// out[i] = a[i] out[i - 1] + b[i] along `axis`, one fused multiply-add each; out[0] = b[0].  a and b broadcast.
Array linear_recurrence(Operand a, Operand b, const Cumulative& options = {});
/// Whether all elements are equal and the shapes too: one bool on the host.
bool all_equal(Operand x, Operand y);

// ---- products ----
struct ProductOptions {
  using IsLeftOut = void;
  std::optional<Precision> precision = {};  // of products of f32, in gradients too; full, or what a PrecisionScope says
};
/// Sum over x's last and y's second to last dim (last, if y has one dim): NumPy's dot.
Array dot(Operand x, Operand y, const ProductOptions& options = {});
/// The same for matrices, with leading dims broadcast as a batch: NumPy's matmul.
Array matmul(Operand x, Operand y, const ProductOptions& options = {});
struct DotDims {
  std::vector<std::int64_t> lhs = {}, rhs = {};  // summed over, pairwise
  std::vector<std::int64_t> lhs_batch = {}, rhs_batch = {};  // kept, pairwise
  std::optional<DType> dtype = {};  // of the result
  std::optional<Precision> precision = {};  // as in ProductOptions
};
/// Any contraction. Result dims: batch, the rest of x, the rest of y.
Array dot_general(Operand x, Operand y, const DotDims& dims);
Array outer(Operand x, Operand y);
/// One letter per dim, "bij,bjk->bik"; letters left out of the result are summed over, one that an operand has twice
/// takes its diagonal, and "..." stands for dims that broadcast. Without "->" the result has the ellipsis, then the
/// letters that occur once, by the alphabet. Many operands are multiplied two by two, those first that leave the least.
Array einsum(const std::string& spec, Operand x);
Array einsum(const std::string& spec, Operand x, Operand y, const ProductOptions& options = {});
Array einsum(const std::string& spec, const std::vector<Array>& operands, const ProductOptions& options = {},
             Loc loc = Loc::current());

// ---- windows ----
/// What lies around the array: "VALID" (nothing), "SAME" (as many windows as ceil(extent / stride), the odd element of
/// padding at the end), or how much before and after each dim that windows slide along, negative to crop: {{1, 1}, {0,
/// 2}}.
struct Padding {
  std::string name = {};
  std::vector<std::pair<std::int64_t, std::int64_t>> widths = {};
  Padding(const char* word) : name(word) {}  // NOLINT
  Padding(std::initializer_list<std::pair<std::int64_t, std::int64_t>> list) : widths(list) {}  // NOLINT
  Padding(std::vector<std::pair<std::int64_t, std::int64_t>> list) : widths(std::move(list)) {}  // NOLINT
  friend auto tree_fields(Padding& p) { return std::tie(p.name, p.widths); }
  friend auto tree_fields(const Padding& p) { return std::tie(p.name, p.widths); }
};
/// Lists have one entry for each spatial dim, or are empty: 1.  Dims are named by letters, one each: N the batch, C the
/// channels, I and O the kernel's channels in and out, any others spatial.  Unnamed: channels last, as in NHWC and
/// HWIO.
struct Conv {
  using IsLeftOut = void;
  std::vector<std::int64_t> strides = {};
  Padding padding = "SAME";
  std::vector<std::int64_t> input_dilation = {}, kernel_dilation = {};
  std::int64_t groups = 1;  // input channels = groups * I; O is a multiple of groups
  std::int64_t batch_groups =
      1;  // the batch in as many parts, each with its own part of O; the result's batch is one part
  std::string input = {}, kernel = {}, output = {};
  std::optional<DType> dtype = {};  // of the result
  std::optional<Precision> precision = {};  // as in ProductOptions
};
/// Convolution as neural networks mean it (cross-correlation), over any number of spatial dims.
/// x: [N, H, W, C], kernel: [h, w, I, O] -> [N, H', W', O].  f16 and bf16 accumulate in f32.
Array conv(Operand x, Operand kernel, const Conv& options = {});

/// One entry for each dim of x, or empty: 1. Windows that do not fit are left out.
struct Window {
  std::vector<std::int64_t> window = {}, strides = {};
  Padding padding = "VALID";  // of what changes nothing: 0 for a sum
  std::vector<std::int64_t> base_dilation = {}, dilation = {};  // between elements of x, and of a window
};
Array window_sum(Operand x, const Window& options);
Array window_prod(Operand x, const Window& options);
Array window_max(Operand x, const Window& options);  // gradient to the first of equal elements
Array window_min(Operand x, const Window& options);

/// Windows over the spatial dims of x, channels last unless `input` says otherwise.
struct Pool {
  using IsLeftOut = void;
  std::vector<std::int64_t> window = {2, 2};
  std::vector<std::int64_t> strides = {};  // empty: the window
  Padding padding = "VALID";
  std::string input = {};
  bool counts_padding = true;  // avg_pool: divides by the window's size even at an edge
};
/// x: [N, H, W, C] -> [N, H', W', C].
Array max_pool(Operand x, const Pool& options = {});  // gradient to the first of equal elements
Array min_pool(Operand x, const Pool& options = {});
Array avg_pool(Operand x, const Pool& options = {});

// ---- shape ----
Array reshape(Operand x, const Shape& shape);  // one extent may be -1
Array ravel(Operand x);
Array transpose(Operand x, const std::vector<std::int64_t>& perm = {});  // reverses the dims without perm
Array swapaxes(Operand x, int a, int b);
Array moveaxis(Operand x, int from, int to);
Array squeeze(Operand x, const std::vector<std::int64_t>& axes = {});  // all dims of extent 1 without axes
Array expand_dims(Operand x, const std::vector<std::int64_t>& axes);
Array broadcast_to(Operand x, const Shape& shape);
Array concatenate(const std::vector<Array>& parts, int axis = 0, Loc loc = Loc::current());
Array stack(const std::vector<Array>& parts, int axis = 0, Loc loc = Loc::current());
/// Equal parts; throws ShapeError when they cannot be equal.
std::vector<Array> split(Operand x, int parts, int axis = 0);
/// before and after for each dim; negative crops.
Array pad(Operand x, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths, Operand value = 0);
Array flip(Operand x, const std::vector<std::int64_t>& axes = {});
Array roll(Operand x, std::int64_t shift, int axis = 0);  // elements that leave at the end enter at the beginning
Array tile(Operand x, const std::vector<std::int64_t>& repeats);
Array repeat(Operand x, std::int64_t count, int axis = 0);  // each element `count` times
Array tril(Operand x, int diagonal = 0);
Array triu(Operand x, int diagonal = 0);

// ---- indexing and order ----
/// x's slices at integer `indices` along axis; negative ones count from the end, those out of range are clamped unless
/// the options say otherwise.
Array take(Operand x, Operand indices, int axis = 0, const Indexing& options = {});
/// out[i..] = x[.., indices[i..], ..] along axis; the other dims agree.
Array take_along_axis(Operand x, Operand indices, int axis = -1, const Indexing& options = {});
/// Windows of x at data's places, as StableHLO numbers their dims. Index vectors lie along the last dim of the indices,
/// and are not counted from the end. The tensor of windows has the indices' other dims, and those inside a window.
struct WindowDims {
  std::vector<std::int64_t> inside = {};  // its dims inside a window, ascending
  std::vector<std::int64_t> dropped = {};  // dims of x that it lacks, windows being one wide there
  std::vector<std::int64_t> starts = {};  // the dim of x that each component of an index vector starts in
  std::vector<std::int64_t> batch = {}, indices_batch = {};  // dims of x, and of the indices, that go together
};
/// Windows of `sizes` (one extent per dim of x, 1 in the dropped and batch dims), in x's dtype. Throws TypeError for
/// indices that are not integers along a last dim, ShapeError where the dims do not fit x, the indices and each other.
Array gather(Operand x, Operand indices, const WindowDims& dims, const Shape& sizes, const Indexing& options = {});
/// x, in its shape and dtype, with each window of `updates` combined into it, in row-major order; set keeps the last.
/// `updates` are what gather would give, and become x's dtype. Throws as gather does.
enum class Combine : std::uint8_t { set, add, mul, min, max };
Array scatter(Operand x, Operand indices, Operand updates, const WindowDims& dims, Combine how,
              const Indexing& options = {});
/// The window of `sizes` at `starts` (one integer per dim; negative ones count from the end, then all are clamped so
/// that the window fits).
Array dynamic_slice(Operand x, Operand starts, const Shape& sizes);
/// x with `update` written at `starts`, by the same rule.
Array dynamic_update_slice(Operand x, Operand update, Operand starts);
/// 1 at x along a new last axis, 0 elsewhere; all 0 where x is outside 0..classes.
Array one_hot(Operand x, std::int64_t classes, DType dtype = f32);
Array sort(Operand x, int axis = -1);  // ascending, stable; NaN last
Array argsort(Operand x, int axis = -1);  // i32
/// The k largest elements along axis, descending, in x's dtype, and their positions (i32); both have x's shape with
/// extent k there. NaN counts as largest; of equal elements the first comes first. Throws ShapeError unless k lies from
/// 0 to the extent, TypeError for complex x.
struct TopK {
  Array values, indices;
};
TopK top_k(Operand x, std::int64_t k, int axis = -1);
/// All of `operands` in the order of the first `num_keys` of them, along axis.
std::vector<Array> sort_together(const std::vector<Array>& operands, int axis = -1, int num_keys = 1,
                                 Loc loc = Loc::current());

}  // namespace sheaf
