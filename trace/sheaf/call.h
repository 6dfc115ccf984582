// From a C++ function and its arguments to a flat call: leaves, static bytes, and a way to run the function on other
// leaves. This is where C++ types end; jit.cpp, grad.cpp and vmap.cpp see only `FlatCall`.
#pragma once

#include <typeinfo>

#include "sheaf/tree.h"

namespace sheaf::detail {

// ---- signatures ----
template <class... P>
struct Params {};
struct Generic {};  // auto parameters, overloads: the arguments' types decide

template <class P, std::size_t count>
inline constexpr bool is_count = false;
template <class... P, std::size_t count>
inline constexpr bool is_count<Params<P...>, count> = sizeof...(P) == count;

template <class P>
inline constexpr bool is_line = std::same_as<std::remove_cvref_t<P>, Loc>;
template <class P>
inline constexpr bool is_options = requires { typename std::remove_cvref_t<P>::IsLeftOut; };

// What calls give a function of these parameters: all but the line of the call at the end. Options before it that say
// so (IsLeftOut) are given (`with_options`) or not (`type`).
template <class... P>
struct Calls {
  template <std::size_t count>
  using Last = std::tuple_element_t<count, std::tuple<None, P...>>;  // of the first `count`
  template <std::size_t... I>
  static Params<std::tuple_element_t<I, std::tuple<P...>>...> first(std::index_sequence<I...>);

  static constexpr std::size_t all = sizeof...(P) - is_line<Last<sizeof...(P)>>;
  using with_options = decltype(first(std::make_index_sequence<all>()));
  using type = decltype(first(std::make_index_sequence<all - is_options<Last<all>>>()));
};

template <class F>
struct ParamsOf {
  using type = Generic;
  using with_options = Generic;
};
template <class R, class... P>
struct ParamsOf<R (*)(P...)> : Calls<P...> {};
template <class R, class... P>
struct ParamsOf<R (*)(P...) noexcept> : Calls<P...> {};
template <class R, class... P>
struct ParamsOf<R(P...)> : ParamsOf<R (*)(P...)> {};
template <class C, class R, class... P>
struct ParamsOf<R (C::*)(P...) const> : Calls<P...> {};
template <class C, class R, class... P>
struct ParamsOf<R (C::*)(P...) const noexcept> : Calls<P...> {};
template <class F>
  requires requires { &F::operator(); }
struct ParamsOf<F> : ParamsOf<decltype(&F::operator())> {};
template <class F>
  requires requires { typename F::CallsOfBoth; }
struct ParamsOf<F> : F::CallsOfBoth {};

/// The parameters of a call with so many arguments.
template <class F, std::size_t arguments>
struct ParamsFor {
  using type = typename ParamsOf<F>::type;
};
template <class F, std::size_t arguments>
  requires(is_count<typename ParamsOf<F>::with_options, arguments>)
struct ParamsFor<F, arguments> {
  using type = typename ParamsOf<F>::with_options;
};

/// What an argument is stored as: the parameter's type without reference; an Operand is an Array.
template <class P>
using Stored = std::conditional_t<std::same_as<std::remove_cvref_t<P>, Operand>, Array, std::remove_cvref_t<P>>;

/// The stored arguments of a call of a function with these parameters.
template <class P, class... A>
struct StoredArgs {
  using type = std::tuple<std::decay_t<A>...>;
};
template <class... P, class... A>
struct StoredArgs<Params<P...>, A...> {
  using type = std::tuple<Stored<P>...>;
};

// ---- calling the user's function ----
template <class P, class A>
decltype(auto) as_param(A& a, Loc loc) {
  if constexpr (std::same_as<std::remove_cvref_t<P>, Operand>) return Operand(a, loc);
  else if constexpr (std::is_lvalue_reference_v<P>) return (a);
  else return std::move(a);
}

template <class F, class... P, class... A>
decltype(auto) call_with(Params<P...>, const F& f, Loc loc, A&... args) {
  if constexpr (requires { f.call_at(loc, args...); }) return f.call_at(loc, args...);
  else if constexpr (requires { f(as_param<P>(args, loc)..., loc); }) return f(as_param<P>(args, loc)..., loc);
  else if constexpr (requires { f(as_param<P>(args, loc)...); }) return f(as_param<P>(args, loc)...);
  // A function by its address has no defaults.
  else if constexpr (requires { f(as_param<P>(args, loc)..., {}, loc); }) return f(as_param<P>(args, loc)..., {}, loc);
  else if constexpr (requires { f(as_param<P>(args, loc)..., {}); }) return f(as_param<P>(args, loc)..., {});
  else return f(as_param<P>(args, loc)...);
}
template <class F, class... A>
decltype(auto) call_with(Generic, const F& f, Loc loc, A&... args) {
  if constexpr (requires { f.call_at(loc, args...); }) return f.call_at(loc, args...);
  else return f(args...);
}
template <class F, class... A>
using ResultOf = std::remove_cvref_t<decltype(call_with(typename ParamsFor<F, sizeof...(A)>::type{},
                                                        std::declval<const F&>(), Loc{}, std::declval<A&>()...))>;

/// A result's tree, to be copied and filled with leaves, the paths of its leaves, and what is static in it.
struct Structure {
  std::shared_ptr<const void> tree;
  std::vector<std::string> paths;
  std::string statics;
};

/// One argument, for messages: the paths of its leaves, what is static in it, and its C++ type.
struct Argument {
  std::vector<std::string> paths;
  std::string text;
  const std::type_info* type = nullptr;
};

/// Its address stands for the type.
template <class T>
inline constexpr char type_identity = 0;

class FlatCall {
 public:
  /// `types`: stands for the C++ types of the arguments.
  FlatCall(Loc loc, const void* types) : types_(types), loc_(loc) {}
  virtual ~FlatCall() = default;
  FlatCall(const FlatCall&) = delete;
  FlatCall& operator=(const FlatCall&) = delete;

