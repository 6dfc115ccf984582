// What neural networks are made of: activations, losses, normalisation, layers, initializers and attention. All but
// attention, which is an op, is composed from sheaf/ops.h: nothing here is special to the rest of the library.
#pragma once

#include <optional>
#include <utility>

#include "sheaf/ops.h"
#include "sheaf/random.h"

namespace sheaf {

// ---- activations ----
Array relu(Operand x);                         // gradient at 0: 0
Array leaky_relu(Operand x, double slope = 0.01);
Array gelu(Operand x);                         // x Phi(x), by erf
Array gelu_tanh(Operand x);                    // the tanh approximation GPT-2 was trained with
Array silu(Operand x);                         // x sigmoid(x)
Array sigmoid(Operand x);
Array softplus(Operand x);                     // log(1 + exp(x)), never overflowing
/// exp(x) / sum(exp(x)) along axis; never overflows. A row of -inf gives NaN.
Array softmax(Operand x, int axis = -1);
Array log_softmax(Operand x, int axis = -1);
/// log(sum(exp(x))) along axes (none listed: all); never overflows; -inf of a row of -inf.
Array logsumexp(Operand x, const Reduce& options = {});

// ---- losses ----
/// Mean over all leading dims of -log softmax(logits)[label].  logits: [.., classes], labels: integers [..].
/// A label that is no class counts as 0.
Array cross_entropy(Operand logits, Operand labels);
/// Mean of squared differences.
Array mse(Operand x, Operand y);

// ---- layers ----
/// x W + b.
struct Dense {
  Array W, b;                                  // [in, out], [out]
  Array operator()(Operand x) const;
};
/// Glorot-uniform weights, zero bias.
Dense dense(const Array& key, std::int64_t in, std::int64_t out, DType dtype = f32, Loc loc = Loc::current());

/// conv(x, W) + b, channels last.
struct Convolution {
  Array W, b;                                  // [.. window.., in, out], [out]
  Array operator()(Operand x, const Conv& options = {}) const;
};
/// Glorot-uniform weights, zero bias.
Convolution convolution(const Array& key, const Shape& window, std::int64_t in, std::int64_t out, DType dtype = f32,
                        Loc loc = Loc::current());

/// Mean 0 and variance 1 over the last dim, then scale and shift. Statistics in f32.
Array layer_norm(Operand x, Operand scale, Operand shift, double epsilon = 1e-5);

// ---- attention ----
struct AttentionOptions {
  using IsLeftOut = void;
  std::optional<Array> bias = {};              // added to the scores
  std::optional<Array> mask = {};              // bool: which keys a query may meet
  bool causal = false;                         // only keys up to the query's own position
  std::optional<double> scale = {};            // of query . key; 1 / sqrt(H) unless given
  std::optional<std::pair<std::int64_t, std::int64_t>> window = {};  // only so many keys before, and so many after
  std::optional<Precision> precision = {};     // of its products of f32, as in ProductOptions
};
/// softmax(scale query . key + bias) value, by blocks: neither it nor its gradient holds all scores at once.
/// query: [batch.., T, N, H], key: [batch.., S, K, H], value: [batch.., S, K, V] -> [batch.., T, N, V]. N is a multiple
/// of K: query head n reads key head n / (N / K). bias and mask broadcast to [batch.., N, T, S]. A query that meets no
/// key gets zeros. query, key and value are promoted to one real floating dtype, the result's; f16 and bf16 compute in
/// f32 and round the result once. bias may be of any floating dtype, and does not widen the result; mask is bool.
/// Throws ShapeError where shapes do not fit or the window is negative, TypeError for other dtypes.
Array dot_product_attention(Operand query, Operand key, Operand value, const AttentionOptions& options = {});

// ---- initializers ----  fan in and out are the last two extents
Array glorot_uniform(const Array& key, const Shape& shape, DType dtype = f32, Loc loc = Loc::current());
Array glorot_normal(const Array& key, const Shape& shape, DType dtype = f32, Loc loc = Loc::current());
Array he_uniform(const Array& key, const Shape& shape, DType dtype = f32, Loc loc = Loc::current());
Array he_normal(const Array& key, const Shape& shape, DType dtype = f32, Loc loc = Loc::current());

}  // namespace sheaf
