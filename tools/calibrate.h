// What collectives take on this machine, measured between its virtual devices, as a profile for SHEAF_MESH_PROFILE.
#pragma once

#include "passes/sharding/profile.h"

namespace sheaf {

/// The built-in profile "cpu" with a row for each kind of collective, measured with so many devices (at least 2).
/// Throws RuntimeError where a run fails.
passes::Profile calibrate(int devices);

}  // namespace sheaf
