// What was done when, for as long as somebody wants to know: a log of spans, each on a row of its own, that all of
// Sheaf writes to. Invariant: where nobody wants it a span costs one relaxed load, and the log never holds more than
// kMostSpans.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/cost.h"
#include "sheaf/source.h"

namespace sheaf::ir {

/// The first five are of the host's threads, the others of devices.
enum class Activity : std::uint8_t { call, trace, pass, compile, wait, launch, copy, collective };
std::string_view name(Activity activity);

/// Where spans stand one after the other: a thread of the host, or what a device does of one kind.
struct ProfileRow {
  std::string of;    // "host", "cuda:0"
  std::string name;  // "main", "launch"
};

struct ProfileSpan {
  Activity activity = Activity::call;
  int row = 0;                        // index into ProfileLog::rows
  const std::string* name = nullptr;  // kept for ever
  Loc loc = {};                       // the user's line
  std::int64_t begin_ns = 0, end_ns = 0;  // by profile_clock_ns()
  Work work = {};
  std::uint64_t call = 0;  // the call that it is a part of, or itself; 0: of none
};

struct ProfileLog {
  std::vector<ProfileRow> rows;
  std::vector<ProfileSpan> spans;  // in the order they ended, or were found to have
  std::int64_t left_out = 0;       // for want of room
};

inline constexpr std::size_t kMostSpans = 1'000'000;

inline std::atomic<bool> profile_is_on{false};
inline bool is_profiled() { return profile_is_on.load(std::memory_order_relaxed); }

/// Spans are kept from the first `begin_profile` to the last `end_profile`, and then forgotten.
void begin_profile();
void end_profile();
/// What has ended since.
ProfileLog profile_since(std::int64_t begin_ns);

std::int64_t profile_clock_ns();
/// The row of the calling thread, or of a device's doings of one kind.
int thread_row();
int device_row(const std::string& device, Activity activity);
/// A copy for ever.
const std::string* profile_name(std::string_view name);
void add_span(const ProfileSpan& span);

/// The call that this thread is in; 0: none, or nobody wants to know.
std::uint64_t current_call();

/// From here to the end of its scope, on the thread's row.
class Span {
 public:
  Span(Activity activity, std::string_view name, Loc loc = {}) {
    if (is_profiled()) begin(activity, name, loc);
  }
  ~Span() {
    if (open_) end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void begin(Activity activity, std::string_view name, Loc loc);
  void end();

  struct Open {
    ProfileSpan span;
    std::uint64_t outer = 0;  // the call around this one
  };
  std::optional<Open> open_;
};

}  // namespace sheaf::ir
