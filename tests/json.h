// Whether a text is JSON, by its grammar; for the tests of what is written for other programs.
#pragma once

#include <cctype>
#include <string_view>

namespace sheaf::tests {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}
  bool is_json() { return value() && (skip_spaces(), at_ == text_.size()); }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(std::string_view word) {
    skip_spaces();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  bool string() {
    if (!take("\"")) return false;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (static_cast<unsigned char>(text_[at_]) < ' ') return false;
      at_ += text_[at_] == '\\';
    }
    return at_++ < text_.size();
  }
  bool number() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::string_view("+-.eE0123456789").find(text_[at_]) != std::string_view::npos) ++at_;
    return at_ > begin;
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
    if (list("{", "}", [this] { return string() && take(":") && value(); })) return true;
    if (list("[", "]", [this] { return value(); })) return true;
    return string() || take("true") || take("false") || take("null") || number();
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

inline bool is_json(std::string_view text) { return JsonReader(text).is_json(); }

}  // namespace sheaf::tests
