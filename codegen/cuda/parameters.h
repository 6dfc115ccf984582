// What a kernel's functions are given: the addresses of its buffers as parameters, or, where those would take more
// bytes than a launch has, the address of a table in memory. Launches before the kernel's own fill the table, so that
// whoever launches, captures or patches knows of nothing but parameters.
#pragma once

#include <string>
#include <string_view>

#include "codegen/cuda/emit.h"

namespace sheaf::codegen {

/// The beginning of a function: everything up to the first statement of its body. `maps`: parameters after all others.
std::string cuda_head(const kir::Kernel& kernel, std::string_view entry, std::string_view bounds, bool has_scratch,
                      std::string_view maps = "");

/// Puts what fills the table before the launches of `text`, of which all functions are there; nothing if there is none.
void add_pointer_table(const kir::Kernel& kernel, const std::string& symbol, CudaText& text);

}  // namespace sheaf::codegen
