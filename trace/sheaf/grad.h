// Derivatives as functions of functions: grad, value_and_grad, jvp, linearize and vjp. They nest to any order and work
// inside and outside jit; outside, the derivative program is compiled and cached like any other.
#pragma once

#include "sheaf/call.h"
#include "sheaf/ops.h"

namespace sheaf {

/// What a function returns so that its derivatives are those of `value` alone, and `aux` comes along:
/// `return WithAux{y, steps};`
template <class R, class A>
struct WithAux {
  R value;
  A aux;
};

struct GradOptions {
  bool allow_int = false;  // integer and bool leaves have gradients of zeros, of their own type, instead of an error
};

namespace detail {

/// Leaves of f's result, then the gradients of the leaves of the arguments in `argnums`.
std::vector<Array> value_and_grad(const char* who, const FlatCall& call, std::span<const int> argnums,
                                  const GradOptions& options, Structure& result);
/// Leaves of f's result, then their tangents.
std::vector<Array> jvp(const FlatCall& call, std::span<const Array* const> tangents, Structure& result);

class LinearFunction;  // a linear program with its residuals
struct Linearization {
  std::vector<Array> results;
  Structure structure;
  std::shared_ptr<const LinearFunction> linear;
};
Linearization linearize(const FlatCall& call);
Linearization vjp(const FlatCall& call);
/// Tangents of the arguments -> tangents of the results, or cotangents of the results -> cotangents of the arguments.
std::vector<Array> apply(const LinearFunction& f, std::span<const Array* const> leaves, Loc loc);

template <class R>
struct ValueOf {
  static constexpr bool ok = std::same_as<R, Array>;
};
template <class Aux>
struct ValueOf<std::pair<Array, Aux>> {
  static constexpr bool ok = true;
};
template <class Aux>
struct ValueOf<WithAux<Array, Aux>> {
  static constexpr bool ok = true;
};

/// The part of a result that is differentiated; `both` things said of it, with what comes along if anything does.
template <class R>
struct Differentiated {
  using Value = R;
  static const R& of(const R& r) { return r; }
  template <class First, class Second>
  static std::pair<First, Second> both(First first, Second second, const R&) {
    return {std::move(first), std::move(second)};
  }
  template <class J, class First, class Second>
  static J with_aux(J j, const std::pair<First, Second>&) {
    return j;
  }
  static std::vector<Array> zeros_of_aux(const R&) { return {}; }
};
template <class R, class A>
struct Differentiated<WithAux<R, A>> {
  using Value = R;
  static const R& of(const WithAux<R, A>& r) { return r.value; }
  template <class First, class Second>
  static std::tuple<First, Second, A> both(First first, Second second, const WithAux<R, A>& r) {
    return {std::move(first), std::move(second), r.aux};
  }
  template <class J, class First, class Second>
  static WithAux<J, A> with_aux(J j, const std::tuple<First, Second, A>& both) {
    return {std::move(j), std::get<2>(both)};
  }
  static std::vector<Array> zeros_of_aux(const WithAux<R, A>& r) {
    std::vector<Array> leaves = tree_leaves(r.aux);
    for (Array& x : leaves) x = zeros(x.shape(), x.dtype());
    return leaves;
  }
};

template <class F, int... N>
class GradBody {
 public:
  GradBody(F f, const char* who, GradOptions options, Loc loc)
      : f_(std::move(f)), who_(who), options_(options), loc_(loc) {}
  Loc made_at() const { return loc_; }

 protected:
  /// {what f returned, the gradient: a tree like the argument, or a tuple of such for several}
  template <class... A>
  auto both(Loc loc, const A&... args) const {
    using Call = CallOf<F, A...>;
    using R = typename Call::Result;
    static_assert(ValueOf<R>::ok,
                  "grad: the function returns an Array, a pair of an Array and what comes along, or WithAux of them");
    static_assert(((N < static_cast<int>(sizeof...(A))) && ...), "grad: no such argument");
    const Call call(f_, loc, args...);
    Structure structure;
    static constexpr std::array<int, sizeof...(N)> argnums{N...};
    const std::vector<Array> leaves = value_and_grad(who_, call, argnums, options_, structure);
    const std::span all(leaves);
    std::size_t next = structure.paths.size();
    R value = rebuild<R>(structure, all.first(next));
    const auto one = [&](const auto& argument, std::size_t count) {
      next += count;
      return tree_with_leaves(std::remove_cvref_t<decltype(argument)>(argument), all.subspan(next - count, count));
    };
    const std::tuple<const A&...> tied(args...);
    // A braced list, so that the gradients are taken in order.
    std::tuple<std::tuple_element_t<N, std::tuple<A...>>...> grads{one(std::get<N>(tied), call.leaf_counts()[N])...};
    if constexpr (sizeof...(N) == 1) return std::pair{std::move(value), std::get<0>(std::move(grads))};
    else return std::pair{std::move(value), std::move(grads)};
  }

