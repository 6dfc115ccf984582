// The neural-network library, each function a formula over the public operations.
#include "sheaf/nn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trace/apply.h"
#include "trace/messages.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

DType floating_dtype(const Array& x) { return is_differentiable(x.dtype()) ? x.dtype() : f32; }
Array to_float(const Array& x) { return convert(x, floating_dtype(x)); }

/// The largest elements along the axes (none: all), which stay, with extent 1; of no elements -inf, as of a sum of exp.
Array largest(const Array& x, const std::vector<std::int64_t>& axes) {
  if (x.size() > 0) return max(x, {.axes = axes, .keepdims = true});
  Shape kept = x.shape();
  if (axes.empty()) std::fill(kept.begin(), kept.end(), 1);
  for (const std::int64_t axis : axes) kept[static_cast<std::size_t>(axis)] = 1;
  return full(kept, -INFINITY, x.dtype());
}

}  // namespace

Array relu(Operand x) {
  return compose1("relu", RuleKey(), {x}, x.loc(),
                  [](std::span<const Array> in) { return where(in[0] <= 0, zeros_like(in[0]), in[0]); });
}

Array leaky_relu(Operand x, double slope) {
  return compose1("leaky_relu", RuleKey().add(slope), {x}, x.loc(),
                  [&](std::span<const Array> in) { return where(in[0] > 0, in[0], in[0] * slope); });
}

Array gelu(Operand x) {
  return compose1("gelu", RuleKey(), {x}, x.loc(), [](std::span<const Array> in) {
    const Array v = to_float(in[0]);
    return 0.5 * v * erfc(v * -std::sqrt(0.5));
  });
}

Array gelu_tanh(Operand x) {
  return compose1("gelu_tanh", RuleKey(), {x}, x.loc(), [](std::span<const Array> in) {
    const Array v = to_float(in[0]);
    constexpr double kScale = 0.7978845608028654;  // sqrt(2 / pi)
    return 0.5 * v * (1.0 + tanh(kScale * (v + 0.044715 * v * v * v)));
  });
}

Array silu(Operand x) {
  return compose1("silu", RuleKey(), {x}, x.loc(), [](std::span<const Array> in) {
    const Array v = to_float(in[0]);
    return v * logistic(v);
  });
}

Array sigmoid(Operand x) { return logistic(x); }

Array softplus(Operand x) {
  return compose1("softplus", RuleKey(), {x}, x.loc(), [](std::span<const Array> in) {
    const Array v = to_float(in[0]);
    return maximum(v, 0) + log1p(exp(-abs(v)));
  });
}

Array softmax(Operand x, int axis) {
  const int dim = checked_axis("softmax", x, axis, x.loc());
  return compose1("softmax", RuleKey().add(std::int64_t{dim}), {x}, x.loc(), [&](std::span<const Array> in) {
    const Array v = to_float(in[0]);
    const Array e = exp(v - stop_gradient(largest(v, {dim})));
    return e / sum(e, {.axes = {dim}, .keepdims = true});
  });
}

Array log_softmax(Operand x, int axis) {
  const int dim = checked_axis("log_softmax", x, axis, x.loc());
  return compose1("log_softmax", RuleKey().add(std::int64_t{dim}), {x}, x.loc(), [&](std::span<const Array> in) {
    const Array v = to_float(in[0]);
    const Array shifted = v - stop_gradient(largest(v, {dim}));
    return shifted - log(sum(exp(shifted), {.axes = {dim}, .keepdims = true}));
  });
}

Array logsumexp(Operand x, const Reduce& options) {
  const std::vector<std::int64_t> axes = checked_axes("logsumexp", x, options.axes, x.loc());
  return compose1("logsumexp", RuleKey().add(axes).add(std::int64_t{options.keepdims}), {x}, x.loc(),
                  [&](std::span<const Array> in) {
                    const Array v = to_float(in[0]);
                    const Array top = largest(v, axes);
                    // An infinite maximum would give inf - inf: it is the answer itself.
                    const Array shift = stop_gradient(where(is_finite(top), top, zeros_like(top)));
                    const Array total = log(sum(exp(v - shift), {.axes = axes, .keepdims = true})) + shift;
                    if (options.keepdims) return total;
                    return axes.empty() ? reshape(total, {}) : squeeze(total, axes);
                  });
}

