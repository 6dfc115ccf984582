// Chooses tiles and blocks after Goto: a packed block of the right operand stays in the L2 cache, a panel of the left
// one in L1, and sums in registers. Small and flat products skip packing, which would cost more than it saves.
// Reference: K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008.
#include "codegen/contract.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "codegen/kir/contract.h"
#include "codegen/kir/estimate.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/check.h"

namespace sheaf::codegen {
namespace {

using Dims = kir::Contract::Dims;
using kir::merged;
using kir::size_of;
using kir::swapped;

constexpr std::vector<std::int64_t> Dims::* kLists[] = {&Dims::extents, &Dims::lhs_strides, &Dims::rhs_strides,
                                                        &Dims::out_strides};
constexpr std::int64_t kShortestRun = 4;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

// Without dims of extent 1; always leaves one dim.
Dims without_ones(Dims dims) {
  for (std::size_t i = dims.extents.size(); i-- > 0 && dims.extents.size() > 1;) {
    if (dims.extents[i] != 1) continue;
    for (auto list : kLists) (dims.*list).erase((dims.*list).begin() + static_cast<std::ptrdiff_t>(i));
  }
  return dims.extents.empty() ? merged(dims) : dims;
}

bool is_one_dim(const Dims& dims) { return dims.extents.size() == 1; }

// True if the dim is a run of neighbours in an operand with these strides.
bool is_run(const Dims& dims, const std::vector<std::int64_t>& strides) {
  return is_one_dim(dims) && (strides[0] == 1 || dims.extents[0] == 1);
}

// Where the innermost dim of the batch is a run in all three and the result has no columns, as with a kernel of its own
// for each channel: that dim becomes the columns, which lhs then has as well.
void take_batch_as_columns(kir::Contract& c) {
  Dims& batch = c.batch;
  const auto is_last_run = [&](const std::vector<std::int64_t>& strides) { return strides.back() == 1; };
  if (size_of(c.n) != 1 || batch.extents.back() < kShortestRun || !is_last_run(batch.lhs_strides) ||
      !is_last_run(batch.rhs_strides) || !is_last_run(batch.out_strides))
    return;
  c.n = {};
  for (auto list : kLists) {
    (c.n.*list).push_back((batch.*list).back());
    (batch.*list).pop_back();
  }
  batch = merged(batch);
}

// Narrow integers wrap the same when computed in 32 bits and cut at the end.
DType computed_dtype(DType accumulate) {
  if (accumulate == DType::f32 || accumulate == DType::f64) return accumulate;
  if (is_bool(accumulate)) return DType::u8;
  SHEAF_CHECK(is_int(accumulate), fmt::format("a contraction that accumulates in {}", name(accumulate)));
  return size_bytes(accumulate) == 8 ? DType::u64 : DType::u32;
}

bool is_byte(DType t) { return t == DType::i8 || t == DType::u8; }
bool fits_16_bits(DType t) { return is_byte(t) || t == DType::i16; }

// Exact for integers; for bf16 each term is added as by itself.
int lane_terms_of(const kir::Contract& c, DType computed, const CpuTarget& target) {
  if (c.accumulate == DType::f32 && c.lhs == DType::bf16 && c.rhs == DType::bf16) return target.has_bf16_dot() ? 2 : 1;
  if (computed != DType::u32) return 1;
  if (is_byte(c.lhs) && is_byte(c.rhs) && target.has_int8_dot()) return 4;
  return fits_16_bits(c.lhs) && fits_16_bits(c.rhs) ? 2 : 1;
}

struct Tile {
  int rows, vectors, groups = 1;
};

constexpr double kRereadCost = 0.3;  // in loads per multiply-add; measured

constexpr double kFewerCost = 0.01;  // of a row less in each tile

// The register tile that wastes least on the ragged edges: all but a few registers hold sums,
// or a row or two less where the rows then come out even.
Tile choose_tile(const ContractPlan& p, const CpuTarget& target) {
  struct Candidate {
    Tile most;
    double penalty;
  };  // the penalty: loads per multiply-add, measured
  static constexpr Candidate kMany[] = {{{14, 2}, 1.0}, {{9, 3}, 1.02}, {{24, 1}, 1.15}};
  static constexpr Candidate kFew[] = {{{6, 2}, 1.0}, {{4, 3}, 1.02}, {{12, 1}, 1.15}};
  Tile best{};
  double best_cost = 0;
  for (const auto& [most, penalty] : target.vector_registers >= 32 ? kMany : kFew) {
    const std::int64_t most_rows = most.rows - (p.has_offset_row() ? 1 : 0);
    for (const int fewer : {0, 1, 2}) {
      const std::int64_t tiles = std::max<std::int64_t>(1, ceil_div(p.rows, most_rows - fewer));
      const std::int64_t rows = std::max<std::int64_t>(1, ceil_div(p.rows, tiles));
      const double cost = static_cast<double>(rows * tiles) *
                          static_cast<double>(round_up(std::max<std::int64_t>(p.columns, 1), most.vectors * p.lanes)) *
                          penalty * (1 + kFewerCost * fewer);
      if (best.rows == 0 || cost < best_cost) {
        best = {static_cast<int>(rows), most.vectors};
        best_cost = cost;
      }
    }
  }
  return best;
}

// Of a part of as many rows.
Tile choose_tile(ContractPlan part, std::int64_t rows, const CpuTarget& target) {
  part.rows = rows;
  return choose_tile(part, target);
}

// For few rows the right operand is read once, so long runs of it count: as many columns as registers allow. The tile
// divides the rows, so that none is computed twice where sums go on from block to block.
Tile choose_flat_tile(const ContractPlan& p, const CpuTarget& target) {
  const std::int64_t sums = target.vector_registers >= 32 ? 28 : 12;
  const std::int64_t vectors_there = std::max<std::int64_t>(1, ceil_div(p.columns, p.lanes));
  Tile best{1, 1};
  double best_cost = std::numeric_limits<double>::infinity();
  for (std::int64_t rows = 1; rows <= p.rows && rows <= sums + 1; ++rows) {
    if (p.rows % rows != 0) continue;
    const auto most = std::min({std::int64_t{16}, std::max<std::int64_t>(1, sums / rows), vectors_there});
    std::int64_t vectors = most;
    while (vectors > 1 && vectors > most / 2 && p.columns % (vectors * p.lanes) != 0) --vectors;
    if (p.columns % (vectors * p.lanes) != 0) vectors = most;
    // Loads per multiply-add, and reading the right operand once more for each tile of rows.
    const double cost = static_cast<double>(rows + vectors) / static_cast<double>(rows * vectors) +
                        kRereadCost * static_cast<double>(p.rows / rows);
    if (cost < best_cost) {
      best = {static_cast<int>(rows), static_cast<int>(vectors)};
      best_cost = cost;
    }
  }
  return best;
}

constexpr std::int64_t kFlatRows = 16;
constexpr std::int64_t kDirectBytes = 300'000;  // of the right operand: it then stays in L2 without packing
constexpr std::int64_t kDirectWork = 1 << 13;  // multiply-adds, where packing would make them faster
constexpr std::int64_t kFarBytes = 1 << 20;
constexpr std::int64_t kFarColumns = 2048;
constexpr std::int64_t kDirectUnit = 1 << 20;  // multiply-adds
constexpr std::int64_t kShortestUnit = 4;  // tiles that share what they read of the right operand
constexpr std::int64_t kBlockTerms = 320;  // of four bytes: 14 rows of them are two thirds of the smallest L1 cache
constexpr std::int64_t kBlockRows = 336;
constexpr std::int64_t kBlockColumns = 512;
constexpr std::int64_t kMostSharedBytes = 256 << 20;
constexpr std::int64_t kPackedPs = 300;  // per element
constexpr std::int64_t kStreamedUnit = 1 << 20;  // multiply-adds
constexpr std::int64_t kWantedUnits = 16;
constexpr std::int64_t kSmallestUnit = 8'000'000;  // multiply-adds

constexpr std::int64_t kPanelBytes = 1 << 20;  // of the right operand, for one column of tiles: it stays in L2
constexpr std::int64_t kFewestPositions = 32;  // that a packed right operand is for
constexpr std::int64_t kBlockBytes = 1 << 20;  // of the terms of a block, in all rows and columns
constexpr std::int64_t kBlockedUnits = 8;  // each of them reads all terms, so few are better
constexpr std::int64_t kFewestTerms = 96;  // of a block: going back to the sums then costs little
constexpr std::int64_t kSumBytes = 1 << 19;  // of the sums that one unit goes back to with every block of terms
constexpr std::int64_t kTileStart = 15;  // cycles, besides one for each of its registers

bool can_be_direct(const ContractPlan& p) {
  const kir::Contract& c = p.contract;
  const bool fits = is_one_dim(c.m) && is_one_dim(c.k) && is_run(c.n, c.n.rhs_strides) && is_run(c.n, c.n.out_strides);
  const std::int64_t rhs_bytes = p.terms * p.columns * size_bytes(c.rhs);
  if (!fits || p.rows <= kFlatRows) return fits;
  return p.lane_terms == 1 ? rhs_bytes <= kDirectBytes : p.rows * p.columns * p.terms <= kDirectWork;
}

// Few rows against columns that lie along their terms.
bool can_be_turned(const ContractPlan& p) {
  const kir::Contract& c = p.contract;
  const bool fits = is_one_dim(c.m) && is_one_dim(c.n) && is_run(c.k, c.k.rhs_strides) && is_run(c.n, c.n.out_strides);
  return fits && p.rows <= kFlatRows && p.columns >= p.lanes && p.packed_lanes(p.terms) >= p.lanes && p.lanes <= 16;
}

// Few rows against a right operand from beyond L2.
bool is_flat_and_far(const ContractPlan& p) {
  return p.rows > 0 && p.rows <= kFlatRows && p.terms * p.columns * size_bytes(p.contract.rhs) > kFarBytes;
}

// True if the result itself can hold sums of some of the terms.
bool holds_sums(const ContractPlan& p) {
  const kir::Contract& c = p.contract;
  return is_run(c.n, c.n.out_strides) && size_bytes(c.out) == size_bytes(p.computed) &&
         is_float(c.out) == is_float(p.computed);
}

void hold_sums(ContractPlan& p, std::int64_t rows, std::int64_t columns) {
  p.sum_stride = columns;
  p.sum_bytes = round_up(rows * columns * size_bytes(p.computed), 64);
}

void plan_direct(ContractPlan& p, const CpuTarget& target) {
  const Tile tile = p.rows <= kFlatRows ? choose_flat_tile(p, target) : choose_tile(p, target);
  p.is_direct = true;
  p.tile_rows = tile.rows;
  p.tile_vectors = tile.vectors;
  p.block_terms = p.terms;
  // A few tiles of whole rows, which are written as they lie in memory, then more of them until a unit is worth its
  // hand-over.
  const std::int64_t tile_work = std::max<std::int64_t>(1, p.terms * p.tile_rows * p.tile_columns());
  const std::int64_t wanted = std::max<std::int64_t>(1, kDirectUnit / tile_work);
  const std::int64_t row_tiles = std::max<std::int64_t>(1, p.rows / p.tile_rows);
  const std::int64_t column_tiles = std::max<std::int64_t>(1, ceil_div(p.columns, p.tile_columns()));
  const std::int64_t wide = std::clamp<std::int64_t>(wanted / std::min(row_tiles, kShortestUnit), 1, column_tiles);
  p.block_rows = std::clamp<std::int64_t>(wanted / wide, 1, row_tiles) * p.tile_rows;
  p.block_columns = wide * p.tile_columns();
  // The last row block takes the rest, and its last tile overlaps the one before: so no tile has fewer rows.
  p.row_blocks = p.rows == 0 ? 0 : std::max<std::int64_t>(1, p.rows / p.block_rows);
  p.column_blocks = ceil_div(p.columns, p.block_columns);
  if (p.epilogue == EpilogueOf::sums) hold_sums(p, p.tile_rows, p.tile_columns());
}

// Tiles lie along lanes, and a column of them meets one row of each lane after the other.
void plan_direct_lanes(ContractPlan& p, const CpuTarget& target) {
  constexpr std::int64_t kMostBlocks = 4;  // of 16 lanes, two tiles
  p.is_direct = true;
  p.block_terms = p.terms;
  p.block_rows = kir::kLanes;
  const auto column_work = [&] {
    const Tile tile = choose_tile(p, p.block_rows, target);
    p.tile_rows = tile.rows;
    p.tile_vectors = tile.vectors;
    return std::max<std::int64_t>(1, p.terms * p.block_rows * p.lane_rows * p.tile_columns());
  };
  std::int64_t work = column_work();
  for (; work > kDirectUnit && p.block_rows > kir::kLanes / kMostBlocks; work = column_work()) p.block_rows /= 2;
  const std::int64_t column_tiles = ceil_div(p.columns, p.tile_columns());
  p.block_columns = std::clamp<std::int64_t>(kDirectUnit / work, 1, column_tiles) * p.tile_columns();
  p.row_blocks = p.rows / (p.block_rows * p.lane_rows);
  p.column_blocks = ceil_div(p.columns, p.block_columns);
  if (p.epilogue == EpilogueOf::sums) hold_sums(p, p.tile_rows, p.tile_columns());
}

// Of each lane of a leaf; 0: some have fewer, or they do not lie by as many dims.
std::int64_t rows_of_lanes(const ContractPlan& p) {
  const std::int64_t leaf = std::min(p.rows, kir::kLeaf), inner = p.contract.m.extents.back();
  const bool are_whole = p.rows > 0 && leaf % kir::kLanes == 0 && p.rows % leaf == 0;
  const bool are_dims = is_one_dim(p.contract.m) || (p.rows == leaf && inner % kir::kLanes == 0);
  return are_whole && are_dims ? leaf / kir::kLanes : 0;
}

// Leaves, the lanes of each, and the rows of each lane become dims of m, in this order.
void order_by_lanes(ContractPlan& p) {
  Dims& m = p.contract.m;
  const std::int64_t lanes = kir::kLanes, leaf = lanes * p.lane_rows;
  const std::int64_t leaf_rows = is_one_dim(m) ? leaf : m.extents.back();
  const std::int64_t leaves = is_one_dim(m) ? p.rows / leaf : 1;
  m.extents.back() = leaf_rows / lanes;
  m.extents.insert(m.extents.begin(), {leaves, lanes});
  for (auto strides : {&Dims::lhs_strides, &Dims::rhs_strides, &Dims::out_strides}) {
    std::vector<std::int64_t>& list = m.*strides;
    const std::int64_t step = list.back();
    list.back() = step * lanes;
    list.insert(list.begin(), {step * leaf, step});
  }
}

bool has_many_terms(const ContractPlan& p) {
  const std::int64_t widest = p.contract.m.extents.back() + 2 * std::int64_t{p.lanes};
  return p.terms * widest * size_bytes(p.contract.rhs) > kPanelBytes && holds_sums(p);
}

// All positions meet the same right operand, as those of a convolution do, so that it may be packed for all of them.
bool can_pack_columns(const ContractPlan& p) {
  const std::vector<std::int64_t>& strides = p.contract.batch.rhs_strides;
  const bool is_shared = std::all_of(strides.begin(), strides.end(), [](std::int64_t s) { return s == 0; });
  return is_shared && !p.has_lhs_columns && p.terms > 0 && !has_many_terms(p);
}

// Rows or terms in several dims, as a convolution has: neighbouring rows read nearly the same elements, and packing
// would write each of them many times over.
bool can_slide(const ContractPlan& p) {
  const kir::Contract& c = p.contract;
  const bool has_columns = is_run(c.n, c.n.rhs_strides) || can_pack_columns(p);
  return has_columns && is_run(c.n, c.n.out_strides) && c.m.extents.back() >= kShortestRun;
}

bool can_be_boxed(const ContractPlan& p) {
  const Dims& n = p.contract.n;
  const bool has_columns = is_run(n, n.out_strides) && (is_run(n, n.rhs_strides) || can_pack_columns(p));
  return has_columns && !p.is_swapped && !p.is_empty() && p.terms > 0 && !has_many_terms(p);
}

// A column of tiles is a few short runs in each of many rows, which caches keep badly: where the right operand lies
// beyond L2, panels are worth a copy that many positions share.
bool packs_columns(const ContractPlan& p) {
  if (!can_pack_columns(p)) return false;
  if (!is_run(p.contract.n, p.contract.n.rhs_strides)) return true;
  return p.terms * p.columns * size_bytes(p.contract.rhs) > kPanelBytes && p.batches * p.rows >= kFewestPositions;
}

// All dims of m but the last become dims of the batch.
void part_rows(ContractPlan& p) {
  Dims &m = p.contract.m, &batch = p.contract.batch;
  const auto move = [](std::vector<std::int64_t>& from, std::vector<std::int64_t>& to) {
    to.insert(to.end(), from.begin(), from.end() - 1);
    from.erase(from.begin(), from.end() - 1);
  };
  for (auto list : kLists) move(m.*list, batch.*list);
  p.batches = size_of(batch);
  p.rows = size_of(m);
}

// The dim of the batch of which `groups` elements can share a tile: one of the `rows_dims` that were rows; -1 for none.
int grouped_dim(const Dims& batch, int rows_dims, std::int64_t groups) {
  const int rank = static_cast<int>(batch.extents.size());
  for (int d = rank - 1; d >= rank - rows_dims; --d)
    if (batch.extents[d] % groups == 0 && batch.extents[d] > 0) return d;
  return -1;
}

// The tile of least time: two multiply-adds and two loads of a vector in a cycle, a multiply-add every four cycles in
// each register. Where sums go on from block to block the tile divides the rows, so that none is computed twice;
// otherwise the right operand comes from L2, and short rows of several positions may share a tile to make up for that.
Tile choose_sliding_tile(const ContractPlan& p, const CpuTarget& target, bool continues, int rows_dims) {
  const std::int64_t sums = target.vector_registers >= 32 ? 28 : 12;
  Tile best{1, 1};
  double best_cycles = std::numeric_limits<double>::infinity();
  const auto consider = [&](std::int64_t rows, std::int64_t vectors, std::int64_t groups) {
    const std::int64_t all = rows * groups, tiles = ceil_div(p.rows, rows) * ceil_div(p.columns, vectors * p.lanes);
    const std::int64_t loads = vectors + (p.has_lhs_columns ? all * vectors : all);
    // Of each term.
    const std::int64_t half_cycles = std::max({all * vectors, loads, std::int64_t{8}}) + (continues ? 0 : vectors);
    const auto cycles = static_cast<double>(tiles * (p.terms * half_cycles + 2 * (all * vectors + kTileStart)));
    if (cycles / static_cast<double>(groups) >= best_cycles) return;
    best = {static_cast<int>(rows), static_cast<int>(vectors), static_cast<int>(groups)};
    best_cycles = cycles / static_cast<double>(groups);
  };
  for (std::int64_t vectors = 1; vectors <= 4; ++vectors)
    for (std::int64_t rows = 1; rows <= std::min(p.rows, sums / vectors); ++rows)
      if (!continues || p.rows % rows == 0) consider(rows, vectors, 1);
  for (std::int64_t vectors = 1; vectors <= 4 && !continues; ++vectors)
    for (std::int64_t groups = 2; p.rows > 0 && groups * p.rows * vectors <= sums; ++groups)
      if (grouped_dim(p.contract.batch, rows_dims, groups) >= 0) consider(p.rows, vectors, groups);
  return best;
}

void group_rows(ContractPlan& p, int groups, int rows_dims) {
  p.tile_groups = groups;
  if (groups == 1) return;
  Dims& batch = p.contract.batch;
  const int d = grouped_dim(batch, rows_dims, groups);
  p.lhs_group_stride = batch.lhs_strides[d];
  p.out_group_stride = batch.out_strides[d];
  batch.extents[d] /= groups;
  for (auto strides : {&Dims::lhs_strides, &Dims::rhs_strides, &Dims::out_strides}) (batch.*strides)[d] *= groups;
  p.batches /= groups;
}

// The largest divisor of n that is at most `most`; at least 1.
std::int64_t divisor_below(std::int64_t n, std::int64_t most) {
  std::int64_t d = std::clamp<std::int64_t>(most, 1, n);
  while (n % d != 0) --d;
  return d;
}

// Blocks of about `wanted` terms: whole inner dims of k, and a part of the next one, which becomes two dims.
void part_terms(ContractPlan& p, std::int64_t wanted) {
  Dims& k = p.contract.k;
  std::size_t inner = k.extents.size();
  std::int64_t terms = 1;
  while (inner > 0 && terms * k.extents[inner - 1] <= wanted) terms *= k.extents[--inner];
  if (inner == 0) return;
  const std::int64_t part = divisor_below(k.extents[inner - 1], wanted / terms);
  if (terms * part < kFewestTerms) return;
  k.extents[inner - 1] /= part;
  k.extents.insert(k.extents.begin() + inner, part);
  for (auto strides : {&Dims::lhs_strides, &Dims::rhs_strides, &Dims::out_strides}) {
    std::vector<std::int64_t>& list = k.*strides;
    list.insert(list.begin() + inner, list[inner - 1]);
    list[inner - 1] *= part;
  }
  p.blocked_dims = static_cast<int>(inner);
  p.block_terms = part;
  p.term_blocks = p.terms / (terms * part);
}

// Elements of lhs, in all positions of the rows: windows that are strides apart meet more of them than rows.
std::int64_t lhs_per_term(const ContractPlan& p) {
  const Dims& k = p.contract.k;
  const std::int64_t met = p.has_lhs_columns ? p.columns : p.rows;
  if (k.extents.size() < 2 || met == 0) return met;
  const std::int64_t run = k.extents.back() * met;
  return met * std::max<std::int64_t>(1, k.lhs_strides[k.lhs_strides.size() - 2] / std::max<std::int64_t>(run, 1));
}

void share_packing(ContractPlan& p, bool is_lhs) {
  const std::int64_t batches = p.is_direct ? 1 : p.batches;  // those of a direct plan share it
  const std::int64_t blocks = batches * (is_lhs ? p.row_blocks : p.column_blocks);
  const std::int64_t count = blocks * (is_lhs ? p.block_rows : p.block_columns) * p.packed_lanes(p.terms);
  const std::int64_t units = blocks * p.term_blocks;
  p.shared.push_back({is_lhs, count * size_bytes(p.packed)});
  p.phases.push_back({.units = units, .unit_ps = kPackedPs * count / std::max<std::int64_t>(units, 1)});
}

void share_columns(ContractPlan& p) {
  p.lane_terms = 1;
  p.packed = p.computed;
  share_packing(p, false);
}

// Sums of very many terms, as in the gradient of a kernel, are taken over a few at a time, whose rows and columns stay
// in L2 for all tiles and batches of a unit, as do their sums; otherwise a column of the right operand does, for all
// rows of all batches.
void plan_sliding(ContractPlan& p, const CpuTarget& target, const Dims& unmerged_rows) {
  const int bytes = size_bytes(p.contract.rhs);
  const bool are_many = has_many_terms(p), packs = packs_columns(p);
  if (are_many && unmerged_rows.extents.back() >= kFlatRows) p.contract.m = unmerged_rows;
  const std::int64_t all_rows = p.rows;
  const int rows_dims = static_cast<int>(p.contract.m.extents.size()) - 1;
  part_rows(p);
  p.block_terms = p.contract.k.extents[0];
  p.term_blocks = 1;
  if (are_many) part_terms(p, kBlockBytes / ((lhs_per_term(p) + p.columns) * bytes));
  const bool continues = p.term_blocks > 1;
  if (continues) p.unit_batches = std::max<std::int64_t>(1, all_rows / std::max<std::int64_t>(1, p.rows));
  const Tile tile = choose_sliding_tile(p, target, continues, rows_dims);
  group_rows(p, tile.groups, rows_dims);
  p.is_direct = true;
  // What fits into L2 whole meets each position once; otherwise each column of it meets all positions.
  p.has_columns_first = p.terms * p.columns * bytes > kPanelBytes;
  p.tile_rows = tile.rows;
  p.tile_vectors = tile.vectors;

  const std::int64_t row_tiles = std::max<std::int64_t>(1, p.rows / p.tile_rows);
  const std::int64_t column_tiles = std::max<std::int64_t>(1, ceil_div(p.columns, p.tile_columns()));
  std::int64_t tall = row_tiles, wide = column_tiles;  // tiles of a unit
  const std::int64_t tile_work = std::max<std::int64_t>(1, p.terms * p.tile_groups * p.tile_rows * p.tile_columns());
  const auto units = [&] {
    return p.batches / p.unit_batches * ceil_div(row_tiles, tall) * ceil_div(column_tiles, wide);
  };
  const auto is_too_large = [&] {
    const std::int64_t sums = p.unit_batches * tall * wide * p.tile_rows * p.tile_columns();
    if (continues) return units() < kBlockedUnits || sums * bytes > kSumBytes;
    return tall * wide * tile_work > kDirectUnit || wide * p.tile_columns() * p.terms * bytes > kPanelBytes;
  };
  // Every unit reads the terms of its rows and of its columns: where they go by blocks, it is as square as can be.
  const auto is_wide = [&] { return !continues || wide * p.tile_columns() >= tall * p.tile_rows; };
  while (wide * tall > 1 && is_too_large()) {
    std::int64_t& longer = wide > 1 && (tall == 1 || is_wide()) ? wide : tall;
    longer = ceil_div(longer, 2);
  }
  p.block_rows = tall * p.tile_rows;
  p.block_columns = wide * p.tile_columns();
  p.row_blocks = p.rows == 0 ? 0 : std::max<std::int64_t>(1, p.rows / p.block_rows);
  p.column_blocks = ceil_div(p.columns, p.block_columns);
  if (packs) share_columns(p);
}

// Zeros around lhs: each unit has a box of it, for all rows of some positions, with as many columns as stay in L2.
void plan_boxed(ContractPlan& p, const CpuTarget& target, BoxedContract boxed) {
  p.contract = std::move(boxed.contract);
  p.box = std::move(boxed.box);
  p.is_direct = true;
  p.batches = size_of(p.contract.batch);
  p.rows = size_of(p.contract.m);
  p.block_terms = p.contract.k.extents[0];
  const bool packs = packs_columns(p);
  const Tile tile = choose_sliding_tile(p, target, false, 1);
  group_rows(p, tile.groups, 1);
  p.unit_batches = p.contract.batch.extents.back();
  p.tile_rows = tile.rows;
  p.tile_vectors = tile.vectors;
  const std::int64_t column_bytes = p.terms * size_bytes(p.contract.rhs), columns = p.tile_columns();
  p.has_columns_first = column_bytes * p.columns > kPanelBytes;
  p.block_rows = p.rows / p.tile_rows * p.tile_rows;
  p.row_blocks = 1;
  p.block_columns =
      std::clamp(kPanelBytes / column_bytes / columns, std::int64_t{1}, ceil_div(p.columns, columns)) * columns;
  p.column_blocks = ceil_div(p.columns, p.block_columns);
  p.lhs_bytes = round_up(p.box->count * size_bytes(p.contract.lhs), 64);
  if (packs) share_columns(p);
}

// The same once for all units, where none has a box of its own.
void share_image(ContractPlan& p) {
  const kir::Contract::Padding& padding = *p.contract.padding;
  const DType dtype = p.is_swapped ? p.contract.rhs : p.contract.lhs;
  std::int64_t count = 1;
  for (const std::int64_t extent : padding.padded) count *= extent;
  const std::int64_t row = row_box(padding).count;
  p.shared.push_back({.is_lhs = !p.is_swapped, .bytes = count * size_bytes(dtype), .is_image = true});
  p.phases.push_back({.units = row == 0 ? 0 : count / row, .unit_ps = kPackedPs * row / 2});
}

// Sums over places, as in the gradient of a kernel: a copy of all of them would be as long as the array. Each read can
// know its place along the dims that have padding, by dims that are not merged. (Sums over a few taps are faster from a
// box, whose lines come in order.)
void read_around(ContractPlan& p, const Dims& terms, const Dims& unmerged_rows) {
  kir::Contract unmerged = p.contract;
  unmerged.m = unmerged_rows;
  unmerged.k = without_ones(terms);
  if (p.is_swapped || p.is_empty() || p.terms <= p.rows || !keeps_to_dims(unmerged)) return;
  p.contract = std::move(unmerged);
  p.reads_around = true;
}

// A unit is a few vectors of columns, which come from memory, each line of them once.
void plan_turned(ContractPlan& p) {
  p.is_streamed = true;
  p.is_turned = true;
  p.tile_rows = static_cast<int>(p.rows);
  p.block_rows = p.rows;
  p.block_terms = p.terms;
  const std::int64_t work = std::max<std::int64_t>(1, p.terms * p.rows * p.lanes);
  p.block_columns = std::max<std::int64_t>(1, kStreamedUnit / work) * p.lanes;
  p.column_blocks = std::max<std::int64_t>(1, p.columns / p.block_columns);  // the last one takes the rest
  if (p.epilogue == EpilogueOf::sums) hold_sums(p, p.rows, p.lanes);
  share_packing(p, true);
}

// The right operand is read a few long rows at a time, which the hardware prefetches as that many streams; a column of
// tiles would touch another page with every row.
void plan_streamed_rows(ContractPlan& p, const CpuTarget& target) {
  if (p.terms % p.lane_terms != 0) {
    p.lane_terms = 1;
    p.packed = p.computed;
  }
  const Tile tile = choose_flat_tile(p, target);
  p.is_streamed = true;
  p.tile_rows = tile.rows;
  p.tile_vectors = tile.vectors;
  p.block_rows = p.rows;
  p.block_terms = (p.rows <= 4 ? 8 : 16) * p.lane_terms;
  p.term_blocks = ceil_div(p.terms, p.block_terms);
  p.block_columns = round_up(std::min(kFarColumns, p.columns), p.tile_columns());
  p.column_blocks = ceil_div(p.columns, p.block_columns);
  p.has_sum_block = !holds_sums(p) || p.epilogue == EpilogueOf::sums;
  if (p.has_sum_block) hold_sums(p, p.rows, p.block_columns);
  share_packing(p, true);
}

// About as many terms, but whole runs along the innermost dim of k, or equal parts of one: they are then packed in
// vectors.
std::int64_t block_of_runs(const Dims& k, std::int64_t terms) {
  const std::int64_t run = k.extents.back();
  if (k.extents.size() == 1 || run < kShortestRun) return terms;
  const std::int64_t part = run <= terms ? terms / run * run : divisor_below(run, terms);
  return 2 * part > terms ? part : terms;
}

void plan_packed(ContractPlan& p, const CpuTarget& target) {
  if (p.lane_rows > 0) order_by_lanes(p);
  const std::int64_t together = std::max<std::int64_t>(1, p.lane_rows);  // rows that no two units share
  const int bytes = size_bytes(p.computed);
  const auto take_tile = [&](std::int64_t rows) {
    const Tile tile = choose_tile(p, rows, target);
    p.tile_rows = tile.rows;
    p.tile_vectors = tile.vectors;
  };
  take_tile(p.rows);
  p.term_blocks = std::max<std::int64_t>(1, ceil_div(p.packed_lanes(p.terms), kBlockTerms * 4 / bytes));
  // Whole squares, which is how rows that run along their terms are packed.
  const std::int64_t step = p.term_blocks > 1 ? p.lanes * p.lane_terms : p.lane_terms;
  p.block_terms = round_up(ceil_div(p.terms, p.term_blocks), step);
  if (p.lane_terms == 1) p.block_terms = block_of_runs(p.contract.k, p.block_terms);
  p.term_blocks = std::max<std::int64_t>(1, ceil_div(p.terms, std::max<std::int64_t>(p.block_terms, 1)));

  std::int64_t most_rows = kBlockRows, most_columns = kBlockColumns;
  auto block = [&] {
    const std::int64_t runs = p.rows / together;
    p.row_blocks = ceil_div(runs, std::max<std::int64_t>(1, most_rows / together));
    p.unit_rows = ceil_div(runs, std::max<std::int64_t>(p.row_blocks, 1)) * together;
    if (p.lane_rows > 0) take_tile(p.unit_rows);
    p.block_rows = round_up(p.unit_rows, p.tile_rows);
    if (p.lane_rows == 0) p.unit_rows = p.block_rows;
    p.row_blocks = ceil_div(p.rows, std::max<std::int64_t>(p.unit_rows, 1));
    p.column_blocks = ceil_div(p.columns, most_columns);
    p.block_columns = round_up(ceil_div(p.columns, std::max<std::int64_t>(p.column_blocks, 1)), p.tile_columns());
    p.column_blocks = ceil_div(p.columns, std::max<std::int64_t>(p.block_columns, 1));
    return p.batches * p.row_blocks * p.column_blocks;
  };
  std::int64_t units = block();
  while (units < kWantedUnits && p.block_rows * p.block_columns * p.terms > 2 * kSmallestUnit) {
    (p.block_columns >= p.block_rows ? most_columns : most_rows) /= 2;
    const std::int64_t before = std::exchange(units, block());
    if (units == before) break;
  }

  p.has_sum_block = !is_one_dim(p.contract.m) || !holds_sums(p) || p.epilogue == EpilogueOf::sums;
  if (p.has_sum_block) hold_sums(p, p.block_rows, p.block_columns);
  else hold_sums(p, p.tile_rows, p.tile_columns());
  // Blocks that several units read are packed once for all.
  const std::int64_t lanes = p.packed_lanes(p.terms);
  const std::int64_t all = p.batches * (p.row_blocks * p.block_rows + p.column_blocks * p.block_columns) * lanes;
  if (p.row_blocks * p.column_blocks > 1 && all * bytes <= kMostSharedBytes) {
    for (const bool is_lhs : {false, true}) share_packing(p, is_lhs);
  } else {
    p.lhs_bytes = round_up(p.block_rows * p.packed_lanes(p.block_terms) * bytes, 64);
    p.rhs_bytes = round_up(p.block_columns * p.packed_lanes(p.block_terms) * bytes, 64);
  }
}

// At two multiply-adds of full vectors per cycle of 3 GHz, and 15 bytes per nanosecond of operands.
std::int64_t estimate_unit_ps(const ContractPlan& p) {
  const std::int64_t rows = p.rows_of_unit(), columns = std::min(p.block_columns, p.columns);
  const double multiply_adds =
      static_cast<double>(p.unit_batches * p.tile_groups * rows * columns) * static_cast<double>(p.terms);
  const double bytes = static_cast<double>((rows + columns) * p.terms + rows * columns) * size_bytes(p.computed);
  const int at_once = p.is_direct ? p.lanes : p.lanes * p.lane_terms;
  return static_cast<std::int64_t>(std::max(multiply_adds / (at_once * 2 * 0.003), bytes / 0.015)) + 1;
}

}  // namespace

ContractPlan plan_contract(const kir::Contract& contract, const CpuTarget& target, EpilogueOf epilogue,
                           bool adds_columns) {
  ContractPlan p;
  p.epilogue = epilogue;
  p.contract = contract;
  Dims unmerged_rows = without_ones(contract.m);
  for (Dims* dims : {&p.contract.batch, &p.contract.m, &p.contract.n, &p.contract.k}) *dims = merged(*dims);
  take_batch_as_columns(p.contract);
  p.has_lhs_columns = p.contract.n.lhs_strides[0] != 0;
  // Vectors run along the result's columns; if it is the rows that are neighbours, they become the columns. So they do
  // where there is one column only.
  const Dims &m = p.contract.m, &n = p.contract.n;
  const bool is_one_column = size_of(n) == 1 && size_of(m) > 1 && !p.has_lhs_columns;
  p.is_swapped = (is_one_column || !is_run(n, n.out_strides)) && is_run(m, m.out_strides);
  if (p.is_swapped) {
    p.contract = swapped(p.contract);
    unmerged_rows = p.contract.m;
  }

  p.batches = size_of(p.contract.batch);
  p.rows = size_of(p.contract.m);
  p.columns = size_of(p.contract.n);
  p.terms = size_of(p.contract.k);
  p.computed = computed_dtype(contract.accumulate);
  p.lanes = target.lanes(size_bytes(p.computed));
  p.lane_terms = lane_terms_of(p.contract, p.computed, target);
  p.packed = p.lane_terms == 1 ? p.computed : DType::u32;
  std::optional<BoxedContract> box;
  if (p.contract.padding && p.has_lhs_columns) read_around(p, contract.k, unmerged_rows);
  if (p.contract.padding && !p.reads_around && can_be_boxed(p)) {
    kir::Contract unmerged = p.contract;
    unmerged.m = contract.m;
    unmerged.k = contract.k;
    box = boxed(unmerged);
  }
  if (p.contract.padding && !p.reads_around && !box) share_image(p);
  // Of rows and columns as the epilogue knows them.
  const bool slides = p.has_lhs_columns ||
                      (!can_be_direct(p) && !(is_one_dim(p.contract.m) && is_one_dim(p.contract.k)) && can_slide(p));
  if (slides || p.is_swapped) p.epilogue = EpilogueOf::none;
  if (box && epilogue != EpilogueOf::none)  // all rows of a unit are neighbours
    p.epilogue = size_of(contract.batch) == 1 ? EpilogueOf::result : EpilogueOf::none;
  if (adds_columns && (box || (p.lane_rows = rows_of_lanes(p)) == 0)) p.epilogue = EpilogueOf::none;
  if (p.epilogue == EpilogueOf::none) p.lane_rows = 0;
  if (box) {
    plan_boxed(p, target, *std::move(box));
  } else if (slides) {
    plan_sliding(p, target, unmerged_rows);
  } else if (can_be_direct(p)) {
    if (is_flat_and_far(p)) plan_streamed_rows(p, target);
    else if (p.lane_rows > 0) plan_direct_lanes(p, target);
    else plan_direct(p, target);
  } else if (can_be_turned(p)) {
    plan_turned(p);
  } else {
    plan_packed(p, target);
  }
  if (p.unit_rows == 0) p.unit_rows = p.block_rows;
  p.phases.push_back({.units = p.batches / p.unit_batches * p.row_blocks * p.column_blocks,
                      .unit_ps = estimate_unit_ps(p),
                      .scratch_bytes = p.lhs_bytes + p.rhs_bytes + p.sum_bytes});
  return p;
}

ContractPlan plan_contract(const kir::Kernel& kernel, const CpuTarget& target) {
  const kir::Phase* follows = kir::epilogue_of(kernel);
  if (!follows) return plan_contract(*kernel.contract, target);
  const auto& result = kernel.params[static_cast<std::size_t>(kernel.contract->result)];
  const bool is_stored = result.access != kir::Param::Access::temporary;
  ContractPlan p = plan_contract(*kernel.contract, target, is_stored ? EpilogueOf::result : EpilogueOf::sums,
                                 kir::columns_of(kernel) != nullptr);
  if (p.epilogue == EpilogueOf::none) return p;
  const std::int64_t all = size_of(kernel.contract->m) * size_of(kernel.contract->n);
  const double element_ps =
      static_cast<double>(kir::estimate_unit_ps(*follows)) / static_cast<double>(std::max<std::int64_t>(all, 1));
  const std::int64_t elements =
      p.unit_batches * p.tile_groups * p.rows_of_unit() * std::min(p.block_columns, p.columns);
  p.phases.back().unit_ps += static_cast<std::int64_t>(element_ps * static_cast<double>(elements));
  return p;
}

std::vector<PackedOperand> packed_operands(const kir::Kernel& kernel, const CpuTarget& target) {
  const ContractPlan p = plan_contract(kernel, target);
  const kir::Contract& c = p.contract;
  const auto first_copy = static_cast<int>(kernel.params.size() - p.shared.size());
  std::vector<PackedOperand> operands;
  if (p.has_image()) return operands;  // other images each time
  for (const ContractPlan::SharedPacking& shared : p.shared) {
    const int index = static_cast<int>(operands.size());
    const auto strides = shared.is_lhs ? &Dims::lhs_strides : &Dims::rhs_strides;
    const Dims& outer = shared.is_lhs ? c.m : c.n;
    std::string layout = fmt::format(
        "{} as {} x {}, moved {}, from {}: blocks of {} in {} by {} terms, panels of {}",
        name(shared.is_lhs ? c.lhs : c.rhs), name(p.packed), p.lane_terms, shared.is_lhs && p.has_offset_row(),
        shared.is_lhs ? c.lhs_offset : c.rhs_offset, shared.is_lhs ? p.unit_rows : p.block_columns,
        shared.is_lhs ? p.block_rows : p.block_columns, p.block_terms, shared.is_lhs ? p.tile_rows : p.tile_columns());
    for (const Dims* dims : {&c.batch, &outer, &c.k})
      layout += fmt::format("; {} by {}", fmt::join(dims->extents, " "), fmt::join(dims->*strides, " "));
    operands.push_back({.phase = index,
                        .operand = shared.is_lhs == p.is_swapped ? 1 : 0,
                        .copy = first_copy + index,
                        .bytes = shared.bytes,
                        .layout = std::move(layout)});
  }
  return operands;
}

}  // namespace sheaf::codegen
