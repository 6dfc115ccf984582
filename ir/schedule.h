// The templates a kernel may be built by: what the plan chooses from for each fusion group, and what code generation
// obeys. Invariant: a kernel whose schedule passes `check_schedule` holds nothing the template has no place for.
#pragma once

#include <absl/status/statusor.h>

#include "ir/attrs.h"
#include "ir/graph.h"

namespace sheaf::ir {

/// map: one nest over the results' dims, everything computed where it is read. tile_transpose: the same, in square
/// tiles of two dims. row: a row of the trailing dims at a time through all reductions over them, and into columns'.
/// reduce: one reduction after the other, then a map. update: a window of the operand, after a copy of it unless the
/// result takes its place. sort, scatter, recurrence, contract, attention: that op. host: a loop or branch, which the
/// host runs around the kernels of its regions, or a call of a library. none: not chosen yet.
enum class Schedule : std::uint8_t {
  none,
  map,
  tile_transpose,
  row,
  reduce,
  update,
  sort,
  scatter,
  recurrence,
  contract,
  attention,
  host
};
inline constexpr std::string_view kScheduleWords[] = {"none",       "map",      "tile_transpose", "row",
                                                      "reduce",     "update",   "sort",           "scatter",
                                                      "recurrence", "contract", "attention",      "host"};
template <>
inline constexpr std::span<const std::string_view> enum_words<Schedule> = kScheduleWords;

/// Reductions of at most this many elements are no nest: whoever reads one reads all its elements.
inline constexpr std::int64_t kShortReduction = 16;
/// A longer row leaves the second-level cache between its passes, and its scratch grows too large for a thread.
inline constexpr std::int64_t kLongestRow = 1 << 18;

/// What of a kernel's body needs a loop nest of its own.
enum class Nest : std::uint8_t { none, reduction, sort, scatter, recurrence, contract, attention, host };
Nest nest_of(const Eqn& e);
/// A view whose elements lie in its operand by one step per dim.
bool is_strided_view(const Eqn& e);
/// v is sliding windows, perhaps seen through other views. What they meet in a contraction is read again and again.
bool is_sliding(Value v);

/// The loop, branch or library call of a body with schedule=host; its operands are parameters of the body.
const Eqn& host_step(const Function& body);

/// The form of a row kernel: its nests reduce operands of equal dims over the same last dims, or all before (columns).
struct Rows {
  std::int64_t count = 1, length = 1;
};
absl::StatusOr<Rows> rows_of(const Function& body);

/// The parameter of a kernel's body that result j is a changed copy of (by an update or a scatter), if nothing else in
/// it reads that: such a result can take its place. -1 if there is none.
int changed_param(const Function& body, int j);

namespace ops {
struct Kernel;
}

/// OK if a kernel of this schedule can compute `body`; InvalidArgument with the reason otherwise.
absl::Status check_schedule(const ops::Kernel& kernel, const Function& body);

}  // namespace sheaf::ir