 private:
  F f_;
  const char* who_;
  GradOptions options_;
  Loc loc_;
};

template <class F, int... N>
class ValueAndGradBody : public GradBody<F, N...> {
 public:
  using GradBody<F, N...>::GradBody;
  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    return this->both(loc, args...);
  }
};
template <class F, int... N>
class OnlyGradBody : public GradBody<F, N...> {
 public:
  using GradBody<F, N...>::GradBody;
  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    auto [value, grads] = this->both(loc, args...);
    if constexpr (std::same_as<decltype(value), Array>) return grads;
    else if constexpr (requires { value.aux; }) return std::pair{std::move(grads), std::move(value.aux)};
    else return std::pair{std::move(grads), std::move(value.second)};
  }
};

template <class T>
std::tuple<T> as_tuple(const T& v) {
  return {v};
}
template <class... T>
std::tuple<T...> as_tuple(const std::tuple<T...>& v) {
  return v;
}

/// The linear map of a linearization: tangents of the arguments -> tangents of the result.
template <class R, class... A>
class LinearMap {
 public:
  LinearMap(Structure structure, std::shared_ptr<const LinearFunction> f)
      : structure_(std::move(structure)), f_(std::move(f)) {}
  typename Differentiated<R>::Value operator()(const A&... tangents, Loc loc = Loc::current()) const {
    Flat flat;
    (walk(tangents, flat), ...);
    const std::vector<Array> leaves = apply(*f_, flat.leaves.span(), loc);
    return Differentiated<R>::of(rebuild<R>(structure_, leaves));
  }

 private:
  Structure structure_;
  std::shared_ptr<const LinearFunction> f_;
};

/// The transposed map: cotangent of the result -> tuple of cotangents, one per argument.
template <class R, class... A>
class Pullback {
 public:
  Pullback(std::tuple<A...> arguments, std::vector<Array> rest, std::shared_ptr<const LinearFunction> f)
      : arguments_(std::move(arguments)), rest_(std::move(rest)), f_(std::move(f)) {}
  std::tuple<A...> operator()(const typename Differentiated<R>::Value& cotangent, Loc loc = Loc::current()) const {
    Flat flat;
    walk(cotangent, flat);
    walk(rest_, flat);
    const std::vector<Array> leaves = apply(*f_, flat.leaves.span(), loc);
    std::tuple<A...> out = arguments_;
    Fill fill(leaves);
    walk(out, fill);
    return out;
  }

 private:
  std::tuple<A...> arguments_;  // only their structure counts
  std::vector<Array> rest_;     // the cotangents of what comes along: zeros
  std::shared_ptr<const LinearFunction> f_;
};

}  // namespace detail

/// The gradient of a scalar function: grad(f)(args) is a tree like argument 0; grad<0, 2>(f) a tuple of two such. If f
/// returns std::pair(value, aux) or WithAux, it gives std::pair(gradient, aux). Throws ShapeError unless the value is a
/// scalar, TypeError unless it and the arguments' leaves are floats; see GradOptions.
template <int... N, class F>
auto grad(F f, GradOptions options, Loc loc = Loc::current()) {
  if constexpr (sizeof...(N) == 0) return grad<0>(std::move(f), options, loc);
  else return detail::TransformedOf<F, detail::OnlyGradBody<F, N...>>(std::move(f), "grad", options, loc);
}
template <int... N, class F>
auto grad(F f, Loc loc = Loc::current()) {
  return grad<N...>(std::move(f), GradOptions{}, loc);
}

