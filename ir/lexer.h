// Tokens of the IR text: names, %values, numbers, strings and punctuation, each with its place.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

namespace sheaf::ir {

struct Token {
  enum class Kind { word, value, number, string, punctuation, end } kind = Kind::end;
  std::string text;
  std::size_t at = 0;  // offset in the source
};

/// Whether a word may hold c: letters, digits, `_`, and the dots of field paths.
bool is_word(char c);

/// All tokens, closed by one of kind `end`. Comments (`// ...`) and blanks separate. Error: "line:column: what" and a
/// caret.
absl::StatusOr<std::vector<Token>> tokenize(std::string_view source);

/// InvalidArgument "line:column: what", the source line, and a caret below offset `at`.
absl::Status error_at(std::string_view source, std::size_t at, const std::string& what);

}  // namespace sheaf::ir
