// A contraction as LLVM IR: loops over blocks, packing, and a register tile, all with the extents and strides of the
// one shape it is for. What may run where is decided by ContractPlan.
#pragma once

#include <string>
#include <vector>

#include "codegen/contract.h"
#include "codegen/llvm/scalar_emitter.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Module.h"

namespace sheaf::codegen {

class ContractEmitter {
 public:
  /// `packed`: the parameter that shared packing fills. `epilogue`: emit_epilogue's, where the plan has one.
  ContractEmitter(llvm::Function& function, const ContractPlan& plan, int packed, const CpuTarget& target,
                  llvm::Function* epilogue = nullptr);

  void emit_packing(const ContractPlan::SharedPacking& packing);  // a phase before the last
  void emit();                     // the last phase

 private:
  using Value = llvm::Value*;
  using Strides = std::vector<std::int64_t>;

  static constexpr std::uint32_t kOffsetBytes = 0x80808080;  // what lhs is moved by: ContractPlan::has_offset_row

  // The register tile as a function of its own: sums of rows x columns elements over some terms.
  struct TileShape {
    bool is_packed = false;                // lhs, and rhs unless it joins rows; terms are then lanes
    bool joins_rows = false;               // rhs: a lane is made of the elements of as many rows
    std::int64_t joined_row_stride = 0;
    int rows = 1;
    std::int64_t columns = 1;              // the last vector is masked if this is no whole number of them
    DType lhs, rhs, out;                   // in memory
    std::int64_t lhs_row_stride = 1;
    int groups = 1;  // of `rows` rows each
    std::int64_t lhs_group_stride = 0, out_group_stride = 0;
    bool has_lhs_columns = false;          // lhs has a vector for each of rhs, not one element for all of them
    std::vector<std::int64_t> lhs_term_strides = {1}, rhs_term_strides = {1};  // per dim of the terms ...
    std::vector<std::int64_t> inner_terms = {};  // ... and the extents of all but the outermost
    std::int64_t prefetched_terms = 0;     // how far ahead rows of rhs are asked for; 0: not at all
    bool continues = false;                // may start from sums that are in `out` already
    // Of lhs, along a dim of the padded array: outside of [0, extent) is a zero. Where the tile begins is an argument.
    struct Bound {
      std::int64_t extent, row_step, group_step;
      std::vector<std::int64_t> term_steps;
    };
    std::vector<Bound> bounds = {};
  };
  // The operand that is packed, in panels of `width` rows (of lhs) or columns (of rhs).
  struct Packing {
    DType dtype;
    const Strides* extents;
    const Strides* strides;  // of m or n
    const Strides* term_strides;
    std::int64_t width = 1;
    bool is_lhs = false;
  };
  struct Block {
    Value first, count;
  };  // of rows, columns or terms

  // contract_emitter.cpp
  void emit_unit(Block rows, Block columns, Value row_block, Value column_block);
  void emit_direct_unit(Value batches, Block rows, Block columns);
  void emit_packed_unit(Value lhs, Value rhs, Value out, Block rows, Block columns);
  void emit_packing_unit(Value block, bool is_lhs);
  void emit_packed_tile(Value a, Value b, Value out, Value i, Value j, Block rows, Block columns, Value terms,
                        Value is_first);
  void copy_tile(Value from, Value from_stride, Value to, Value to_stride, Value rows, Value columns);
  void write_sums(Value out, Block rows, Block columns);
  void do_epilogue(Block rows, Block columns, Value sums_row = nullptr, Value sums_column = nullptr);
  Value parameter(int index);
  Value batch_of(DType dtype, Value buffer, std::int64_t start, const Strides& strides, Value batch);
  Value packed_block(Value packed, Value term_block, std::int64_t block_size);
  Value shared_block(bool is_lhs, Value block);
  Packing packing_of(bool is_lhs) const;
  Block block_of(Value index, std::int64_t size, std::int64_t blocks, std::int64_t total);
  Block rows_of(Value block);
  void for_each_run(Block rows, llvm::function_ref<void(const Block& run)> body);
  Block columns_of(Value block);
  Block terms_of(Value block);
  Value offset(const Strides& extents, const Strides& strides, Value flat);
  Value element(DType dtype, Value base, Value index);
  Value minimum(Value a, Value b);
  Value packed_lanes(Value terms);
  Value constant(std::int64_t value) { return b_.getInt64(value); }

