// Optimizers as plain data: settings in a struct, state in a tree shaped like the parameters, one function that steps.
// Everything is an Array or a number, so a whole training step is one jitted function.
#pragma once

#include "sheaf/ops.h"
#include "sheaf/tree.h"

namespace sheaf {
namespace detail {

Array zeros_for(const Array& parameter, Loc loc);
Array sgd_leaf(const Array& p, const Array& g, const Array& rate, double weight_decay, Loc loc);
/// {parameter, velocity}
std::pair<Array, Array> momentum_leaf(const Array& p, const Array& v, const Array& g, const Array& rate,
                                      double momentum, bool nesterov, Loc loc);
struct AdamLeaf {
  Array p, m, v;
};
AdamLeaf adam_leaf(const Array& p, const Array& m, const Array& v, const Array& g, const Array& step, const Array& rate,
                   double beta1, double beta2, double epsilon, double weight_decay, Loc loc);
Array global_norm(std::span<const Array* const> leaves, Loc loc);
Array scale_to_norm(const Array& x, const Array& norm, double limit, Loc loc);
Array next_step(const Array& step, Loc loc);
Array first_step(Loc loc);

}  // namespace detail

/// p - rate g.
struct Sgd {
  double weight_decay = 0;

  template <class T>
  T step(const T& parameters, const T& gradients, const Array& rate, Loc loc = Loc::current()) const {
    return tree_map([&](const Array& p, const Array& g) { return detail::sgd_leaf(p, g, rate, weight_decay, loc); },
                    parameters, gradients);
  }
};

/// v = momentum v + g;  p - rate v (Nesterov: p - rate (g + momentum v)).
struct Momentum {
  double momentum = 0.9;
  bool nesterov = false;

  template <class T>
  struct State {
    T velocity;
  };

  template <class T>
  State<T> init(const T& parameters, Loc loc = Loc::current()) const {
    return {tree_map([&](const Array& p) { return detail::zeros_for(p, loc); }, parameters)};
  }
  /// {new parameters, new state}
  template <class T>
  std::pair<T, State<T>> step(const T& parameters, const State<T>& state, const T& gradients, const Array& rate,
                              Loc loc = Loc::current()) const {
    detail::Flat p, v, g;
    detail::walk(parameters, p), detail::walk(state.velocity, v), detail::walk(gradients, g);
    const std::size_t count = p.leaves.size();
    detail::check_leaves("Momentum", v.leaves.size(), "the state", count, "the parameters", loc);
    detail::check_leaves("Momentum", g.leaves.size(), "the gradients", count, "the parameters", loc);
    std::vector<Array> new_p, new_v;
    for (std::size_t i = 0; i < count; ++i) {
      auto [pi, vi] = detail::momentum_leaf(*p.leaves.span()[i], *v.leaves.span()[i], *g.leaves.span()[i], rate,
                                            momentum, nesterov, loc);
      new_p.push_back(std::move(pi)), new_v.push_back(std::move(vi));
    }
    return {tree_with_leaves(parameters, new_p), {tree_with_leaves(state.velocity, new_v)}};
  }
};

/// Adam (Kingma and Ba, arXiv:1412.6980); with weight_decay, AdamW (Loshchilov and Hutter, arXiv:1711.05101).
struct Adam {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;  // decoupled

  template <class T>
  struct State {
    T m, v;
    Array count;  // steps done
  };

  template <class T>
  State<T> init(const T& parameters, Loc loc = Loc::current()) const {
    // Two trees of their own, so that both can be donated.
    const auto zero = [&](const Array& p) { return detail::zeros_for(p, loc); };
    return {tree_map(zero, parameters), tree_map(zero, parameters), detail::first_step(loc)};
  }
  /// {new parameters, new state}
  template <class T>
  std::pair<T, State<T>> step(const T& parameters, const State<T>& state, const T& gradients, const Array& rate,
                              Loc loc = Loc::current()) const {
    detail::Flat p, m, v, g;
    detail::walk(parameters, p), detail::walk(state.m, m), detail::walk(state.v, v), detail::walk(gradients, g);
    for (const detail::Flat* moment : {&m, &v})
      detail::check_leaves("Adam", moment->leaves.size(), "the state", p.leaves.size(), "the parameters", loc);
    detail::check_leaves("Adam", g.leaves.size(), "the gradients", p.leaves.size(), "the parameters", loc);
    const Array count = detail::next_step(state.count, loc);
    std::vector<Array> new_p, new_m, new_v;
    for (std::size_t i = 0; i < p.leaves.size(); ++i) {
      detail::AdamLeaf leaf =
          detail::adam_leaf(*p.leaves.span()[i], *m.leaves.span()[i], *v.leaves.span()[i], *g.leaves.span()[i], count,
                            rate, beta1, beta2, epsilon, weight_decay, loc);
      new_p.push_back(std::move(leaf.p)), new_m.push_back(std::move(leaf.m)), new_v.push_back(std::move(leaf.v));
    }
    return {tree_with_leaves(parameters, new_p),
            {tree_with_leaves(state.m, new_m), tree_with_leaves(state.v, new_v), count}};
  }
};

/// Gradients scaled so that the norm of all of them together is at most `limit`.
template <class T>
T clip_by_global_norm(const T& gradients, double limit, Loc loc = Loc::current()) {
  detail::Flat g;
  detail::walk(gradients, g);
  const Array norm = detail::global_norm(g.leaves.span(), loc);
  return tree_map([&](const Array& x) { return detail::scale_to_norm(x, norm, limit, loc); }, gradients);
}

}  // namespace sheaf
