// Copying a box of the array that a contraction's padding says: row by row, zeros where there is nothing to copy.
#include "codegen/contract_box.h"

#include "codegen/kir/contract.h"
#include "codegen/llvm/contract_emitter.h"
#include "codegen/llvm/loops.h"
#include "ir/literal.h"

namespace sheaf::codegen {

// Where lhs begins in memory, and its strides there, where reads go around the zeros that are not.
std::int64_t ContractEmitter::lhs_start() const {
  const kir::Contract& c = plan_.contract;
  if (!plan_.reads_around) return c.lhs_offset;
  const Strides in_array = ir::strides_of(c.padding->extents);
  std::int64_t start = stride_in_memory(c.lhs_offset, *c.padding);
  for (std::size_t d = 0; d < in_array.size(); ++d) start -= c.padding->low[d] * in_array[d];
  return start;
}

ContractEmitter::Strides ContractEmitter::lhs_strides(const Strides& strides) const {
  if (!plan_.reads_around) return strides;
  Strides in_memory;
  for (const std::int64_t stride : strides) in_memory.push_back(stride_in_memory(stride, *plan_.contract.padding));
  return in_memory;
}

// The same along one dim of the padded array.
ContractEmitter::Strides ContractEmitter::lhs_steps(std::size_t dim, const Strides& strides) const {
  Strides steps;
  for (const std::int64_t stride : strides) steps.push_back(steps_of(stride, *plan_.contract.padding)[dim]);
  return steps;
}

std::vector<std::size_t> ContractEmitter::bounded_dims() const {
  return plan_.reads_around ? padded_dims(*plan_.contract.padding) : std::vector<std::size_t>();
}

void ContractEmitter::add_bounds(TileShape& shape) const {
  const kir::Contract& c = plan_.contract;
  for (const std::size_t d : bounded_dims()) {
    const Strides steps = lhs_steps(d, c.k.lhs_strides);
    shape.bounds.push_back({.extent = c.padding->extents[d],
                            .row_step = lhs_steps(d, c.m.lhs_strides)[0],
                            .group_step = lhs_steps(d, {plan_.lhs_group_stride})[0],
                            .term_steps = {steps.begin() + plan_.blocked_dims, steps.end()}});
  }
}

// Where a tile begins along each of its bounds.
void ContractEmitter::add_places(std::vector<Value>& arguments, Value batch, Value row,
                                 llvm::function_ref<Value(const Strides& term_steps)> first_term) {
  const kir::Contract& c = plan_.contract;
  for (const std::size_t d : bounded_dims()) {
    Value at = offset(c.batch.extents, lhs_steps(d, c.batch.lhs_strides), batch);
    at = b_.CreateAdd(at, b_.CreateMul(row, constant(lhs_steps(d, c.m.lhs_strides)[0])));
    at = b_.CreateAdd(at, first_term(lhs_steps(d, c.k.lhs_strides)));
    arguments.push_back(b_.CreateAdd(at, constant(lhs_steps(d, {c.lhs_offset})[0] - c.padding->low[d])));
  }
}

// A copy of all of the padded array, a row in each unit.
void ContractEmitter::emit_image() {
  const kir::Contract::Padding& padding = *plan_.contract.padding;
  const ContractBox row = row_box(padding);
  Value to = parameter(packed_);
  emit_loop(b_, function_.getArg(1), function_.getArg(2), 1, [&](Value unit) {
    Value start = b_.CreateMul(unit, constant(row.count));
    copy_box(row, start, element(padded_dtype(), to, start));
  });
  b_.CreateRetVoid();
}

DType ContractEmitter::padded_dtype() const { return plan_.is_swapped ? plan_.contract.rhs : plan_.contract.lhs; }

// The box that begins at element `start` of the padded array.
void ContractEmitter::copy_box(const ContractBox& box, Value start, Value to) {
  const kir::Contract::Padding& padding = *plan_.contract.padding;
  const Strides in_array = ir::strides_of(padding.extents), in_padded = ir::strides_of(padding.padded);
  const std::size_t outside = kir::outside_of_rows(padding, box.extents);
  // Where the box begins in the array that lies in memory, along each dim; perhaps before it.
  std::vector<Value> first;
  for (std::size_t d = 0; d < box.extents.size(); ++d) {
    Value at = b_.CreateURem(b_.CreateUDiv(start, constant(in_padded[d])), constant(padding.padded[d]));
    first.push_back(b_.CreateSub(at, constant(padding.low[d])));
  }
  const auto is_inside = [&](std::size_t d, Value at) { return b_.CreateICmpULT(at, constant(padding.extents[d])); };
  const auto walk = [&](auto& self, std::size_t d, Value from, Value into, Value inside) -> void {
    if (d + 1 >= outside) return copy_row(box, outside, first, from, into, inside);
    emit_loop(b_, constant(0), constant(box.extents[d]), 1, [&](Value i) {
      Value at = b_.CreateAdd(first[d], i);
      self(self, d + 1, b_.CreateAdd(from, b_.CreateMul(at, constant(in_array[d]))),
           b_.CreateAdd(into, b_.CreateMul(i, constant(box.strides[d]))), b_.CreateAnd(inside, is_inside(d, at)));
    });
  };
  row_from_ = parameter(0);
  row_to_ = to;
  walk(walk, 0, constant(0), constant(0), b_.getTrue());
}

// Of dim `outside` - 1, in which there may be padding, and of the dims inside of it, in which there is none.
void ContractEmitter::copy_row(const ContractBox& box, std::size_t outside, const std::vector<Value>& first, Value from,
                               Value into, Value inside) {
  const kir::Contract::Padding& padding = *plan_.contract.padding;
  std::int64_t piece = 1;
  for (std::size_t d = outside; d < box.extents.size(); ++d) piece *= box.extents[d];
  if (outside == 0) return copy_run(from, into, constant(piece), true);
  const std::size_t d = outside - 1;
  const std::int64_t count = box.extents[d], step = box.strides[d];
  const auto within = [&](Value i, Value low) {
    return minimum(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, i, low), constant(count));
  };
  Value begin = within(b_.CreateNeg(first[d]), constant(0));
  Value end = within(b_.CreateSub(constant(padding.extents[d]), first[d]), begin);
  end = b_.CreateSelect(inside, end, begin);
  const auto from_of = [&](Value i) {
    return b_.CreateAdd(from, b_.CreateMul(b_.CreateAdd(first[d], i), constant(piece)));
  };
  const auto into_of = [&](Value i) { return b_.CreateAdd(into, b_.CreateMul(i, constant(step))); };
  const auto run = [&](Value from_place, Value to_place, bool is_there) {
    if (step == piece) {
      Value all = b_.CreateMul(b_.CreateSub(to_place, from_place), constant(piece));
      return copy_run(from_of(from_place), into_of(from_place), all, is_there);
    }
    emit_loop(b_, from_place, to_place, 1,
              [&](Value i) { copy_run(from_of(i), into_of(i), constant(piece), is_there); });
  };
  run(constant(0), begin, false);
  run(begin, end, true);
  run(end, constant(count), false);
}

