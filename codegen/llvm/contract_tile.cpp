// The register tile: per term, load a row of the right operand, and for each row of the tile broadcast one element of
// the left one, or load a row of it where it has the columns too, and multiply-add. The sums never leave their
// registers; LLVM keeps them there without help.
#include "codegen/llvm/contract_emitter.h"
#include "codegen/llvm/loops.h"
#include "ir/check.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace sheaf::codegen {

// For all columns, and for the last ones that are less than a tile.
void ContractEmitter::make_tiles(TileShape shape) {
  const std::int64_t edge_columns = plan_.columns % plan_.tile_columns();
  if (plan_.columns >= plan_.tile_columns()) tile_ = tile_function(function_.getName().str() + "_tile", shape);
  if (edge_columns == 0) return;
  shape.columns = edge_columns;
  edge_tile_ = tile_function(function_.getName().str() + "_edge", shape);
}

void ContractEmitter::emit_tile_columns(Block columns, llvm::function_ref<void(llvm::Function* tile, Value j)> body) {
  emit_loop(b_, columns.first, b_.CreateAdd(columns.first, columns.count), plan_.tile_columns(), [&](Value j) {
    if (!edge_tile_) return body(tile_, j);
    if (!tile_) return body(edge_tile_, j);
    Value is_whole = b_.CreateICmpSLE(b_.CreateAdd(j, constant(plan_.tile_columns())), constant(plan_.columns));
    emit_if(b_, is_whole, [&] { body(tile_, j); }, [&] { body(edge_tile_, j); });
  });
}

// void tile(i64 terms, ptr lhs, ptr rhs, ptr out, i64 out_row_stride, i1 is_first, i64 place along each bound...)
llvm::Function* ContractEmitter::tile_function(const std::string& name, const TileShape& shape) {
  llvm::Type* pointer = b_.getPtrTy();
  llvm::Type* integer = b_.getInt64Ty();
  std::vector<llvm::Type*> types{integer, pointer, pointer, pointer, integer, b_.getInt1Ty()};
  types.resize(types.size() + shape.bounds.size(), integer);
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), types, false);
  auto* function = llvm::Function::Create(type, llvm::Function::InternalLinkage, name, function_.getParent());
  for (unsigned i : {1, 2, 3}) function->addParamAttr(i, llvm::Attribute::NoAlias);
  const auto caller = b_.saveIP();
  b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", function));
  emit_tile(*function, shape);
  b_.restoreIP(caller);
  return function;
}

void ContractEmitter::emit_tile(llvm::Function& function, const TileShape& shape) {
  Value terms = function.getArg(0), lhs = function.getArg(1), rhs = function.getArg(2), out = function.getArg(3);
  Value out_stride = function.getArg(4), is_first = function.getArg(5);
  const int vectors = static_cast<int>((shape.columns + plan_.lanes - 1) / plan_.lanes);
  llvm::Type* vector = scalar_.type(plan_.computed, plan_.lanes);
  const int rows = shape.groups * shape.rows;
  auto out_row = [&](int i) {
    Value group = constant(i / shape.rows * shape.out_group_stride);
    return element(shape.out, out, b_.CreateAdd(group, b_.CreateMul(out_stride, constant(i % shape.rows))));
  };

  const bool has_offset_row = shape.is_packed && plan_.has_offset_row();
  std::vector<std::vector<llvm::AllocaInst*>> sums(rows + has_offset_row);
  for (auto& row : sums) {
    for (int v = 0; v < vectors; ++v) {
      row.push_back(emit_slot(b_, vector));
      b_.CreateStore(llvm::Constant::getNullValue(vector), row.back());
    }
  }
  if (shape.continues) {
    emit_if(b_, b_.CreateNot(is_first), [&] {
      for (int i = 0; i < rows; ++i) {
        Value row = out_row(i);
        for (int v = 0; v < vectors; ++v) b_.CreateStore(load_columns(shape, plan_.computed, row, v), sums[i][v]);
      }
    });
  }

  if (shape.continues) {  // what the tile is stored to arrives while the terms are summed
    for (int i = 0; i < rows; ++i) {
      Value row = out_row(i);
      for (int v = 0; v < vectors; ++v) prefetch(element(shape.out, row, constant(std::int64_t{v} * plan_.lanes)));
    }
  }

  llvm::Type* lhs_type = scalar_.memory_type(shape.lhs, 1);
  std::vector<Value> start;
  for (std::size_t d = 0; d < shape.bounds.size(); ++d) start.push_back(function.getArg(static_cast<unsigned>(6 + d)));
  Value nothing = shape.bounds.empty() ? nullptr : zeros(shape);
  emit_terms(shape, 0, terms, lhs, rhs, start, [&](Value a, Value b, const std::vector<Value>& place) {
    std::vector<Value> row;
    if (shape.prefetched_terms && !shape.has_lhs_columns)
      prefetch(element(shape.lhs, a, constant(shape.prefetched_terms * shape.lhs_term_strides.back())));
    for (int v = 0; v < vectors && shape.prefetched_terms; ++v) {
      const std::int64_t ahead = shape.prefetched_terms * shape.rhs_term_strides.back() + std::int64_t{v} * plan_.lanes;
      prefetch(element(shape.rhs, b, constant(ahead)));
    }
    const auto term = [&](DType dtype, Value loaded) { return shape.is_packed ? loaded : to_computed(dtype, loaded); };
    const auto add = [&](Value own, int i, int v) {
      Value sum = b_.CreateLoad(vector, sums[i][v]);
      b_.CreateStore(shape.is_packed ? multiply_add_packed(own, row[v], sum) : multiply_add(own, row[v], sum),
                     sums[i][v]);
    };
    for (int v = 0; v < vectors; ++v)
      row.push_back(shape.joins_rows ? joined_rows(shape, b, v)
                                     : term(shape.rhs, load_columns(shape, shape.rhs, b, v)));
    for (int v = 0; v < vectors && has_offset_row; ++v)
      add(scalar_.splat(b_.getInt32(kOffsetBytes), plan_.lanes), rows, v);
    for (int i = 0; i < rows; ++i) {
      Value at = element(shape.lhs, a,
                         constant(i / shape.rows * shape.lhs_group_stride + i % shape.rows * shape.lhs_row_stride));
      if (nothing) at = b_.CreateSelect(inside(shape, place, i), at, nothing);
      Value all = nullptr;
      if (!shape.has_lhs_columns) all = scalar_.splat(term(shape.lhs, b_.CreateLoad(lhs_type, at)), plan_.lanes);
      for (int v = 0; v < vectors; ++v) add(all ? all : term(shape.lhs, load_columns(shape, shape.lhs, at, v)), i, v);
    }
  });

  for (int i = 0; i < rows; ++i) {
    Value row = out_row(i);
    for (int v = 0; v < vectors; ++v) {
      Value sum = b_.CreateLoad(vector, sums[i][v]);
      if (has_offset_row) sum = b_.CreateSub(sum, b_.CreateLoad(vector, sums[rows][v]));
      store_columns(shape, shape.out, row, v, sum);
    }
  }
  b_.CreateRetVoid();
}

