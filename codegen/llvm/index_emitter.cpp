// Indices as LLVM integers: a scalar where all lanes agree, else a vector, of 32-bit lanes where the proven ranges
// allow.
#include <algorithm>
#include <limits>
#include <numeric>

#include "codegen/llvm/phase_emitter.h"
#include "ir/check.h"

namespace sheaf::codegen {
namespace {

bool fits(kir::Range range) {
  return range.lo >= std::numeric_limits<std::int32_t>::min() && range.hi <= std::numeric_limits<std::int32_t>::max();
}

}  // namespace

// True if every value that the index is made of has been computed.
bool PhaseEmitter::is_defined(kir::Index index) const {
  const kir::IndexPool& pool = phase_.indices;
  return std::all_of(pool.terms(index).begin(), pool.terms(index).end(), [&](const kir::Term& term) {
    const kir::Atom& atom = pool.atom(term.atom);
    if (atom.kind == kir::Atom::Kind::axis) return axes_[atom.id] != nullptr;
    return atom.kind == kir::Atom::Kind::value ? values_[atom.id] != nullptr : is_defined(atom.operand);
  });
}

bool PhaseEmitter::varies(kir::Index index) const {
  if (vector_.width == 1) return false;
  const kir::IndexPool& pool = phase_.indices;
  return std::any_of(pool.terms(index).begin(), pool.terms(index).end(), [&](const kir::Term& term) {
    const kir::Atom& atom = pool.atom(term.atom);
    if (atom.kind == kir::Atom::Kind::axis) return atom.id == vector_.axis;
    return atom.kind == kir::Atom::Kind::value ? lanes_of(values_[atom.id]) > 1 : varies(atom.operand);
  });
}

// The constant step from lane to lane, if there is one.
std::optional<std::int64_t> PhaseEmitter::lane_stride(kir::Index index) const {
  const kir::IndexPool& pool = phase_.indices;
  std::int64_t stride = 0;
  for (const kir::Term& term : pool.terms(index)) {
    const kir::Atom& atom = pool.atom(term.atom);
    if (atom.kind == kir::Atom::Kind::axis) {
      if (atom.id == vector_.axis) stride += term.coefficient;
    } else if (atom.kind == kir::Atom::Kind::value ? lanes_of(values_[atom.id]) > 1 : varies(atom.operand)) {
      return std::nullopt;
    }
  }
  return stride;
}

// Sums may wrap on the way, as long as the result and whatever is divided fit.
bool PhaseEmitter::fits_32_bits(kir::Index index) const {
  const kir::IndexPool& pool = phase_.indices;
  if (!fits(pool.range(index))) return false;
  return std::all_of(pool.terms(index).begin(), pool.terms(index).end(), [&](const kir::Term& term) {
    const kir::Atom& atom = pool.atom(term.atom);
    const bool is_leaf = atom.kind == kir::Atom::Kind::axis || atom.kind == kir::Atom::Kind::value;
    return is_leaf || (fits_32_bits(atom.operand) && atom.divisor <= std::numeric_limits<std::int32_t>::max());
  });
}

llvm::Value* PhaseEmitter::index_constant(std::int64_t value, int bits) const {
  return llvm::ConstantInt::get(llvm::IntegerType::get(function_.getContext(), bits), value, true);
}

std::pair<llvm::Value*, llvm::Value*> PhaseEmitter::same_lanes(Value a, Value b) {
  const int lanes = std::max(lanes_of(a), lanes_of(b));
  return {scalar_.splat(a, lanes), scalar_.splat(b, lanes)};
}

// Of a narrow dtype whatever the width that it takes to get there: what is divided may be larger than the quotient.
llvm::Value* PhaseEmitter::index_value(const kir::IndexValue& value, DType dtype) {
  const int bits = 8 * size_bytes(dtype);
  Value wide = index_value(value.index, fits_32_bits(value.index) ? bits : 64);
  return b_.CreateTrunc(wide, wide->getType()->getWithNewBitWidth(bits));
}

llvm::Value* PhaseEmitter::index_value(kir::Index index, int bits) {
  const kir::IndexPool& pool = phase_.indices;
  Value uniform = index_constant(pool.offset(index), bits), varying = nullptr;
  for (const kir::Term& term : pool.terms(index)) {
    Value atom = atom_value(pool.atom(term.atom), bits);
    if (term.coefficient != 1) {
      atom = b_.CreateMul(atom, scalar_.splat(index_constant(term.coefficient, bits), lanes_of(atom)));
    }
    Value& sum = lanes_of(atom) > 1 ? varying : uniform;
    sum = sum ? b_.CreateAdd(sum, atom) : atom;
  }
  return varying ? b_.CreateAdd(varying, scalar_.splat(uniform, lanes_of(varying))) : uniform;
}

llvm::Value* PhaseEmitter::atom_value(const kir::Atom& atom, int bits) {
  switch (atom.kind) {
    case kir::Atom::Kind::axis: {
      Value first = b_.CreateIntCast(axes_[atom.id], b_.getIntNTy(bits), true);
      if (atom.id != vector_.axis || vector_.width == 1) return first;
      std::vector<llvm::Constant*> steps(vector_.width);
      for (int i = 0; i < vector_.width; ++i) steps[i] = llvm::cast<llvm::Constant>(index_constant(i, bits));
      return b_.CreateAdd(scalar_.splat(first, vector_.width), llvm::ConstantVector::get(steps));
    }
    case kir::Atom::Kind::value: {
      Value value = values_[atom.id];
      llvm::Type* element = b_.getIntNTy(bits);
      const int lanes = lanes_of(value);
      return b_.CreateIntCast(value, lanes == 1 ? element : llvm::FixedVectorType::get(element, lanes), true);
    }
    default: return divide_index(atom, bits);
  }
}

// Division by a constant rounding toward -inf, and its remainder. Powers of two are a shift and a mask; what cannot be
// negative divides without sign.
llvm::Value* PhaseEmitter::divide_index(const kir::Atom& atom, int bits) {
  const kir::Range range = phase_.indices.range(atom.operand);
  const bool is_mod = atom.kind == kir::Atom::Kind::mod;
  // In 32 bits the operand may use the whole range only if it was proven to fit, which index_value's caller did.
  Value x = index_value(atom.operand, bits);
  auto constant = [&](std::int64_t v) { return scalar_.splat(index_constant(v, bits), lanes_of(x)); };
  Value divisor = constant(atom.divisor);
  if (std::has_single_bit(static_cast<std::uint64_t>(atom.divisor))) {
    if (is_mod) return b_.CreateAnd(x, constant(atom.divisor - 1));
    return b_.CreateAShr(x, constant(std::countr_zero(static_cast<std::uint64_t>(atom.divisor))));
  }
  if (range.lo >= 0) return is_mod ? b_.CreateURem(x, divisor) : b_.CreateUDiv(x, divisor);
  Value quotient = b_.CreateSDiv(x, divisor);
  Value rest = b_.CreateSub(x, b_.CreateMul(quotient, divisor));
  Value is_low = b_.CreateICmpSLT(rest, constant(0));
  if (is_mod) return b_.CreateSelect(is_low, b_.CreateAdd(rest, divisor), rest);
  return b_.CreateSelect(is_low, b_.CreateSub(quotient, constant(1)), quotient);
}

}  // namespace sheaf::codegen