// `count` neighbours, or as many zeros.
void ContractEmitter::copy_run(Value from, Value into, Value count, bool is_there) {
  const int bytes = size_bytes(padded_dtype()), lanes = target_.vector_bytes / bytes;
  llvm::Type* bits = b_.getIntNTy(static_cast<unsigned>(8 * bytes));
  auto* vector = llvm::FixedVectorType::get(bits, static_cast<unsigned>(lanes));
  llvm::Constant* zeros = llvm::Constant::getNullValue(vector);
  const llvm::Align align(static_cast<std::uint64_t>(bytes));
  const auto at = [&](Value base, Value offset, Value i) { return b_.CreateGEP(bits, base, b_.CreateAdd(offset, i)); };
  Value whole = b_.CreateAnd(count, constant(-std::int64_t{lanes}));
  emit_loop(b_, constant(0), whole, lanes, [&](Value i) {
    Value loaded = is_there ? static_cast<Value>(b_.CreateAlignedLoad(vector, at(row_from_, from, i), align)) : zeros;
    b_.CreateAlignedStore(loaded, at(row_to_, into, i), align);
  });
  emit_loop(b_, whole, count, 1, [&](Value i) {
    Value loaded = is_there ? static_cast<Value>(b_.CreateAlignedLoad(bits, at(row_from_, from, i), align))
                            : llvm::Constant::getNullValue(bits);
    b_.CreateAlignedStore(loaded, at(row_to_, into, i), align);
  });
}

}  // namespace sheaf::codegen
