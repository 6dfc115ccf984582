// What a program communicates, line by line: for people, who want to know why, and for tests and limits, which want to
// know that it stays so. Invariant: equal programs have equal reports, to the letter.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/sharding/cost.h"

namespace sheaf::passes {

struct CollectiveEntry {
  int id = 0;  // in the order of the program
  CollectiveKind kind = CollectiveKind::all_reduce;
  ir::ReduceKind reduce = ir::ReduceKind::sum;  // of all_reduce and reduce_scatter
  ir::Axes axes = {};
  std::int64_t devices = 1;     // in each group
  DType dtype = DType::f32;
  double payload_bytes = 0;     // what the whole is, on that set of axes
  double wire_bytes = 0;        // sent by one device
  double seconds = 0;           // estimated
  std::int64_t times = 1;       // per run of the program; -1: as often as a loop that counts nothing
  bool is_overlapped = false;   // other work is done while it is under way
  bool is_implicit = false;     // made by the compiler, and not by the user
  bool is_backward = false;     // of a derivative
  bool gathers_all = false;     // makes what is split whole, for it to be split in another way
  bool is_greedy = false;       // made without trying all ways, which are too many
  Loc loc = {};                 // of the user's equation that needs it
  std::string reason = {};      // "dot reduces a dim split on model"; empty for the user's own
};

struct CollectiveReport {
  std::string mesh = {};     // "data=4, model=2"
  std::string profile = {};  // whose times they are
  std::vector<CollectiveEntry> entries = {};

  /// A line for each, and totals per set of axes.
  std::string text() const;
};

/// "all_reduce(sum) over model".
std::string to_string(const CollectiveEntry& entry);

/// Of a program of one device, before or after fusion; of one on no mesh there is nothing to report. What runs
/// meanwhile is settled by fusion: only a plan's function tells.
CollectiveReport report_collectives(const ir::Function& local, const Profile& profile);

/// What a program may communicate.
struct CommunicationLimits {
  struct Rule {
    std::optional<CollectiveKind> kind = {};  // none: of every kind
    std::string axis = {};                    // "": over every axis
  };
  bool only_explicit = false;             // nothing but what the user wrote
  std::optional<double> max_wire_bytes = {};  // sent by one device in a run, loops counted as in the report
  bool no_full_gathers = false;
  std::vector<Rule> forbid = {};
};

/// FailedPrecondition names the first entry that is over the limits, its line and its reason.
absl::Status check_limits(const CollectiveReport& report, const CommunicationLimits& limits);

}  // namespace sheaf::passes
