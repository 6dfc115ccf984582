// Packing: a block of an operand, copied into panels that the tile reads from front to back, lane by lane. A panel's
// surplus rows (or columns) repeat the last one; their sums are never written out.
#include <algorithm>

#include "codegen/llvm/contract_emitter.h"
#include "codegen/llvm/loops.h"
#include "ir/check.h"

namespace sheaf::codegen {

void ContractEmitter::pack(const Packing& packing, Value from, Value to, Block outer, Block terms) {
  const bool outer_is_run = packing.strides->size() == 1 && packing.strides->front() == 1;
  // Terms of several dims are taken by runs along the innermost one, where a block is whole runs or part of one.
  const Strides& extents = plan_.contract.k.extents;
  const std::int64_t run = extents.back(), block = plan_.is_direct ? plan_.terms : plan_.block_terms;
  const bool are_aligned = run > 0 && block > 0 && (block % run == 0 || run % block == 0);
  const bool has_runs = extents.size() == 1 || (plan_.lane_terms == 1 && are_aligned);
  const bool term_is_run = packing.term_strides->back() == 1 && has_runs;
  const bool can_transpose = plan_.lanes > 1 && plan_.lanes <= 16;
  Value last = b_.CreateAdd(outer.first, b_.CreateSub(outer.count, constant(1)));
  Value lanes = packed_lanes(terms.count);
  emit_loop(b_, constant(0), outer.count, packing.width, [&](Value i) {
    Value first = b_.CreateAdd(outer.first, i);
    Value panel = element(plan_.packed, to, b_.CreateMul(i, lanes));
    auto one_by_one = [&] { pack_elements(packing, from, panel, first, last, terms, constant(0)); };
    if (outer_is_run) {
      Value is_full = b_.CreateICmpSLE(b_.CreateAdd(i, constant(packing.width)), outer.count);
      emit_if(b_, is_full, [&] { pack_runs(packing, from, panel, first, terms); }, one_by_one);
    } else if (term_is_run && can_transpose) {
      pack_runs_of_terms(packing, from, panel, first, last, terms);
    } else {
      one_by_one();
    }
  });
}

// Lanes of `plan_.lane_terms` terms from lane `begin` on; the last block's last one may have fewer.
void ContractEmitter::emit_packed_lanes(Value begin, Block terms,
                                        llvm::function_ref<void(Value lane, int terms_there)> body) {
  Value whole = b_.CreateUDiv(terms.count, constant(plan_.lane_terms));
  emit_loop(b_, begin, whole, 1, [&](Value lane) { body(lane, plan_.lane_terms); });
  const auto rest = static_cast<int>(plan_.terms % plan_.lane_terms);
  if (rest == 0) return;
  Value has_rest = b_.CreateICmpNE(b_.CreateURem(terms.count, constant(plan_.lane_terms)), constant(0));
  emit_if(b_, has_rest, [&] { body(whole, rest); });
}

// A whole panel whose rows are neighbours in memory: vectors are copied.
void ContractEmitter::pack_runs(const Packing& packing, Value from, Value to, Value first, Block terms) {
  const kir::Contract::Dims& k = plan_.contract.k;
  emit_packed_lanes(constant(0), terms, [&](Value lane, int terms_there) {
    std::vector<Value> rows;
    for (int t = 0; t < terms_there; ++t) {
      Value term = b_.CreateAdd(b_.CreateAdd(terms.first, b_.CreateMul(lane, constant(plan_.lane_terms))), constant(t));
      rows.push_back(element(packing.dtype, from, b_.CreateAdd(first, offset(k.extents, *packing.term_strides, term))));
    }
    for (std::int64_t done = 0; done < packing.width; done += plan_.lanes) {
      const TileShape shape{.columns = packing.width, .lhs = f32, .rhs = f32, .out = f32};
      std::vector<Value> loaded;
      for (Value row : rows)
        loaded.push_back(load_columns(shape, packing.dtype, row, static_cast<int>(done / plan_.lanes)));
      Value at = b_.CreateAdd(b_.CreateMul(lane, constant(packing.width)), constant(done));
      store_prefix(side_by_side(packing, loaded), element(plan_.packed, to, at), packing.width - done);
    }
  });
}

void ContractEmitter::pack_runs_of_terms(const Packing& packing, Value from, Value to, Value first, Value last,
                                         Block terms) {
  const Strides &extents = plan_.contract.k.extents, &strides = *packing.term_strides;
  if (extents.size() == 1) return pack_transposed(packing, from, to, first, last, terms);
  const std::int64_t run = extents.back(), block = plan_.is_direct ? plan_.terms : plan_.block_terms;
  const auto pack_run = [&](Value first_term, Value into, Value count) {
    Value start = offset(extents, strides, first_term);
    pack_transposed(packing, element(packing.dtype, from, start), into, first, last, {constant(0), count});
  };
  if (block < run) return pack_run(terms.first, to, terms.count);
  emit_loop(b_, constant(0), terms.count, run, [&](Value i) {
    pack_run(b_.CreateAdd(terms.first, i), element(plan_.packed, to, b_.CreateMul(i, constant(packing.width))),
             constant(run));
  });
}

// What every run of terms, or the last block's only one, has beyond whole squares; -1: that depends.
std::int64_t ContractEmitter::rest_of_terms(std::int64_t square) const {
  const Strides& extents = plan_.contract.k.extents;
  const std::int64_t block = plan_.is_direct ? plan_.terms : plan_.block_terms;
  if (extents.size() > 1) return std::min(extents.back(), block) % square;
  return block % square == 0 || block >= plan_.terms ? plan_.terms % square : -1;
}

// Rows that run along the terms: squares of lanes x lanes are loaded by rows, transposed, stored by columns.
void ContractEmitter::pack_transposed(const Packing& packing, Value from, Value to, Value first, Value last,
                                      Block terms) {
  const int lanes = plan_.lanes;
  const std::int64_t squares = std::int64_t{lanes} * plan_.lane_terms, rest = rest_of_terms(squares);
  const bool is_rest_square = rest >= 0 && rest % plan_.lane_terms == 0;
  Value packed = b_.CreateUDiv(terms.count, constant(plan_.lane_terms));
  Value whole = b_.CreateAnd(packed, constant(-lanes));
  for (std::int64_t group = 0; group < packing.width; group += lanes) {
    const auto valid = static_cast<int>(std::min<std::int64_t>(lanes, packing.width - group));
    std::vector<Value> rows;
    for (int i = 0; i < valid; ++i) {
      Value outer = minimum(b_.CreateAdd(first, constant(group + i)), last);
      Value start = b_.CreateAdd(offset(*packing.extents, *packing.strides, outer), terms.first);
      rows.push_back(element(packing.dtype, from, start));
    }
    const auto pack_square = [&](Value lane, std::int64_t count) {
      Value term = b_.CreateMul(lane, constant(plan_.lane_terms));
      std::vector<Value> square;
      for (Value row : rows) square.push_back(load_along_terms(packing, element(packing.dtype, row, term), count));
      square.resize(lanes, llvm::PoisonValue::get(square[0]->getType()));
      transpose(square);
      for (std::int64_t t = 0; t < plan_.packed_lanes(count); ++t) {
        Value at =
            b_.CreateAdd(b_.CreateMul(b_.CreateAdd(lane, constant(t)), constant(packing.width)), constant(group));
        store_prefix(square[t], element(plan_.packed, to, at), valid);
      }
    };
    emit_loop(b_, constant(0), whole, lanes, [&](Value lane) { pack_square(lane, squares); });
    if (is_rest_square && rest > 0) emit_if(b_, b_.CreateICmpSLT(whole, packed), [&] { pack_square(whole, rest); });
  }
  if (!is_rest_square) pack_elements(packing, from, to, first, last, terms, whole);
}

// Any layout, from lane `begin` on.
void ContractEmitter::pack_elements(const Packing& packing, Value from, Value to, Value first, Value last, Block terms,
                                    Value begin) {
  const kir::Contract::Dims& k = plan_.contract.k;
  emit_loop(b_, constant(0), constant(packing.width), 1, [&](Value i) {
    Value outer = offset(*packing.extents, *packing.strides, minimum(b_.CreateAdd(first, i), last));
    emit_packed_lanes(begin, terms, [&](Value lane, int terms_there) {
      std::vector<Value> loaded;
      for (int t = 0; t < terms_there; ++t) {
        Value term =
            b_.CreateAdd(b_.CreateAdd(terms.first, b_.CreateMul(lane, constant(plan_.lane_terms))), constant(t));
        Value source = b_.CreateAdd(outer, offset(k.extents, *packing.term_strides, term));
        loaded.push_back(b_.CreateLoad(scalar_.memory_type(packing.dtype, 1), element(packing.dtype, from, source)));
      }
      Value at = b_.CreateAdd(b_.CreateMul(lane, constant(packing.width)), i);
      b_.CreateStore(side_by_side(packing, loaded), element(plan_.packed, to, at));
    });
  });
}

// Packed lanes from as many elements in memory for each of their terms, one after the other in `loaded`. Terms that are
// not there are zeros; of bf16, negative ones in lhs, so that what they add changes no sum, not even a negative zero.
llvm::Value* ContractEmitter::side_by_side(const Packing& packing, const std::vector<Value>& loaded) {
  if (plan_.lane_terms == 1) return to_computed(packing.dtype, loaded[0]);
  const int bits = 32 / plan_.lane_terms;
  llvm::Type* lanes = scalar_.type(DType::u32, lanes_of(loaded[0]));
  const auto place = [&](int term) { return bits * (is_float(packing.dtype) ? plan_.lane_terms - 1 - term : term); };
  Value all = nullptr;
  for (int t = 0; t < static_cast<int>(loaded.size()); ++t) {
    Value part = loaded[t];
    if (bits > 8 * size_bytes(packing.dtype) && is_signed_int(packing.dtype))
      part = b_.CreateSExt(part, lanes->getWithNewBitWidth(static_cast<unsigned>(bits)));
    part = b_.CreateShl(b_.CreateZExt(part, lanes), place(t));
    all = all ? b_.CreateOr(all, part) : part;
  }
  std::uint32_t absent = 0;
  for (int t = static_cast<int>(loaded.size()); t < plan_.lane_terms; ++t) absent |= 0x8000u << place(t);
  if (is_float(packing.dtype) && packing.is_lhs && absent)
    all = b_.CreateOr(all, llvm::ConstantInt::get(lanes, absent));
  return moved(packing, all);
}

// The same from `count` elements that lie along the terms; those beyond it are zeros.
llvm::Value* ContractEmitter::load_along_terms(const Packing& packing, Value at, std::int64_t count) {
  const int lanes = plan_.lanes, elements = lanes * plan_.lane_terms;
  llvm::Type* type = scalar_.memory_type(packing.dtype, elements);
  const llvm::Align align(size_bytes(packing.dtype));
  Value loaded = nullptr;
  if (count == elements) {
    loaded = b_.CreateAlignedLoad(type, at, align);
  } else {
    std::vector<llvm::Constant*> mask(elements);
    for (int i = 0; i < elements; ++i) mask[i] = llvm::ConstantInt::getBool(function_.getContext(), i < count);
    loaded = b_.CreateMaskedLoad(type, at, align, llvm::ConstantVector::get(mask), llvm::Constant::getNullValue(type));
  }
  if (plan_.lane_terms == 1) return to_computed(packing.dtype, loaded);
  const auto bits = static_cast<unsigned>(32 / plan_.lane_terms);
  if (llvm::Type* wide = type->getWithNewBitWidth(bits); wide != type)
    loaded = is_signed_int(packing.dtype) ? b_.CreateSExt(loaded, wide) : b_.CreateZExt(loaded, wide);
  Value all = b_.CreateBitCast(loaded, scalar_.type(DType::u32, lanes));
  if (!is_float(packing.dtype)) return moved(packing, all);
  return b_.CreateIntrinsic(llvm::Intrinsic::fshl, {all->getType()},  // the first term goes into the upper half
                            {all, all, llvm::ConstantInt::get(all->getType(), 16)});
}

llvm::Value* ContractEmitter::moved(const Packing& packing, Value lanes) {
  if (!packing.is_lhs || !plan_.has_offset_row()) return lanes;
  return b_.CreateXor(lanes, llvm::ConstantInt::get(lanes->getType(), kOffsetBytes));
}

// Swaps the off-diagonal blocks of size 1, 2, 4, ...
void ContractEmitter::transpose(std::vector<Value>& rows) {
  const int lanes = static_cast<int>(rows.size());
  for (int size = 1; size < lanes; size *= 2) {
    std::vector<int> upper(lanes), lower(lanes);
    for (int c = 0; c < lanes; ++c) {
      upper[c] = c & size ? lanes + c - size : c;
      lower[c] = c & size ? lanes + c : c + size;
    }
    for (int i = 0; i < lanes; ++i) {
      if (i & size) continue;
      Value a = rows[i], b = rows[i + size];
      rows[i] = b_.CreateShuffleVector(a, b, upper);
      rows[i + size] = b_.CreateShuffleVector(a, b, lower);
    }
  }
}

// The first `lanes` packed lanes of a vector (all, if it has no more).
void ContractEmitter::store_prefix(Value vector, Value at, std::int64_t lanes) {
  const TileShape shape{.columns = lanes, .lhs = f32, .rhs = f32, .out = f32};
  store_masked(vector, at, plan_.packed, columns_mask(shape, 0));
}

}  // namespace sheaf::codegen
