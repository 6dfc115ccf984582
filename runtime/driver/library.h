// A library of NVIDIA's that is opened at run time: the one that a variable of the environment names, else the first of
// the usual names and places that is there.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf::runtime {

struct OpenLibrary {
  void* handle = nullptr;  // never closed
  std::string path;  // as it was asked for
};

/// {*variable} if that is set, else `usual`.
std::vector<std::string> library_paths(const char* variable, std::vector<std::string> usual);

/// Unavailable, with `what` and the places that were tried, where none is there.
absl::StatusOr<OpenLibrary> open_library(const std::string& what, const std::vector<std::string>& paths);

}  // namespace sheaf::runtime
