// Where in the user's program something came from: file and line, nothing more. `Loc::current()` as a default
// argument yields the *caller's* line; operators, which cannot take default arguments, get theirs through
// the implicit constructors of `Operand` (trace/sheaf/array.h).
#pragma once

#include <string>

namespace sheaf {

struct Loc {
  const char* file = nullptr;  // null: unknown. Points into static storage or an interned string.
  int line = 0;

  static constexpr Loc current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  explicit operator bool() const { return file != nullptr; }
  bool operator==(const Loc&) const = default;
};

/// "mlp.cpp:9": the file's last path component and the line; "<unknown>" when there is none.
std::string to_string(Loc loc);

}  // namespace sheaf
