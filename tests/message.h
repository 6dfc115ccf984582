// The text of the error that a line of a test throws. Lines of the test's own file can be told as "HERE", or as
// "HERE+n" from a line of the case, so that a case may move in its file.
#pragma once

#include <cctype>
#include <optional>
#include <string>

#include "sheaf/error.h"

namespace sheaf::tests {

template <class E = Error, class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const E& e) { return e.what(); }
  return "nothing was thrown";
}

/// `text` with every "name_test.cpp:line" as "HERE", or as "HERE+n" if it is n lines below `base`.
inline std::string with_here(std::string text, std::optional<int> base) {
  const std::string suffix = "_test.cpp:";
  for (std::size_t at = text.find(suffix); at != std::string::npos; at = text.find(suffix)) {
    std::size_t begin = at, line = at + suffix.size(), end = line;
    while (begin > 0 && (std::isalnum(static_cast<unsigned char>(text[begin - 1])) || text[begin - 1] == '_')) --begin;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    const std::string below = base ? "+" + std::to_string(std::stoi(text.substr(line, end - line)) - *base) : "";
    text.replace(begin, end - begin, "HERE" + below);
  }
  return text;
}

template <class E = Error, class F>
std::string message_here(const F& f) {
  return with_here(message_of<E>(f), {});
}
template <class E = Error, class F>
std::string message_of(const F& f, int base) {
  return with_here(message_of<E>(f), base);
}

}  // namespace sheaf::tests
