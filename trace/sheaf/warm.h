// No compilation where there must be none: why a function was compiled again, and how a process is warmed up so that
// it compiles nothing more, and says so if it does. docs/warm.md.
#pragma once

#include <functional>
#include <string>
#include <tuple>
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

/// Every program that this process has compiled and will compile goes into the file, beside what is in it; "" ends
/// that. SHEAF_MANIFEST=file does so from the beginning. A file that cannot be written is one warning.
void record_manifest(const std::string& path);

struct WarmProgress {
  int done = 0, of = 0;  // programs
  std::string program = {};  // the last one done: "jit step"
  double seconds = 0;  // since warm began
};
/// "[##########          ] 6/12 jit step, 0.8 s"
std::string to_string(const WarmProgress& p);
/// For WarmOptions::progress: keeps a line of stderr that says how far it is.
std::function<void(const WarmProgress&)> progress_bar();

struct WarmOptions {
  int threads = 0;  // for the passes; kernels compile on the process's. 0: as many as those
  /// Called by the thread that called warm, once for each program.
  std::function<void(const WarmProgress&)> progress = {};
  bool only_compile = false;  // for the disk cache: nothing is loaded, and no device is needed
  std::string target = {};  // with only_compile: "sm_90a", in place of what the manifest says
};

struct WarmReport {
  int programs = 0;  // in the manifest, each once
  int known = 0;  // of those: were compiled in this process before
  int elsewhere = 0;  // of those: only compiled, as no device here is what they are for
  std::int64_t kernels_compiled = 0;
  std::int64_t kernels_read = 0;  // from the disk cache
  double seconds = 0;
};

/// Does for each program of a manifest all that its first call would wait for, but runs nothing: passes, machine code
/// from the disk cache or the compiler, loaded on its devices, graphs of GPUs, memory touched. Afterwards a call whose
/// program is among them is traced, and no more. Throws RuntimeError where the file cannot be read or is damaged,
/// before anything is compiled; and for what cannot be compiled, once everything else is.
WarmReport warm(const std::string& manifest, const WarmOptions& options = {}, Loc loc = Loc::current());

/// The same for calls of the jitted f with arguments of these types (abstract() will do), traced here.
template <class J, class... A>
  requires requires(const J& f) { f.function(); }
void warm(const J& f, const A&... args) {
  f.trace(args...).lower().compile();
}
/// For several signatures.
template <class J, class... A>
  requires requires(const J& f) { f.function(); }
void warm(const J& f, const std::vector<std::tuple<A...>>& signatures) {
  for (const std::tuple<A...>& args : signatures)
    std::apply([&](const A&... a) { f.trace(a...).lower().compile(); }, args);
}

/// From now on whatever would have to be compiled is a RuntimeError that names the function, the line of the call and
/// what is new in it. Tracing is none. What programs there are already still interpret is compiled first.
void require_warm(bool on, Loc loc = Loc::current());

}  // namespace sheaf
