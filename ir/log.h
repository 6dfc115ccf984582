// SHEAF_LOG=compile,runtime (or all) writes what those parts do to stderr, one line each; warnings are always written.
// Invariant: a topic that is off costs one load and formats nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "fmt/format.h"

namespace sheaf::ir {

enum class LogTopic : std::uint8_t { passes, compile, cache, runtime };

bool is_logged(LogTopic topic);
/// Writes "sheaf compile: text".
void write_log(LogTopic topic, std::string_view text);
/// Writes "sheaf warning: text".
void warn(std::string_view text);

template <class... Args>
void log(LogTopic topic, fmt::format_string<Args...> format, Args&&... args) {
  if (is_logged(topic)) write_log(topic, fmt::format(format, std::forward<Args>(args)...));
}

/// Sends all lines to `sink` instead of stderr; null restores stderr. Returns the sink it replaces.
using LogSink = std::function<void(std::string_view line)>;
LogSink set_log_sink(LogSink sink);

}  // namespace sheaf::ir
