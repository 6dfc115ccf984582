// Why a function is traced or compiled once more: keys as fields with names, compared with the nearest one before.
// Invariant: two keys that differ differ in a field, and every field has a text.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sheaf/precision.h"
#include "sheaf/warm.h"
#include "trace/trace_call.h"

namespace sheaf {

/// What a trace key is made of beside the function.
struct Signature {
  std::vector<LeafType> types;
  std::string statics;
  std::string around;  // surroundings_key()
  const void* cpp_types = nullptr;
  Precision precision = Precision::full;  // of products that do not say theirs
  std::vector<detail::Argument> arguments;
  std::vector<std::string> names;  // the user's of the arguments
};
/// Functions that count as one: lambdas of one type that one line made.
struct FunctionSite {
  detail::Identity identity;
  Loc made_at;
};
/// What distinguishes those: an option's name and value.
using OptionTexts = std::vector<std::pair<std::string, std::string>>;

/// "argument 0 .x: dim 1 was 8 and is 9; argument 1 was 3 and is 4"
std::string to_string(std::span<const KeyChange> changes);

std::vector<KeyChange> changes(const Signature& was, const Signature& is);

/// Notes that the site's function of this number is traced for this. What is new, beside the nearest of what the
/// site's functions were traced for before; nothing for the first. SHEAF_RECOMPILE_WARNING=16 of a site are a warning.
std::vector<KeyChange> note_trace(const std::string& what, const FunctionSite& site, std::int64_t function,
                                  const OptionTexts& options, const Signature& signature);
/// Notes that it is compiled for another layout, which counts for the warning.
void note_compile(const std::string& what, const FunctionSite& site, const std::vector<KeyChange>& changes);

/// The last 64 of a function.
class Recompilations {
 public:
  void add(Recompilation r);
  std::vector<Recompilation> list() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Recompilation> list_;
};

/// For whom a program is compiled, as messages tell it.
struct Asked {
  std::string what;  // "jit step"
  Loc loc = {};  // of the call
  std::vector<KeyChange> changes = {};  // none: the first time
  bool is_loaded = false;  // with all its code from a file: nothing is compiled
  bool is_operation = false;  // outside of any jit
};
std::string why_text(const Asked& asked);

}  // namespace sheaf
