// Few rows, packed, against a right operand that is read where it lies, and once only. Rows of it go by a few at a
// time; columns that lie along their terms, as in x W^T, are loaded as squares, turned in registers, and multiplied by
// all rows before the next.
#include "codegen/llvm/contract_emitter.h"
#include "codegen/llvm/loops.h"

namespace sheaf::codegen {

// Sums go on from one block of terms to the next.
void ContractEmitter::emit_streamed_unit(Value rhs, Value out, Block rows, Block columns) {
  const kir::Contract& c = plan_.contract;
  const DType sum = plan_.has_sum_block ? plan_.computed : c.out;
  make_tiles({.is_packed = true,
              .joins_rows = true,
              .joined_row_stride = c.k.rhs_strides[0],
              .rows = plan_.tile_rows,
              .columns = plan_.tile_columns(),
              .lhs = plan_.packed,
              .rhs = c.rhs,
              .out = sum,
              .lhs_term_strides = {plan_.tile_rows},
              .rhs_term_strides = {c.k.rhs_strides[0] * plan_.lane_terms},
              .continues = plan_.term_blocks > 1});
  Value row_stride = constant(plan_.has_sum_block ? plan_.block_columns : c.m.out_strides[0]);
  emit_loop(b_, constant(0), constant(plan_.term_blocks), 1, [&](Value block) {
    const Block terms = terms_of(block);
    Value lhs = packed_block(packed_lhs_, block, plan_.block_rows), lanes = packed_lanes(terms.count);
    Value from = element(c.rhs, rhs, b_.CreateMul(terms.first, constant(c.k.rhs_strides[0])));
    Value is_first = b_.CreateICmpEQ(block, constant(0));
    emit_tile_columns(columns, [&](llvm::Function* tile, Value j) {
      Value to = plan_.has_sum_block ? element(sum, sums_, b_.CreateSub(j, columns.first)) : element(sum, out, j);
      emit_loop(b_, constant(0), rows.count, plan_.tile_rows, [&](Value i) {
        b_.CreateCall(tile, {lanes, element(plan_.packed, lhs, b_.CreateMul(i, lanes)), element(c.rhs, from, j),
                             element(sum, to, b_.CreateMul(i, row_stride)), row_stride, is_first});
      });
    });
  });
  if (plan_.epilogue == EpilogueOf::sums) return do_epilogue(rows, columns, rows.first, columns.first);
  if (plan_.has_sum_block) write_sums(out, rows, columns);
}

// Tiles that would reach over the unit's last column are moved back: it has at least a vector of them.
void ContractEmitter::emit_turned_unit(Value rhs, Value out, Block columns) {
  const kir::Contract& c = plan_.contract;
  if (!tile_) {
    llvm::Type* pointer = b_.getPtrTy();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, pointer}, false);
    tile_ = llvm::Function::Create(type, llvm::Function::InternalLinkage, function_.getName() + "_tile",
                                   function_.getParent());
    const auto caller = b_.saveIP();
    emit_stream(*tile_);
    b_.restoreIP(caller);
  }
  Value end = b_.CreateAdd(columns.first, columns.count), last = b_.CreateSub(end, constant(plan_.lanes));
  emit_loop(b_, columns.first, end, plan_.lanes, [&](Value first) {
    Value j = minimum(first, last);
    Value from = element(c.rhs, rhs, b_.CreateMul(j, constant(c.n.rhs_strides[0])));
    if (plan_.epilogue != EpilogueOf::sums) {
      b_.CreateCall(tile_, {packed_lhs_, from, element(c.out, out, j)});
      return;
    }
    b_.CreateCall(tile_, {packed_lhs_, from, sums_});
    const Block rows{constant(0), constant(plan_.rows)};
    Value count = minimum(constant(plan_.lanes), b_.CreateSub(end, first));
    do_epilogue(rows, {first, count}, constant(0), j);
  });
}

// void tile(ptr packed_lhs, ptr rhs, ptr out): all rows of a vector of columns, over all terms.
void ContractEmitter::emit_stream(llvm::Function& function) {
  for (unsigned i : {0, 1, 2}) function.addParamAttr(i, llvm::Attribute::NoAlias);
  b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", &function));
  const kir::Contract& c = plan_.contract;
  Value lhs = function.getArg(0), rhs = function.getArg(1), out = function.getArg(2);
  llvm::Type* vector = scalar_.type(plan_.computed, plan_.lanes);
  std::vector<llvm::AllocaInst*> sums;  // of the rows, then of the offset
  for (std::int64_t i = 0; i < plan_.rows + plan_.has_offset_row(); ++i) {
    sums.push_back(emit_slot(b_, vector));
    b_.CreateStore(llvm::Constant::getNullValue(vector), sums.back());
  }

  const std::int64_t square = std::int64_t{plan_.lanes} * plan_.lane_terms, whole = plan_.terms / square * square;
  const auto lhs_of = [&](Value term) {
    return element(plan_.packed, lhs, b_.CreateMul(packed_lanes(term), constant(plan_.rows)));
  };
  emit_loop(b_, constant(0), constant(whole), square,
            [&](Value term) { add_lanes(lhs_of(term), element(c.rhs, rhs, term), square, sums); });
  if (whole < plan_.terms)
    add_lanes(lhs_of(constant(whole)), element(c.rhs, rhs, constant(whole)), plan_.terms - whole, sums);

  for (std::int64_t i = 0; i < plan_.rows; ++i) {
    Value sum = b_.CreateLoad(vector, sums[i]);
    if (plan_.has_offset_row()) sum = b_.CreateSub(sum, b_.CreateLoad(vector, sums.back()));
    const bool is_sum = plan_.epilogue == EpilogueOf::sums;
    const DType stored = is_sum ? plan_.computed : c.out;
    Value at = element(stored, out, constant(i * (is_sum ? plan_.sum_stride : c.m.out_strides[0])));
    b_.CreateAlignedStore(from_computed(stored, sum), at, llvm::Align(size_bytes(stored)));
  }
  b_.CreateRetVoid();
}

// Of a vector of columns, `terms` terms: no more than a square has.
void ContractEmitter::add_lanes(Value lhs, Value rhs, std::int64_t terms, std::vector<llvm::AllocaInst*>& sums) {
  const kir::Contract& c = plan_.contract;
  llvm::Type* vector = scalar_.type(plan_.computed, plan_.lanes);
  std::vector<Value> columns;
  for (int i = 0; i < plan_.lanes; ++i)
    columns.push_back(
        load_along_terms(packing_of(false), element(c.rhs, rhs, constant(i * c.n.rhs_strides[0])), terms));
  transpose(columns);
  const auto add = [&](Value a, Value b, llvm::AllocaInst* sum) {
    b_.CreateStore(multiply_add_packed(scalar_.splat(a, plan_.lanes), b, b_.CreateLoad(vector, sum)), sum);
  };
  for (std::int64_t t = 0; t < plan_.packed_lanes(terms); ++t) {
    for (std::int64_t i = 0; i < plan_.rows; ++i) {
      Value at = element(plan_.packed, lhs, constant(t * plan_.rows + i));
      add(b_.CreateLoad(scalar_.type(plan_.packed, 1), at), columns[t], sums[i]);
    }
    if (plan_.has_offset_row()) add(b_.getInt32(kOffsetBytes), columns[t], sums.back());
  }
}

}  // namespace sheaf::codegen
