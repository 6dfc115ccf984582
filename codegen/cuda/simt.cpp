// A tile in shared memory has a row of `extent` elements for each term, so that a thread reads its neighbours together.
// Rows are exchanged in pieces of 16 bytes by their term: an operand that lies along k arrives 8 terms of 4 rows at a
// time, which then go to different banks.
#include "codegen/cuda/simt.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "codegen/cuda/contract.h"
#include "codegen/cuda/epilogue.h"
#include "codegen/cuda/parameters.h"
#include "codegen/cuda/prelude.h"
#include "codegen/kir/contract.h"

namespace sheaf::codegen {
namespace {

using Dims = kir::Contract::Dims;
using kir::size_of;

constexpr int kThreadColumns = 16;
constexpr int kStages = 3;
constexpr SimtTile kTiles[] = {
    {.thread_rows = 16, .row_groups = 2, .column_groups = 2, .terms = 16, .speed = 1.0},
    {.thread_rows = 16, .row_groups = 1, .column_groups = 1, .terms = 16, .blocks = 2, .speed = 0.7},
    {.thread_rows = 4, .row_groups = 1, .column_groups = 1, .terms = 32, .blocks = 4, .speed = 0.3},
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

int vector_of(DType t) { return size_bytes(t) == 8 ? 2 : 4; }
int rows_of(const SimtTile& t, DType accumulate) { return t.thread_rows * t.row_groups * vector_of(accumulate); }
int columns_of(const SimtTile& t, DType accumulate) { return kThreadColumns * t.column_groups * vector_of(accumulate); }

std::string accumulated(DType t) {
  using ir::ScalarOp;
  const std::string terms[3] = {"x[i]", "y[j]", "sums[i][j]"};
  if (is_float(t)) return cuda_expression(ScalarOp::fma, t, t, terms);
  const std::string product[3] = {cuda_expression(is_bool(t) ? ScalarOp::and_ : ScalarOp::mul, t, t, terms), terms[2],
                                  ""};
  return cuda_expression(is_bool(t) ? ScalarOp::or_ : ScalarOp::add, t, t, product);
}

class Printer {
 public:
  Printer(const kir::Kernel& kernel, const SimtPlan& plan)
      : kernel_(kernel), epilogue_(kernel), p_(plan), t_(plan.tile), c_(plan.contract) {}

  std::int64_t blocks() const { return row_tiles() * column_tiles() * size_of(c_.batch); }
  int threads() const { return t_.thread_rows * kThreadColumns; }
  std::int64_t shared_bytes() const {
    return std::int64_t{kStages} * (row_extent_ + column_extent_) * t_.terms * size_bytes(c_.accumulate);
  }

  std::string print(const std::string& entry) const {
    std::string out = cuda_head(kernel_, entry, fmt::format("{}, {}", threads(), t_.blocks), false);
    out += fmt::format("  SF_DYNAMIC_SHARED({}, memory);\n", acc());
    return out + place() + loads() + terms() + results() + "}\n";
  }

 private:
  std::string_view acc() const { return cuda_type(c_.accumulate); }
  std::int64_t row_tiles() const { return ceil_div(rows_, row_extent_); }
  std::int64_t column_tiles() const { return ceil_div(columns_, column_extent_); }
  int stage() const { return (row_extent_ + column_extent_) * t_.terms; }
  int row_elements() const { return t_.row_groups * vector_; }
  int column_elements() const { return t_.column_groups * vector_; }

  std::string place() const {
    return fmt::format(
        "  const sf_i64 tile = blockIdx.x, b = tile / {tiles}, row0 = tile / {across} % {down} * {rows}, column0 = tile "
        "% {across} * {columns};\n"
        "  const int thread_row = threadIdx.x / {side}, thread_column = threadIdx.x % {side}, lane = threadIdx.x % 32, "
        "warp = threadIdx.x / 32;\n"
        "  {acc} sums[{i}][{j}];\n"
        "#pragma unroll\n  for (int i = 0; i < {i}; ++i)\n"
        "#pragma unroll\n    for (int j = 0; j < {j}; ++j) sums[i][j] = 0;\n",
        fmt::arg("tiles", row_tiles() * column_tiles()), fmt::arg("across", column_tiles()),
        fmt::arg("down", row_tiles()), fmt::arg("rows", row_extent_), fmt::arg("columns", column_extent_),
        fmt::arg("side", kThreadColumns), fmt::arg("acc", acc()), fmt::arg("i", row_elements()),
        fmt::arg("j", column_elements()));
  }

  std::string loads() const {
    return fmt::format(
        "  const auto load = [&](int stage, sf_i64 k0) {{\n"
        "    {0}* const lhs = memory + stage * {1};\n    {0}* const rhs = lhs + {2};\n{3}{4}  }};\n",
        acc(), stage(), row_extent_ * t_.terms, load(lhs_, "lhs", "row0", row_extent_, rows_),
        load(rhs_, "rhs", "column0", column_extent_, columns_));
  }

  /// An element's place in a tile of such rows.
  std::string place_of(int extent, std::string_view term, std::string_view at) const {
    const int piece = 16 / size_bytes(c_.accumulate);
    return fmt::format("{} * {} + ({} ^ {} % {} * {})", term, extent, at, term, std::min(8, extent / piece), piece);
  }

  std::string load(const ContractOperand& o, std::string_view tile, std::string_view first, int extent,
                   std::int64_t end) const {
    const bool is_copied = p_.has_copies && !o.prologue && o.dtype == c_.accumulate && size_bytes(o.dtype) >= 4;
    const int width = is_copied && !o.has_k_rows() ? o.width() : 1, copies = extent * t_.terms / width / threads();
    const std::string copy =
        is_copied
            ? fmt::format("sf_cp_async<{}>({} + {}, {} + (is_there ? {} : 0), is_there)", width * size_bytes(o.dtype),
                          tile, place_of(extent, "t", "e"), o.pointer(), o.address("b", "at", "k"))
        : o.prologue
            ? fmt::format("sf_vec<{}, 1> made = {{}};\n      if (is_there) {{\n{}      }}\n      {}[{}] = {}",
                          cuda_memory_type(o.dtype), o.prologue->make(o.place("b", "at", "k"), 1, "made", nullptr),
                          tile, place_of(extent, "t", "e"), cuda_converted(o.dtype, c_.accumulate, "made.v[0]"))
            : fmt::format(
                  "{}[{}] = is_there ? {} : ({})0", tile, place_of(extent, "t", "e"),
                  cuda_converted(o.dtype, c_.accumulate, fmt::format("{}[{}]", o.pointer(), o.address("b", "at", "k"))),
                  acc());
    return fmt::format(
        "{unroll}    for (int i = 0; i < {copies}; ++i) {{\n"
        "      const int c = threadIdx.x + {threads} * i, e = {e}, t = {t};\n"
        "      const sf_i64 at = {first} + e, k = k0 + t;\n"
        "      const bool is_there = at < {end} && k < {terms};\n"
        "      {copy};\n"
        "    }}\n",
        fmt::arg("unroll", copies <= 8 ? "#pragma unroll\n" : "#pragma unroll 4\n"), fmt::arg("copies", copies),
        fmt::arg("threads", threads()),
        fmt::arg("e", o.has_k_rows() ? fmt::format("c / 8 % {}", extent)
                                     : fmt::format("c % {} * {}", extent / width, width)),
        fmt::arg("t", o.has_k_rows() ? fmt::format("c % 8 + c / {} * 8", 8 * extent)
                                     : fmt::format("c / {}", extent / width)),
        fmt::arg("first", first), fmt::arg("end", end), fmt::arg("terms", terms_), fmt::arg("copy", copy));
  }

  /// A stage is loaded into where the one before last was read from: all threads are past that at the barrier.
  std::string terms() const {
    const std::string commit = p_.has_copies ? "sf_cp_async_commit();\n" : "\n";
    std::string out = fmt::format(
        "#pragma unroll\n  for (int s = 0; s < {0}; ++s) {{\n    if ({1} * s < {2}) load(s, {1} * s);\n    {3}  }}\n",
        kStages - 1, t_.terms, terms_, commit);
    out += fmt::format("  int stage = 0;\n  for (sf_i64 k0 = 0; k0 < {}; k0 += {}) {{\n", terms_, t_.terms);
    if (p_.has_copies) out += fmt::format("    sf_cp_async_wait<{}>();\n", kStages - 2);
    out += fmt::format(
        "    __syncthreads();\n"
        "    if (k0 + {reach} < {terms}) load(stage == 0 ? {ahead} : stage - 1, k0 + {reach});\n"
        "    {commit}"
        "    const {acc}* const lhs = memory + stage * {stage};\n"
        "    const {acc}* const rhs = lhs + {lhs_elements};\n"
        "    const auto add = [&](int t) {{\n{add}    }};\n",
        fmt::arg("reach", t_.terms * (kStages - 1)), fmt::arg("terms", terms_), fmt::arg("ahead", kStages - 1),
        fmt::arg("commit", commit), fmt::arg("acc", acc()), fmt::arg("stage", stage()),
        fmt::arg("lhs_elements", row_extent_ * t_.terms), fmt::arg("add", add()));
    // Terms beyond the last are not added as zeros: -0 + 0 is +0.
    out += fmt::format(
        "    if (k0 + {0} <= {1}) {{\n#pragma unroll\n      for (int t = 0; t < {0}; ++t) add(t);\n"
        "    }} else {{\n      for (int t = 0; t < {1} - k0; ++t) add(t);\n    }}\n"
        "    stage = stage == {2} ? 0 : stage + 1;\n  }}\n",
        t_.terms, terms_, kStages - 1);
    return out;
  }

  std::string add() const {
    return fmt::format(
        "      {acc} x[{i}], y[{j}];\n{left}{right}"
        "#pragma unroll\n      for (int i = 0; i < {i}; ++i)\n"
        "#pragma unroll\n        for (int j = 0; j < {j}; ++j) sums[i][j] = {term};\n",
        fmt::arg("acc", acc()), fmt::arg("i", row_elements()), fmt::arg("j", column_elements()),
        fmt::arg("left", fetch("x", "lhs", "thread_row", t_.row_groups, row_extent_)),
        fmt::arg("right", fetch("y", "rhs", "thread_column", t_.column_groups, column_extent_)),
        fmt::arg("term", accumulated(c_.accumulate)));
  }

  std::string fetch(std::string_view into, std::string_view tile, std::string_view thread, int groups,
                    int extent) const {
    return fmt::format(
        "#pragma unroll\n      for (int g = 0; g < {groups}; ++g) {{\n"
        "        const sf_vec<{acc}, {v}> from = sf_load<{v}>({tile} + {place});\n"
        "#pragma unroll\n        for (int e = 0; e < {v}; ++e) {into}[g * {v} + e] = from.v[e];\n"
        "      }}\n",
        fmt::arg("groups", groups), fmt::arg("acc", acc()), fmt::arg("v", vector_), fmt::arg("tile", tile),
        fmt::arg("place", place_of(extent, "t", fmt::format("(g * {} + {} * {})", extent / groups, thread, vector_))),
        fmt::arg("into", into));
  }

  /// The two rows of a warp at a time go through shared memory, so that they are written as they lie.
  std::string results() const {
    return fmt::format(
        "  __syncthreads();\n"
        "  {acc}* const part = memory + warp * {slab};\n"
        "#pragma unroll\n"
        "  for (int i = 0; i < {i}; ++i) {{\n"
        "#pragma unroll\n"
        "    for (int g = 0; g < {groups}; ++g) {{\n"
        "      sf_vec<{acc}, {v}> to;\n"
        "#pragma unroll\n"
        "      for (int e = 0; e < {v}; ++e) to.v[e] = sums[i][g * {v} + e];\n"
        "      sf_store(part + lane / {side} * {width} + g * {group} + thread_column * {v}, to);\n"
        "    }}\n"
        "    __syncwarp();\n"
        "#pragma unroll 2\n"
        "    for (int e = lane; e < {slab}; e += 32) {{\n"
        "      const sf_i64 row = row0 + i / {v} * {row_group} + (2 * warp + e / {width}) * {v} + i % {v}, column = "
        "column0 + e % {width};\n"
        "      const {acc} sum = part[e];\n"
        "      if (row < {rows} && column < {columns}) {{\n{store}      }}\n"
        "    }}\n"
        "    __syncwarp();\n"
        "  }}\n",
        fmt::arg("acc", acc()), fmt::arg("slab", 2 * column_extent_), fmt::arg("i", row_elements()),
        fmt::arg("groups", t_.column_groups), fmt::arg("v", vector_), fmt::arg("side", kThreadColumns),
        fmt::arg("width", column_extent_), fmt::arg("group", column_extent_ / t_.column_groups),
        fmt::arg("row_group", row_extent_ / t_.row_groups), fmt::arg("rows", rows_), fmt::arg("columns", columns_),
        fmt::arg("store", p_.is_swapped ? epilogue_.store("b", "column", "row", "sum")
                                        : epilogue_.store("b", "row", "column", "sum")));
  }

  const kir::Kernel& kernel_;
  Epilogue epilogue_;
  const SimtPlan& p_;
  const SimtTile& t_;
  const kir::Contract& c_;
  std::int64_t rows_ = size_of(c_.m), columns_ = size_of(c_.n), terms_ = size_of(c_.k);
  int vector_ = vector_of(c_.accumulate);
  int row_extent_ = rows_of(t_, c_.accumulate), column_extent_ = columns_of(t_, c_.accumulate);
  ContractOperand lhs_ = ContractOperand::lhs(kernel_, c_, p_.is_swapped);
  ContractOperand rhs_ = ContractOperand::rhs(kernel_, c_, p_.is_swapped);
};

}  // namespace

std::span<const SimtTile> simt_tiles() { return kTiles; }

SimtPlan plan_simt(const kir::Contract& contract, const Target& target) {
  SimtPlan p{.contract = contract};
  kir::Contract& c = p.contract;
  for (Dims* dims : {&c.batch, &c.m, &c.n, &c.k}) *dims = merged(*dims);
  constexpr std::int64_t kFew = 16;
  // Results are written along columns; few columns beside many rows are better the few rows of a flat tile.
  const bool has_rows = runs_along(c.m, c.m.out_strides) && !runs_along(c.n, c.n.out_strides);
  p.is_swapped = has_rows || (size_of(c.n) <= kFew && size_of(c.m) > kFew);
  if (p.is_swapped) c = swapped(c);
  p.has_copies = target.compute_capability() >= 80;
  double best_cost = std::numeric_limits<double>::infinity();
  for (const SimtTile& t : kTiles) {
    const int rows = rows_of(t, c.accumulate), columns = columns_of(t, c.accumulate);
    const std::int64_t blocks = ceil_div(size_of(c.m), rows) * ceil_div(size_of(c.n), columns) * size_of(c.batch);
    const std::int64_t rounds = ceil_div(blocks, cuda_multiprocessors(target));
    const double cost = static_cast<double>(rounds * rows * columns) / t.speed;
    if (cost < best_cost) p.tile = t, best_cost = cost;
  }
  return p;
}

void emit_simt(const kir::Kernel& kernel, const SimtPlan& plan, const std::string& symbol, CudaText& out) {
  const Printer printer(kernel, plan);
  out.launches.push_back({.entry = symbol + "_0",
                          .blocks = printer.blocks(),
                          .threads = printer.threads(),
                          .shared_bytes = 0,
                          .dynamic_shared_bytes = printer.shared_bytes()});
  out.functions += printer.print(out.launches.back().entry);
}

}  // namespace sheaf::codegen
