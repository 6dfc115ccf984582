// A Profile is a window on the process's log: it knows when it began, and takes what ended since.
#include "sheaf/profile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>

#include "ir/log.h"
#include "ir/profile.h"
#include "runtime/device_span.h"
#include "sheaf/device.h"
#include "sheaf/error.h"
#include "trace/profile_of_process.h"
#include "trace/profile_text.h"

namespace sheaf {
namespace {

constexpr double kUsPerNs = 1e-3;

ProfileEvent event_of(const ir::ProfileSpan& span, const std::vector<ir::ProfileRow>& rows, std::int64_t begin_ns) {
  const ir::ProfileRow& row = rows[static_cast<std::size_t>(span.row)];
  return {.kind = std::string(ir::name(span.activity)),
          .row = fmt::format("{} {}", row.of, row.name),
          .name = *span.name,
          .loc = span.loc,
          .begin_us = static_cast<double>(span.begin_ns - begin_ns) * kUsPerNs,
          .us = static_cast<double>(span.end_ns - span.begin_ns) * kUsPerNs,
          .bytes = span.work.bytes,
          .flops = span.work.flops,
          .call = span.call};
}

ProfileData data_since(std::int64_t begin_ns) {
  const ir::ProfileLog log = ir::profile_since(begin_ns);
  ProfileData data{.events = {}, .left_out = log.left_out};
  for (const ir::ProfileSpan& span : log.spans) data.events.push_back(event_of(span, log.rows, begin_ns));
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

/// False where it cannot be written.
bool write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  return static_cast<bool>(file.flush());
}

}  // namespace

struct Profile::State {
  std::string path;
  Loc loc;
  std::int64_t begin_ns = ir::profile_clock_ns();
  std::optional<ProfileData> stopped = {};

  ProfileData data() const { return stopped ? *stopped : data_since(begin_ns); }
};

Profile::Profile(std::string path, Loc loc) : state_(new State{.path = std::move(path), .loc = loc}) {
  ir::begin_profile();
}

Profile::Profile(Profile&&) noexcept = default;

Profile::~Profile() {
  if (!state_) return;
  try {
    stop();
    if (!state_->path.empty()) write(state_->path);
  } catch (const std::exception& error) { ir::warn(error.what()); }
}

void Profile::stop() {
  if (state_->stopped) return;
  try {
    synchronize();
    runtime::settle_device_spans();
  } catch (...) {
    state_->stopped = data_since(state_->begin_ns);
    ir::end_profile();
    throw;
  }
  state_->stopped = data_since(state_->begin_ns);
  ir::end_profile();
}

std::vector<ProfileEvent> Profile::events() const { return state_->data().events; }
std::string Profile::trace() const { return trace_text(state_->data()); }
std::string Profile::folded() const { return folded_text(state_->data()); }
std::string Profile::table() const { return table_text(state_->data()); }

void Profile::write(const std::string& path) const {
  const std::string file = with_process_number(path);
  if (!write_text(file, text_for(file, state_->data())))
    throw RuntimeError(state_->loc, fmt::format("profile: {} cannot be written", file));
}

// ---- SHEAF_PROFILE ----

namespace {

/// Never destroyed: what static objects of the user do is in it too.
struct OfProcess {
  std::string path;
  pid_t process = getpid();
  std::int64_t begin_ns = ir::profile_clock_ns();
};

OfProcess* of_process = nullptr;

/// What GPUs did is in the log by now: their work was waited for before the driver ended.
void write_profile_of_process() {
  if (getpid() != of_process->process) return;  // a forked child has none of its own
  const std::string file = with_process_number(of_process->path);
  if (!write_text(file, text_for(file, data_since(of_process->begin_ns))))
    ir::warn(fmt::format("SHEAF_PROFILE: {} cannot be written", file));
}

}  // namespace

bool profile_process() {
  const char* path = std::getenv("SHEAF_PROFILE");
  if (!path || !*path) return false;
  of_process = new OfProcess{.path = path};
  ir::begin_profile();
  std::atexit(write_profile_of_process);
  return true;
}

}  // namespace sheaf
