// Loads and stores. An access whose index steps by one from lane to lane is one wide access; by minus one, the same
// reversed; anything else gathers. Lanes that are masked off touch no memory, or only a slot of the function's own.
#include <algorithm>

#include "codegen/llvm/phase_emitter.h"
#include "ir/check.h"

namespace sheaf::codegen {

DType PhaseEmitter::dtype_of(kir::BufferId buffer) const {
  const auto params = static_cast<int>(kernel_.params.size());
  return buffer < params ? kernel_.params[buffer].dtype : phase_.scratch[buffer - params].dtype;
}

llvm::Value* PhaseEmitter::element(kir::BufferId buffer, DType dtype, Value index) {
  return b_.CreateGEP(scalar_.memory_type(dtype, 1), buffers_[buffer], index);
}

llvm::Value* PhaseEmitter::reverse(Value vector) { return b_.CreateVectorReverse(vector); }

llvm::Value* PhaseEmitter::access_mask(kir::ValueId mask) {
  Value lanes = lane_mask();
  if (mask < 0) return lanes;
  Value given = operand(mask, vector_.width);
  return lanes ? b_.CreateAnd(given, lanes) : given;
}

llvm::Value* PhaseEmitter::other(const kir::Load& load, DType dtype, int lanes) {
  return load.other < 0 ? llvm::Constant::getNullValue(scalar_.type(dtype, lanes)) : operand(load.other, lanes);
}

llvm::Value* PhaseEmitter::load(const kir::Load& load, DType dtype) {
  if (part_ && part_->sums && load.buffer == kernel_.contract->result) return load_sums(*part_, dtype);
  const auto stride = lane_stride(load.index);
  if (vector_.width == 1 || stride == 0) return load_uniform(load, dtype);
  if (stride == 1 || stride == -1) return load_run(load, dtype, *stride);
  return gather(load, dtype);
}

// Of the row and columns at hand: the contraction's elements, rounded as if they had been stored.
llvm::Value* PhaseEmitter::load_sums(const Part& part, DType dtype) {
  SHEAF_CHECK(vector_.axis == 2, "the sums of a contraction are read outside of the loop over its columns");
  Value at = b_.CreateAdd(b_.CreateMul(part_row_, b_.getInt64(part.sum_stride)), axes_[2]);
  Value address = b_.CreateGEP(scalar_.memory_type(part.sum, 1), part.sums, at);
  llvm::Type* type = scalar_.memory_type(part.sum, vector_.width);
  const llvm::Align align(size_bytes(part.sum));
  Value mask = lane_mask();
  Value sums =
      mask ? static_cast<Value>(b_.CreateMaskedLoad(type, address, align, mask, llvm::Constant::getNullValue(type)))
           : b_.CreateAlignedLoad(type, address, align);
  if (part.sum == dtype) return scalar_.from_memory(dtype, sums);
  const DType accumulate = kernel_.contract->accumulate;
  Value value = scalar_.emit(ir::ScalarOp::convert, part.sum, accumulate, {{sums}});
  return scalar_.emit(ir::ScalarOp::convert, accumulate, dtype, {{value}});
}

// All lanes read one element, so it is read once, provided that any lane may.
llvm::Value* PhaseEmitter::load_uniform(const kir::Load& load, DType dtype) {
  llvm::Type* memory = scalar_.memory_type(dtype, 1);
  Value address = element(load.buffer, dtype, index_value(load.index, 64));
  if (load.mask < 0) return scalar_.from_memory(dtype, b_.CreateLoad(memory, address));
  const bool is_uniform = lanes_of(values_[load.mask]) == 1;
  Value mask = is_uniform ? values_[load.mask] : access_mask(load.mask);
  Value any = is_uniform ? mask : b_.CreateOrReduce(mask);
  address = b_.CreateSelect(any, address, masked_out_);
  Value loaded = scalar_.from_memory(dtype, b_.CreateLoad(memory, address));
  const bool is_scalar = is_uniform && (load.other < 0 || lanes_of(values_[load.other]) == 1);
  const int lanes = is_scalar ? 1 : vector_.width;
  return b_.CreateSelect(mask, scalar_.splat(loaded, lanes), other(load, dtype, lanes));
}

// The address of the lowest element of a run. Backwards, that is the last lane's.
llvm::Value* PhaseEmitter::run_start(kir::BufferId buffer, DType dtype, kir::Index index, std::int64_t stride) {
  llvm::Type* memory = scalar_.memory_type(dtype, 1);
  const auto base = run_bases_.find({buffer, index});
  Value first = base == run_bases_.end()
                    ? element(buffer, dtype, run_index(index))
                    : b_.CreateGEP(memory, base->second, b_.CreateMul(axes_[vector_.axis], b_.getInt64(stride)));
  return stride == 1 ? first : b_.CreateConstGEP1_64(memory, first, 1 - vector_.width);
}

// The index of lane 0.
llvm::Value* PhaseEmitter::run_index(kir::Index index) {
  const Vector vector = std::exchange(vector_, Vector{vector_.axis, 1, 1});
  Value first = index_value(index, 64);
  vector_ = vector;
  return first;
}

llvm::Value* PhaseEmitter::load_run(const kir::Load& load, DType dtype, std::int64_t stride) {
  llvm::Type* type = scalar_.memory_type(dtype, vector_.width);
  const llvm::Align align(size_bytes(dtype));
  Value start = run_start(load.buffer, dtype, load.index, stride);
  Value mask = access_mask(load.mask);
  auto in_order = [&](Value v) { return stride == 1 ? v : reverse(v); };
  if (!mask) return scalar_.from_memory(dtype, in_order(b_.CreateAlignedLoad(type, start, align)));
  Value zero = llvm::Constant::getNullValue(type);
  Value loaded = in_order(b_.CreateMaskedLoad(type, start, align, in_order(mask), zero));
  Value value = scalar_.from_memory(dtype, loaded);
  return load.other < 0 ? value : b_.CreateSelect(mask, value, other(load, dtype, vector_.width));
}

llvm::Value* PhaseEmitter::gather(const kir::Load& load, DType dtype) {
  const int width = vector_.width, bytes = size_bytes(dtype);
  Value index = index_value(load.index, fits_32_bits(load.index) ? 32 : 64);
  Value mask = access_mask(load.mask);
  llvm::Type* type = scalar_.memory_type(dtype, width);
  Value loaded = nullptr;
  if (bytes >= 4 && target_.vector_bytes > 16) {
    Value all = mask ? mask : llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), width));
    loaded = b_.CreateMaskedGather(type, element(load.buffer, dtype, index), llvm::Align(bytes), all,
                                   llvm::Constant::getNullValue(type));
  } else {
    loaded = llvm::Constant::getNullValue(type);
    for (int lane = 0; lane < vector_.active; ++lane) {
      Value address = lane_address(load.buffer, dtype, index, load.mask < 0 ? nullptr : mask, lane);
      loaded = b_.CreateInsertElement(loaded, b_.CreateLoad(type->getScalarType(), address), lane);
    }
  }
  Value value = scalar_.from_memory(dtype, loaded);
  return load.mask < 0 ? value : b_.CreateSelect(mask, value, other(load, dtype, width));
}

