// How the threads of a GPU share out a phase: a thread, a warp or a block for each unit, who of them runs which
// iterations of a vector loop, and therefore what one of them may touch that another wrote. Invariant: a buffer that is
// not `is_communicated` needs no barrier, and scratch in registers is only ever touched by the thread that holds it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/kir/kir.h"

namespace sheaf::codegen {

inline constexpr int kWarp = 32;
inline constexpr int kBlockThreads = 256;
/// Of the 48 KiB that a block has without asking for more; the rest is for the lanes of reductions.
inline constexpr std::int64_t kSharedScratch = 40 * 1024;

class Team {
 public:
  enum class Place : std::uint8_t { registers, shared, global };

  Team(const kir::Kernel& kernel, const kir::Phase& phase);

  int threads = 1;  // that run a unit together: one, a warp, or a block
  int units = 1;  // of a block
  std::vector<Place> places;  // by scratch
  std::vector<bool> is_communicated;  // by buffer
  std::vector<int> widths;  // by axis: how many neighbouring iterations of a vector loop a thread takes

  int block_threads() const { return threads * units; }
  bool uses_global_scratch() const;
  std::int64_t blocks() const { return (phase_.axes[0].extent + units - 1) / units; }
  /// Iteration i of a vector loop belongs to thread i / width mod threads.
  int width(const kir::For& loop) const { return widths[loop.axis]; }

  /// The most neighbouring iterations, up to `most`, for which everything that lies in runs is moved at once.
  int run_width(const kir::For& loop, int most);
  /// Whether each `width` iterations of a vector loop meet as many neighbours in memory, of which the first lies at a
  /// multiple of their size.
  bool lies_in_runs(kir::BufferId buffer, kir::Index index, const kir::For& loop, int width);
  /// Whether a value that the loop's body defines is the same for each `width` iterations.
  bool is_uniform(kir::ValueId value, const kir::For& loop, int width);
  /// Of what lies in registers: which of the thread's own elements `index` is, in terms of the round of the loop.
  kir::Index own_element(kir::Index index, kir::AxisId vector_axis);
  /// The axis that counts the rounds of a vector loop in the result of `own_element`.
  kir::AxisId round_axis(kir::AxisId vector_axis) const { return split_axis(vector_axis, 0); }
  kir::IndexPool& indices() { return indices_; }

 private:
  struct Traffic {
    bool is_loaded = false, is_stored = false;
    bool is_private = true;  // only in vector loops, each element always by the same thread
    int width = 0;  // of those loops
  };
  /// Axes that a vector loop splits into: this one counts groups of iterations, the next one those within a group. An
  /// axis keeps the extent of its first use, so each width has its own.
  kir::AxisId split_axis(kir::AxisId vector_axis, int width) const {
    return first_axis_ + 64 * vector_axis + 2 * width;
  }
  void find_definitions(const kir::Block& block, kir::AxisId vector_axis);
  void choose_widths(const kir::Block& block);
  int width_of(const kir::For& loop);
  bool meets_in_banks(kir::BufferId buffer, kir::Index index, const kir::For& loop, int width, int elements) const;
  void scan(const kir::Block& block, kir::AxisId vector_axis);
  void touch(kir::BufferId buffer, kir::Index index, kir::AxisId vector_axis);
  void place_scratch();
  kir::Index in_groups(kir::Index index, const kir::For& loop, int width);
  bool has_uniform_values(kir::Index index, const kir::For& loop, int width);
  bool is_uniform(kir::Index index, const kir::For& loop, int width);
  int element_alignment(kir::BufferId buffer) const;
  int element_bytes(kir::BufferId buffer) const;

  const kir::Kernel& kernel_;
  const kir::Phase& phase_;
  kir::IndexPool indices_;
  kir::AxisId first_axis_;  // beyond the phase's own
  std::vector<kir::AxisId> defined_in_;  // by value: the vector loop, or -1
  std::vector<const kir::Expr*> definitions_;  // by value; null: of a lane reduction
  absl::flat_hash_map<std::pair<kir::ValueId, int>, bool> uniform_;  // by value and width
  std::vector<Traffic> traffic_;
};

/// The first, of a block that has one.
const kir::For& vector_loop_of(const kir::Block& block);

/// Whether any statement of the block, however deep, is a T for which `holds`.
template <class T, class F>
bool any_of(const kir::Block& block, F holds) {
  for (const kir::Stmt& s : block) {
    if (const auto* found = std::get_if<T>(&s); found && holds(*found)) return true;
    if (const auto* loop = std::get_if<kir::For>(&s); loop && any_of<T>(loop->body, holds)) return true;
    if (const auto* branch = std::get_if<kir::If>(&s); branch && any_of<T>(branch->then, holds)) return true;
  }
  return false;
}

/// Whether the block loads or stores a buffer for which `holds`.
template <class F>
bool touches(const kir::Block& block, F holds) {
  return any_of<kir::Store>(block, [&](const kir::Store& s) { return holds(s.buffer); }) ||
         any_of<kir::Let>(block, [&](const kir::Let& s) {
           const auto* load = std::get_if<kir::Load>(&s.expr);
           return load && holds(load->buffer);
         });
}

}  // namespace sheaf::codegen
