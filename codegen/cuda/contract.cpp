// One text for all dtypes and layouts: the index maps of a contraction are sums of digits times strides, printed as
// functions of the row, the column and the term.
#include "codegen/cuda/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "codegen/cuda/prelude.h"

namespace sheaf::codegen {
namespace {

using Dims = kir::Contract::Dims;
using Strides = std::vector<std::int64_t>;

constexpr int kSide = 16;    // threads along either side of a tile
constexpr int kEach = 4;     // rows, and columns, of one thread
constexpr int kTile = kSide * kEach;
constexpr int kTerms = 16;   // at a time in shared memory

std::int64_t size_of(const Dims& d) {
  return std::accumulate(d.extents.begin(), d.extents.end(), std::int64_t{1}, std::multiplies<>());
}

/// The offset of position `at` (row-major over the extents), as an expression of 64 bits.
///   extents [4, 8], strides [1, 4]: (at / 8 * 1ll + at % 8 * 4ll)
std::string offset(const Dims& dims, const Strides& strides, std::string_view at) {
  std::string sum;
  std::int64_t inner = 1;
  for (std::size_t i = dims.extents.size(); i-- > 0; inner *= dims.extents[i]) {
    if (strides[i] == 0 || dims.extents[i] == 1) continue;
    std::string digit = inner == 1 ? std::string(at) : fmt::format("{} / {}", at, inner);
    if (inner * dims.extents[i] < size_of(dims)) digit = fmt::format("({}) % {}", digit, dims.extents[i]);
    sum += fmt::format("{}{} * {}ll", sum.empty() ? "" : " + ", digit, strides[i]);
  }
  return sum.empty() ? "0ll" : sum;
}

std::string converted(DType from, DType to, const std::string& text) {
  const std::string in[3] = {is_bool(from) ? fmt::format("({} != 0)", text) : text, "", ""};
  return from == to ? in[0] : cuda_expression(ir::ScalarOp::convert, from, to, in);
}

std::string accumulated(DType t) {
  using ir::ScalarOp;
  const std::string terms[3] = {"x", "y", "sum"};
  if (is_float(t)) return cuda_expression(ScalarOp::fma, t, t, terms);
  const std::string product[3] = {cuda_expression(is_bool(t) ? ScalarOp::and_ : ScalarOp::mul, t, t, terms), "sum", ""};
  return cuda_expression(is_bool(t) ? ScalarOp::or_ : ScalarOp::add, t, t, product);
}

struct Printer {
  const kir::Contract& c;
  std::int64_t rows = size_of(c.m), columns = size_of(c.n), terms = size_of(c.k), batches = size_of(c.batch);
  std::int64_t row_tiles = (rows + kTile - 1) / kTile, column_tiles = (columns + kTile - 1) / kTile;

  std::int64_t blocks() const { return batches * row_tiles * column_tiles; }

  /// A tile of one operand into shared memory. Neighbouring threads take neighbouring elements along `fastest`.
  std::string load(std::string_view tile, std::string_view pointer, DType t, std::string_view base, std::string_view at,
                   std::string_view first, std::int64_t end, bool terms_are_fastest) const {
    return fmt::format(
        "    for (int i = threadIdx.x; i < {size}; i += {threads}) {{\n"
        "      const int e = {e}, t = {t};\n"
        "      const sf_i64 at = {first} + e, k = k0 + t;\n"
        "      {acc} value = 0;\n"
        "      if (at < {end} && k < {terms}) {{ const sf_i64 address = {base} + {at}; value = {value}; }}\n"
        "      {tile}[t * {pitch} + e] = value;\n"
        "    }}\n",
        fmt::arg("size", kTile * kTerms), fmt::arg("threads", kSide * kSide),
        fmt::arg("e", terms_are_fastest ? fmt::format("i / {}", kTerms) : fmt::format("i % {}", kTile)),
        fmt::arg("t", terms_are_fastest ? fmt::format("i % {}", kTerms) : fmt::format("i / {}", kTile)),
        fmt::arg("first", first), fmt::arg("acc", cuda_type(c.accumulate)), fmt::arg("end", end),
        fmt::arg("terms", terms), fmt::arg("base", base), fmt::arg("at", at),
        fmt::arg("value", converted(t, c.accumulate, fmt::format("{}[address]", pointer))), fmt::arg("tile", tile),
        fmt::arg("pitch", kTile + 1));
  }

  static bool runs_along(const Dims& dims, const Strides& strides) {
    return !strides.empty() && strides.back() == 1 && dims.extents.back() > 1;
  }

