// The text of the error that a line of a test throws, with "HERE" for every line of the test's file.
#pragma once

#include <doctest/doctest.h>

#include <cctype>
#include <functional>
#include <string>

#include "sheaf/sheaf.h"

namespace sheaf::tests {

template <class E>
std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) {
    std::string text = e.what();
    const std::string suffix = "_test.cpp:";
    for (std::size_t at = text.find(suffix); at != std::string::npos; at = text.find(suffix)) {
      std::size_t begin = at, end = at + suffix.size();
      while (begin > 0 && (std::isalnum(static_cast<unsigned char>(text[begin - 1])) || text[begin - 1] == '_'))
        --begin;
      while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
      text.replace(begin, end - begin, "HERE");
    }
    return text;
  }
  return "nothing was thrown";
}

}  // namespace sheaf::tests
