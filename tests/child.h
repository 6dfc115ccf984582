// A test case run in a process of its own, for what is read from the environment once.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace sheaf::tests {

/// Everything the hidden case "[name] a program" writes to stderr, with these variables set; it must end well.
inline std::string said_by_child(const std::string& name,
                                 const std::vector<std::pair<std::string, std::string>>& variables) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const std::string only = "-tc=[" + name + "] a program";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    for (const auto& [variable, value] : variables) setenv(variable.c_str(), value.c_str(), 1);
    execl("/proc/self/exe", "sheaf_tests", only.c_str(), "--no-skip", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  return text;
}

}  // namespace sheaf::tests
