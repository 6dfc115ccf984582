// Ops on plain numbers: short ways to run one op, read its error, or take its gradients.
#pragma once

#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/eval.h"
#include "ir/ops/attrs.h"
#include "passes/transforms.h"

namespace sheaf::ir {

using Numbers = std::vector<double>;

inline Numbers numbers(const Literal& l) {
  Numbers v;
  for (std::int64_t i = 0; i < l.size(); ++i)
    v.push_back(is_int(l.dtype()) ? static_cast<double>(l.get_int(i)) : l.get(i));
  return v;
}

inline std::vector<Type> types_of(const Literals& in) {
  std::vector<Type> types;
  for (const Literal& l : in) types.push_back(l.type());
  return types;
}

inline Literal ones_like(Type t) {
  Literal ones(t);
  for (std::int64_t i = 0; i < ones.size(); ++i) ones.set(i, 1);
  return ones;
}

template <class Attrs>
FunctionRef function_of(const OpDef& op, const std::vector<Type>& types, Attrs attrs) {
  Builder b;
  Values params;
  for (Type t : types) params.push_back(b.param(t));
  return b.finish(b.emit_all(&op, params, std::make_shared<const Attrs>(std::move(attrs))));
}

template <class Attrs>
Literals run_all(const OpDef& op, const Literals& in, Attrs attrs) {
  return eval(*function_of(op, types_of(in), std::move(attrs)), in);
}

template <class Attrs>
Numbers run(const OpDef& op, const Literals& in, Attrs attrs) {
  return numbers(run_all(op, in, std::move(attrs))[0]);
}

template <class Attrs>
std::string error(const OpDef& op, const std::vector<Type>& types, Attrs attrs) {
  Builder b;
  Values params;
  for (Type t : types) params.push_back(b.param(t));
  return std::string(b.try_emit(&op, params, std::make_shared<const Attrs>(std::move(attrs))).status().message());
}

/// Gradients of the sum of the (one) result in the float operands.
template <class Attrs>
std::vector<Numbers> gradients(const OpDef& op, const Literals& in, Attrs attrs) {
  const FunctionRef f = function_of(op, types_of(in), std::move(attrs));
  passes::Mask wrt;
  for (Value p : f->params()) wrt.push_back(is_float(p.dtype()));
  const passes::Vjp v = passes::vjp(f, wrt);
  Literals residuals = eval(*v.forward, in);
  const Literal ones = ones_like(residuals[0].type());
  residuals.erase(residuals.begin());
  residuals.push_back(ones);
  std::vector<Numbers> out;
  for (const Literal& g : eval(*v.backward, residuals)) out.push_back(numbers(g));
  return out;
}

}  // namespace sheaf::ir
