// What jit knows of one signature, handed out whole: the source of ahead-of-time compilation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sheaf/aot.h"
#include "trace/runnable.h"
#include "trace/trace_call.h"

namespace sheaf {

/// The kernels of a program, as they are shown to users.
std::vector<aot::Kernel> shown_kernels(const runtime::Executable& e, Loc loc);

/// `aot::detail` is the public header's name for its internals.
struct aot::detail::Program {
  std::string what;  // "jit step"
  Loc loc;           // of the jit
  std::vector<LeafType> types;
  std::vector<sheaf::detail::Argument> arguments;
  std::string statics;
  sheaf::Traced traced;
  std::shared_ptr<const Runnable> runnable;
  std::vector<Array> likes = {};  // what the leaves were, without their values: where they lay counts
  MeshWishes wishes = {};
  // Of a function with buckets: what a call runs in its place, and arrays like those it would be run on.
  std::shared_ptr<const Runnable> bucket = nullptr;
  std::vector<Array> bucket_likes = {};
};

struct aot::detail::Lowering {
  Ptr<Program> program;
  Planned planned;
  // Of the inputs; null: on the first device, because nobody put any of them anywhere.
  std::vector<const Placement*> in;
};

struct aot::detail::Code {
  Ptr<Lowering> lowering;
  CompiledPtr compiled;
};

}  // namespace sheaf
