// Derivatives as their author wants them: what a checkpoint keeps, rules that replace the derivative of a function, and
// linear solves. A rule is tested against the function it stands for where it is given: trees and types must agree.
#pragma once

#include "sheaf/control.h"
#include "sheaf/ops.h"

namespace sheaf {

/// What a checkpoint keeps for the reverse derivative besides its arguments.
struct Saved {
  enum class What : std::uint8_t { nothing, everything, dots, dots_without_batch, names, except_names };
  What what = What::nothing;
  std::vector<std::string> names = {};
};
namespace save {
inline const Saved nothing{};
inline const Saved everything{Saved::What::everything, {}};
inline const Saved dots{Saved::What::dots, {}};  // results of products
inline const Saved dots_without_batch{Saved::What::dots_without_batch, {}};  // ... without batch dims
/// Values marked by checkpoint_name, or all of those but some.
inline Saved names(std::vector<std::string> list) { return {Saved::What::names, std::move(list)}; }
inline Saved except(std::vector<std::string> list) { return {Saved::What::except_names, std::move(list)}; }
}  // namespace save

/// x, under a name that save::names and save::except can speak about.
Array checkpoint_name(Operand x, const std::string& name);

namespace detail {

std::vector<Array> checkpoint(const FlatCall& f, const Saved& saved, Structure& result);
/// Arguments of `rule`: f's, then their tangents; its result: f's, then its tangent.
std::vector<Array> custom_jvp(const FlatCall& f, const FlatCall& rule, Structure& result);
/// `forward` returns what f does, then residuals; `backward`, made from that structure, takes residuals and a cotangent
/// of the result to a tuple of cotangents of the arguments. `rule`, as for custom_jvp, may be null.
std::vector<Array> custom_vjp(const FlatCall& f, const FlatCall* rule, const FlatCall& forward,
                              const std::function<std::unique_ptr<FlatCall>(const Structure&)>& backward,
                              Structure& result);
/// `transpose_solve` may be null.
std::vector<Array> custom_linear_solve(const FlatCall& matvec, const FlatCall& solve, const FlatCall* transpose_solve,
                                       Structure& result);

template <class F>
class CheckpointBody {
 public:
  CheckpointBody(F f, Saved saved, Loc loc) : f_(std::move(f)), saved_(std::move(saved)), loc_(loc) {}
  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    const CallOf<F, A...> call(f_, loc, args...);
    Structure structure;
    const std::vector<Array> leaves = checkpoint(call, saved_, structure);
    return rebuild<typename CallOf<F, A...>::Result>(structure, leaves);
  }
  Loc made_at() const { return loc_; }

 private:
  F f_;
  Saved saved_;
  Loc loc_;
};

/// A function whose result is a pair of trees.
template <class F, class First>
struct PairBranch {
  const F& f;
  Loc loc;
  template <class... A>
  auto operator()(A... args) const {
    using R = ResultOf<F, A...>;
    static_assert(PairOfResults<R>,
                  "custom rule: a jvp rule returns a pair, the result and its tangent; a forward function a pair, the "
                  "result and what backward needs (or none)");
    auto r = call_user(f, loc, args...);
    return std::pair<First, Tree<std::tuple_element_t<1, R>>>(std::get<0>(std::move(r)), std::get<1>(std::move(r)));
  }
};

template <class F, class Rule>
class CustomJvpBody {
 public:
  CustomJvpBody(F f, Rule rule, Loc loc) : f_(std::move(f)), rule_(std::move(rule)), loc_(loc) {}
  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    using R = ResultOf<Branch<F>, A...>;
    const Branch<F> f{f_, loc};
    const PairBranch<Rule, R> rule{rule_, loc};
    static_assert(std::same_as<ResultOf<PairBranch<Rule, R>, A..., A...>, std::pair<R, R>>,
                  "custom_jvp: the result and its tangent are trees like the function's result");
    const CallOf<Branch<F>, A...> f_call(f, loc, args...);
    const CallOf<PairBranch<Rule, R>, A..., A...> rule_call(rule, loc, args..., args...);
    Structure structure;
    const std::vector<Array> leaves = custom_jvp(f_call, rule_call, structure);
    return rebuild<R>(structure, leaves);
  }
  Loc made_at() const { return loc_; }

