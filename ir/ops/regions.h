// What data sheets of region ops share: checks of a region's parameters and results against the types that flow
// through it. An operand list has roles, contiguous, counted by the op's attributes.
#pragma once

#include <absl/status/statusor.h>
#include <fmt/format.h>

#include "ir/eval.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/sharding.h"

namespace sheaf::ir::ops {

inline absl::Status region_count(const Eqn& e, std::size_t n) {
  if (e.regions.size() == n) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("takes {} region{}, not {}", n, n == 1 ? "" : "s", e.regions.size()));
}

/// `wanted` against `given`, one by one, wherever they lie; `what` is "argument" or "result".
inline absl::Status same_types(const Function& f, std::string_view what, const std::vector<Type>& wanted,
                               const std::vector<Type>& given) {
  if (wanted.size() != given.size())
    return absl::InvalidArgumentError(fmt::format("{} {} {} {}{}, not {}", f.name(),
                                                  what == "result" ? "must return" : "takes", wanted.size(), what,
                                                  wanted.size() == 1 ? "" : "s", given.size()));
  for (std::size_t k = 0; k < wanted.size(); ++k)
    if (without_sharding(wanted[k]) != without_sharding(given[k]))
      return absl::InvalidArgumentError(
          fmt::format("{} {} of {} must be {}, not {}", what, k, f.name(), to_string(wanted[k]), to_string(given[k])));
  return absl::OkStatus();
}

/// What parameter k of a region is along manual axes (OpDef::feeds); nothing where the equation is malformed.
inline Manual manual_of_param(const Eqn& e, std::size_t region, int k) {
  if (region >= e.regions.size() || k < 0 || k >= std::ssize(e.regions[region]->params())) return {};
  return e.regions[region]->params()[k].type().manual();
}
/// For an op whose operands are the parameters of its first region.
inline Manual feeds_params(const Eqn& e, int k) { return manual_of_param(e, 0, k); }

/// Which region runs, or how often, depends on `pred`: where devices decide differently, all else differs too.
inline absl::Status differ_as(Value pred, std::string_view pred_name, std::string_view what,
                              const std::vector<Type>& types) {
  for (std::size_t k = 0; k < types.size(); ++k)
    if (const Axes lacking = without(pred.type().varying(), types[k].varying()); !lacking.empty())
      return absl::InvalidArgumentError(fmt::format("the {} differs along \"{}\", and {} {} ({}) does not", pred_name,
                                                    lacking[0], what, k, to_string(types[k])));
  return absl::OkStatus();
}

/// A function that may take `given`.
inline absl::Status takes(const Function& f, const std::vector<Type>& given) {
  return same_types(f, "argument", f.param_types(), given);
}
inline absl::Status returns(const Function& f, const std::vector<Type>& wanted) {
  return same_types(f, "result", wanted, f.result_types());
}

template <class List>
List slice_of(const List& v, std::size_t from, std::size_t count) {
  return {v.begin() + static_cast<std::ptrdiff_t>(from), v.begin() + static_cast<std::ptrdiff_t>(from + count)};
}
template <class List>
List joined(List a, const List& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline void eval_into(const Function& f, std::span<const Literal> in, std::span<Literal> out) {
  Literals results = eval_real(f, in);
  std::move(results.begin(), results.end(), out.begin());
}

}  // namespace sheaf::ir::ops
