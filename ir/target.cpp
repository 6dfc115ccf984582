// Names of targets, and what they say.
#include "ir/target.h"

#include <charconv>
#include <string_view>

namespace sheaf::ir {

int Target::compute_capability() const {
  constexpr std::string_view prefix = "sm_";
  int capability = 0;
  if (gpu.starts_with(prefix)) std::from_chars(gpu.data() + prefix.size(), gpu.data() + gpu.size(), capability);
  return capability;
}

std::string to_string(const Target& target) { return target.is_gpu() ? target.gpu : "cpu"; }

}  // namespace sheaf::ir
