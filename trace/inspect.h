// Values whose layout a user wants to know while it is inside a program: marked by inspect_sharding, found again once
// layouts are settled.
#pragma once

#include "ir/graph.h"
#include "sheaf/mesh.h"

namespace sheaf {

/// Tells those who asked how the marked values of the function lie, whose types say so. No mesh: on the first device.
void report_shardings(const ir::Function& settled, const Mesh& mesh);

}  // namespace sheaf
