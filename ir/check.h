// SHEAF_CHECK guards our own invariants: it throws InternalError with the condition and its place. It is for our bugs
// only; a user's mistake is an exception of sheaf/error.h, and the world's failures are absl::Status.
#pragma once

#include <stdexcept>
#include <string>

namespace sheaf::ir {

struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& detail);

}  // namespace sheaf::ir

#define SHEAF_CHECK(condition, ...)       \
  (static_cast<bool>(condition) ? void(0) \
                                : ::sheaf::ir::check_failed(#condition, __FILE__, __LINE__, std::string{__VA_ARGS__}))
