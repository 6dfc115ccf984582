// `sheaf cache`: what is on disk for processes to load instead of compiling it, by the functions that they use.
#pragma once

#include <string>
#include <vector>

namespace sheaf {

/// Prints to stdout; the exit status. Throws Error for what cannot be done.
int cache_command(const std::vector<std::string>& arguments);

}  // namespace sheaf
