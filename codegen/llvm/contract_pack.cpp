// Packing: a block of an operand, copied into panels that the tile reads from front to back, element by element in the
// computed dtype. A panel's surplus rows (or columns) repeat the last one; their sums are never written out.
#include <algorithm>

#include "codegen/llvm/contract_emitter.h"
#include "codegen/llvm/loops.h"
#include "ir/check.h"

namespace sheaf::codegen {

void ContractEmitter::pack(const Packing& packing, Value from, Value to, Block outer, Block terms) {
  const bool outer_is_run = packing.strides->size() == 1 && packing.strides->front() == 1;
  const bool term_is_run = packing.term_strides->size() == 1 && packing.term_strides->front() == 1;
  const bool can_transpose = plan_.lanes > 1 && plan_.lanes <= 16;
  Value last = b_.CreateAdd(outer.first, b_.CreateSub(outer.count, constant(1)));
  emit_loop(b_, constant(0), outer.count, packing.width, [&](Value i) {
    Value first = b_.CreateAdd(outer.first, i);
    Value panel = element(plan_.computed, to, b_.CreateMul(i, terms.count));
    auto one_by_one = [&] { pack_elements(packing, from, panel, first, last, terms, constant(0)); };
    if (outer_is_run) {
      Value is_full = b_.CreateICmpSLE(b_.CreateAdd(i, constant(packing.width)), outer.count);
      emit_if(b_, is_full, [&] { pack_runs(packing, from, panel, first, terms); }, one_by_one);
    } else if (term_is_run && can_transpose) {
      pack_transposed(packing, from, panel, first, last, terms);
    } else {
      one_by_one();
    }
  });
}

// A whole panel whose rows are neighbours in memory: vectors are copied.
void ContractEmitter::pack_runs(const Packing& packing, Value from, Value to, Value first, Block terms) {
  const kir::Contract::Dims& k = plan_.contract.k;
  emit_loop(b_, constant(0), terms.count, 1, [&](Value term) {
    Value row = b_.CreateAdd(first, offset(k.extents, *packing.term_strides, b_.CreateAdd(terms.first, term)));
    for (std::int64_t done = 0; done < packing.width; done += plan_.lanes) {
      const TileShape shape{.columns = packing.width, .lhs = f32, .rhs = f32, .out = f32};
      Value loaded =
          load_columns(shape, packing.dtype, element(packing.dtype, from, row), static_cast<int>(done / plan_.lanes));
      Value at = b_.CreateAdd(b_.CreateMul(term, constant(packing.width)), constant(done));
      store_prefix(to_computed(packing.dtype, loaded), element(plan_.computed, to, at), packing.width - done);
    }
  });
}

// Rows that run along the terms: squares of lanes x lanes elements are loaded by rows, transposed, stored by columns.
void ContractEmitter::pack_transposed(const Packing& packing, Value from, Value to, Value first, Value last,
                                      Block terms) {
  const int lanes = plan_.lanes;
  Value whole = b_.CreateAnd(terms.count, constant(-lanes));
  for (std::int64_t group = 0; group < packing.width; group += lanes) {
    const auto valid = static_cast<int>(std::min<std::int64_t>(lanes, packing.width - group));
    std::vector<Value> rows;
    for (int i = 0; i < valid; ++i) {
      Value outer = minimum(b_.CreateAdd(first, constant(group + i)), last);
      Value start = b_.CreateAdd(offset(*packing.extents, *packing.strides, outer), terms.first);
      rows.push_back(element(packing.dtype, from, start));
    }
    emit_loop(b_, constant(0), whole, lanes, [&](Value term) {
      llvm::Type* type = scalar_.memory_type(packing.dtype, lanes);
      std::vector<Value> square;
      for (Value row : rows) {
        Value loaded =
            b_.CreateAlignedLoad(type, element(packing.dtype, row, term), llvm::Align(size_bytes(packing.dtype)));
        square.push_back(to_computed(packing.dtype, loaded));
      }
      square.resize(lanes, llvm::PoisonValue::get(square[0]->getType()));
      transpose(square);
      for (int t = 0; t < lanes; ++t) {
        Value at =
            b_.CreateAdd(b_.CreateMul(b_.CreateAdd(term, constant(t)), constant(packing.width)), constant(group));
        store_prefix(square[t], element(plan_.computed, to, at), valid);
      }
    });
  }
  pack_elements(packing, from, to, first, last, terms, whole);
}

// Any layout, from term `begin` on.
void ContractEmitter::pack_elements(const Packing& packing, Value from, Value to, Value first, Value last, Block terms,
                                    Value begin) {
  const kir::Contract::Dims& k = plan_.contract.k;
  emit_loop(b_, constant(0), constant(packing.width), 1, [&](Value i) {
    Value outer = offset(*packing.extents, *packing.strides, minimum(b_.CreateAdd(first, i), last));
    emit_loop(b_, begin, terms.count, 1, [&](Value term) {
      Value source = b_.CreateAdd(outer, offset(k.extents, *packing.term_strides, b_.CreateAdd(terms.first, term)));
      Value loaded = b_.CreateLoad(scalar_.memory_type(packing.dtype, 1), element(packing.dtype, from, source));
      Value at = b_.CreateAdd(b_.CreateMul(term, constant(packing.width)), i);
      b_.CreateStore(to_computed(packing.dtype, loaded), element(plan_.computed, to, at));
    });
  });
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

// The first `lanes` lanes of a vector (all, if it has no more).
void ContractEmitter::store_prefix(Value vector, Value at, std::int64_t lanes) {
  const TileShape shape{.columns = lanes, .lhs = f32, .rhs = f32, .out = f32};
  store_columns(shape, plan_.computed, at, 0, vector);
}

}  // namespace sheaf::codegen
