// The state of emitting one phase: where each KIR value, axis, local and buffer is in the LLVM function.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/kir/kir.h"
#include "codegen/llvm/scalar_emitter.h"
#include "llvm/IR/Function.h"

namespace sheaf::codegen {

class PhaseEmitter {
 public:
  PhaseEmitter(llvm::Function& function, const kir::Kernel& kernel, const kir::Phase& phase, const CpuTarget& target);

  void emit();

  /// Rows and columns of one element of the batch of what follows a contraction, which are loops 1 and 2 of its phase.
  struct Part {
    llvm::Value *batch, *first_row, *end_row, *first_column, *end_column;
    std::int64_t column_step = 1;  // of the first and the end, unless that is the end of all columns
    llvm::Value* sums = nullptr;  // whose (0, 0) would be here; null: they are in the contraction's result
    std::int64_t sum_stride = 0;  // from row to row
    DType sum = DType::f32;
    std::int64_t lane_rows = 0;  // rows come lane by lane, so many of each leaf's lanes; 0: as they are numbered
  };
  void emit_part(const Part& part);

 private:
  using Value = llvm::Value*;

  // What is being emitted: `width` iterations of `axis` at once, of which the first `active` take place. Outside vector
  // loops there is no axis and the width is 1.
  struct Vector {
    kir::AxisId axis = -1;
    int width = 1;
    int active = 1;
    bool is_partial() const { return active < width; }
  };

  // Statements (phase_emitter.cpp).
  void emit(const kir::Block& block);
  void emit(const kir::Let& let);
  void emit(const kir::Assign& assign);
  void emit(const kir::Store& store);
  void emit(const kir::For& loop);
  void emit(const kir::LaneReduce& reduce);
  void emit(const kir::If& branch);
  void emit(const kir::Barrier&);
  void emit_rows(const kir::For& loop, const Part& part);

  Value expression(const kir::Let& let);
  Value expression(const kir::Scalar& scalar, DType dtype);
  Value in_range(const kir::InRange& test);

  // Vector loops (vector_loop.cpp).
  void emit_vector_loop(const kir::For& loop);
  void emit_columns(const kir::For& loop, const Part& part);
  void emit_shorter_vector_loop(const kir::For& loop, int width);
  void emit_whole_vectors(const kir::For& loop, Value end, int width);
  void emit_rest_of_vector(const kir::For& loop, std::int64_t end, int width);
  void begin_vector_loop(const kir::For& loop);
  void emit_lanes(const kir::For& loop, Value first, Vector lanes);
  void hoist(const kir::For& loop);
  bool is_hoistable(const kir::Let& let, const kir::For& loop) const;
  int choose_width(const kir::Block& body) const;
  Value get(kir::LocalId local);
  void set(kir::LocalId local, Value value);
  Value lane_mask() const;  // of a partial vector; null for a full one
  Value operand(kir::ValueId id, int lanes);  // splatted if need be

  // Memory and indices (memory.cpp, index_emitter.cpp).
  Value load(const kir::Load& load, DType dtype);
  Value load_sums(const Part& part, DType dtype);
  Value load_uniform(const kir::Load& load, DType dtype);
  Value load_run(const kir::Load& load, DType dtype, std::int64_t stride);
  Value gather(const kir::Load& load, DType dtype);
  void store_run(const kir::Store& store, DType dtype, std::int64_t stride);
  void scatter(const kir::Store& store, DType dtype);
  Value access_mask(kir::ValueId mask);  // of the lanes that touch memory; null for all
  Value other(const kir::Load& load, DType dtype, int lanes);
  Value reverse(Value vector);
  Value element(kir::BufferId buffer, DType dtype, Value index);
  Value lane_address(kir::BufferId buffer, DType dtype, Value index, Value mask, int lane);
  Value run_start(kir::BufferId buffer, DType dtype, kir::Index index, std::int64_t stride);
  Value run_index(kir::Index index);
  DType dtype_of(kir::BufferId buffer) const;

  bool is_defined(kir::Index index) const;
  bool varies(kir::Index index) const;  // between the lanes of the current vector
  std::optional<std::int64_t> lane_stride(kir::Index index) const;
  bool fits_32_bits(kir::Index index) const;
  Value index_value(const kir::IndexValue& value, DType dtype);
  Value index_value(kir::Index index, int bits);
  Value atom_value(const kir::Atom& atom, int bits);
  Value divide_index(const kir::Atom& atom, int bits);
  Value index_constant(std::int64_t value, int bits) const;
  std::pair<Value, Value> same_lanes(Value a, Value b);

  llvm::Function& function_;
  const kir::Kernel& kernel_;
  const kir::Phase& phase_;
  const CpuTarget& target_;
  llvm::IRBuilder<> b_;
  ScalarEmitter scalar_;

  std::vector<Value> values_;  // by ValueId; null until defined
  std::vector<Value> axes_;  // by AxisId, i64; of the vector axis: the first lane's
  std::vector<Value> locals_;  // by LocalId: stack slots, promoted afterwards
  std::vector<Value> buffers_;  // by BufferId: pointers
  Value masked_out_ = nullptr;  // where a masked-off scalar access goes
  Vector vector_;
  const Part* part_ = nullptr;  // null: all of the phase
  Value part_row_ = nullptr;  // as the part counts them
  // In a vector loop: the address of each run of elements at axis = 0, computed before the loop.
  std::map<std::pair<kir::BufferId, kir::Index>, Value> run_bases_;
};

}  // namespace sheaf::codegen
