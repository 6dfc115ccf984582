// Complex programs as real ones. A complex value is held as two real values; where it crosses a border (parameters,
// results, operands and results of ops with regions) as one real array with a last dim of two, which lies in memory as
// complex numbers do. So nothing below the first passes knows complex types, and no byte moves at the program's edge.
#pragma once

#include "ir/graph.h"

namespace sheaf::ir {

/// Whether any value of f, or of its regions, is complex.
bool has_complex(const Function& f);

/// f without complex values. Before and after:
///   func @f(%z: c64[3]) -> c64[3] { %0: c64[3] = mul %z, %z  return %0 }
///   func @f(%z: f32[3, 2]) -> f32[3, 2] { %re: f32[3] = .. slice of %z; %im: ..; %re * %re - %im * %im, .. }
FunctionRef split_complex(const Function& f);

}  // namespace sheaf::ir
