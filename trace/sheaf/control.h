// Loops and branches over traced values: scan, while_loop, fori_loop, map, cond and switch_. Bodies are ordinary
// lambdas over trees; what they capture becomes an operand of the loop. They work inside and outside jit, grad and
// vmap; outside, each is a program of its own, compiled and cached.
#pragma once

#include "sheaf/call.h"

namespace sheaf {

struct ScanOptions {
  std::optional<std::int64_t> length = {};  // needed only when xs has no arrays
  bool reverse = false;                     // from the last row to the first; ys keep the order of xs
  std::int64_t unroll = 1;                  // steps planned as one
};

struct WhileOptions {
  /// With a bound the loop has a reverse derivative. It stops there even if the condition still holds.
  std::optional<std::int64_t> max_trips = {};
};

namespace detail {

/// A C++ number in the place of a tree is an Array.
template <class T>
using Tree = std::conditional_t<Scalar<T>, Array, T>;

/// What a function is given trees of these types as: its parameters' own types; for generic parameters, the trees.
template <class P, class... A>
struct TreeArgs {
  using type = std::tuple<Tree<std::decay_t<A>>...>;
};
template <class... P, class... A>
struct TreeArgs<Params<P...>, A...> {
  static_assert(sizeof...(P) == sizeof...(A), "the function takes another number of arguments than it is given");
  using type = std::tuple<Stored<P>...>;
};
template <class F, class... A>
using TreeArgsOf = typename TreeArgs<typename ParamsFor<F, sizeof...(A)>::type, A...>::type;

template <class F, class... A>
decltype(auto) call_user(const F& f, Loc loc, A&... args) {
  return call_with(typename ParamsFor<F, sizeof...(A)>::type{}, f, loc, args...);
}

template <class T>
std::string statics_of(const T& tree) {
  Flat flat;
  walk(tree, flat);
  return std::move(flat.statics);
}

template <class R>
concept PairOfResults = TupleLike<R> && std::tuple_size<R>::value == 2;

/// Carry, then stacked results. Arguments of `body`: carry, row of xs (here: xs).
std::vector<Array> scan(const char* who, const FlatCall& body, const std::string& carry_statics,
                        const ScanOptions& options, Structure& result);
std::vector<Array> while_loop(const char* who, const FlatCall& condition, const FlatCall& body,
                              const std::string& carry_statics, const WhileOptions& options, Structure& result);
/// The number of steps, where both bounds are C++ numbers.
std::optional<std::int64_t> fori_length(const Operand& low, const Operand& high);
/// Bounds of a loop in one integer dtype.
std::pair<Array, Array> fori_bounds(const Operand& low, const Operand& high);
/// `is_cond`: branches are if_true and if_false, and `which` is a bool.
std::vector<Array> branch(bool is_cond, const Operand& which, std::span<const FlatCall* const> branches,
                          Structure& result);

/// The branches' argument types: those of the first branch that says.
template <class F, class... Rest>
struct FirstTyped {
  using type = F;
};
template <class F, class Next, class... Rest>
  requires std::same_as<typename ParamsOf<F>::type, Generic>
struct FirstTyped<F, Next, Rest...> : FirstTyped<Next, Rest...> {};

/// A branch, giving its result as a tree.
template <class F>
struct Branch {
  const F& f;
  Loc loc;
  template <class... A>
  auto operator()(A... args) const {
    using R = ResultOf<F, A...>;
    return Tree<R>(call_user(f, loc, args...));
  }
};

template <class F, class... A>
std::unique_ptr<FlatCall> branch_call(const Branch<F>& branch, const std::tuple<A...>& args) {
  return std::apply(
      [&](const A&... a) -> std::unique_ptr<FlatCall> {
        return std::make_unique<CallOf<Branch<F>, A...>>(branch, branch.loc, a...);
      },
      args);
}

template <class F, class Args>
struct BranchResult;
template <class F, class... A>
struct BranchResult<F, const std::tuple<A...>> : BranchResult<F, std::tuple<A...>> {};
template <class F, class... A>
struct BranchResult<F, std::tuple<A...>> {
  using type = ResultOf<Branch<F>, A...>;
};

template <class R>
R branch_of(bool is_cond, const Operand& which, const std::vector<std::unique_ptr<FlatCall>>& calls) {
  std::vector<const FlatCall*> pointers;
  for (const auto& c : calls) pointers.push_back(c.get());
  Structure structure;
  const std::vector<Array> leaves = branch(is_cond, which, pointers, structure);
  return rebuild<R>(structure, leaves);
}

/// Runs one of the branches, whose arguments are the tree `args`.
template <class Args, class F, class... Rest>
auto branch_on(bool is_cond, const Operand& which, const Args& args, const F& f, const Rest&... rest) {
  using R = typename BranchResult<F, Args>::type;
  static_assert((std::same_as<R, typename BranchResult<Rest, Args>::type> && ...),
                "the branches return values of one type");
  const std::tuple<Branch<F>, Branch<Rest>...> branches{Branch<F>{f, which.loc()}, Branch<Rest>{rest, which.loc()}...};
  std::vector<std::unique_ptr<FlatCall>> calls;
  std::apply([&](const auto&... b) { (calls.push_back(branch_call(b, args)), ...); }, branches);
  return branch_of<R>(is_cond, which, calls);
}

template <class F, class Init, class Xs>
auto scan_as(const char* who, const F& f, const Init& init, const Xs& xs, const ScanOptions& options, Loc loc) {
  using Args = TreeArgsOf<F, Init, Xs>;
  using Carry = std::tuple_element_t<0, Args>;
  using X = std::tuple_element_t<1, Args>;
  using R = ResultOf<F, Carry, X>;
  static_assert(PairOfResults<R>, "scan: the body returns a pair, the next carry and what is stacked (or none)");
  using Out = std::pair<Carry, Tree<std::tuple_element_t<1, R>>>;
  const auto step = [&f, loc](Carry carry, X x) {
    auto r = call_user(f, loc, carry, x);
    return Out(std::get<0>(std::move(r)), std::get<1>(std::move(r)));
  };
  const Carry carry(init);
  const X rows(xs);
  const CallOf<decltype(step), Carry, X> call(step, loc, carry, rows);
  Structure structure;
  const std::vector<Array> leaves = scan(who, call, statics_of(carry), options, structure);
  return rebuild<Out>(structure, leaves);
}

template <class C, class B, class Init>
auto while_as(const char* who, const C& condition, const B& body, const Init& init, const WhileOptions& options,
              Loc loc) {
  using Carry = std::tuple_element_t<0, TreeArgsOf<B, Init>>;
  static_assert(std::same_as<Tree<ResultOf<C, Carry>>, Array>, "while_loop: the condition returns a bool");
  const auto test = [&condition, loc](Carry carry) { return Array(call_user(condition, loc, carry)); };
  const auto step = [&body, loc](Carry carry) { return Carry(call_user(body, loc, carry)); };
  const Carry carry(init);
  const CallOf<decltype(test), Carry> test_call(test, loc, carry);
  const CallOf<decltype(step), Carry> step_call(step, loc, carry);
  Structure structure;
  const std::vector<Array> leaves = while_loop(who, test_call, step_call, statics_of(carry), options, structure);
  return rebuild<Carry>(structure, leaves);
}

/// f as a program of its own: written into the current trace, or run at once.
std::vector<Array> run_program(const char* who, const FlatCall& f, Structure& result);

template <class G, class... A>
auto as_program(const char* who, const G& g, Loc loc, const A&... args) {
  const CallOf<G, A...> call(g, loc, args...);
  Structure structure;
  const std::vector<Array> leaves = run_program(who, call, structure);
  return rebuild<typename CallOf<G, A...>::Result>(structure, leaves);
}

template <class Carry>
struct Counted {
  Array i;
  Carry carry;
};

}  // namespace detail

/// A loop over the rows of xs: f(carry, x) -> (next carry, y). Gives the last carry and the ys, stacked along a new
/// axis 0. xs and y may be `none`, any tree otherwise. Differentiable both ways; the carry keeps its tree and types,
/// but that a C++ number takes the dtype f gives it.
template <class F, class Init, class Xs>
auto scan(F f, const Init& init, const Xs& xs, const ScanOptions& options = {}, Loc loc = Loc::current()) {
  return detail::scan_as("scan", f, init, xs, options, loc);
}

/// f of every row of xs, stacked.
template <class F, class Xs>
auto map(F f, const Xs& xs, Loc loc = Loc::current()) {
  using X = std::tuple_element_t<0, detail::TreeArgsOf<F, Xs>>;
  const auto step = [&f, loc](None, X x) {
    using R = detail::ResultOf<F, X>;
    return std::pair<None, detail::Tree<R>>(none, detail::call_user(f, loc, x));
  };
  return detail::scan_as("map", step, none, xs, {}, loc).second;
}

/// body(carry) -> carry while condition(carry), a bool scalar, holds. Differentiable forward; backward too with
/// `max_trips`.
template <class C, class B, class Init>
auto while_loop(C condition, B body, const Init& init, const WhileOptions& options = {}, Loc loc = Loc::current()) {
  return detail::while_as("while_loop", condition, body, init, options, loc);
}

/// carry = f(i, carry) for i in [low, high). Where both bounds are C++ numbers it is a scan, with a reverse derivative;
/// where one is an Array, a while_loop.
template <class F, class Init>
auto fori_loop(Operand low, Operand high, F f, const Init& init, Loc loc = Loc::current()) {
  using Args = detail::TreeArgsOf<F, Array, Init>;
  using Carry = std::tuple_element_t<1, Args>;
  using Counter = detail::Counted<Carry>;
  const auto next = [&f, loc](Counter at) {
    std::tuple_element_t<0, Args> i(at.i);
    return Counter{at.i + 1, Carry(detail::call_user(f, loc, i, at.carry))};
  };
  const auto bounds = detail::fori_bounds(low, high);
  const Counter start{bounds.first, Carry(init)};
  if (const std::optional<std::int64_t> length = detail::fori_length(low, high)) {
    const auto step = [&next](Counter at, None) { return std::pair(next(at), none); };
    return detail::scan_as("fori_loop", step, start, none, {.length = length}, loc).first.carry;
  }
  const auto below = [&bounds](Counter at) { return at.i < bounds.second; };
  return detail::while_as("fori_loop", below, next, start, {}, loc).carry;
}

/// if_true(operands...) where the bool scalar `predicate` holds, else if_false(operands...); only one is run, but under
/// a vmap that maps the predicate, where both are and each example takes its own. The branches return equal trees.
template <class T, class E, class... A>
auto cond(const Operand& predicate, T if_true, E if_false, const A&... operands) {
  const detail::TreeArgsOf<typename detail::FirstTyped<T, E>::type, A...> args(operands...);
  return detail::branch_on(true, predicate, args, if_true, if_false);
}

/// Branch `index` (clamped to those there are) of the operands.
template <class... F, class... A>
auto switch_(const Operand& index, const std::tuple<F...>& branches, const A&... operands) {
  static_assert(sizeof...(F) > 0, "switch_: there are no branches");
  const detail::TreeArgsOf<typename detail::FirstTyped<F...>::type, A...> args(operands...);
  return std::apply([&](const F&... f) { return detail::branch_on(false, index, args, f...); }, branches);
}
template <class F, class... A>
auto switch_(const Operand& index, const std::vector<F>& branches, const A&... operands) {
  const detail::TreeArgsOf<F, A...> args(operands...);
  std::vector<detail::Branch<F>> wrapped;
  for (const F& f : branches) wrapped.push_back({f, index.loc()});
  std::vector<std::unique_ptr<detail::FlatCall>> calls;
  for (const detail::Branch<F>& b : wrapped) calls.push_back(detail::branch_call(b, args));
  return detail::branch_of<typename detail::BranchResult<F, decltype(args)>::type>(false, index, calls);
}

struct AssociativeScanOptions {
  int axis = 0;
  bool reverse = false;
};

namespace detail {

using Combine = std::function<std::vector<Array>(std::span<const Array>, std::span<const Array>)>;
std::vector<Array> associative_scan(const Combine& combine, std::vector<Array> leaves,
                                    const std::vector<std::string>& paths, const AssociativeScanOptions& options,
                                    Loc loc);

}  // namespace detail

/// All prefixes of `tree` along an axis, combined by an associative f(a, b) that works on many elements at once:
/// log2(length) levels of f instead of a loop.
template <class F, class T>
T associative_scan(F f, const T& tree, const AssociativeScanOptions& options = {}, Loc loc = Loc::current()) {
  using namespace detail;
  const auto all = [&](T t) {
    const auto combine = [&](std::span<const Array> a, std::span<const Array> b) {
      T left = tree_with_leaves(t, a), right = tree_with_leaves(t, b);
      return tree_leaves(T(call_user(f, loc, left, right)));
    };
    return tree_with_leaves(t, detail::associative_scan(combine, tree_leaves(t), paths_of(t), options, loc));
  };
  return as_program("associative_scan", all, loc, tree);
}

}  // namespace sheaf
