// An indexing expression, resolved against a shape: which part of each dim is taken, and what the result's dims are.
// Reading and writing through an index share it, so that both agree on every corner of NumPy's rules.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ir/ops/attrs.h"
#include "sheaf/array.h"

namespace sheaf {

struct IndexPlan {
  /// One dim of the indexed array: `count` positions from `start` in steps of `step`, or a list.
  struct Dim {
    std::int64_t start = 0, step = 1, count = 0;
    bool is_position = false;  // one position, no dim of the result
    int list = -1;             // which of `lists`
    bool is_whole = false;
  };
  /// One dim of the result.
  struct Result {
    enum class Kind : std::uint8_t { dim, new_axis, lists } kind;
    int dim = 0;               // of the indexed array
  };

  std::vector<Dim> dims;
  std::vector<Array> lists;    // integer arrays; when there is one, fixed positions are rank-0 lists too
  std::vector<Result> results; // `lists` stands for all broadcast dims of the lists
  std::vector<std::int64_t> key;  // all of the above but the lists, as numbers

  bool is_basic() const { return lists.empty(); }
};

IndexPlan plan_index(std::string_view name, const Array& x, std::span<const Index> index);

/// An index dtype that holds all values of `list` and the positions in a dim of this extent.
DType position_dtype(DType list, std::int64_t extent);
/// Positions in a dim of this extent, of which negative ones count from its end, counted from the front.
Array from_front(const Array& list, std::int64_t extent, DType dtype);

/// What decides how positions out of range are read, for keys.
std::vector<std::int64_t> key_of(const Indexing& options);
/// What the options say of a gather from an array of this dtype; TypeError where the dtype does not hold the fill value.
void set_options(ir::ops::Gather& gather, std::string_view name, const Indexing& options, DType dtype, Loc loc);

/// What the plan reads, as NumPy does.
Array read_index(std::string_view name, const Array& x, const IndexPlan& plan, const Indexing& options, Loc loc);

enum class Write : std::uint8_t { set, add, mul, min, max };
/// x with the indexed places written.
Array write_index(std::string_view name, const Array& x, const IndexPlan& plan, Operand value, Write how,
                  const Indexing& options = {});

}  // namespace sheaf
