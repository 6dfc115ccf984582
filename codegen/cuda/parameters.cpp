// A launch has 4,096 bytes for parameters; from sm_70 on 32,764 if both the compiler and the driver are of CUDA 12.1 or
// newer, which a text does not know: it may be compiled here and run there.
#include "codegen/cuda/parameters.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/prelude.h"

namespace sheaf::codegen {
namespace {

constexpr int kMostPointers = 448;  // 3,584 bytes: what is left is for scratch, maps, and the table's own address
constexpr int kThreads = 128;

/// What a contraction's prologues make, and its result where only its epilogue reads it, are no parameters.
bool is_passed(const kir::Kernel& kernel, const kir::Param& p) {
  return !kernel.contract || p.access != kir::Param::Access::temporary;
}

int passed_pointers(const kir::Kernel& kernel) {
  return static_cast<int>(std::ranges::count_if(kernel.params, [&](const auto& p) { return is_passed(kernel, p); }));
}

bool has_table(const kir::Kernel& kernel) { return passed_pointers(kernel) > kMostPointers; }

/// `each(type, name)` of every pointer, in the order of the buffers.
template <class Each>
void for_each_pointer(const kir::Kernel& kernel, bool has_scratch, Each&& each) {
  for (std::size_t i = 0; i < kernel.params.size(); ++i) {
    const kir::Param& p = kernel.params[i];
    if (!is_passed(kernel, p)) continue;
    const bool is_const = p.access == kir::Param::Access::read;
    each(fmt::format("{}{}*", is_const ? "const " : "", cuda_memory_type(p.dtype)),
         fmt::format("{}p{}", is_const ? "__restrict__ " : "", i));
  }
  if (has_scratch) each("sf_u8*", "scratch");
}

}  // namespace

std::string cuda_head(const kir::Kernel& kernel, std::string_view entry, std::string_view bounds, bool has_scratch,
                      std::string_view maps) {
  std::string parameters, body;
  if (has_table(kernel)) {
    parameters = "sf_u8* const* __restrict__ table";
    int count = 0;
    for_each_pointer(kernel, has_scratch, [&](const std::string& type, const std::string& name) {
      body += fmt::format("  {0} const {1} = ({0})table[{2}];\n", type, name, count++);
    });
  } else {
    for_each_pointer(kernel, has_scratch, [&](const std::string& type, const std::string& name) {
      parameters += fmt::format("{}{} {}", parameters.empty() ? "" : ", ", type, name);
    });
  }
  return fmt::format("extern \"C\" __global__ void __launch_bounds__({}) {}({}{}) {{\n{}", bounds, entry, parameters,
                     maps, body);
}

void add_pointer_table(const kir::Kernel& kernel, const std::string& symbol, CudaText& text) {
  if (!has_table(kernel)) return;
  const int count = passed_pointers(kernel) + (text.scratch_bytes > 0 ? 1 : 0);
  text.table_bytes = count * std::int64_t{sizeof(void*)};
  for (CudaLaunch& launch : text.launches) launch.parameters = {{.first = count, .count = 1}};
  std::vector<CudaLaunch> fills;
  for (int first = 0; first < count; first += kMostPointers) {
    const int some = std::min(kMostPointers, count - first);
    fills.push_back({.entry = fmt::format("{}_table_{}", symbol, fills.size()),
                     .threads = kThreads,
                     .parameters = {{.first = count, .count = 1}, {.first = first, .count = some}}});
    text.functions += fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({0}) {1}(void** table, const __grid_constant__ sf_pointers<{2}> "
        "some) {{\n  for (int i = threadIdx.x; i < {2}; i += {0}) table[{3} + i] = some.at[i];\n}}\n",
        kThreads, fills.back().entry, some, first);
  }
  text.launches.insert(text.launches.begin(), fills.begin(), fills.end());
}

}  // namespace sheaf::codegen
