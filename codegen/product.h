// Which contractions on a GPU are products of matrices that NVIDIA's cuBLASLt should do. The choice is by dtypes and
// shape alone, so a program is the same on every machine; it keeps a kernel for where the library is missing.
#pragma once

#include <optional>

#include "codegen/kir/kir.h"
#include "codegen/program.h"

namespace sheaf::codegen {

/// SHEAF_CUBLASLT: `by_size` unless it is set; `never` has kernels of our own do everything.
enum class LibraryProducts { by_size, never, always };
LibraryProducts library_products();

/// The contraction as one product for each element of a batch; nullopt where it is not one, or not of dtypes that the
/// library computes as the contraction asks.
std::optional<Product> as_product(const kir::Contract& contract);

/// By size, as ir/product_size.h has it, unless SHEAF_CUBLASLT says otherwise.
bool chooses_library(const Product& product, LibraryProducts products);

/// What of this the library does; nullopt: none.
std::optional<Product> library_product(const kir::Contract& contract);

}  // namespace sheaf::codegen