  std::string print(const std::string& entry) const {
    const std::string_view acc = cuda_type(c.accumulate);
    std::string out = fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({}) {}(const {}* __restrict__ p0, const {}* __restrict__ p1, "
        "{}* p2) {{\n",
        kSide * kSide, entry, cuda_memory_type(c.lhs), cuda_memory_type(c.rhs), cuda_memory_type(c.out));
    out += fmt::format("  SF_SHARED({0}, lhs, {1});\n  SF_SHARED({0}, rhs, {1});\n", acc, kTerms * (kTile + 1));
    out += fmt::format(
        "  const sf_i64 tile = blockIdx.x, column_tile = tile % {0}, row_tile = tile / {0} % {1}, b = tile / {2};\n",
        column_tiles, row_tiles, row_tiles * column_tiles);
    out += fmt::format("  const sf_i64 row0 = row_tile * {0}, column0 = column_tile * {0};\n", kTile);
    out +=
        fmt::format("  const sf_i64 lhs_base = {} + {}, rhs_base = {} + {};\n", c.lhs_offset,
                    offset(c.batch, c.batch.lhs_strides, "b"), c.rhs_offset, offset(c.batch, c.batch.rhs_strides, "b"));
    out += fmt::format("  const int thread_row = threadIdx.x / {0}, thread_column = threadIdx.x % {0};\n", kSide);
    out += fmt::format("  {} sums[{}][{}];\n", acc, kEach, kEach);
    out += fmt::format(
        "#pragma unroll\n  for (int i = 0; i < {0}; ++i)\n#pragma unroll\n    for (int j = 0; j < {0}; ++j) sums[i][j] "
        "= 0;\n",
        kEach);
    out += fmt::format("  for (sf_i64 k0 = 0; k0 < {}; k0 += {}) {{\n", terms, kTerms);
    out += load("lhs", "p0", c.lhs, "lhs_base",
                fmt::format("{} + {}", offset(c.m, c.m.lhs_strides, "at"), offset(c.k, c.k.lhs_strides, "k")), "row0",
                rows, runs_along(c.k, c.k.lhs_strides));
    out += load("rhs", "p1", c.rhs, "rhs_base",
                fmt::format("{} + {}", offset(c.n, c.n.rhs_strides, "at"), offset(c.k, c.k.rhs_strides, "k")),
                "column0", columns, runs_along(c.k, c.k.rhs_strides));
    out += "    __syncthreads();\n";
    // Terms beyond the last are not added as zeros: -0 + 0 is +0.
    out += fmt::format("    const int here = {0} - k0 < {1} ? (int)({0} - k0) : {1};\n", terms, kTerms);
    out += fmt::format(
        "    for (int t = 0; t < here; ++t)\n"
        "#pragma unroll\n"
        "      for (int i = 0; i < {each}; ++i)\n"
        "#pragma unroll\n"
        "        for (int j = 0; j < {each}; ++j) {{\n"
        "          const {acc} x = lhs[t * {pitch} + thread_row + {side} * i], y = rhs[t * {pitch} + thread_column + "
        "{side} * j], sum = sums[i][j];\n"
        "          sums[i][j] = {term};\n"
        "        }}\n"
        "    __syncthreads();\n"
        "  }}\n",
        fmt::arg("each", kEach), fmt::arg("acc", acc), fmt::arg("pitch", kTile + 1), fmt::arg("side", kSide),
        fmt::arg("term", accumulated(c.accumulate)));
    out += fmt::format(
        "#pragma unroll\n"
        "  for (int i = 0; i < {each}; ++i)\n"
        "#pragma unroll\n"
        "    for (int j = 0; j < {each}; ++j) {{\n"
        "      const sf_i64 row = row0 + thread_row + {side} * i, column = column0 + thread_column + {side} * j;\n"
        "      if (row < {rows} && column < {columns}) p2[{base} + {batch} + {m} + {n}] = {value};\n"
        "    }}\n"
        "}}\n",
        fmt::arg("each", kEach), fmt::arg("side", kSide), fmt::arg("rows", rows), fmt::arg("columns", columns),
        fmt::arg("base", c.out_offset), fmt::arg("batch", offset(c.batch, c.batch.out_strides, "b")),
        fmt::arg("m", offset(c.m, c.m.out_strides, "row")), fmt::arg("n", offset(c.n, c.n.out_strides, "column")),
        fmt::arg("value", is_bool(c.accumulate) ? "sums[i][j]" : converted(c.accumulate, c.out, "sums[i][j]")));
    return out;
  }
};

}  // namespace

CudaLaunch emit_cuda_contract(const kir::Contract& contract, const std::string& symbol, std::string& functions) {
  const Printer printer{.c = contract};
  CudaLaunch launch{.entry = symbol + "_0", .blocks = printer.blocks(), .threads = kSide * kSide};
  launch.shared_bytes = std::int64_t{2} * kTerms * (kTile + 1) * size_bytes(contract.accumulate);
  functions += printer.print(launch.entry);
  return launch;
}

}  // namespace sheaf::codegen
