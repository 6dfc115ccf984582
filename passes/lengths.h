// What of a program depends on the lengths that it is for, read off its programs for several lengths: these may differ
// in extents that are a length, in constants, and in slices that are taken from the end. Invariant: what two programs
// differ in is marked, or said to be an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ir/graph.h"

namespace sheaf::passes {

/// What of one function depends on lengths, each of which is known by a small number.
struct LengthMarks {
  explicit LengthMarks(const ir::Function& f) : dims(f) {}
  ir::ValueTable<std::vector<int>> dims;  // per dim: the length it is, or -1; empty: none is one
  std::vector<bool> literals = {};  // per equation: a constant that is another one for other lengths
  std::vector<int> trips = {};  // per equation: the length that its number of steps is, or -1
  std::vector<std::vector<int>> from_end = {};  // per equation, a slice: per dim the length that it ends with, or -1
  std::vector<std::vector<LengthMarks>> regions = {};  // per equation
};

/// Why two programs cannot be one.
struct LengthError {
  std::string why;  // empty: they can
  Loc loc = {};
};

/// The other program's constants, by those of the program that they take the place of.
using OtherConstants = absl::flat_hash_map<const ir::Eqn*, const ir::Eqn*>;

/// Calls, checkpoints and composite ops without a rule of their own are gone: the form in which programs are compared.
ir::FunctionRef plain_for_lengths(const ir::FunctionRef& f);

/// Adds to the marks of `f`, which is the program for the lengths `own`, what `other`, the program for the lengths
/// `others`, shows to depend on them; both as plain_for_lengths gives them. `may_mark`: dims may become lengths, which
/// then differ in one entry alone; else it is an error where one would have to.
LengthError mark_lengths(const ir::Function& f, const std::vector<std::int64_t>& own, const ir::Function& other,
                         const std::vector<std::int64_t>& others, bool may_mark, LengthMarks& marks,
                         OtherConstants* constants = nullptr);

/// The constants marked, in order, those of the regions too.
std::vector<const ir::Eqn*> marked_literals(const ir::Function& f, const LengthMarks& marks);

}  // namespace sheaf::passes
