// What the tests of the cache share: an empty folder, files as they are, and what is said.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "codegen/fingerprint.h"
#include "ir/log.h"
#include "tests/places.h"

namespace sheaf::tests {

/// Empty at the beginning of each case, and the case's own.
inline std::string empty_folder(const std::string& name) {
  const std::string path = SHEAF_BINARY_DIR "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

inline std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string key_of(int i) { return codegen::fingerprint(std::to_string(i)); }

/// Every line that is logged meanwhile.
inline std::vector<std::string> lines_of(const std::function<void()>& f) {
  std::vector<std::string> lines;
  ir::LogSink before = ir::set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  f();
  ir::set_log_sink(before);
  return lines;
}

/// Whether `body` says so in a child process, which is an ordinary user's even if this one is root's.
inline bool holds_for_ordinary_user(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(2);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace sheaf::tests
