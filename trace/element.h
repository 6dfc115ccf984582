// One element of an array, as it is told where it matters which one it is and exactly what.
#pragma once

#include <cstdint>
#include <string>

#include "ir/literal.h"

namespace sheaf {

/// Integers whole; of floats enough digits to tell any two apart, in both parts of a complex number: "0.1", "1.5-2i". A
/// NaN's sign means nothing and is not shown.
std::string element_text(const ir::Literal& x, std::int64_t i);
/// "[3, 0]": where element i lies.
std::string index_text(const ir::Literal& x, std::int64_t i);

}  // namespace sheaf