  // contract_box.cpp
  std::int64_t lhs_start() const;
  Strides lhs_strides(const Strides& strides) const;
  Strides lhs_steps(std::size_t dim, const Strides& strides) const;
  std::vector<std::size_t> bounded_dims() const;
  void add_bounds(TileShape& shape) const;
  void add_places(std::vector<Value>& arguments, Value batch, Value row,
                  llvm::function_ref<Value(const Strides& term_steps)> first_term);
  void emit_image();
  DType padded_dtype() const;
  void copy_box(const ContractBox& box, Value start, Value to);
  void copy_row(const ContractBox& box, std::size_t outside, const std::vector<Value>& first, Value from, Value into,
                Value inside);
  void copy_run(Value from, Value into, Value count, bool is_there);

  // contract_tile.cpp
  void make_tiles(TileShape shape);
  void emit_tile_columns(Block columns, llvm::function_ref<void(llvm::Function* tile, Value j)> body);
  Value joined_rows(const TileShape& shape, Value first, int vector);
  llvm::Function* tile_function(const std::string& name, const TileShape& shape);
  void emit_tile(llvm::Function& function, const TileShape& shape);
  /// One term: its elements of lhs and rhs, and where it is along each of the bounds.
  using Term = llvm::function_ref<void(Value a, Value b, const std::vector<Value>& place)>;
  void emit_terms(const TileShape& shape, std::size_t dim, Value count, Value lhs, Value rhs, std::vector<Value> place,
                  Term body);
  Value inside(const TileShape& shape, const std::vector<Value>& place, int row);
  Value zeros(const TileShape& shape);
  Value load_columns(const TileShape& shape, DType dtype, Value row, int vector);
  void store_columns(const TileShape& shape, DType dtype, Value row, int vector, Value sums);
  void store_masked(Value value, Value at, DType dtype, Value mask);
  Value columns_mask(const TileShape& shape, int vector) const;
  void prefetch(Value address);
  Value multiply_add(Value a, Value b, Value sum);
  Value multiply_add_packed(Value a, Value b, Value sum);
  Value to_computed(DType dtype, Value loaded);
  Value from_computed(DType dtype, Value sums);

  // contract_stream.cpp
  void emit_streamed_unit(Value rhs, Value out, Block rows, Block columns);
  void emit_turned_unit(Value rhs, Value out, Block columns);
  void emit_stream(llvm::Function& function);
  void add_lanes(Value lhs, Value rhs, std::int64_t terms, std::vector<llvm::AllocaInst*>& sums);

  // contract_pack.cpp
  void pack(const Packing& packing, Value from, Value to, Block outer, Block terms);
  void pack_runs(const Packing& packing, Value from, Value to, Value first, Block terms);
  void pack_runs_of_terms(const Packing& packing, Value from, Value to, Value first, Value last, Block terms);
  std::int64_t rest_of_terms(std::int64_t square) const;
  void pack_transposed(const Packing& packing, Value from, Value to, Value first, Value last, Block terms);
  void pack_elements(const Packing& packing, Value from, Value to, Value first, Value last, Block terms, Value begin);
  void emit_packed_lanes(Value begin, Block terms, llvm::function_ref<void(Value lane, int terms_there)> body);
  Value side_by_side(const Packing& packing, const std::vector<Value>& loaded);
  Value load_along_terms(const Packing& packing, Value at, std::int64_t count);
  Value moved(const Packing& packing, Value lanes);
  void transpose(std::vector<Value>& rows);
  void store_prefix(Value vector, Value at, std::int64_t lanes);

  llvm::Function& function_;
  const CpuTarget& target_;
  const ContractPlan& plan_;
  int packed_;
  llvm::Function* epilogue_;
  llvm::IRBuilder<> b_;
  ScalarEmitter scalar_;

  llvm::Function* tile_ = nullptr;
  llvm::Function* edge_tile_ = nullptr;  // of the last columns
  Value lhs_ = nullptr, rhs_ = nullptr, out_ = nullptr;  // parameters; exchanged if the plan says so
  Value packed_lhs_ = nullptr, packed_rhs_ = nullptr;  // of the current unit
  Value sums_ = nullptr;
  Value batch_ = nullptr;  // of the current unit
  Value row_from_ = nullptr, row_to_ = nullptr;  // of the box that is copied
};

}  // namespace sheaf::codegen
