// What a program sends between devices: a report of every collective, and limits on what the compiler may write.
//   jit(step).trace(params, batch).lower().collectives().text
//   jit(step, {.limits = {.no_implicit_comm = true}})
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sheaf/dtype.h"
#include "sheaf/source.h"

namespace sheaf {

struct Collective {
  std::string op;                 // "all_gather"
  std::string reduction;          // "sum" of all_reduce and reduce_scatter, else empty
  std::vector<std::string> axes;  // of the mesh
  std::int64_t devices = 1;       // in each group
  DType dtype = f32;
  double payload_bytes = 0;       // what the whole is, on that set of axes
  double wire_bytes = 0;          // sent by one device
  double seconds = 0;             // estimated
  std::int64_t times = 1;         // per run; -1: as often as a loop whose length is not known
  bool is_overlapped = false;     // other work is done while it is under way
  bool is_implicit = false;       // written by the compiler
  bool is_backward = false;       // of a derivative
  bool gathers_all = false;       // makes what is split whole, for it to be split in another way
  Loc loc = {};                   // of the equation that needs it
  std::string reason;             // "dot reduces a dim split on model"; empty for the user's own
};

struct CollectiveReport {
  std::vector<Collective> entries;  // in the order of the program
  std::string text;                 // a line for each, and totals per set of axes
};

/// What jit may write. Where a program needs more, compiling it throws ShardingError naming the collective, its line
/// and why it is needed.
struct CommunicationLimits {
  struct Rule {
    std::string op = {};    // empty: every one
    std::string axis = {};  // empty: every one
  };
  bool no_implicit_comm = false;         // no collective that the user did not write
  std::optional<double> max_bytes = {};  // sent by one device in a run
  bool no_full_gathers = false;          // nothing split is made whole to be split in another way
  std::vector<Rule> forbid = {};
};

}  // namespace sheaf
