// Printing and parsing of single attribute values. Invariant: what is printed parses to an equal value.
#include "ir/attrs.h"

#include <fmt/format.h>

#include <cmath>

namespace sheaf::ir::attr_text {

std::string quote(std::string_view s) {
  std::string q = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') q += '\\';
    q += c;
  }
  return q + "\"";
}

std::string print_double(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  std::string s = fmt::format("{}", v);
  return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
}

absl::Status bad(std::string_view field, const AttrText& text, std::string_view wanted) {
  return absl::InvalidArgumentError(fmt::format("attribute '{}' must be {}, not {}", field, wanted,
                                                text.is_list ? std::string("a list") : "'" + text.word + "'"));
}

absl::Status parse_ints(std::string_view field, const AttrText& text, std::vector<std::int64_t>& out) {
  if (!text.is_list) return bad(field, text, "a list of integers");
  out.clear();
  for (const AttrText& item : text.items) {
    std::int64_t v = 0;
    const char* end = item.word.data() + item.word.size();
    auto [p, ec] = std::from_chars(item.word.data(), end, v);
    if (item.is_list || ec != std::errc() || p != end) return bad(field, item, "a list of integers");
    out.push_back(v);
  }
  return absl::OkStatus();
}

std::string one_of(std::span<const std::string_view> words) { return fmt::format("one of {}", fmt::join(words, ", ")); }

}  // namespace sheaf::ir::attr_text