Array cross_entropy(Operand logits, Operand labels) {
  const Shape x = logits.shape();
  if (x.empty() || labels.shape() != Shape(x.begin(), x.end() - 1) || !is_int(labels.dtype())) {
    const Named named[] = {{"logits", logits.array()}, {"labels", labels.array()}};
    throw ShapeError(
        UserLine::or_own(logits.loc()),
        "cross_entropy: labels are integers with the shape of logits without its last dim" + describe(named));
  }
  // By log_softmax its gradient would add up over all classes, which may be split, what it gives each label.
  return compose1("cross_entropy", RuleKey(), {logits, labels}, logits.loc(), [&](std::span<const Array> in) {
    const Array v = to_float(in[0]), label = convert(in[1], i64);
    const Array shifted = v - stop_gradient(max(v, {.axes = {-1}, .keepdims = true}));
    const Array of_label = sum(where(one_hot(in[1], x.back(), bool_), shifted, 0), {.axes = {-1}});
    const Array total = log(sum(exp(shifted), {.axes = {-1}}));
    return mean(where((label >= 0) & (label < x.back()), total, 0) - of_label);
  });
}

Array mse(Operand x, Operand y) {
  return compose1("mse", RuleKey(), {x, y}, x.loc(),
                  [](std::span<const Array> in) { return mean(square(to_float(in[0]) - in[1])); });
}

Array Dense::operator()(Operand x) const {
  const UserLine line(x.loc());
  return dot(x, W) + b;
}

Dense dense(const Array& key, std::int64_t in, std::int64_t out, DType dtype, Loc loc) {
  return {glorot_uniform(key, {in, out}, dtype, loc), zeros({out}, dtype, loc)};
}

Array Convolution::operator()(Operand x, const Conv& options) const {
  const UserLine line(x.loc());
  return conv(x, W, options) + b;
}

Convolution convolution(const Array& key, const Shape& window, std::int64_t in, std::int64_t out, DType dtype,
                        Loc loc) {
  Shape shape = window;
  shape.insert(shape.end(), {in, out});
  return {glorot_uniform(key, shape, dtype, loc), zeros({out}, dtype, loc)};
}

Array layer_norm(Operand x, Operand scale, Operand shift, double epsilon) {
  if (x.rank() == 0) throw ShapeError(UserLine::or_own(x.loc()), "layer_norm: a scalar has no dim to normalise over");
  return compose1("layer_norm", RuleKey().add(epsilon), {x, scale, shift}, x.loc(), [&](std::span<const Array> in) {
    const DType t = floating_dtype(in[0]);
    const Array v = convert(in[0], accumulator(t));
    const Array centred = v - mean(v, {.axes = {-1}, .keepdims = true});
    const Array variance = mean(square(centred), {.axes = {-1}, .keepdims = true});
    return convert(centred * rsqrt(variance + epsilon), t) * in[1] + in[2];
  });
}

namespace {

struct Fans {
  double in, out;
};

Fans fans(std::string_view name, const Shape& shape, Loc loc) {
  if (shape.size() < 2)
    throw ShapeError(UserLine::or_own(loc),
                     fmt::format("{}: the shape {} needs at least two dims", name, to_string(shape)));
  double receptive = 1;
  for (std::size_t d = 0; d + 2 < shape.size(); ++d) receptive *= static_cast<double>(shape[d]);
  return {receptive * static_cast<double>(shape[shape.size() - 2]), receptive * static_cast<double>(shape.back())};
}

Array scaled_uniform(const Array& key, const Shape& shape, DType dtype, double limit, Loc loc) {
  return random::uniform(key, shape, dtype, -limit, limit, loc);
}

Array scaled_normal(const Array& key, const Shape& shape, DType dtype, double deviation, Loc loc) {
  const UserLine line(loc);
  return random::normal(key, shape, dtype, loc) * deviation;
}

}  // namespace

Array glorot_uniform(const Array& key, const Shape& shape, DType dtype, Loc loc) {
  const Fans f = fans("glorot_uniform", shape, loc);
  return scaled_uniform(key, shape, dtype, std::sqrt(6 / (f.in + f.out)), loc);
}
Array glorot_normal(const Array& key, const Shape& shape, DType dtype, Loc loc) {
  const Fans f = fans("glorot_normal", shape, loc);
  return scaled_normal(key, shape, dtype, std::sqrt(2 / (f.in + f.out)), loc);
}
Array he_uniform(const Array& key, const Shape& shape, DType dtype, Loc loc) {
  return scaled_uniform(key, shape, dtype, std::sqrt(6 / fans("he_uniform", shape, loc).in), loc);
}
Array he_normal(const Array& key, const Shape& shape, DType dtype, Loc loc) {
  return scaled_normal(key, shape, dtype, std::sqrt(2 / fans("he_normal", shape, loc).in), loc);
}

}  // namespace sheaf