 private:
  F f_;
  Rule rule_;
  Loc loc_;
};

/// A cotangent as the tree of its argument; `none` is zero.
template <class A, class C>
A as_cotangent(const A& argument, C&& cotangent) {
  if constexpr (std::same_as<std::remove_cvref_t<C>, None>)
    return tree_map([](const Array& x) { return zeros(x.shape(), x.dtype()); }, argument);
  else return A(std::forward<C>(cotangent));
}

/// backward(residuals, cotangent of the result), giving one cotangent per argument.
template <class F, class Residuals, class R, class... A>
struct Backward {
  const F& f;
  Loc loc;
  std::tuple<const A&...> args;
  std::tuple<A...> operator()(Residuals residuals, R cotangent) const {
    using C = ResultOf<F, Residuals, R>;
    auto out = call_user(f, loc, residuals, cotangent);
    using First = std::tuple_element_t<0, std::tuple<A...>>;
    if constexpr (sizeof...(A) == 1 && (std::convertible_to<C, First> || std::same_as<C, None>)) {
      return {as_cotangent(std::get<0>(args), std::move(out))};
    } else {
      static_assert(TupleLike<C>, "custom rule: backward returns a tuple, one cotangent (or none) per argument");
      static_assert(std::tuple_size_v<C> == sizeof...(A),
                    "custom rule: backward returns one cotangent (or none) per argument");
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        return std::tuple<A...>{as_cotangent(std::get<I>(args), std::get<I>(std::move(out)))...};
      }(std::index_sequence_for<A...>());
    }
  }
};

/// `Rule` is None, or the forward rule as for custom_jvp.
template <class F, class Rule, class Fwd, class Bwd>
class CustomVjpBody {
 public:
  CustomVjpBody(F f, Rule rule, Fwd forward, Bwd backward, Loc loc)
      : f_(std::move(f)),
        rule_(std::move(rule)),
        forward_(std::move(forward)),
        backward_(std::move(backward)),
        loc_(loc) {}
  template <class... A>
  auto call_at(Loc loc, const A&... args) const {
    using R = ResultOf<Branch<F>, A...>;
    if constexpr (std::same_as<Rule, None>) {
      return with_rule<R>(nullptr, loc, args...);
    } else {
      const PairBranch<Rule, R> rule{rule_, loc};
      static_assert(std::same_as<ResultOf<PairBranch<Rule, R>, A..., A...>, std::pair<R, R>>,
                    "custom_rule: the result and its tangent are trees like the function's result");
      const CallOf<PairBranch<Rule, R>, A..., A...> rule_call(rule, loc, args..., args...);
      return with_rule<R>(&rule_call, loc, args...);
    }
  }
  Loc made_at() const { return loc_; }

 private:
  template <class R, class... A>
  R with_rule(const FlatCall* rule, Loc loc, const A&... args) const {
    using Forward = PairBranch<Fwd, R>;
    using Both = ResultOf<Forward, A...>;
    using Residuals = typename Both::second_type;
    using Back = Backward<Bwd, Residuals, R, A...>;
    const Branch<F> f{f_, loc};
    const Forward forward{forward_, loc};
    const Back backward{backward_, loc, {args...}};
    const CallOf<Branch<F>, A...> f_call(f, loc, args...);
    const CallOf<Forward, A...> forward_call(forward, loc, args...);
    Structure structure;
    const std::vector<Array> leaves = custom_vjp(
        f_call, rule, forward_call,
        [&](const Structure& s) -> std::unique_ptr<FlatCall> {
          const Both& both = *static_cast<const Both*>(s.tree.get());
          return std::make_unique<CallOf<Back, Residuals, R>>(backward, loc, both.second, both.first);
        },
        structure);
    return rebuild<R>(structure, leaves);
  }

