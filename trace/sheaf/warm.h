// No compilation where there must be none: why a function was compiled again, and how a process is warmed up so that
// it compiles nothing more, and says so if it does. docs/warm.md.
#pragma once

#include <string>
#include <vector>

#include "sheaf/jit.h"

namespace sheaf {

/// One part of what a program is found by, in a call that found none, and in the nearest call before that: {"argument 0
/// .x: dim 1", "8", "9"}.
struct KeyChange {
  std::string field, was, is;
  bool operator==(const KeyChange&) const = default;
};

struct Recompilation {
  Loc called_at = {};
  bool is_traced = true;  // false: only compiled, for arrays that lie elsewhere
  std::vector<KeyChange> changes = {};
};
/// "step.cpp:30: traced again: argument 0 .x: dim 1 was 8 and is 9"
std::string to_string(const Recompilation& r);

namespace detail {
std::vector<Recompilation> recompilations(const JitFunction& f);
}  // namespace detail

/// Every call of the jitted f, but for the first, that had to be traced or compiled, and what was new in it; the last
/// 64. Of a capturing lambda also where an object that the same line made before had done the same.
template <class J>
std::vector<Recompilation> why_recompiled(const J& f) {
  return detail::recompilations(f.function());
}

/// From now on whatever would have to be compiled is a RuntimeError that names the function, the line of the call and
/// what is new in it. Tracing is none. What programs there are already still interpret is compiled first.
void require_warm(bool on, Loc loc = Loc::current());

}  // namespace sheaf
