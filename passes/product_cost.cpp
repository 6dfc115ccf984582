// Estimates from shapes, and from how fast a GPU computes while memory moves a byte.
#include "passes/product_cost.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "ir/columns.h"
#include "ir/ops/attrs.h"
#include "ir/product_size.h"
#include "ir/schedule.h"
#include "passes/contraction_layout.h"

namespace sheaf::passes {

using namespace ir;

namespace {

double count(Value v) { return static_cast<double>(v.type().num_elements()); }

double operations_of(const Eqn& m) {
  constexpr double kRandomBits = 70, kIndex = 8;  // rounds of a cipher; a division and a choice
  const Lowering l = m.op->lower(m);
  if (const auto* map = std::get_if<lowering::Map>(&l)) return static_cast<double>(map->fn.nodes.size());
  return std::holds_alternative<lowering::RandomBits>(l) ? kRandomBits : kIndex;
}

}  // namespace

ProductSize::ProductSize(const Eqn& e) {
  const auto c = std::get<lowering::Contract>(e.op->lower(e));
  for (std::int64_t d : c.lhs_batch) batch *= static_cast<double>(e.in(0).dims()[d]);
  for (std::int64_t d : c.lhs_contract) terms *= static_cast<double>(e.in(0).dims()[d]);
  rows = count(e.in(0)) / std::max(1.0, batch * terms);
  columns = count(e.in(1)) / std::max(1.0, batch * terms);
}

bool ProductSize::is_small() const { return !is_for_library(batch, rows, columns, terms); }

bool takes_epilogue(const Eqn& e, const Target& target) {
  constexpr double kFewTerms = 1024;
  if (nest_of(e) != Nest::contract) return false;
  const ProductSize size(e);
  if (size.is_empty()) return false;
  if (!target.is_gpu()) return size.columns > 1 && !is_sliding(e.in(0)) && !is_sliding(e.in(1));
  if (size.is_small()) return true;
  const DType t = e.in(0).dtype();
  const bool is_on_tensor_cores =
      t == DType::bf16 || t == DType::f16 ||
      (t == DType::f32 && std::get<lowering::Contract>(e.op->lower(e)).precision == Precision::tf32);
  return target.compute_capability() >= 80 && is_on_tensor_cores && e.in(1).dtype() == t && size.terms <= kFewTerms;
}

bool adds_columns(const Eqn& e, const Eqn& reduce, const Target& target) {
  constexpr std::int64_t kManyRows = 256, kLanes = 64, kLeaf = 16384;
  if (target.is_gpu() || nest_of(reduce) != Nest::reduction) return false;
  const Lowering l = reduce.op->lower(reduce);
  const auto* over = std::get_if<lowering::Reduce>(&l);
  const auto c = std::get<lowering::Contract>(e.op->lower(e));
  const Shape& dims = e.out().dims();
  const std::size_t row_dims = e.in(0).dims().size() - c.lhs_contract.size();
  if (!over || !c.lhs_batch.empty() || over->dims.size() != row_dims) return false;
  std::vector<std::int64_t> reduced = over->dims;
  std::sort(reduced.begin(), reduced.end());
  if (!are_leading(reduced, dims.size())) return false;
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < row_dims; ++d) rows *= dims[d];
  const auto is_inner = [&](std::int64_t d) { return d >= static_cast<std::int64_t>(row_dims); };
  const bool lies_by_rows = !(e.in(0).eqn() && is_strided_view(*e.in(0).eqn())) &&
                            std::all_of(c.lhs_contract.begin(), c.lhs_contract.end(), is_inner);
  return lies_by_rows && rows >= kManyRows && rows % (rows > kLeaf ? kLeaf : kLanes) == 0;
}

PrologueCost::PrologueCost(const Eqn& e, int k, Value made) : stored_(static_cast<double>(made.type().bytes())) {
  constexpr double kTile = 128;  // rows or columns
  const ProductSize size(e);
  const double tiles = std::ceil((k == 0 ? size.columns : size.rows) / kTile);
  times_read_ = std::max(1.0, tiles * count(e.in(k)) / std::max(1.0, count(made)));
}

void PrologueCost::reads(Value v) { sources_ += static_cast<double>(v.type().bytes()); }

void PrologueCost::computes(const Eqn& m) { operations_ += operations_of(m) * count(m.out()); }

bool PrologueCost::pays() const {
  constexpr double kOperation = 1.0 / 20;  // some 60e12 operations while memory moves 3e12 bytes
  constexpr double kLaunch = 4 << 20;
  const double made = all_reads(sources_) + times_read_ * operations_ * kOperation;
  return made <= kLaunch + sources_ + operations_ * kOperation + stored_ + all_reads(stored_);
}

// All but the first find in the cache, three times as fast, what that has read.
double PrologueCost::all_reads(double bytes) const { return bytes * (1 + (times_read_ - 1) / 3); }

}  // namespace sheaf::passes
