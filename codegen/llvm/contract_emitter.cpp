// The loops around the register tile. A unit is one block of the result, computed by one thread from beginning to end;
// units share nothing but operands that an earlier phase has packed.
#include "codegen/llvm/contract_emitter.h"

#include "codegen/llvm/loops.h"
#include "ir/check.h"

namespace sheaf::codegen {
namespace {

constexpr std::int64_t kPrefetchedBytes = 1 << 20;
constexpr std::int64_t kPrefetchedTerms = 16;

}  // namespace

ContractEmitter::ContractEmitter(llvm::Function& function, const ContractPlan& plan, int packed,
                                 const CpuTarget& target, llvm::Function* epilogue)
    : function_(function),
      target_(target),
      plan_(plan),
      packed_(packed),
      epilogue_(epilogue),
      b_(llvm::BasicBlock::Create(function.getContext(), "entry", &function)),
      scalar_(b_, target_) {
  lhs_ = parameter(plan_.is_swapped ? 1 : 0);
  rhs_ = parameter(plan_.is_swapped ? 0 : 1);
  out_ = parameter(plan_.contract.result);
  if (plan_.has_image()) (plan_.is_swapped ? rhs_ : lhs_) = parameter(packed_);
}

void ContractEmitter::emit() {
  if (plan_.is_empty()) {
    b_.CreateRetVoid();
    return;
  }
  Value scratch = function_.getArg(3);
  packed_lhs_ = scratch;
  packed_rhs_ = b_.CreateConstGEP1_64(b_.getInt8Ty(), scratch, plan_.lhs_bytes);
  sums_ = b_.CreateConstGEP1_64(b_.getInt8Ty(), scratch, plan_.lhs_bytes + plan_.rhs_bytes);

  emit_loop(b_, function_.getArg(1), function_.getArg(2), 1, [&](Value unit) {
    Value row_block = b_.CreateURem(unit, constant(plan_.row_blocks));
    Value columns_and_batch = b_.CreateUDiv(unit, constant(plan_.row_blocks));
    Value inner = constant(plan_.has_columns_first ? plan_.batches / plan_.unit_batches : plan_.column_blocks);
    Value column_block = b_.CreateURem(columns_and_batch, inner), batch = b_.CreateUDiv(columns_and_batch, inner);
    if (plan_.has_columns_first) std::swap(column_block, batch);
    batch_ = batch;
    const Block rows = rows_of(row_block), columns = columns_of(column_block);
    emit_unit(rows, columns, row_block, column_block);
    if (plan_.epilogue != EpilogueOf::result) return;
    if (!plan_.box) return for_each_run(rows, [&](const Block& run) { do_epilogue(run, columns); });
    const std::int64_t unit_rows = plan_.unit_batches * plan_.tile_groups * plan_.rows;
    Value first = b_.CreateMul(batch_, constant(unit_rows));
    batch_ = constant(0);  // of what is one batch as the epilogue knows it
    do_epilogue({first, constant(unit_rows)}, columns);
  });
  b_.CreateRetVoid();
}

void ContractEmitter::emit_unit(Block rows, Block columns, Value row_block, Value column_block) {
  const kir::Contract& c = plan_.contract;
  if (plan_.is_direct) {
    if (plan_.has_panels()) packed_rhs_ = shared_block(false, column_block);
    return emit_direct_unit(batch_, rows, columns);
  }
  Value lhs = batch_of(c.lhs, lhs_, c.lhs_offset, c.batch.lhs_strides, batch_);
  Value rhs = batch_of(c.rhs, rhs_, c.rhs_offset, c.batch.rhs_strides, batch_);
  Value out = batch_of(c.out, out_, c.out_offset, c.batch.out_strides, batch_);
  if (plan_.is_streamed) {
    packed_lhs_ = shared_block(true, batch_);
    return plan_.is_turned ? emit_turned_unit(rhs, out, columns) : emit_streamed_unit(rhs, out, rows, columns);
  }
  if (plan_.has_panels()) {
    const auto of_batch = [&](std::int64_t blocks, Value block) {
      return b_.CreateAdd(b_.CreateMul(batch_, constant(blocks)), block);
    };
    packed_lhs_ = shared_block(true, of_batch(plan_.row_blocks, row_block));
    packed_rhs_ = shared_block(false, of_batch(plan_.column_blocks, column_block));
  }
  emit_packed_unit(lhs, rhs, out, rows, columns);
}

// Units: batch outermost, then blocks of rows or columns; blocks of terms innermost.
void ContractEmitter::emit_packing(const ContractPlan::SharedPacking& packing) {
  if (packing.is_image) return emit_image();
  emit_loop(b_, function_.getArg(1), function_.getArg(2), 1,
            [&](Value unit) { emit_packing_unit(unit, packing.is_lhs); });
  b_.CreateRetVoid();
}

void ContractEmitter::emit_packing_unit(Value unit, bool is_lhs) {
  const kir::Contract& c = plan_.contract;
  Value term_block = b_.CreateURem(unit, constant(plan_.term_blocks));
  Value block_and_batch = b_.CreateUDiv(unit, constant(plan_.term_blocks));
  Value blocks = constant(is_lhs ? plan_.row_blocks : plan_.column_blocks);
  Value block = b_.CreateURem(block_and_batch, blocks), batch = b_.CreateUDiv(block_and_batch, blocks);
  Value from = is_lhs ? batch_of(c.lhs, lhs_, c.lhs_offset, c.batch.lhs_strides, batch)
                      : batch_of(c.rhs, rhs_, c.rhs_offset, c.batch.rhs_strides, batch);
  Value to =
      packed_block(shared_block(is_lhs, block_and_batch), term_block, is_lhs ? plan_.block_rows : plan_.block_columns);
  const Block terms = plan_.is_direct ? Block{constant(0), constant(plan_.terms)} : terms_of(term_block);
  pack(packing_of(is_lhs), from, to, is_lhs ? rows_of(block) : columns_of(block), terms);
}

// Tiles that would reach over the last row are moved up instead: the rows they share with the tile above are computed
// twice, with the same bits. The last columns have a tile of their own.
void ContractEmitter::emit_direct_unit(Value batches, Block rows, Block columns) {
  const kir::Contract& c = plan_.contract;
  const bool has_epilogue = plan_.epilogue == EpilogueOf::sums;
  const Strides batch_strides = lhs_strides(c.batch.lhs_strides), term_strides = lhs_strides(c.k.lhs_strides);
  const std::int64_t row_stride = lhs_strides(c.m.lhs_strides)[0];
  const auto inner = [&](const Strides& list) { return Strides(list.begin() + plan_.blocked_dims, list.end()); };
  TileShape shape{.rows = plan_.tile_rows,
                  .columns = plan_.tile_columns(),
                  .lhs = c.lhs,
                  .rhs = c.rhs,
                  .out = has_epilogue ? plan_.computed : c.out,
                  .lhs_row_stride = row_stride,
                  .groups = plan_.tile_groups,
                  .lhs_group_stride = lhs_strides({plan_.lhs_group_stride})[0],
                  .out_group_stride = plan_.out_group_stride,
                  .has_lhs_columns = plan_.has_lhs_columns,
                  .lhs_term_strides = inner(term_strides),
                  .rhs_term_strides = inner(c.k.rhs_strides),
                  .inner_terms = {c.k.extents.begin() + plan_.blocked_dims + 1, c.k.extents.end()},
                  .continues = plan_.term_blocks > 1};
  add_bounds(shape);
  const bool has_panels = plan_.has_panels();
  if (has_panels) {
    shape.rhs = plan_.packed;
    std::int64_t step = plan_.tile_columns();
    for (std::size_t i = shape.rhs_term_strides.size(); i-- > 0; step *= c.k.extents[i])
      shape.rhs_term_strides[i] = step;
  } else if (plan_.terms * plan_.columns * size_bytes(c.rhs) > kPrefetchedBytes) {
    // The right operand comes from beyond L2 by runs as short as a tile, which the hardware alone does not foresee.
    shape.prefetched_terms = kPrefetchedTerms;
  }
  make_tiles(shape);
  const auto start_of = [&](const Strides& strides, Value block, Block terms) {
    if (plan_.blocked_dims == 0) return b_.CreateMul(terms.first, constant(strides[0]));
    const auto blocked = [&](const Strides& list) { return Strides(list.begin(), list.begin() + plan_.blocked_dims); };
    return offset(blocked(c.k.extents), blocked(strides), block);
  };
  if (plan_.box) {
    Value first = b_.CreateMul(batches, constant(plan_.unit_batches));
    copy_box(*plan_.box, b_.CreateAdd(constant(c.lhs_offset), offset(c.batch.extents, c.batch.lhs_strides, first)),
             packed_lhs_);
  }
  auto column_of_tiles = [&](llvm::Function* tile, Value batch, Value i_batch, Value j, Value block, const Block& run) {
    Value lhs = plan_.box ? element(c.lhs, packed_lhs_, b_.CreateMul(i_batch, constant(c.batch.lhs_strides.back())))
                          : batch_of(c.lhs, lhs_, lhs_start(), batch_strides, batch);
    Value rhs = batch_of(c.rhs, rhs_, c.rhs_offset, c.batch.rhs_strides, batch);
    Value out = batch_of(c.out, out_, c.out_offset, c.batch.out_strides, batch);
    const Block terms = terms_of(block);
    Value a_term = start_of(term_strides, block, terms), b_term = start_of(c.k.rhs_strides, block, terms);
    if (plan_.has_lhs_columns) a_term = b_.CreateAdd(a_term, j);
    Value last_row = b_.CreateSub(b_.CreateAdd(run.first, run.count), constant(plan_.tile_rows));
    emit_loop(b_, constant(0), run.count, plan_.tile_rows, [&](Value i) {
      Value row = minimum(b_.CreateAdd(run.first, i), last_row);
      Value a = element(c.lhs, lhs, b_.CreateAdd(b_.CreateMul(row, constant(row_stride)), a_term));
      Value b = has_panels ? element(plan_.packed, packed_rhs_,
                                     b_.CreateMul(b_.CreateSub(j, columns.first), constant(plan_.terms)))
                           : element(c.rhs, rhs, b_.CreateAdd(b_term, j));
      Value to = element(c.out, out, b_.CreateAdd(b_.CreateMul(row, constant(c.m.out_strides[0])), j));
      Value is_first = b_.CreateICmpEQ(block, constant(0));
      if (!has_epilogue) {
        std::vector<Value> arguments{terms.count, a, b, to, constant(c.m.out_strides[0]), is_first};
        add_places(arguments, batch, row, [&](const Strides& steps) { return start_of(steps, block, terms); });
        b_.CreateCall(tile, arguments);
        return;
      }
      b_.CreateCall(tile, {terms.count, a, b, sums_, constant(plan_.sum_stride), is_first});
      // Of rows that the tile above has as well, once: it may have taken the place of what it reads.
      const auto part = [&](const Block& whole, Value first, std::int64_t most) {
        Value left = b_.CreateSub(b_.CreateAdd(whole.first, whole.count), first);
        return Block{first, minimum(left, constant(most))};
      };
      do_epilogue(part(run, b_.CreateAdd(run.first, i), plan_.tile_rows), part(columns, j, plan_.tile_columns()), row,
                  j);
    });
  };
  const auto columns_of_tiles = [&](Value batch, Value i, Value block) {
    emit_tile_columns(columns, [&](llvm::Function* tile, Value j) {
      for_each_run(rows, [&](const Block& run) { column_of_tiles(tile, batch, i, j, block, run); });
    });
  };
  emit_loop(b_, constant(0), constant(plan_.term_blocks), 1, [&](Value block) {
    if (plan_.unit_batches == 1) return columns_of_tiles(batches, constant(0), block);
    emit_loop(b_, constant(0), constant(plan_.unit_batches), 1, [&](Value i) {
      columns_of_tiles(b_.CreateAdd(b_.CreateMul(batches, constant(plan_.unit_batches)), i), i, block);
    });
  });
}

void ContractEmitter::emit_packed_unit(Value lhs, Value rhs, Value out, Block rows, Block columns) {
  tile_ = tile_function(function_.getName().str() + "_tile", {.is_packed = true,
                                                              .rows = plan_.tile_rows,
                                                              .columns = plan_.tile_columns(),
                                                              .lhs = plan_.packed,
                                                              .rhs = plan_.packed,
                                                              .out = plan_.computed,
                                                              .lhs_row_stride = 1,
                                                              .lhs_term_strides = {plan_.tile_rows},
                                                              .rhs_term_strides = {plan_.tile_columns()},
                                                              .continues = plan_.term_blocks > 1});
  emit_loop(b_, constant(0), constant(plan_.term_blocks), 1, [&](Value block) {
    const Block terms = terms_of(block);
    Value a = packed_lhs_, b = packed_rhs_;
    if (plan_.has_panels()) {
      a = packed_block(a, block, plan_.block_rows);
      b = packed_block(b, block, plan_.block_columns);
    } else {
      pack(packing_of(true), lhs, a, rows, terms);
      pack(packing_of(false), rhs, b, columns, terms);
    }
    Value is_first = b_.CreateICmpEQ(block, constant(0)), lanes = packed_lanes(terms.count);
    // A panel of the left operand, the narrower one, stays in L1 while the right one's panels stream past it from L2.
    emit_loop(b_, constant(0), rows.count, plan_.tile_rows, [&](Value i) {
      Value lhs_panel = element(plan_.packed, a, b_.CreateMul(i, lanes));
      emit_loop(b_, constant(0), columns.count, plan_.tile_columns(), [&](Value j) {
        Value rhs_panel = element(plan_.packed, b, b_.CreateMul(j, lanes));
        emit_packed_tile(lhs_panel, rhs_panel, out, i, j, rows, columns, lanes, is_first);
      });
      if (plan_.epilogue != EpilogueOf::sums) return;
      emit_if(b_, b_.CreateICmpEQ(block, constant(plan_.term_blocks - 1)), [&] {
        Value count = minimum(constant(plan_.tile_rows), b_.CreateSub(rows.count, i));
        do_epilogue({b_.CreateAdd(rows.first, i), count}, columns, rows.first, columns.first);
      });
    });
  });
  if (plan_.has_sum_block && plan_.epilogue != EpilogueOf::sums) write_sums(out, rows, columns);
}

// One tile at (i, j) of the unit's block. Where sums live in the result itself, a tile that reaches over its edge works
// in a tile of scratch.
void ContractEmitter::emit_packed_tile(Value a, Value b, Value out, Value i, Value j, Block rows, Block columns,
                                       Value terms, Value is_first) {
  const kir::Contract& c = plan_.contract;
  auto call = [&](Value to, Value stride) { b_.CreateCall(tile_, {terms, a, b, to, stride, is_first}); };
  if (plan_.has_sum_block) {
    Value at = b_.CreateAdd(b_.CreateMul(i, constant(plan_.block_columns)), j);
    return call(element(plan_.computed, sums_, at), constant(plan_.block_columns));
  }
  Value out_stride = constant(c.m.out_strides[0]), scratch_stride = constant(plan_.tile_columns());
  Value column = b_.CreateAdd(columns.first, j);
  Value row = b_.CreateMul(b_.CreateAdd(rows.first, i), out_stride);
  Value at = element(c.out, out, b_.CreateAdd(row, column));
  Value valid_rows = minimum(constant(plan_.tile_rows), b_.CreateSub(rows.count, i));
  Value valid_columns = minimum(constant(plan_.tile_columns()), b_.CreateSub(columns.count, j));
  Value is_whole = b_.CreateAnd(b_.CreateICmpEQ(valid_rows, constant(plan_.tile_rows)),
                                b_.CreateICmpEQ(valid_columns, constant(plan_.tile_columns())));
  emit_if(
      b_, is_whole, [&] { call(at, out_stride); },
      [&] {
        emit_if(b_, b_.CreateNot(is_first),
                [&] { copy_tile(at, out_stride, sums_, scratch_stride, valid_rows, valid_columns); });
        call(sums_, scratch_stride);
        copy_tile(sums_, scratch_stride, at, out_stride, valid_rows, valid_columns);
      });
}

void ContractEmitter::copy_tile(Value from, Value from_stride, Value to, Value to_stride, Value rows, Value columns) {
  llvm::Type* type = scalar_.memory_type(plan_.computed, plan_.lanes);
  const llvm::Align align(size_bytes(plan_.computed));
  std::vector<llvm::Constant*> steps(plan_.lanes);
  for (int i = 0; i < plan_.lanes; ++i) steps[i] = b_.getInt32(i);
  Value lanes = llvm::ConstantVector::get(steps);
  emit_loop(b_, constant(0), rows, 1, [&](Value i) {
    for (int v = 0; v < plan_.tile_vectors; ++v) {
      const std::int64_t first = std::int64_t{v} * plan_.lanes;
      Value left = b_.CreateTrunc(b_.CreateSub(columns, constant(first)), b_.getInt32Ty());
      Value mask = b_.CreateICmpSLT(lanes, scalar_.splat(left, plan_.lanes));
      auto at = [&](Value base, Value stride) {
        return element(plan_.computed, base, b_.CreateAdd(b_.CreateMul(i, stride), constant(first)));
      };
      Value loaded = b_.CreateMaskedLoad(type, at(from, from_stride), align, mask, llvm::Constant::getNullValue(type));
      b_.CreateMaskedStore(loaded, at(to, to_stride), align, mask);
    }
  });
}

// The block of sums to the result, in whatever layout and dtype that has.
void ContractEmitter::write_sums(Value out, Block rows, Block columns) {
  const kir::Contract& c = plan_.contract;
  const bool is_run = c.n.out_strides.size() == 1 && c.n.out_strides[0] == 1;
  const int lanes = is_run ? plan_.lanes : 1;
  Value whole = b_.CreateAnd(columns.count, constant(-lanes));
  emit_loop(b_, constant(0), rows.count, 1, [&](Value i) {
    Value row = offset(c.m.extents, c.m.out_strides, b_.CreateAdd(rows.first, i));
    auto copy = [&](Value j, int width) {
      Value from = element(plan_.computed, sums_, b_.CreateAdd(b_.CreateMul(i, constant(plan_.block_columns)), j));
      Value to =
          element(c.out, out, b_.CreateAdd(row, offset(c.n.extents, c.n.out_strides, b_.CreateAdd(columns.first, j))));
      Value sums = b_.CreateAlignedLoad(scalar_.memory_type(plan_.computed, width), from,
                                        llvm::Align(size_bytes(plan_.computed)));
      b_.CreateAlignedStore(from_computed(c.out, sums), to, llvm::Align(size_bytes(c.out)));
    };
    emit_loop(b_, constant(0), whole, lanes, [&](Value j) { copy(j, lanes); });
    if (lanes > 1) emit_loop(b_, whole, columns.count, 1, [&](Value j) { copy(j, 1); });
  });
}

// To these rows and columns of the result, or of the block of sums that begins at (sums_row, sums_column).
void ContractEmitter::do_epilogue(Block rows, Block columns, Value sums_row, Value sums_column) {
  Value sums = sums_;
  if (sums_row) {
    Value before = b_.CreateAdd(b_.CreateMul(sums_row, constant(plan_.sum_stride)), sums_column);
    sums = element(plan_.computed, sums_, b_.CreateNeg(before));
  }
  const auto end = [&](const Block& block) { return b_.CreateAdd(block.first, block.count); };
  b_.CreateCall(epilogue_, {function_.getArg(0), batch_, rows.first, end(rows), columns.first, end(columns), sums});
}

llvm::Value* ContractEmitter::parameter(int index) {
  return b_.CreateLoad(b_.getPtrTy(), b_.CreateConstGEP1_64(b_.getPtrTy(), function_.getArg(0), index));
}

llvm::Value* ContractEmitter::batch_of(DType dtype, Value buffer, std::int64_t start, const Strides& strides,
                                       Value batch) {
  return element(dtype, buffer, b_.CreateAdd(constant(start), offset(plan_.contract.batch.extents, strides, batch)));
}

// One block of terms of a packed block of rows or columns, which holds them one after the other.
llvm::Value* ContractEmitter::packed_block(Value packed, Value term_block, std::int64_t block_size) {
  const std::int64_t lanes = plan_.packed_lanes(plan_.block_terms);
  return element(plan_.packed, packed, b_.CreateMul(term_block, constant(lanes * block_size)));
}

// Where all terms of a block of rows or columns lie in the temporary that they are packed into.
llvm::Value* ContractEmitter::shared_block(bool is_lhs, Value block) {
  const int images = plan_.has_image() ? 1 : 0;
  const bool is_first = plan_.shared[static_cast<std::size_t>(images)].is_lhs == is_lhs;
  const std::int64_t lanes = plan_.packed_lanes(plan_.terms);
  Value first = b_.CreateMul(block, constant((is_lhs ? plan_.block_rows : plan_.block_columns) * lanes));
  return element(plan_.packed, parameter(packed_ + images + (is_first ? 0 : 1)), first);
}

ContractEmitter::Packing ContractEmitter::packing_of(bool is_lhs) const {
  const kir::Contract& c = plan_.contract;
  if (is_lhs) return {c.lhs, &c.m.extents, &c.m.lhs_strides, &c.k.lhs_strides, plan_.tile_rows, true};
  return {c.rhs, &c.n.extents, &c.n.rhs_strides, &c.k.rhs_strides, plan_.tile_columns()};
}

ContractEmitter::Block ContractEmitter::block_of(Value index, std::int64_t size, std::int64_t blocks,
                                                 std::int64_t total) {
  Value first = b_.CreateMul(index, constant(size));
  Value is_last = b_.CreateICmpEQ(index, constant(blocks - 1));
  return {first, b_.CreateSelect(is_last, b_.CreateSub(constant(total), first), constant(size))};
}

ContractEmitter::Block ContractEmitter::rows_of(Value block) {
  if (!plan_.takes_lanes()) return block_of(block, plan_.unit_rows, plan_.row_blocks, plan_.rows);
  Value blocks = constant(kir::kLanes / plan_.block_rows);
  Value leaf = b_.CreateMul(b_.CreateUDiv(block, blocks), constant(kir::kLeaf));
  Value lane = b_.CreateMul(b_.CreateURem(block, blocks), constant(plan_.block_rows));
  return {b_.CreateAdd(leaf, lane), constant(plan_.block_rows)};
}

// The rows of a unit, as they lie: all at once, or one of each of its lanes after the other.
void ContractEmitter::for_each_run(Block rows, llvm::function_ref<void(const Block& run)> body) {
  if (!plan_.takes_lanes()) return body(rows);
  emit_loop(b_, constant(0), constant(plan_.lane_rows), 1, [&](Value step) {
    body({b_.CreateAdd(rows.first, b_.CreateMul(step, constant(kir::kLanes))), rows.count});
  });
}

ContractEmitter::Block ContractEmitter::columns_of(Value block) {
  return block_of(block, plan_.block_columns, plan_.column_blocks, plan_.columns);
}

ContractEmitter::Block ContractEmitter::terms_of(Value block) {
  if (plan_.blocked_dims > 0) return {constant(0), constant(plan_.block_terms)};
  return block_of(block, plan_.block_terms, plan_.term_blocks,
                  plan_.is_direct ? plan_.contract.k.extents[0] : plan_.terms);
}

// The offset in elements of the flat, row-major position `flat`.
llvm::Value* ContractEmitter::offset(const Strides& extents, const Strides& strides, Value flat) {
  Value sum = nullptr;
  for (std::size_t i = extents.size(); i-- > 0;) {
    Value position = i > 0 ? b_.CreateURem(flat, constant(extents[i])) : flat;
    if (i > 0) flat = b_.CreateUDiv(flat, constant(extents[i]));
    Value part = b_.CreateMul(position, constant(strides[i]));
    sum = sum ? b_.CreateAdd(sum, part) : part;
  }
  return sum;
}

llvm::Value* ContractEmitter::element(DType dtype, Value base, Value index) {
  return b_.CreateGEP(scalar_.memory_type(dtype, 1), base, index);
}

llvm::Value* ContractEmitter::packed_lanes(Value terms) {
  const std::int64_t n = plan_.lane_terms;
  return n == 1 ? terms : b_.CreateUDiv(b_.CreateAdd(terms, constant(n - 1)), constant(n));
}

llvm::Value* ContractEmitter::minimum(Value a, Value b) {
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b);
}

}  // namespace sheaf::codegen
