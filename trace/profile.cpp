// A Profile is a window on the process's log: it knows when it began, and takes what ended since. SHEAF_PROFILE is one
// that begins before main, and what the process leaves open when it exits is written then.
#include "sheaf/profile.h"

#include <absl/cleanup/cleanup.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>

#include "ir/log.h"
#include "ir/profile.h"
#include "runtime/device_span.h"
#include "sheaf/device.h"
#include "sheaf/error.h"
#include "trace/profile_of_process.h"
#include "trace/profile_text.h"
#include "trace/text_file.h"

namespace sheaf {
namespace {

constexpr double kUsPerNs = 1e-3;

/// What had begun before the profile begins with it.
ProfileEvent event_of(const ir::ProfileSpan& span, const std::vector<ir::ProfileRow>& rows, std::int64_t begin_ns) {
  const ir::ProfileRow& row = rows[static_cast<std::size_t>(span.row)];
  const std::int64_t from_ns = std::max(span.begin_ns, begin_ns);
  return {.kind = std::string(ir::name(span.activity)),
          .row = fmt::format("{} {}", row.of, row.name),
          .name = *span.name,
          .loc = span.loc,
          .begin_us = static_cast<double>(from_ns - begin_ns) * kUsPerNs,
          .us = static_cast<double>(span.end_ns - from_ns) * kUsPerNs,
          .bytes = span.work.bytes,
          .flops = span.work.flops,
          .call = span.call};
}

ProfileData data_since(std::int64_t begin_ns) {
  const ir::ProfileLog log = ir::profile_since(begin_ns);
  ProfileData data{.events = {}, .left_out = log.left_out};
  for (auto span = log.spans.rbegin(); span != log.spans.rend(); ++span)  // what is around another ends last
    data.events.push_back(event_of(*span, log.rows, begin_ns));
  std::ranges::stable_sort(data.events, {}, [](const ProfileEvent& e) { return std::pair(e.begin_us, -e.us); });
  return data;
}

std::string text_for(const std::string& path, const ProfileData& data) {
  if (path.ends_with(".folded")) return folded_text(data);
  return path.ends_with(".txt") ? table_text(data) : trace_text(data);
}

std::string with_process_number(std::string path) {
  for (std::size_t at = 0; (at = path.find("%p", at)) != path.npos;) path.replace(at, 2, std::to_string(getpid()));
  return path;
}

}  // namespace

struct Profile::State {
  std::string path;
  Loc loc;
  pid_t process = getpid();
  std::int64_t begin_ns = ir::profile_clock_ns();
  std::optional<ProfileData> stopped = {};
  struct Open;

  /// A forked child has none: what it holds is its parent's.
  bool is_of_this_process() const { return process == getpid(); }
  ProfileData data() const {
    if (stopped) return *stopped;
    return is_of_this_process() ? data_since(begin_ns) : ProfileData();
  }
  /// Empty, or why it could not be.
  std::string write(const std::string& to) const {
    const std::string file = with_process_number(to);
    const std::string why = why_not_written(file, text_for(file, data()));
    return why.empty() ? "" : fmt::format("{}: {}", loc ? "profile" : "SHEAF_PROFILE", why);
  }
};

/// Those with a file that have not ended; when the process exits they are written as they are.
struct Profile::State::Open {
  std::mutex mutex;
  std::vector<const State*> states;  // guarded by it

  /// Never destroyed: so may they.
  static Open& of_process() {
    static Open* const open = [] {
      std::atexit(write_all);
      return new Open;
    }();
    return *open;
  }
  void add(const State* state) {
    const std::lock_guard lock(mutex);
    states.push_back(state);
  }
  void remove(const State* state) {
    const std::lock_guard lock(mutex);
    std::erase(states, state);
  }
  /// What GPUs did is in the log by then: their work was waited for before the driver ended.
  static void write_all() {
    const std::lock_guard lock(of_process().mutex);
    for (const State* state : of_process().states) {
      if (!state->is_of_this_process()) continue;
      if (const std::string why = state->write(state->path); !why.empty()) ir::warn(why);
    }
  }
};

Profile::Profile(std::string path, Loc loc) : state_(new State{.path = std::move(path), .loc = loc}) {
  ir::begin_profile();
  if (!state_->path.empty()) State::Open::of_process().add(state_.get());
}

Profile::Profile(Profile&&) noexcept = default;

Profile::~Profile() {
  if (!state_) return;
  State::Open::of_process().remove(state_.get());
  if (!state_->is_of_this_process()) return;
  try {
    stop();
    if (!state_->path.empty()) write(state_->path);
  } catch (const std::exception& error) { ir::warn(error.what()); }
}

void Profile::stop() {
  if (state_->stopped) return;
  state_->stopped.emplace();
  if (!state_->is_of_this_process()) return;
  const absl::Cleanup end = ir::end_profile;
  synchronize(state_->loc);
  runtime::settle_device_spans();
  state_->stopped = data_since(state_->begin_ns);
}

std::vector<ProfileEvent> Profile::events() const { return state_->data().events; }
std::string Profile::trace() const { return trace_text(state_->data()); }
std::string Profile::folded() const { return folded_text(state_->data()); }
std::string Profile::table() const { return table_text(state_->data()); }

void Profile::write(const std::string& path) const {
  if (const std::string why = state_->write(path); !why.empty()) throw RuntimeError(state_->loc, why);
}

bool profile_process() {
  const char* path = std::getenv("SHEAF_PROFILE");
  if (!path || !*path) return false;
  new Profile(path, Loc{});  // never destroyed: what static objects of the user do is in it too
  return true;
}

}  // namespace sheaf
