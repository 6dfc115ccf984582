// What of a program depends on the lengths that it is for, read off its programs for several lengths: these may differ
// in extents that go along with a length (n, n - 1, 2 n, n + m), in constants, and in places that such an extent says.
// Invariant: what two programs differ in is marked, or said to be an error.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ir/graph.h"

namespace sheaf::passes {

/// An extent that goes along with the lengths: each so many times, and a constant.
struct Extent {
  std::vector<std::int64_t> times = {};  // per length
  std::int64_t plus = 0;
  bool operator==(const Extent&) const = default;
  std::int64_t at(const std::vector<std::int64_t>& lengths) const;
};
/// The extents for these lengths.
std::vector<std::int64_t> extents_at(const std::vector<Extent>& extents, const std::vector<std::int64_t>& lengths);

/// What of one function depends on lengths. An extent is known by its number, which for a length is the length's.
struct LengthMarks {
  explicit LengthMarks(const ir::Function& f) : dims(f) {}
  std::vector<Extent> extents = {};  // by number, of the program; its regions have none of their own
  ir::ValueTable<std::vector<int>> dims;  // per dim: the extent it is, or -1; empty: none is one
  // Per equation, per operand, and at last per result: it is a constant that is another one for other lengths. Not of
  // the constant, since two that are equal for some lengths are one there.
  std::vector<std::vector<bool>> constants = {};
  std::vector<int> trips = {};  // per equation: the extent that its number of steps is, or -1
  // Per equation, a slice or a pad: per dim the extent that comes before what it takes or puts there, or -1.
  std::vector<std::vector<int>> starts = {};
  std::vector<std::vector<LengthMarks>> regions = {};  // per equation
};

/// Why two programs cannot be one.
struct LengthError {
  std::string why;  // empty: they can
  Loc loc = {};
};

/// Where a constant is used: the equation and which operand, or the function and which result.
using ConstantUse = std::pair<const void*, std::size_t>;
/// The other program's constants, by where they are used in the program.
using OtherConstants = absl::flat_hash_map<ConstantUse, const ir::Eqn*>;

/// Calls, checkpoints and composite ops without a rule of their own are gone: the form in which programs are compared.
ir::FunctionRef plain_for_lengths(const ir::FunctionRef& f);

/// Adds to the marks of `f`, which is the program for the lengths `own`, what `other`, the program for the lengths
/// `others`, shows to depend on them; both as plain_for_lengths gives them. `may_mark`: dims may become lengths, which
/// then differ in one entry alone; else it is an error where one would have to.
LengthError mark_lengths(const ir::Function& f, const std::vector<std::int64_t>& own, const ir::Function& other,
                         const std::vector<std::int64_t>& others, bool may_mark, LengthMarks& marks,
                         OtherConstants* constants = nullptr);

/// The uses marked, in order, those of the regions too, with the program's own constant.
struct MarkedConstant {
  ConstantUse use;
  const ir::Eqn* constant = nullptr;
};
std::vector<MarkedConstant> marked_constants(const ir::Function& f, const LengthMarks& marks);
/// Whether there are any.
bool has_marked_constants(const LengthMarks& marks);

}  // namespace sheaf::passes
