// The topics are read from the environment once; lines are written with one call each, so threads do not mix them.
#include "ir/log.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace sheaf::ir {
namespace {

constexpr std::array<std::string_view, 4> kTopics = {"passes", "compile", "cache", "runtime"};

struct Sink {
  std::mutex mutex;
  LogSink sink;
};

/// Never destroyed: static objects of the user may log from their destructors.
Sink& sink() {
  static Sink* const sink = new Sink;
  return *sink;
}

void write_line(std::string line) {
  std::lock_guard lock(sink().mutex);
  if (sink().sink) {
    sink().sink(line);
    return;
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::uint32_t topics_of(std::string_view text) {
  std::uint32_t topics = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word == "all") return ~0u;
    bool is_known = word.empty();
    for (std::size_t i = 0; i < kTopics.size(); ++i) {
      if (word != kTopics[i]) continue;
      topics |= 1u << i;
      is_known = true;
    }
    if (!is_known)
      warn(fmt::format("SHEAF_LOG: unknown topic '{}'; there are all, {}", word, fmt::join(kTopics, ", ")));
  }
  return topics;
}

}  // namespace

bool is_logged(LogTopic topic) {
  static const std::uint32_t topics = [] {
    const char* text = std::getenv("SHEAF_LOG");
    return text ? topics_of(text) : 0u;
  }();
  return (topics >> static_cast<unsigned>(topic)) & 1u;
}

void write_log(LogTopic topic, std::string_view text) {
  write_line(fmt::format("sheaf {}: {}", kTopics[static_cast<std::size_t>(topic)], text));
}

void warn(std::string_view text) { write_line(fmt::format("sheaf warning: {}", text)); }

LogSink set_log_sink(LogSink replacement) {
  std::lock_guard lock(sink().mutex);
  return std::exchange(sink().sink, std::move(replacement));
}

}  // namespace sheaf::ir