llvm::Value* PhaseEmitter::lane_address(kir::BufferId buffer, DType dtype, Value index, Value mask, int lane) {
  Value offset = b_.CreateSExt(b_.CreateExtractElement(index, lane), b_.getInt64Ty());
  Value address = element(buffer, dtype, offset);
  return mask ? b_.CreateSelect(b_.CreateExtractElement(mask, lane), address, masked_out_) : address;
}

void PhaseEmitter::emit(const kir::Store& store) {
  SHEAF_CHECK(!store.update, "an update in one step is for GPUs");
  const DType dtype = dtype_of(store.buffer);
  if (vector_.width == 1) {
    Value address = element(store.buffer, dtype, index_value(store.index, 64));
    if (store.mask >= 0) address = b_.CreateSelect(values_[store.mask], address, masked_out_);
    b_.CreateStore(scalar_.to_memory(dtype, values_[store.value]), address);
    return;
  }
  const auto stride = lane_stride(store.index);
  if (stride == 1 || stride == -1) return store_run(store, dtype, *stride);
  SHEAF_CHECK(stride != 0 || vector_.active == 1, "the lanes of a vector loop store to one element");
  scatter(store, dtype);
}

void PhaseEmitter::store_run(const kir::Store& store, DType dtype, std::int64_t stride) {
  const llvm::Align align(size_bytes(dtype));
  Value start = run_start(store.buffer, dtype, store.index, stride);
  Value mask = access_mask(store.mask);
  auto in_order = [&](Value v) { return stride == 1 ? v : reverse(v); };
  Value value = in_order(scalar_.to_memory(dtype, operand(store.value, vector_.width)));
  if (mask) {
    b_.CreateMaskedStore(value, start, align, in_order(mask));
  } else {
    b_.CreateAlignedStore(value, start, align);
  }
}

void PhaseEmitter::scatter(const kir::Store& store, DType dtype) {
  const int bytes = size_bytes(dtype);
  Value index = scalar_.splat(index_value(store.index, fits_32_bits(store.index) ? 32 : 64), vector_.width);
  Value mask = access_mask(store.mask);
  Value value = scalar_.to_memory(dtype, operand(store.value, vector_.width));
  if (bytes >= 4 && target_.vector_bytes == 64) {
    b_.CreateMaskedScatter(value, element(store.buffer, dtype, index), llvm::Align(bytes), mask);
    return;
  }
  for (int lane = 0; lane < vector_.active; ++lane) {
    Value address = lane_address(store.buffer, dtype, index, store.mask < 0 ? nullptr : mask, lane);
    b_.CreateStore(b_.CreateExtractElement(value, lane), address);
  }
}

}  // namespace sheaf::codegen