llvm::Value* ContractEmitter::joined_rows(const TileShape& shape, Value first, int vector) {
  std::vector<Value> loaded;
  for (int t = 0; t < plan_.lane_terms; ++t)
    loaded.push_back(
        load_columns(shape, shape.rhs, element(shape.rhs, first, constant(t * shape.joined_row_stride)), vector));
  return side_by_side(packing_of(false), loaded);
}

// Whether lhs has an element there, rather than a zero around it.
llvm::Value* ContractEmitter::inside(const TileShape& shape, const std::vector<Value>& place, int row) {
  Value all = b_.getTrue();
  for (std::size_t d = 0; d < place.size(); ++d) {
    const TileShape::Bound& bound = shape.bounds[d];
    const std::int64_t step = row / shape.rows * bound.group_step + row % shape.rows * bound.row_step;
    Value at = b_.CreateAdd(place[d], constant(step));
    all = b_.CreateAnd(all, b_.CreateICmpULT(at, constant(bound.extent)));
  }
  return all;
}

// As many as a row of the tile has columns.
llvm::Value* ContractEmitter::zeros(const TileShape& shape) {
  auto* line = llvm::ArrayType::get(scalar_.memory_type(shape.lhs, 1), static_cast<std::uint64_t>(shape.columns));
  return new llvm::GlobalVariable(*function_.getParent(), line, /*isConstant=*/true, llvm::GlobalValue::PrivateLinkage,
                                  llvm::Constant::getNullValue(line));
}

// A loop per dim of the terms, the innermost walking both operands by pointers.
void ContractEmitter::emit_terms(const TileShape& shape, std::size_t dim, Value count, Value lhs, Value rhs,
                                 std::vector<Value> place, Term body) {
  const auto place_of = [&](Value i) {
    std::vector<Value> there = place;
    for (std::size_t d = 0; d < there.size(); ++d)
      if (const std::int64_t step = shape.bounds[d].term_steps[dim]; step != 0)
        there[d] = b_.CreateAdd(there[d], b_.CreateMul(i, constant(step)));
    return there;
  };
  Value lhs_step = constant(shape.lhs_term_strides[dim]), rhs_step = constant(shape.rhs_term_strides[dim]);
  if (dim < shape.inner_terms.size()) {
    emit_loop(b_, constant(0), count, 1, [&](Value i) {
      emit_terms(shape, dim + 1, constant(shape.inner_terms[dim]), element(shape.lhs, lhs, b_.CreateMul(i, lhs_step)),
                 element(shape.rhs, rhs, b_.CreateMul(i, rhs_step)), place_of(i), body);
    });
    return;
  }
  llvm::AllocaInst* lhs_at = emit_slot(b_, b_.getPtrTy());
  llvm::AllocaInst* rhs_at = emit_slot(b_, b_.getPtrTy());
  b_.CreateStore(lhs, lhs_at);
  b_.CreateStore(rhs, rhs_at);
  emit_loop(b_, constant(0), count, 1, [&](Value i) {
    Value a = b_.CreateLoad(b_.getPtrTy(), lhs_at), b = b_.CreateLoad(b_.getPtrTy(), rhs_at);
    body(a, b, place_of(i));
    b_.CreateStore(element(shape.lhs, a, lhs_step), lhs_at);
    b_.CreateStore(element(shape.rhs, b, rhs_step), rhs_at);
  });
}

