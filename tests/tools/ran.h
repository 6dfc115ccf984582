// A command of the shell: what it printed, and how it ended.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace sheaf::tests {

struct Ran {
  int status = 0;
  std::string text;  // stdout and stderr
};

inline Ran ran(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe);
  Ran ran;
  for (int c; (c = std::fgetc(pipe)) != EOF;) ran.text += static_cast<char>(c);
  ran.status = WEXITSTATUS(pclose(pipe));
  return ran;
}

}  // namespace sheaf::tests
