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
/// The position of `path`, or TypeError.
std::size_t find_row(std::string_view path, const std::vector<std::string>& paths, Loc loc);
/// [size, shape...]: the unit arrays of x's shape.
Array unit_arrays(const Array& x);
/// [units, result dims] -> [result dims, dims of x]
Array as_columns(const Array& d, const Array& x);
/// [units, argument dims] -> [dims of y, argument dims]
Array as_rows(const Array& d, const Array& y);

}  // namespace detail

/// The derivatives of a tree in a tree X: one row for each leaf of the result, a tree like the argument, whose leaves
/// are [dims of the result's leaf, dims of the argument's leaf].
template <class X>
struct Jacobian {
  std::vector<X> rows;
  std::vector<std::string> paths;  // of the result's leaves: ".out.W"
  /// That of the leaf with this path. Throws TypeError if there is none.
  const X& row(std::string_view path, Loc loc = Loc::current()) const {
    return rows[detail::find_row(path, paths, loc)];
  }
};

namespace detail {

/// Leaf `i` of the tree is `x`, unit arrays as above; the others are zeros with as many in front.
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

/// blocks[k][i]: the derivatives of leaf k of y in leaf i of x.
template <class Y, class X>
auto from_blocks(const Y& y, const X& x, const std::vector<std::vector<Array>>& blocks) {
  if constexpr (std::same_as<Y, Array>) {
    return tree_with_leaves(x, blocks[0]);
  } else if constexpr (std::same_as<X, Array>) {
    std::vector<Array> leaves;
    for (const std::vector<Array>& row : blocks) leaves.push_back(row[0]);
    return tree_with_leaves(y, leaves);
  } else {
    Jacobian<X> j{{}, paths_of(y)};
    for (const std::vector<Array>& row : blocks) j.rows.push_back(tree_with_leaves(x, row));
    return j;
  }
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
    using Part = Differentiated<R>;
    const X& x = std::get<N>(args);
    const std::vector<Array> leaves = tree_leaves(x);
    check_floats("jacfwd", "argument", leaves, loc);
    const R result = f(x);
    const auto& y = Part::of(result);
    const std::vector<Array> results = tree_leaves(y);
    check_floats("jacfwd", "result", results, loc);
    const auto along = [&](X t) { return std::get<1>(sheaf::jvp(f, std::tuple<X>(x), std::tuple<X>(t), loc)); };
    std::vector<std::vector<Array>> blocks(results.size());
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const auto units = unit_tree(x, i, unit_arrays(leaves[i]));
      const std::vector<Array> columns = tree_leaves(sheaf::vmap(along, {}, loc)(units));
      for (std::size_t k = 0; k < columns.size(); ++k) blocks[k].push_back(as_columns(columns[k], leaves[i]));
    }
    return Part::with_aux(from_blocks(y, x, blocks), Part::both(y, none, result));
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
    using Part = Differentiated<R>;
    const X& x = std::get<N>(args);
    check_floats("jacrev", "argument", tree_leaves(x), loc);
    const auto linear = sheaf::vjp(f, x, loc);
    const auto& y = std::get<0>(linear);
    const std::vector<Array> leaves = tree_leaves(y);
    check_floats("jacrev", "result", leaves, loc);
    const auto back = [&](typename Part::Value ct) { return std::get<0>(std::get<1>(linear)(ct, loc)); };
    std::vector<std::vector<Array>> blocks;
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      std::vector<Array> row = tree_leaves(sheaf::vmap(back, {}, loc)(unit_tree(y, k, unit_arrays(leaves[k]))));
      for (Array& d : row) d = as_rows(d, leaves[k]);
      blocks.push_back(std::move(row));
    }
    return Part::with_aux(from_blocks(y, x, blocks), linear);
  }

  F f_;
  Loc loc_;
};

}  // namespace detail

/// The derivatives of f's result in argument N, all of them: Array -> Array gives [result dims, argument dims]; where
/// the argument or the result is a tree, a tree of such; where both are, a Jacobian. A result WithAux gives WithAux.
/// jacfwd goes column by column (few arguments), jacrev row by row (few results). Throws TypeError unless all leaves
/// that are differentiated are floats.
template <int N = 0, class F>
auto jacfwd(F f, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::JacfwdBody<N, F>>(std::move(f), loc);
}
template <int N = 0, class F>
auto jacrev(F f, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::JacrevBody<N, F>>(std::move(f), loc);
}

/// The second derivatives of f in argument N: of Arrays [result dims, argument dims, argument dims]; of a scalar in a
/// tree, a Jacobian with a row for each leaf.
template <int N = 0, class F>
auto hessian(F f, Loc loc = Loc::current()) {
  return jacfwd<N>(jacrev<N>(std::move(f), loc), loc);
}

/// The derivative of grad(f) along the tangents, without the matrix.
template <class F, class P, class T>
auto hvp(F f, const P& primals, const T& tangents, Loc loc = Loc::current()) {
  return sheaf::jvp(grad(std::move(f), loc), primals, tangents, loc).second;
}

}  // namespace sheaf
