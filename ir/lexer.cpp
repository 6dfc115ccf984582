// Splitting the IR text. A word may hold dots (field paths); a number may carry a sign and an exponent. Invariant:
// every token knows its place in the source, so that every error can point at it.
#include "ir/lexer.h"

#include <fmt/format.h>

#include <cctype>

namespace sheaf::ir {

absl::Status error_at(std::string_view source, std::size_t at, const std::string& what) {
  at = std::min(at, source.size());
  const std::size_t line_begin = source.substr(0, at).rfind('\n') + 1;  // 0 on the first line: npos + 1
  const std::size_t line_end = std::min(source.find('\n', at), source.size());
  std::size_t line = 1;
  for (std::size_t i = 0; i < line_begin; ++i) line += source[i] == '\n';
  const std::size_t column = at - line_begin + 1;
  return absl::InvalidArgumentError(fmt::format("{}:{}: {}\n{}\n{}^", line, column, what,
                                                source.substr(line_begin, line_end - line_begin),
                                                std::string(column - 1, ' ')));
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::size_t end_of_number(std::string_view s, std::size_t i) {
  if (s[i] == '-' || s[i] == '+') ++i;
  while (i < s.size() && (is_word(s[i]) || ((s[i] == '-' || s[i] == '+') && (s[i - 1] == 'e' || s[i - 1] == 'E')))) ++i;
  return i;
}

}  // namespace

absl::StatusOr<std::vector<Token>> tokenize(std::string_view s) {
  std::vector<Token> tokens;
  std::size_t i = 0;
  const auto push = [&](Token::Kind kind, std::size_t begin, std::size_t end) {
    tokens.push_back({kind, std::string(s.substr(begin, end - begin)), begin});
    i = end;
  };
  while (i < s.size()) {
    const char c = s[i];
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
      continue;
    }
    if (c == '/' && i + 1 < s.size() && s[i + 1] == '/') {
      i = std::min(s.find('\n', i), s.size());
      continue;
    }
    if (s.substr(i, 2) == "->") {
      push(Token::Kind::punctuation, i, i + 2);
      continue;
    }
    const bool sign = (c == '-' || c == '+') && i + 1 < s.size() && (is_digit(s[i + 1]) || s.substr(i + 1, 3) == "inf");
    if (is_digit(c) || sign) {
      push(Token::Kind::number, i, end_of_number(s, i));
      continue;
    }
    if (is_word(c) || c == '%') {
      std::size_t end = i + 1;
      while (end < s.size() && is_word(s[end])) ++end;
      push(c == '%' ? Token::Kind::value : Token::Kind::word, i, end);
      continue;
    }
    if (c == '"') {
      std::string text;
      std::size_t j = i + 1;
      for (; j < s.size() && s[j] != '"'; ++j) {
        if (s[j] == '\\' && j + 1 < s.size()) ++j;
        text += s[j];
      }
      if (j >= s.size()) return error_at(s, i, "string without an end");
      tokens.push_back({Token::Kind::string, std::move(text), i});
      i = j + 1;
      continue;
    }
    if (std::string_view("@[](){}<>,:=").find(c) == std::string_view::npos)
      return error_at(s, i, fmt::format("unexpected character '{}'", c));
    push(Token::Kind::punctuation, i, i + 1);
  }
  tokens.push_back({Token::Kind::end, "", s.size()});
  return tokens;
}

}  // namespace sheaf::ir
