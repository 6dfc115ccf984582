// What `Eqn::how` tells of a collective that the compiler made: the transforms of the user's equation, and behind them
// why it is there. Invariant: nothing else looks into the text.
#pragma once

#include <string_view>

namespace sheaf::passes {

/// Begins the reason.
inline constexpr std::string_view kReason = "partition: ";
/// Ends that of gathers of a plan that gathers all, of which there is a warning too.
inline constexpr std::string_view kGathersAll = "gathered whole to be split again";

/// Ends that of what was chosen without comparing all ways.
inline constexpr std::string_view kNotSearched = "too many ways to try them all";

inline std::string_view transforms_of(std::string_view how) { return how.substr(0, how.find(kReason)); }
/// Empty: the user wrote it.
inline std::string_view reason_of(std::string_view how) {
  const std::size_t at = how.find(kReason);
  return at == std::string_view::npos ? std::string_view() : how.substr(at + kReason.size());
}
/// Whether it belongs to a backward pass.
inline bool is_of_derivative(std::string_view how) {
  return transforms_of(how).find("transpose") != std::string_view::npos;
}

}  // namespace sheaf::passes
