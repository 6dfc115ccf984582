// The report of a plan in public words, and its limits in the passes' words.
#include "trace/communication.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "passes/sharding/report.h"
#include "sheaf/error.h"

namespace sheaf {
namespace {

using passes::CollectiveKind;

std::string reduction_of(const passes::CollectiveEntry& e) {
  static constexpr const char* kNames[] = {"sum", "prod", "max", "min", "and", "or"};
  const bool reduces = e.kind == CollectiveKind::all_reduce || e.kind == CollectiveKind::reduce_scatter;
  return reduces ? kNames[static_cast<int>(e.reduce)] : "";
}

passes::CommunicationLimits limits_of(const CommunicationLimits& limits, const std::string& what, Loc loc) {
  static constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                              CollectiveKind::reduce_scatter, CollectiveKind::ppermute,
                                              CollectiveKind::all_to_all};
  passes::CommunicationLimits own{.only_explicit = limits.no_implicit_comm,
                                  .max_wire_bytes = limits.max_bytes,
                                  .no_full_gathers = limits.no_full_gathers,
                                  .forbid = {}};
  for (const CommunicationLimits::Rule& rule : limits.forbid) {
    passes::CommunicationLimits::Rule& made = own.forbid.emplace_back();
    made.axis = rule.axis;
    if (rule.op.empty()) continue;
    const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                    [&](CollectiveKind k) { return passes::name(k) == rule.op; });
    if (kind == std::end(kKinds))
      throw TypeError(loc, fmt::format("{}: the limits forbid \"{}\", which is no collective", what, rule.op));
    made.kind = *kind;
  }
  return own;
}

passes::CollectiveReport report_of(const passes::Plan& plan) {
  return passes::report_collectives(*plan.function, passes::chosen_profile(plan.target));
}

}  // namespace

CollectiveReport collectives_of(const passes::Plan& plan) {
  const passes::CollectiveReport own = report_of(plan);
  CollectiveReport report{.entries = {}, .text = own.text()};
  for (const passes::CollectiveEntry& e : own.entries)
    report.entries.push_back({.op = std::string(passes::name(e.kind)),
                              .reduction = reduction_of(e),
                              .axes = e.axes,
                              .devices = e.devices,
                              .dtype = e.dtype,
                              .payload_bytes = e.payload_bytes,
                              .wire_bytes = e.wire_bytes,
                              .seconds = e.seconds,
                              .times = e.times,
                              .is_overlapped = e.is_overlapped,
                              .is_implicit = e.is_implicit,
                              .is_backward = e.is_backward,
                              .gathers_all = e.gathers_all,
                              .loc = e.loc,
                              .reason = e.reason});
  return report;
}

bool has_limits(const CommunicationLimits& limits) {
  return limits.no_implicit_comm || limits.max_bytes || limits.no_full_gathers || !limits.forbid.empty();
}

std::string limits_text(const CommunicationLimits& limits) {
  std::string text = fmt::format("{}{}", int{limits.no_implicit_comm}, int{limits.no_full_gathers});
  if (limits.max_bytes) text += fmt::format("|{}", *limits.max_bytes);
  for (const CommunicationLimits::Rule& rule : limits.forbid) text += fmt::format("|{}@{}", rule.op, rule.axis);
  return text;
}

void check_within(const CommunicationLimits& limits, const passes::Plan& plan, const std::string& what, Loc loc) {
  const passes::CommunicationLimits own = limits_of(limits, what, loc);
  if (absl::Status s = passes::check_limits(report_of(plan), own); !s.ok())
    throw ShardingError(loc, fmt::format("{}: {}", what, std::string(s.message())));
}

}  // namespace sheaf
