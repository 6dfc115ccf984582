// A contraction is a product of matrices where its dims, merged, are at most one of each kind, and every operand has
// neighbours in memory along one of its two. A result with neighbours along its columns is the transposed product of
// the operands, exchanged.
#include "codegen/product.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "codegen/kir/contract.h"
#include "ir/log.h"
#include "ir/product_size.h"

namespace sheaf::codegen {
namespace {

using Dims = kir::Contract::Dims;

bool is_one_dim(const Dims& dims) { return dims.extents.size() == 1; }

/// Both operands alike, and sums in f32 or, of f64, in f64.
bool has_library_dtypes(const kir::Contract& c) {
  if (c.lhs != c.rhs) return false;
  switch (c.lhs) {
    case DType::f64: return c.accumulate == DType::f64 && c.out == DType::f64;
    case DType::f32: return c.accumulate == DType::f32 && c.out == DType::f32;
    case DType::f16:
    case DType::bf16: return c.accumulate == DType::f32 && (c.out == c.lhs || c.out == DType::f32);
    default: return false;
  }
}

struct Side {
  std::int64_t extent, stride;
  bool is_run() const { return stride == 1 || extent == 1; }
};

/// Whose element [i, j] lies at i * rows.stride + j * columns.stride.
std::optional<Product::Matrix> matrix(DType dtype, Side rows, Side columns) {
  const auto steps_over = [](Side outer, Side inner) { return outer.extent == 1 || outer.stride >= inner.extent; };
  const auto leading = [](Side outer, Side inner) { return outer.extent == 1 ? inner.extent : outer.stride; };
  if (rows.is_run() && steps_over(columns, rows))
    return Product::Matrix{.dtype = dtype,
                           .is_transposed = false,
                           .rows = rows.extent,
                           .columns = columns.extent,
                           .leading = leading(columns, rows)};
  if (columns.is_run() && steps_over(rows, columns))
    return Product::Matrix{.dtype = dtype,
                           .is_transposed = true,
                           .rows = columns.extent,
                           .columns = rows.extent,
                           .leading = leading(rows, columns)};
  return std::nullopt;
}

}  // namespace

LibraryProducts library_products() {
  static const LibraryProducts chosen = [] {
    const char* text = std::getenv("SHEAF_CUBLASLT");
    const std::string_view wanted = text ? text : "";
    if (wanted == "never") return LibraryProducts::never;
    if (wanted == "always") return LibraryProducts::always;
    if (!wanted.empty())
      ir::warn(fmt::format("SHEAF_CUBLASLT={} is neither never nor always; products go by their size", wanted));
    return LibraryProducts::by_size;
  }();
  return chosen;
}

std::optional<Product> as_product(const kir::Contract& c) {
  const Dims batch = kir::merged(c.batch), m = kir::merged(c.m), n = kir::merged(c.n), k = kir::merged(c.k);
  if (!has_library_dtypes(c) || !is_one_dim(batch) || !is_one_dim(m) || !is_one_dim(n) || !is_one_dim(k)) return {};
  const auto side = [](const Dims& dims, std::vector<std::int64_t> Dims::* strides) {
    return Side{dims.extents[0], (dims.*strides)[0]};
  };
  const Side out_rows = side(m, &Dims::out_strides), out_columns = side(n, &Dims::out_strides);
  if (out_rows.extent * out_columns.extent * k.extents[0] == 0) return {};
  if (batch.extents[0] < 1 || batch.extents[0] > std::numeric_limits<std::int32_t>::max()) return {};
  auto a = matrix(c.lhs, side(m, &Dims::lhs_strides), side(k, &Dims::lhs_strides));
  auto b = matrix(c.rhs, side(k, &Dims::rhs_strides), side(n, &Dims::rhs_strides));
  auto out = matrix(c.out, out_rows, out_columns);
  if (!a || !b || !out) return {};
  a->offset = c.lhs_offset, b->offset = c.rhs_offset, out->offset = c.out_offset;
  a->batch_stride = batch.lhs_strides[0], b->batch_stride = batch.rhs_strides[0];
  out->batch_stride = batch.out_strides[0];
  if (std::min({a->batch_stride, b->batch_stride, out->batch_stride}) < 0) return {};  // a batch from its end
  Product product{.batch = batch.extents[0],
                  .rows = out_rows.extent,
                  .columns = out_columns.extent,
                  .terms = k.extents[0],
                  .a = *a,
                  .b = *b,
                  .out = *out,
                  .precision = c.precision};
  if (out->is_transposed) {
    std::swap(product.a, product.b);
    std::swap(product.rows, product.columns);
    product.is_exchanged = true;
    for (Product::Matrix* of : {&product.a, &product.b, &product.out}) of->is_transposed = !of->is_transposed;
  }
  return product;
}

bool chooses_library(const Product& product, LibraryProducts products) {
  if (products != LibraryProducts::by_size) return products == LibraryProducts::always;
  return ir::is_for_library(static_cast<double>(product.batch), static_cast<double>(product.rows),
                            static_cast<double>(product.columns), static_cast<double>(product.terms));
}

std::optional<Product> library_product(const kir::Contract& contract) {
  std::optional<Product> product = as_product(contract);
  if (product && !chooses_library(*product, library_products())) product.reset();
  return product;
}

}  // namespace sheaf::codegen
