// The schedule templates: each turns part of a fusion group into phases of one kernel. Invariant: a node's value is in
// `buffers[node]` only once an earlier phase has stored it, so later phases load it and earlier ones never do.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/kir/build.h"
#include "codegen/kir/group.h"
#include "codegen/kir/reader.h"
#include "ir/ops/attrs.h"

namespace sheaf::kir {

/// How finely a target wants its work cut; times are those of estimate.h.
struct Grain {
  std::int64_t serial_ps;   // a phase of less work is one unit
  std::int64_t unit_ps;     // what a unit should take
  std::int64_t many_rows;   // with this many results, no single reduction needs to be split over units
  int threads = 1;          // of a GPU's block, which share units that are no larger than they have to be; CPU: 1

  bool is_gpu() const { return threads > 1; }
};
/// A CPU thread takes chunks of about 4 us, and the caller alone does what takes less than twice that.
inline constexpr Grain kCpuGrain{8'000'000, 4'000'000, 64};
/// A GPU holds thousands of blocks.
inline constexpr Grain kCudaGrain{0, 0, 2048, 256};

/// A node and the buffer its value goes to.
struct Target {
  int node = -1;
  BufferId buffer = -1;
  int window_of = -1;  // a node whose UpdateSlice says where in the buffer the value lies; -1: it fills the buffer
};

class KernelBuilder {
 public:
  /// Parameters: the group's inputs, its results, then the temporaries as they are added. `in_place[j]` is the input
  /// whose buffer result j shares, or -1.
  KernelBuilder(const Group& group, const std::vector<std::int64_t>& in_place, const Grain& grain);

  const Grain& grain() const { return grain_; }
  const Group& group() const { return group_; }
  BufferId output(int result) const { return group_.num_inputs + result; }
  std::int64_t in_place(int result) const { return in_place_[result]; }
  BufferId temporary(DType dtype, std::int64_t count);
  PhaseBuilder begin_phase(std::int64_t units) const { return PhaseBuilder(kernel_.params, units); }
  /// `threads`: see Phase::threads.
  void end_phase(PhaseBuilder& builder, int threads = 1);
  /// A phase that nothing runs: for its body's index maps and cost.
  static Phase sketch(PhaseBuilder& builder) { return builder.finish(0); }
  Kernel finish(std::string name);

  NodeBuffers buffers;

 private:
  const Group& group_;
  std::vector<std::int64_t> in_place_;
  Grain grain_;
  Kernel kernel_;
  std::vector<int> params_at_phase_;  // how many there were when the phase was built: its scratch ids start there
};

/// Splits `count` items into units of `block` (the last may be short) and opens, inside each unit, a serial loop over
/// its items. Call `units` for begin_phase, then `body(item)` is emitted by `for_each_item`.
struct Blocking {
  std::int64_t count = 1, block = 1;
  std::int64_t units() const { return (count + block - 1) / block; }
};
/// Blocks that take about unit_ps, or one block if everything takes less than serial_ps. On a GPU, one item each.
Blocking choose_blocking(const Grain& grain, std::int64_t count, double item_ps);
void for_each_item(PhaseBuilder& b, const Blocking& blocking, Index unit, const std::string& name,
                   const std::function<void(Index item)>& body);

/// Stores each target, all of the same dims, elementwise. Every operand must be inlinable or in a buffer. `tile`: none,
/// or two of the dims, the outer one first, that are cut into square tiles.
void map_template(KernelBuilder& k, const std::vector<Target>& targets, const std::vector<std::int64_t>& tile = {});
/// Each Reduce or ArgReduce into its target, in one pass: their operands have equal dims, and they reduce the same ones.
void reduce_template(KernelBuilder& k, const std::vector<Target>& targets);
/// One Recurrence into the target.
void recurrence_template(KernelBuilder& k, Target target);
void sort_template(KernelBuilder& k, const std::vector<Target>& targets);
void scatter_template(KernelBuilder& k, Target target, bool is_in_place);
/// An UpdateSlice of an input.
void update_template(KernelBuilder& k, Target target, bool is_in_place);
/// All of the group at once, a row of the trailing reduced dims at a time.
void row_template(KernelBuilder& k, const std::vector<Target>& results);

/// The whole group by the template that `plan.schedule` names; InternalError where the group does not have its form.
/// Of the plan's attributes, `offsets` are not read. Contractions are contract.h's.
Kernel build_kernel(const Group& group, const ir::ops::Kernel& plan, const Grain& grain = kCpuGrain);

}  // namespace sheaf::kir