  F f_;
  Rule rule_;
  Fwd forward_;
  Bwd backward_;
  Loc loc_;
};

}  // namespace detail

/// f, of which the reverse derivative keeps the arguments and what `saved` says, and computes the rest again (Chen et
/// al., arXiv:1604.06174). Values and forward derivatives are those of f. In a loop, checkpoint the body.
template <class F>
auto checkpoint(F f, Saved saved = save::nothing, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::CheckpointBody<F>>(std::move(f), std::move(saved), loc);
}

/// f with its forward derivative given: rule(arguments..., tangents...) -> (result, its tangent), linear in the
/// tangents. Reverse derivatives are the rule's transpose. Tangents of integers are zeros. What f and the rule capture
/// has no derivative: pass it as an argument.
template <class F, class Rule>
auto custom_jvp(F f, Rule rule, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::CustomJvpBody<F, Rule>>(std::move(f), std::move(rule), loc);
}

/// f with its reverse derivative given: forward(arguments...) -> (result, residuals), backward(residuals, cotangent) ->
/// a tuple of the arguments' cotangents, `none` for zero; of one argument, the cotangent itself. Forward derivatives
/// are backward's transpose.
template <class F, class Fwd, class Bwd>
auto custom_vjp(F f, Fwd forward, Bwd backward, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::CustomVjpBody<F, None, Fwd, Bwd>>(std::move(f), none, std::move(forward),
                                                                            std::move(backward), loc);
}

/// Derivatives both ways, for custom_rule.
template <class Jvp, class Fwd, class Bwd>
struct Derivatives {
  Jvp jvp;  // as custom_jvp's
  Fwd forward;  // as custom_vjp's
  Bwd backward;
};

/// f with rules for both directions: `custom_rule(f, Derivatives{.jvp = .., .forward = .., .backward = ..})`. Forward
/// mode runs `jvp`, reverse mode `forward` and `backward`, which need not be linear then; neither is derived from the
/// other, and nobody checks that they agree. Forward mode over reverse mode differentiates `backward`, reverse mode
/// over forward mode `jvp`. What the functions capture has no derivative, and using one throws TypeError: pass it as an
/// argument. The call throws TypeError where results, tangents or cotangents have other trees, shapes or dtypes than
/// what they belong to.
template <class F, class Jvp, class Fwd, class Bwd>
auto custom_rule(F f, Derivatives<Jvp, Fwd, Bwd> rule, Loc loc = Loc::current()) {
  return detail::TransformedOf<F, detail::CustomVjpBody<F, Jvp, Fwd, Bwd>>(
      std::move(f), std::move(rule.jvp), std::move(rule.forward), std::move(rule.backward), loc);
}

/// The x with matvec(x) = b, found by solve(b), and differentiated as what solves that equation: solve is never looked
/// into. transpose_solve solves the transposed equation; without it (`none`) there is no reverse derivative.
template <class M, class B, class S, class T = None>
B custom_linear_solve(M matvec, const B& b, S solve, T transpose_solve = {}, Loc loc = Loc::current()) {
  using namespace detail;
  const auto as_tree = [loc](const auto& f) { return [&f, loc](B x) { return B(call_user(f, loc, x)); }; };
  const auto multiply = as_tree(matvec);
  const auto divide = as_tree(solve);
  const CallOf<decltype(multiply), B> multiply_call(multiply, loc, b);
  const CallOf<decltype(divide), B> divide_call(divide, loc, b);
  Structure structure;
  std::vector<Array> leaves;
  if constexpr (std::same_as<T, None>) {
    leaves = detail::custom_linear_solve(multiply_call, divide_call, nullptr, structure);
  } else {
    const auto back = as_tree(transpose_solve);
    const CallOf<decltype(back), B> back_call(back, loc, b);
    leaves = detail::custom_linear_solve(multiply_call, divide_call, &back_call, structure);
  }
  return rebuild<B>(structure, leaves);
}

}  // namespace sheaf