/// (what f returns, the gradient as in `grad`).
template <int... N, class F>
auto value_and_grad(F f, GradOptions options, Loc loc = Loc::current()) {
  if constexpr (sizeof...(N) == 0) return value_and_grad<0>(std::move(f), options, loc);
  else return detail::TransformedOf<F, detail::ValueAndGradBody<F, N...>>(std::move(f), "value_and_grad", options, loc);
}
template <int... N, class F>
auto value_and_grad(F f, Loc loc = Loc::current()) {
  return value_and_grad<N...>(std::move(f), GradOptions{}, loc);
}

/// (f(primals), its derivative along the tangents), and where f returns WithAux, what comes along. Primals and
/// tangents: one argument, or std::tuple of all of them. The tangent of a float or complex leaf has its shape and
/// dtype, or is a C++ number; those of other leaves are not read, and tangents of such results are zeros of their own
/// type. Throws ShapeError or TypeError for another shape or dtype, TypeError for another number of leaves.
template <class F, class P, class T>
auto jvp(const F& f, const P& primals, const T& tangents, Loc loc = Loc::current()) {
  auto p = detail::as_tuple(primals);
  auto t = detail::as_tuple(tangents);
  return std::apply(
      [&]<class... A>(const A&... args) {
        using Args = typename detail::StoredArgs<typename detail::ParamsFor<F, sizeof...(A)>::type, A...>::type;
        const Args stored(args...);
        const Args along = std::apply([](const auto&... a) { return Args(a...); }, t);
        return std::apply(
            [&]<class... S>(const S&... s) {
              using Call = detail::CallOf<F, S...>;
              using R = typename Call::Result;
              const Call call(f, loc, s...);
              detail::Flat flat;
              detail::walk(along, flat);
              detail::Structure structure;
              const std::vector<Array> leaves = detail::jvp(call, flat.leaves.span(), structure);
              const std::span all(leaves);
              const std::size_t n = structure.paths.size();
              using Part = detail::Differentiated<R>;
              const R value = detail::rebuild<R>(structure, all.first(n));
              return Part::both(Part::of(value), Part::of(detail::rebuild<R>(structure, all.subspan(n))), value);
            },
            stored);
      },
      p);
}

namespace detail {

struct Linearize {
  template <class F, class... P>
  auto operator()(Loc loc, const F& f, const P&... primals) const {
    const typename StoredArgs<typename ParamsFor<F, sizeof...(P)>::type, P...>::type stored(primals...);
    return std::apply(
        [&]<class... A>(const A&... args) {
          using R = typename CallOf<F, A...>::Result;
          Linearization l = linearize(CallOf<F, A...>(f, loc, args...));
          const R value = rebuild<R>(l.structure, l.results);
          using Part = Differentiated<R>;
          return Part::both(Part::of(value), LinearMap<R, A...>(std::move(l.structure), std::move(l.linear)), value);
        },
        stored);
  }
};

struct ReverseHalves {
  template <class F, class... P>
  auto operator()(Loc loc, const F& f, const P&... primals) const {
    const typename StoredArgs<typename ParamsFor<F, sizeof...(P)>::type, P...>::type stored(primals...);
    return std::apply(
        [&]<class... A>(const A&... args) {
          using R = typename CallOf<F, A...>::Result;
          Linearization l = vjp(CallOf<F, A...>(f, loc, args...));
          const R value = rebuild<R>(l.structure, l.results);
          using Part = Differentiated<R>;
          return Part::both(Part::of(value), Pullback<R, A...>(stored, Part::zeros_of_aux(value), std::move(l.linear)),
                            value);
        },
        stored);
  }
};

}  // namespace detail

/// linearize(f, primals...) = (f(primals...), the linear map tangents... -> tangent of the result), which keeps what it
/// needs of f; and where f returns WithAux, what comes along. Tangents are typed and checked as jvp's, at each call of
/// the map.
inline constexpr detail::WithLine<detail::Linearize> linearize{};

/// vjp(f, primals...) = (f(primals...), the pullback: cotangent of the result -> std::tuple of cotangents of the
/// primals); and where f returns WithAux, what comes along. A cotangent has the shape and dtype of its leaf, typed and
/// checked as jvp's tangents are, at each call of the pullback; those of leaves that are not floats are zeros.
inline constexpr detail::WithLine<detail::ReverseHalves> vjp{};

}  // namespace sheaf
