// Collectives over named axes: what one example of a batch, or one device of a mesh, can know of the others.
//   vmap([](Array x) { return x - pmean(x, "batch"); }, {.axis_name = "batch"})
//   shard_map([](Array x) { return psum(sum(x), "data"); }, {.mesh = mesh, .in = {P("data")}, .out = {P()}})
// An axis is that of an enclosing vmap, shard_map, pmap or xmap, names are found innermost first, and several axes are
// gone over as one, the first major; all throw TypeError for an axis that is not there, or that is named twice.
// Along each axis of a mesh a value varies, or is the same on all, or is a sum yet to be taken (sheaf/along.h), and
// collectives go from one to another: psum gives what is the same on all. Its cotangent is one value too, so that each
// sum of a derivative is taken once.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sheaf/along.h"
#include "sheaf/ops.h"

namespace sheaf {

/// One axis, or several, major to minor.
struct AxisNames {
  AxisNames(const char* name) : names{name} {}  // NOLINT
  AxisNames(std::string name) : names{std::move(name)} {}  // NOLINT
  AxisNames(std::initializer_list<std::string> list) : names(list) {}
  AxisNames(std::vector<std::string> list) : names(std::move(list)) {}  // NOLINT
  std::vector<std::string> names;
};

/// Sum, mean, largest and smallest over all; the same for each. x: T[..] -> T[..]; bools are counted, as i32. Extremes
/// share their cotangent among those that attain them.
Array psum(Operand x, const AxisNames& axes);
Array pmean(Operand x, const AxisNames& axes);
Array pmax(Operand x, const AxisNames& axes);
Array pmin(Operand x, const AxisNames& axes);

/// `tiled`: joined along `dim` instead of stacked along a new one. `to`: what the result is along the axes of a mesh.
/// Of an invarying one the transpose is a pscatter; of a reduced one the scattered sum of an unreduced cotangent.
struct AllGather {
  int dim = 0;
  bool tiled = false;
  Along to = Along::varying;
};
/// All values. x: T[.., n, ..] -> T[.., size, n, ..], or T[.., size * n, ..] if tiled.
Array all_gather(Operand x, const AxisNames& axes, int dim = 0);
Array all_gather(Operand x, const AxisNames& axes, const AllGather& options);

/// A collective that has begun: what is computed before its result is taken may run meanwhile. Values are those of the
/// collective that waits.
class Started {
 public:
  explicit Started(Array result) : result_(std::move(result)) {}
  const Array& result() const { return result_; }

 private:
  Array result_;
};
Started all_gather_start(Operand x, const AxisNames& axes, const AllGather& options = {});

/// The sum, of which each keeps its row of `dim`, whose extent must be the axes' size, or its block (tiled), which it
/// must divide.
struct PsumScatter {
  int dim = 0;
  bool tiled = false;
};
Array psum_scatter(Operand x, const AxisNames& axes, const PsumScatter& options = {});

/// The one at `second` gets the value of that at `first`; zeros where nobody sends. Throws ShapeError where an index is
/// out of range, or gives or gets twice.
Array ppermute(Operand x, const AxisNames& axes, const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs);

/// Row i along dim `split`, whose extent must be the axes' size, goes to i; what each gets is stacked along `concat`.
/// tiled: blocks of `split` go, and are joined along `concat`.
struct AllToAll {
  int split = 0;
  int concat = 0;
  bool tiled = false;
};
Array all_to_all(Operand x, const AxisNames& axes, int split, int concat);
Array all_to_all(Operand x, const AxisNames& axes, const AllToAll& options);

/// The own position along the axes: i32[].
Array axis_index(const AxisNames& axes, Loc loc = Loc::current());
/// How many there are.
std::int64_t axis_size(const AxisNames& axes, Loc loc = Loc::current());

/// Of what is the same on all devices of a mesh, the own row of `dim`, whose extent must be the axes' size, or the own
/// block (tiled), which it must divide. Its transpose is the all_gather to invarying.
struct Pscatter {
  int dim = 0;
  bool tiled = false;
};
Array pscatter(Operand x, const AxisNames& axes, const Pscatter& options = {});

/// x as another kind of value along these axes of a mesh (sheaf/along.h); nothing is sent. Casts to varying and from
/// invarying to reduced are done without being asked for where an op needs them; loops are told by one that a carry
/// will be of that kind. Throws ShardingError where x cannot be cast: only what varies can become unreduced.
struct Pcast {
  Along to = Along::varying;
};
Array pcast(Operand x, const AxisNames& axes, const Pcast& options = {});

namespace detail {
/// All values along the axes, each the same on all.
std::vector<Array> gathered_rows(const Operand& x, const AxisNames& axes);
}  // namespace detail

/// The values of all, combined by an associative `op(Array, Array)` in a tree of fixed shape, the same for each.
///   preduce(x, "i", [](Array a, Array b) { return maximum(abs(a), abs(b)); })
template <class Op>
Array preduce(Operand x, const AxisNames& axes, Op op) {
  std::vector<Array> rows = detail::gathered_rows(x, axes);
  while (rows.size() > 1) {
    std::vector<Array> halves;
    for (std::size_t i = 0; i + 1 < rows.size(); i += 2) halves.push_back(op(rows[i], rows[i + 1]));
    if (rows.size() % 2 == 1) halves.push_back(rows.back());
    rows = std::move(halves);
  }
  return rows[0];
}

}  // namespace sheaf
