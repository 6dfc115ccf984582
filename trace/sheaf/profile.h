// Where the time goes: while a Profile lives, what Sheaf does in this process is kept, on the host's threads and on the
// devices, by op and by the user's line.
//   {
//     auto scope = sheaf::profile("step.json");   // for ui.perfetto.dev or chrome://tracing
//     for (const Batch& batch : batches) state = step(state, batch);
//   }
// SHEAF_PROFILE=file profiles the whole process. Of the name's end: .folded writes stacks for a flame graph, .txt a
// table, anything else a trace; %p in it is the process's number. Invariant: where there is no Profile, each place that
// would be kept costs one relaxed load. On a GPU kernels are launched one by one while there is one, and not as graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sheaf/source.h"

namespace sheaf {

/// One thing that was done, from its beginning to its end.
struct ProfileEvent {
  std::string kind;  // of the host's threads: "call", "trace", "pass", "compile", "wait"; of devices: "launch", "copy",
                     // "collective"
  std::string row;  // "host main", "cuda:0 launch"
  std::string name;  // "jit step", "simplify", a kernel's name, "all_reduce over data"
  Loc loc;  // the user's line
  double begin_us = 0, us = 0;  // since the profile began; how long
  double bytes = 0, flops = 0;  // read and written; operations on elements
  std::uint64_t call = 0;  // the call that it is a part of, by number; 0: of none
};

class Profile {
 public:
  /// An empty name: nothing is written by itself.
  explicit Profile(std::string path = "", Loc loc = Loc::current());
  /// Stops, and writes the file; where that cannot be done, warns.
  ~Profile();
  Profile(Profile&&) noexcept;
  Profile& operator=(Profile&&) = delete;

  /// Waits for all work that was dispatched, and keeps nothing from then on.
  void stop();
  /// What was kept until now, or until `stop`, in the order of its beginning. A million events have room: beyond that
  /// what is new is left out, and the trace and the table say how much.
  std::vector<ProfileEvent> events() const;
  /// A trace of the Trace Event Format, as Perfetto and Chrome read it: arrows go from calls to what they launched.
  std::string trace() const;
  /// A line "stack of names;... nanoseconds" for each, as flame graph tools and speedscope.app read it.
  std::string folded() const;
  /// What took longest, a line for each op and line of the user's, with how often, bytes and operations per second.
  std::string table() const;
  /// The one that the name's end asks for. Throws RuntimeError where the file cannot be written.
  void write(const std::string& path) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A profile of what is done in this scope.
[[nodiscard]] inline Profile profile(std::string path = "", Loc loc = Loc::current()) {
  return Profile(std::move(path), loc);
}

}  // namespace sheaf
