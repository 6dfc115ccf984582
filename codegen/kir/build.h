// Builds phases. Every pure value lands in the outermost block where its operands exist, once: value numbering and
// loop-invariant code motion happen here, so what templates write plainly is what a careful hand would have written.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/kir/kir.h"

namespace sheaf::kir {

class PhaseBuilder {
 public:
  /// `params` are the kernel's so far; loads from those that are only read may move out of loops.
  PhaseBuilder(std::span<const Param> params, std::int64_t units);

  IndexPool& indices() { return phase_.indices; }
  Index unit() { return axis(0); }
  Index axis(AxisId id) { return indices().axis(id, phase_.axes[id].extent); }

  /// Opens a loop; its body is what follows up to the matching `end`. extent >= 1.
  AxisId begin_for(std::string name, std::int64_t extent, LoopKind kind, int width = 0);
  /// Of fewer steps in some units.
  AxisId begin_part(std::string name, std::int64_t extent, LoopKind kind, const Rest& rest);
  /// A serial loop that also ends before step `limit` (i64).
  AxisId begin_limited(std::string name, std::int64_t extent, ValueId limit);
  void begin_if(ValueId condition);
  void end();
  void barrier();

  LocalId local(DType dtype, int lanes = 1);
  /// Scratch space of this phase, a buffer like any other.
  BufferId scratch(DType dtype, std::int64_t count, Scratch::Space space = Scratch::Space::thread);

  ValueId constant(DType dtype, std::uint64_t bits);
  ValueId constant_value(DType dtype, double value);
  /// An op other than convert and bitcast; folded when all operands are constants.
  ValueId op(ir::ScalarOp op, ValueId a, ValueId b = -1, ValueId c = -1);
  ValueId convert(ValueId a, DType to);
  ValueId bitcast(ValueId a, DType to);
  ValueId call(const ir::ScalarFn& fn, std::span<const ValueId> args);
  ValueId index_value(Index index, DType dtype = DType::i64);
  /// lo <= index < hi; a constant where the range of the index decides it.
  ValueId in_range(Index index, std::int64_t lo, std::int64_t hi);
  ValueId both(ValueId a, ValueId b);  // and; -1 stands for true
  /// The index that `value` (of any integer dtype) holds, known to lie in `range`.
  Index index_of(ValueId value, Range range);

  ValueId load(BufferId buffer, Index index, ValueId mask = -1, ValueId other = -1);
  void store(BufferId buffer, Index index, ValueId value, ValueId mask = -1);
  void update(BufferId buffer, Index index, ir::ScalarOp op, ValueId value, ValueId mask = -1);
  ValueId get(LocalId local);
  void assign(LocalId local, ValueId value);
  std::vector<ValueId> lane_reduce(std::vector<LocalId> locals, std::vector<ir::ScalarFn> combine);

  DType dtype(ValueId value) const { return phase_.values[value]; }
  DType param_dtype(BufferId param) const { return param_dtypes_[param]; }
  bool is_true(ValueId value) const { return value < 0 || constant_bits(value) == std::uint64_t{1}; }
  std::optional<std::uint64_t> constant_bits(ValueId value) const;
  int num_params() const { return static_cast<int>(read_only_.size()); }
  Phase finish(std::int64_t unit_ps);

 private:
  struct Key {
    int kind = 0;
    DType dtype = DType::f32;
    std::array<int, 3> in = {-1, -1, -1};
    std::int64_t a = 0, b = 0;
    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& k) {
      return H::combine(std::move(h), k.kind, static_cast<int>(k.dtype), k.in[0], k.in[1], k.in[2], k.a, k.b);
    }
  };
  struct Level {
    Block block;
    AxisId axis = -1;          // the loop this level is the body of; -1: the phase's own or an If
    LoopKind kind = LoopKind::serial;
    int width = 0;
    ValueId condition = -1;    // of an If
    ValueId limit = -1;        // of a loop
    std::optional<Rest> rest = std::nullopt;
    absl::flat_hash_map<Key, ValueId> known;
  };
  int level_of(Index index) const;
  int level_of_axis(AxisId axis) const;
  int level_of_if() const;     // the innermost If or loop with a limit: a load must not move out of it
  ValueId define(int level, DType dtype, Expr expr);
  ValueId pure(int level, const Key& key, Expr expr);
  ValueId scalar(ir::ScalarOp op, DType in_dtype, DType result, std::array<ValueId, 3> in);

  Phase phase_;
  std::vector<bool> read_only_;      // by parameter
  std::vector<DType> param_dtypes_;
  std::vector<int> value_levels_;
  std::vector<std::optional<std::uint64_t>> constants_;
  std::vector<Level> levels_;
};

}  // namespace sheaf::kir
