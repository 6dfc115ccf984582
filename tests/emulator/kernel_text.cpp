// A scan for `__global__` and the first parenthesis after it that belongs to a name.
#include "tests/emulator/kernel_text.h"

#include <cctype>
#include <cstdlib>

namespace sheaf::emulator {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string_view word_before(std::string_view text, std::size_t at) {
  while (at > 0 && std::isspace(static_cast<unsigned char>(text[at - 1]))) --at;
  std::size_t begin = at;
  while (begin > 0 && is_word(text[begin - 1])) --begin;
  return text.substr(begin, at - begin);
}

}  // namespace

std::vector<TextEntry> entries_of(std::string_view text) {
  constexpr std::string_view kGlobal = "__global__";
  std::vector<TextEntry> entries;
  for (std::size_t at = text.find(kGlobal); at != text.npos; at = text.find(kGlobal, at + 1)) {
    TextEntry entry;
    for (std::size_t open = text.find('(', at); open != text.npos; open = text.find('(', open + 1)) {
      const std::string_view word = word_before(text, open);
      if (word != "__launch_bounds__") {
        entry.name = word;
        break;
      }
      entry.max_threads = std::atoi(text.data() + open + 1);
    }
    if (!entry.name.empty()) entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace sheaf::emulator
