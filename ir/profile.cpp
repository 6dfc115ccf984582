// One log under one mutex: who wants to know pays for it. Names and rows stay for ever, as programs and threads' names
// do; spans go with the last who wanted them.
#include "ir/profile.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_set.h"
#include "fmt/format.h"

namespace sheaf::ir {
namespace {

struct Log {
  std::mutex mutex;  // guards what follows
  int wanted = 0;
  ProfileLog now;
  absl::flat_hash_map<std::string, int> device_rows;
  absl::node_hash_set<std::string> names;
  int threads = 0;
};

void keep_out_of_forked_children();

/// Never destroyed: threads may end after main.
Log& log_of_process() {
  static Log* const log = [] {
    keep_out_of_forked_children();
    return new Log;
  }();
  return *log;
}

/// A child has the thread that forked and no other: the log is that thread's while it forks, and then it is empty.
void keep_out_of_forked_children() {
  const auto before = [] { log_of_process().mutex.lock(); };
  const auto in_parent = [] { log_of_process().mutex.unlock(); };
  const auto in_child = [] {
    Log& log = log_of_process();
    profile_is_on.store(false, std::memory_order_relaxed);
    log.wanted = 0;
    log.now.spans.clear();
    log.now.left_out = 0;
    log.mutex.unlock();
  };
  pthread_atfork(before, in_parent, in_child);
}

std::atomic<std::uint64_t> calls{0};
thread_local std::uint64_t call_of_thread = 0;

std::string thread_name(int number) {
  if (getpid() == gettid()) return "main";
  char own[16] = "";
  pthread_getname_np(pthread_self(), own, sizeof own);
  const bool is_named = std::string_view(own).starts_with("sheaf-");  // else it has the program's name
  return is_named ? own : fmt::format("thread {}", number);
}

}  // namespace

std::string_view name(Activity activity) {
  constexpr std::string_view kNames[] = {"call", "trace", "pass", "compile", "wait", "launch", "copy", "collective"};
  return kNames[static_cast<std::size_t>(activity)];
}

void begin_profile() {
  Log& log = log_of_process();
  std::lock_guard lock(log.mutex);
  if (log.wanted++ == 0) profile_is_on.store(true, std::memory_order_relaxed);
}

void end_profile() {
  Log& log = log_of_process();
  std::vector<ProfileSpan> forgotten;  // dies outside the lock
  std::lock_guard lock(log.mutex);
  if (--log.wanted > 0) return;
  profile_is_on.store(false, std::memory_order_relaxed);
  forgotten.swap(log.now.spans);
  log.now.left_out = 0;
}

ProfileLog profile_since(std::int64_t begin_ns) {
  Log& log = log_of_process();
  std::lock_guard lock(log.mutex);
  ProfileLog found{.rows = log.now.rows, .spans = {}, .left_out = log.now.left_out};
  std::ranges::copy_if(log.now.spans, std::back_inserter(found.spans),
                       [&](const ProfileSpan& span) { return span.end_ns >= begin_ns; });
  return found;
}

std::int64_t profile_clock_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

int thread_row() {
  thread_local int row = -1;
  if (row >= 0) return row;
  Log& log = log_of_process();
  std::lock_guard lock(log.mutex);
  row = static_cast<int>(log.now.rows.size());
  log.now.rows.push_back({.of = "host", .name = thread_name(++log.threads)});
  return row;
}

int device_row(const std::string& device, Activity activity) {
  Log& log = log_of_process();
  std::lock_guard lock(log.mutex);
  const std::string key = fmt::format("{} {}", device, name(activity));
  const auto [row, is_new] = log.device_rows.try_emplace(key, static_cast<int>(log.now.rows.size()));
  if (is_new) log.now.rows.push_back({.of = device, .name = std::string(name(activity))});
  return row->second;
}

const std::string* profile_name(std::string_view name) {
  Log& log = log_of_process();
  std::lock_guard lock(log.mutex);
  return &*log.names.insert(std::string(name)).first;
}

void add_span(const ProfileSpan& span) {
  Log& log = log_of_process();
  std::lock_guard lock(log.mutex);
  if (log.wanted == 0) return;  // nobody wants it any more
  if (log.now.spans.size() < kMostSpans) log.now.spans.push_back(span);
  else ++log.now.left_out;
}

std::uint64_t current_call() { return call_of_thread; }

void Span::begin(Activity activity, std::string_view name, Loc loc) {
  const std::uint64_t outer = call_of_thread;
  if (activity == Activity::call) call_of_thread = ++calls;
  open_.emplace(Open{.span = {.activity = activity,
                              .row = thread_row(),
                              .name = profile_name(name),
                              .loc = loc,
                              .begin_ns = profile_clock_ns(),
                              .end_ns = 0,
                              .work = {},
                              .call = call_of_thread},
                     .outer = outer});
}

void Span::end() {
  call_of_thread = open_->outer;
  open_->span.end_ns = profile_clock_ns();
  add_span(open_->span);
}

}  // namespace sheaf::ir
