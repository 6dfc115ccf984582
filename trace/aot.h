// What jit knows of one signature, handed out whole: the source of ahead-of-time compilation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sheaf/aot.h"
#include "trace/trace_call.h"

namespace sheaf {

/// `aot::detail` is the public header's name for its internals.
struct aot::detail::Program {
  std::string what;  // "jit step"
  Loc loc;           // of the jit
  std::vector<LeafType> types;
  std::vector<sheaf::detail::Argument> arguments;
  std::string statics;
  sheaf::Traced traced;
  std::vector<bool> donated;  // per parameter; empty: none
  std::vector<bool> result_weak;
};

}  // namespace sheaf
