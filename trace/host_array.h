// The check that everyone who takes a HostArray from a user makes.
#pragma once

#include <string>

#include "sheaf/data.h"

namespace sheaf {

/// Throws ShapeError, in the name of `who`, unless the bytes are as many as the dtype and dims call for.
void expect_full(const HostArray& host, const std::string& who, Loc loc);

}  // namespace sheaf
