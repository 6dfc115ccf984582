// Whole matrices of derivatives, from one vmap over unit vectors: jacfwd, jacrev, hessian; and hvp, which needs none.
// Each is one program, inside and outside jit.
#pragma once

#include "sheaf/control.h"
#include "sheaf/grad.h"
#include "sheaf/ops.h"
#include "sheaf/vmap.h"

namespace sheaf {
namespace detail {

/// Throws TypeError unless the leaves are floats.
void check_floats(const char* who, const char* what, std::span<const Array> leaves, Loc loc);
/// [size, shape...]: the unit arrays of x's shape.
Array unit_arrays(const Array& x);

/// Leaf `i` of the tree is `x`, the others are zeros with `lead` dims in front.
template <class T>
T unit_tree(const T& tree, std::size_t i, const Array& x) {
  std::size_t k = 0;
  return tree_map(
      [&](const Array& leaf) {
        Shape shape = leaf.shape();
        shape.insert(shape.begin(), x.shape(0));
        return k++ == i ? x : zeros(shape, leaf.dtype());
      },
      tree);
}

inline Shape joined(Shape a, const Shape& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The function of argument N alone.
template <int N, class F, class... A>
auto alone(const F& f, Loc loc, std::tuple<A...> args) {
  return [&f, loc, args](std::tuple_element_t<N, std::tuple<A...>> x) {
    std::tuple<A...> all = args;
    std::get<N>(all) = std::move(x);
    return std::apply(
        [&](A&... a) {
          using R = ResultOf<F, A...>;
          return Tree<R>(call_user(f, loc, a...));
        },
        all);
  };
}

template <int N, class F>
class JacfwdBody {
 public:
  JacfwdBody(F f, Loc loc) : f_(std::move(f)), loc_(loc) {}
  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    return as_program("jacfwd", [this, loc](A... a) { return jacobian(loc, std::tuple<A...>(a...)); }, loc, args...);
  }
  Loc made_at() const { return loc_; }

 private:
  template <class... A>
  auto jacobian(Loc loc, const std::tuple<A...>& args) const {
    using X = std::tuple_element_t<N, std::tuple<A...>>;
    const auto f = alone<N>(f_, loc, args);
    using R = ResultOf<decltype(f), X>;
    static_assert(std::same_as<X, Array> || std::same_as<R, Array>,
                  "jacfwd: the argument or the result is one Array; take one tree apart");
    const X& x = std::get<N>(args);
    const std::vector<Array> leaves = tree_leaves(x);
    check_floats("jacfwd", "argument", leaves, loc);
    const auto along = [&](X t) { return sheaf::jvp(f, std::tuple<X>(x), std::tuple<X>(t), loc).second; };
    const auto columns = [&](std::size_t i) {
      const Shape in = leaves[i].shape();
      return tree_map(
          [&](const Array& d) {
            const Array last = moveaxis(d, 0, d.rank() - 1);
            Shape out = d.shape();
            out.erase(out.begin());
            return reshape(last, joined(std::move(out), in));
          },
          sheaf::vmap(along, {}, loc)(unit_tree(x, i, unit_arrays(leaves[i]))));
    };
    if constexpr (std::same_as<X, Array>) {
      return columns(0);
    } else {
      std::vector<Array> parts;
      for (std::size_t i = 0; i < leaves.size(); ++i) parts.push_back(columns(i));
      return tree_with_leaves(x, parts);
    }
  }

  F f_;
  Loc loc_;
};

template <int N, class F>
class JacrevBody {
 public:
  JacrevBody(F f, Loc loc) : f_(std::move(f)), loc_(loc) {}
  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    return as_program("jacrev", [this, loc](A... a) { return jacobian(loc, std::tuple<A...>(a...)); }, loc, args...);
  }
  Loc made_at() const { return loc_; }

 private:
  template <class... A>
  auto jacobian(Loc loc, const std::tuple<A...>& args) const {
    using X = std::tuple_element_t<N, std::tuple<A...>>;
    const auto f = alone<N>(f_, loc, args);
    using R = ResultOf<decltype(f), X>;
    static_assert(std::same_as<X, Array> || std::same_as<R, Array>,
                  "jacrev: the argument or the result is one Array; take one tree apart");
    const X& x = std::get<N>(args);
    check_floats("jacrev", "argument", tree_leaves(x), loc);
    const auto linear = sheaf::vjp(f, x);
    const R& y = linear.first;
    const std::vector<Array> leaves = tree_leaves(y);
    check_floats("jacrev", "result", leaves, loc);
    const auto back = [&](R ct) { return std::get<0>(linear.second(ct, loc)); };
    const auto rows = [&](std::size_t j) {
      const Shape out = leaves[j].shape();
      return tree_map(
          [&](const Array& d) {
            Shape in = d.shape();
            in.erase(in.begin());
            return reshape(d, joined(out, in));
          },
          sheaf::vmap(back, {}, loc)(unit_tree(y, j, unit_arrays(leaves[j]))));
    };
    if constexpr (std::same_as<R, Array>) {
      return rows(0);
    } else {
      std::vector<Array> parts;
      for (std::size_t j = 0; j < leaves.size(); ++j) parts.push_back(rows(j));
      return tree_with_leaves(y, parts);
    }
  }

  F f_;
  Loc loc_;
};

}  // namespace detail

/// The derivatives of f's result in argument N, all of them: Array -> Array gives [result dims, argument dims]; where
/// the argument or the result is a tree, a tree of such. jacfwd goes column by column (few arguments), jacrev row by
/// row (few results).
template <int N = 0, class F>
auto jacfwd(F f, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::JacfwdBody<N, F>>(std::move(f), loc);
}
template <int N = 0, class F>
auto jacrev(F f, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::JacrevBody<N, F>>(std::move(f), loc);
}

/// The second derivatives of f in argument 0, an Array: [result dims, argument dims, argument dims].
template <class F>
auto hessian(F f, Loc loc = Loc::current()) {
  return jacfwd(jacrev(std::move(f), loc), loc);
}

/// The derivative of grad(f) along the tangents, without the matrix.
template <class F, class P, class T>
auto hvp(F f, const P& primals, const T& tangents, Loc loc = Loc::current()) {
  return sheaf::jvp(grad(std::move(f), loc), primals, tangents, loc).second;
}

}  // namespace sheaf
