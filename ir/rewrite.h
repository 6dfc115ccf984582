// Rewrite rules as equations: rule("x - x = 0", sub(x, x), zero) reads as what it does. A pattern is matched against an
// equation just emitted; variables bind values, numbers match rank-0 constants (broadcast or not) of that value.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/op.h"

namespace sheaf::ir {

struct Pattern {
  enum class Kind : std::uint8_t { variable, number, op } kind = Kind::variable;
  int variable = 0;
  double number = 0;
  Op op = nullptr;
  std::vector<Pattern> operands = {};
};

inline Pattern variable(int index) { return {.kind = Pattern::Kind::variable, .variable = index}; }
inline Pattern number(double value) { return {.kind = Pattern::Kind::number, .number = value}; }
template <class... P>
Pattern match(const OpDef& op, P... operands) {
  return {.kind = Pattern::Kind::op, .op = &op, .operands = {operands...}};
}

/// lhs = rhs, where `when` holds of the matched equation. A rule without patterns has a `rewrite` of its own.
struct Rule {
  std::string_view equation;
  Op root = nullptr;
  Pattern lhs = {}, rhs = {};
  bool (*when)(const Eqn&) = nullptr;
  std::optional<Value> (*rewrite)(Builder&, const Eqn&) = nullptr;
};

inline Rule rule(std::string_view equation, Pattern lhs, Pattern rhs, bool (*when)(const Eqn&) = nullptr) {
  const Op root = lhs.op;
  return {.equation = equation, .root = root, .lhs = std::move(lhs), .rhs = std::move(rhs), .when = when};
}
inline Rule rule(std::string_view equation, const OpDef& root, std::optional<Value> (*rewrite)(Builder&, const Eqn&)) {
  return {.equation = equation, .root = &root, .rewrite = rewrite};
}

/// The value of a constant, seen through broadcasts; nullopt for anything else.
std::optional<Literal> constant_value(Value v);

/// The right side, emitted in b, if the rule applies to e (an equation of b); it has e's result type.
std::optional<Value> apply(Builder& b, const Rule& rule, const Eqn& e);

}  // namespace sheaf::ir