void ContractEmitter::prefetch(Value address) {
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                     {address, b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});
}

llvm::Value* ContractEmitter::columns_mask(const TileShape& shape, int vector) const {
  const std::int64_t valid = shape.columns - std::int64_t{vector} * plan_.lanes;
  if (valid >= plan_.lanes) return nullptr;
  std::vector<llvm::Constant*> mask(plan_.lanes);
  for (int i = 0; i < plan_.lanes; ++i) mask[i] = llvm::ConstantInt::getBool(function_.getContext(), i < valid);
  return llvm::ConstantVector::get(mask);
}

llvm::Value* ContractEmitter::load_columns(const TileShape& shape, DType dtype, Value row, int vector) {
  llvm::Type* type = scalar_.memory_type(dtype, plan_.lanes);
  const llvm::Align align(size_bytes(dtype));
  Value at = element(dtype, row, constant(std::int64_t{vector} * plan_.lanes));
  Value mask = columns_mask(shape, vector);
  if (!mask) return b_.CreateAlignedLoad(type, at, align);
  return b_.CreateMaskedLoad(type, at, align, mask, llvm::Constant::getNullValue(type));
}

void ContractEmitter::store_columns(const TileShape& shape, DType dtype, Value row, int vector, Value sums) {
  Value at = element(dtype, row, constant(std::int64_t{vector} * plan_.lanes));
  store_masked(from_computed(dtype, sums), at, dtype, columns_mask(shape, vector));
}

void ContractEmitter::store_masked(Value value, Value at, DType dtype, Value mask) {
  const llvm::Align align(size_bytes(dtype));
  if (mask) b_.CreateMaskedStore(value, at, align, mask);
  else b_.CreateAlignedStore(value, at, align);
}

// Of packed lanes: all terms that share a lane.
llvm::Value* ContractEmitter::multiply_add_packed(Value a, Value b, Value sum) {
  if (plan_.lane_terms == 1) return multiply_add(a, b, sum);
  const kir::Contract& c = plan_.contract;
  if (is_float(c.lhs)) {
    llvm::Type* pairs = llvm::FixedVectorType::get(b_.getBFloatTy(), static_cast<unsigned>(2 * plan_.lanes));
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                              {sum, b_.CreateBitCast(a, pairs), b_.CreateBitCast(b, pairs)});
  }
  if (plan_.lane_terms == 4) {  // unsigned by signed
    if (c.rhs == DType::u8) std::swap(a, b);
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpdpbusd_512, {}, {sum, a, b});
  }
  if (target_.has_int8_dot()) return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpdpwssd_512, {}, {sum, a, b});
  llvm::Type* pairs = llvm::FixedVectorType::get(b_.getInt16Ty(), static_cast<unsigned>(2 * plan_.lanes));
  const auto products = target_.vector_bytes == 64   ? llvm::Intrinsic::x86_avx512_pmaddw_d_512
                        : target_.vector_bytes == 32 ? llvm::Intrinsic::x86_avx2_pmadd_wd
                                                     : llvm::Intrinsic::x86_sse2_pmadd_wd;
  return b_.CreateAdd(sum, b_.CreateIntrinsic(products, {}, {b_.CreateBitCast(a, pairs), b_.CreateBitCast(b, pairs)}));
}

llvm::Value* ContractEmitter::multiply_add(Value a, Value b, Value sum) {
  const DType accumulate = plan_.contract.accumulate;
  if (is_bool(accumulate)) return b_.CreateOr(sum, b_.CreateAnd(a, b));
  if (is_int(accumulate)) return b_.CreateAdd(sum, b_.CreateMul(a, b));
  return b_.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {a, b, sum});
}

// An element as it lies in memory, to a lane: by way of the dtype the contraction says it accumulates in.
llvm::Value* ContractEmitter::to_computed(DType dtype, Value loaded) {
  if (dtype == plan_.computed) return loaded;
  const DType accumulate = plan_.contract.accumulate;
  Value value = scalar_.emit(ir::ScalarOp::convert, dtype, accumulate, {{scalar_.from_memory(dtype, loaded)}});
  return scalar_.emit(ir::ScalarOp::convert, accumulate, plan_.computed, {{value}});
}

llvm::Value* ContractEmitter::from_computed(DType dtype, Value sums) {
  if (dtype == plan_.computed) return sums;
  const DType accumulate = plan_.contract.accumulate;
  Value value = scalar_.emit(ir::ScalarOp::convert, plan_.computed, accumulate, {{sums}});
  return scalar_.to_memory(dtype, scalar_.emit(ir::ScalarOp::convert, accumulate, dtype, {{value}}));
}

}  // namespace sheaf::codegen
