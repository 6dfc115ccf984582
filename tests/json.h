// Whether a text is JSON, by its grammar (RFC 8259), to the letter; for the tests of what is written for other
// programs.
#pragma once

#include <cstdint>
#include <string_view>

namespace sheaf::tests {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}
  bool is_json() { return value() && (skip_spaces(), at_ == text_.size()); }

 private:
  unsigned char now() const { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : 0; }
  void skip_spaces() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(std::string_view word) {
    skip_spaces();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  bool digits(std::string_view of = "0123456789", std::size_t at_least = 1) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && of.find(text_[at_]) != std::string_view::npos) ++at_;
    return at_ >= begin + at_least;
  }
  /// Of UTF-8, in its shortest form, and no half of a pair.
  bool character() {
    const std::uint32_t lead = now();
    const int more = lead < 0x80 ? 0 : lead >> 5 == 6 ? 1 : lead >> 4 == 14 ? 2 : lead >> 3 == 30 ? 3 : -1;
    std::uint32_t code = more <= 0 ? lead : lead & (0x3F >> more);
    for (int k = 0; k < more; ++k) {
      ++at_;
      if (now() >> 6 != 2) return false;
      code = code << 6 | (now() & 0x3F);
    }
    ++at_;
    constexpr std::uint32_t kLeast[] = {0x20, 0x80, 0x800, 0x10000};
    return more >= 0 && code >= kLeast[more] && code <= 0x10FFFF && code >> 11 != 0x1B;
  }
  bool escape() {
    ++at_;
    const unsigned char c = now();
    ++at_;
    if (c != 'u') return c != 0 && std::string_view("\"\\/bfnrt").find(static_cast<char>(c)) != std::string_view::npos;
    const std::size_t end = at_ + 4;
    return digits("0123456789abcdefABCDEF", 4) && (at_ = end, true);
  }
  bool string() {
    if (!take("\"")) return false;
    while (at_ < text_.size() && text_[at_] != '"')
      if (!(text_[at_] == '\\' ? escape() : character())) return false;
    return at_++ < text_.size();
  }
  bool number() {
    take("-");
    if (now() == '0') ++at_;
    else if (!digits()) return false;
    if (now() == '.' && (++at_, !digits())) return false;
    if (now() != 'e' && now() != 'E') return true;
    ++at_;
    if (now() == '+' || now() == '-') ++at_;
    return digits();
  }
  template <class Item>
  bool list(std::string_view begin, std::string_view end, Item item) {
    if (!take(begin)) return false;
    if (take(end)) return true;
    do {
      if (!item()) return false;
    } while (take(","));
    return take(end);
  }
  bool value() {
    skip_spaces();
    switch (now()) {
      case '{': return list("{", "}", [this] { return string() && take(":") && value(); });
      case '[': return list("[", "]", [this] { return value(); });
      case '"': return string();
      case 't': return take("true");
      case 'f': return take("false");
      case 'n': return take("null");
      default: return number();
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

inline bool is_json(std::string_view text) { return JsonReader(text).is_json(); }

}  // namespace sheaf::tests
