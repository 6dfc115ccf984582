// The two kinds of target, by key and by name.
#include "codegen/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "codegen/compiler.h"
#include "codegen/cpu_target.h"
#include "codegen/cuda/nvrtc.h"
#include "ir/words.h"

namespace sheaf::codegen {

std::string key_of(const Target& target) {
  if (target.is_gpu()) return fmt::format("cuda {} {}", target.gpu, fmt::join(nvrtc_options(), " "));
  return std::string(compiler_id()) + "\n" + host_cpu_target().key();
}

// From 9.0 on, what is special to one architecture is in its "a" form.
Target gpu_target(int major, int minor) { return {fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "")}; }

absl::StatusOr<Target> parse_target(std::string_view name) {
  if (name == "cpu") return Target{};
  std::string_view digits = name;
  if (digits.ends_with('a')) digits.remove_suffix(1);
  const std::optional<std::int64_t> number = digits.starts_with("sm_") ? ir::parse_int(digits.substr(3)) : std::nullopt;
  if (number && *number >= 10 && *number < 1000)
    return gpu_target(static_cast<int>(*number / 10), static_cast<int>(*number % 10));
  return absl::InvalidArgumentError(
      fmt::format("'{}' is no target: cpu, or the architecture of a GPU, such as sm_90a", name));
}

}  // namespace sheaf::codegen