  /// Runs the user's function with these leaves in place of its arguments' own.
  virtual std::vector<Array> trace(std::span<const Array> leaves, Structure& result) const = 0;
  virtual std::vector<Argument> arguments() const = 0;
  virtual std::span<const std::size_t> leaf_counts() const = 0;  // per argument

  std::span<const Array* const> leaves() const { return flat_.leaves.span(); }
  const std::string& statics() const { return flat_.statics; }
  const void* types() const { return types_; }
  Loc loc() const { return loc_; }

 protected:
  Flat flat_;
  const void* types_;
  Loc loc_;
};

/// Leaves of a function's result, with its structure (its own leaves removed, lest they outlive their trace).
template <class R>
std::vector<Array> flatten_result(R&& r, Structure& result) {
  using T = std::remove_cvref_t<R>;
  Flat flat;
  walk(r, flat);
  std::vector<Array> leaves;
  for (const Array* x : flat.leaves.span()) leaves.push_back(*x);
  result.paths = paths_of(r);
  result.statics = std::move(flat.statics);
  const std::vector<Array> empty(leaves.size());
  result.tree = std::make_shared<const T>(tree_with_leaves(T(std::forward<R>(r)), empty));
  return leaves;
}

/// A tree of type R from its structure and leaves.
template <class R>
R rebuild(const Structure& s, std::span<const Array> leaves) {
  if constexpr (std::same_as<R, Array>) return leaves[0];
  else return tree_with_leaves(*static_cast<const R*>(s.tree.get()), leaves);
}

template <class F, class... A>
class CallOf final : public FlatCall {
 public:
  using Result = ResultOf<F, A...>;
  static_assert(!std::is_void_v<Result>, "a function to be transformed returns its results");

  CallOf(const F& f, Loc loc, const A&... args) : FlatCall(loc, &type_identity<Params<A...>>), f_(f), args_(args...) {
    std::size_t i = 0;
    ((walk(args, flat_), ends_[i++] = flat_.leaves.size()), ...);
    for (i = sizeof...(A); i-- > 1;) ends_[i] -= ends_[i - 1];
  }

