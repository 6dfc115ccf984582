// A set of the variables that were warned of, since some are read more than once.
#include "ir/environment.h"

#include <absl/container/flat_hash_set.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include "ir/log.h"

namespace sheaf::ir {
namespace {

bool is_first_warning(const char* variable) {
  static auto& mutex = *new std::mutex;
  static auto& warned = *new absl::flat_hash_set<std::string>;
  std::lock_guard lock(mutex);
  return warned.insert(variable).second;
}

}  // namespace

bool is_switched_on(const char* variable, bool otherwise) {
  const char* env = std::getenv(variable);
  const std::string_view text = env ? env : "";
  if (text == "0" || text == "1") return text == "1";
  if (!text.empty() && is_first_warning(variable))
    warn(fmt::format("{}={} is neither 0 nor 1; using {}", variable, text, otherwise ? 1 : 0));
  return otherwise;
}

}  // namespace sheaf::ir
