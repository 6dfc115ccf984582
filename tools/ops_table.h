// docs/ops.md: what every op has, read off its data sheet and tried on its samples, so that the page cannot be wrong.
#pragma once

#include <string>

namespace sheaf {

std::string ops_table();

}  // namespace sheaf
