// The optimizers' arithmetic on one leaf.
#include "sheaf/optim.h"

#include "sheaf/sharding.h"
#include "trace/array_node.h"
#include "trace/recorder.h"

namespace sheaf::detail {

Array zeros_for(const Array& p, Loc loc) {
  const ArrayNode& node = node_of(p, loc);
  if (!node.placement) return zeros(p.shape(), p.dtype(), loc);
  // Where the parameter is, so that no device holds the whole.
  const NamedSharding there = p.sharding(loc);
  if (Recorder::current()) return device_put(zeros(p.shape(), p.dtype(), loc), there, loc);
  if (node.kind == ArrayNode::Kind::abstract) return abstract(p.shape(), p.dtype(), there, loc);
  const Shape part = there.shard_shape(p.shape(), loc);
  const auto zero = [&](const std::vector<Slice>&) { return zeros(part, p.dtype(), loc); };
  return make_array_from_callback(p.shape(), there, zero, loc);
}
Array first_step(Loc loc) { return zeros({}, i32, loc); }
Array next_step(const Array& step, Loc loc) {
  const UserLine line(loc);
  return step + 1;
}

namespace {

// The rate in the parameter's dtype, so that f32 rates do not promote bf16 parameters.
Array rate_for(const Array& rate, const Array& p) { return convert(rate, p.dtype()); }

}  // namespace

Array sgd_leaf(const Array& p, const Array& g, const Array& rate, double weight_decay, Loc loc) {
  const UserLine line(loc);
  const Array lr = rate_for(rate, p);
  return weight_decay == 0 ? p - lr * g : p - lr * (g + weight_decay * p);
}

std::pair<Array, Array> momentum_leaf(const Array& p, const Array& v, const Array& g, const Array& rate,
                                      double momentum, bool nesterov, Loc loc) {
  const UserLine line(loc);
  const Array velocity = momentum * v + g;
  return {p - rate_for(rate, p) * (nesterov ? g + momentum * velocity : velocity), velocity};
}

AdamLeaf adam_leaf(const Array& p, const Array& m, const Array& v, const Array& g, const Array& step, const Array& rate,
                   double beta1, double beta2, double epsilon, double weight_decay, Loc loc) {
  const UserLine line(loc);
  const Array t = convert(step, accumulator(p.dtype()));
  const Array m1 = beta1 * m + (1 - beta1) * g;
  const Array v1 = beta2 * v + (1 - beta2) * square(g);
  // beta^t by exp, a scalar per step.
  const Array m_hat = m1 / convert(1 - pow(full({}, beta1, t.dtype()), t), p.dtype());
  const Array v_hat = v1 / convert(1 - pow(full({}, beta2, t.dtype()), t), p.dtype());
  Array change = m_hat / (sqrt(v_hat) + epsilon);
  if (weight_decay != 0) change += weight_decay * p;
  return {p - rate_for(rate, p) * change, m1, v1};
}

Array global_norm(std::span<const Array* const> leaves, Loc loc) {
  const UserLine line(loc);
  Array total = zeros({}, f32, loc);
  for (const Array* x : leaves) total += sum(square(convert(*x, f32)));
  return sqrt(total);
}

Array scale_to_norm(const Array& x, const Array& norm, double limit, Loc loc) {
  const UserLine line(loc);
  return x * convert(where(norm > limit, limit / norm, ones_like(norm)), x.dtype());
}

}  // namespace sheaf::detail