  std::vector<Array> trace(std::span<const Array> leaves, Structure& result) const override {
    return std::apply(
        [&](const A&... args) {
          std::tuple<A...> copy(args...);
          Fill fill(leaves);
          return std::apply(
              [&](A&... a) {
                (walk(a, fill), ...);
                return flatten_result(call_with(typename ParamsFor<F, sizeof...(A)>::type{}, f_, loc_, a...), result);
              },
              copy);
        },
        args_);
  }

  std::vector<Argument> arguments() const override {
    return std::apply([](const A&... args) { return std::vector<Argument>{{paths_of(args), static_text(args), &typeid(A)}...}; },
                      args_);
  }
  std::span<const std::size_t> leaf_counts() const override { return std::span(ends_.data(), sizeof...(A)); }

 private:
  const F& f_;
  std::tuple<const A&...> args_;
  std::array<std::size_t, sizeof...(A) + 1> ends_{};
};

/// A function made from a function: callable as the user's own is, with the caller's line, with its options or without.
template <class Body, class P, class WithOptions = P>
class Transformed;
template <class Body, class... P>
class Transformed<Body, Params<P...>, Params<P...>> : public Body {
 public:
  using Body::Body;
  auto operator()(const Stored<P>&... args, Loc loc = Loc::current()) const { return this->call_at(loc, args...); }
};
template <class Body, class P, class... Q>
class Transformed<Body, P, Params<Q...>> : public Transformed<Body, P> {
 public:
  struct CallsOfBoth {
    using type = P;
    using with_options = Params<Q...>;
  };
  using Transformed<Body, P>::Transformed;
  using Transformed<Body, P>::operator();
  auto operator()(const Stored<Q>&... args, Loc loc = Loc::current()) const { return this->call_at(loc, args...); }
};
template <class Body>
class Transformed<Body, Generic, Generic> : public Body {
 public:
  using Body::Body;
  template <class... A>
  auto operator()(const A&... args) const {
    return this->call_at(this->made_at(), static_cast<const std::decay_t<A>&>(args)...);
  }
};
template <class F, class Body>
using TransformedOf = Transformed<Body, typename ParamsOf<F>::type, typename ParamsOf<F>::with_options>;

/// Calls body(line of the call, f, arguments...). After a pack no parameter could have the line as its default, so the
/// numbers of arguments are spelled out.
template <class Body>
struct WithLine {
  template <class F>
  auto operator()(const F& f, Loc loc = Loc::current()) const {
    return Body()(loc, f);
  }
  template <class F, class A>
  auto operator()(const F& f, const A& a, Loc loc = Loc::current()) const {
    return Body()(loc, f, a);
  }
  template <class F, class A, class B>
  auto operator()(const F& f, const A& a, const B& b, Loc loc = Loc::current()) const {
    return Body()(loc, f, a, b);
  }
  template <class F, class A, class B, class C>
  auto operator()(const F& f, const A& a, const B& b, const C& c, Loc loc = Loc::current()) const {
    return Body()(loc, f, a, b, c);
  }
  template <class F, class A, class B, class C, class D>
  auto operator()(const F& f, const A& a, const B& b, const C& c, const D& d, Loc loc = Loc::current()) const {
    return Body()(loc, f, a, b, c, d);
  }
  template <class F, class A, class B, class C, class D, class E>
  auto operator()(const F& f, const A& a, const B& b, const C& c, const D& d, const E& e,
                  Loc loc = Loc::current()) const {
    return Body()(loc, f, a, b, c, d, e);
  }
  template <class F, class A, class B, class C, class D, class E, class G>
  auto operator()(const F& f, const A& a, const B& b, const C& c, const D& d, const E& e, const G& g,
                  Loc loc = Loc::current()) const {
    return Body()(loc, f, a, b, c, d, e, g);
  }
};

}  // namespace sheaf::detail
