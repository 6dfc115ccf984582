// One program for many lengths: arrays are padded to a length that is a bucket's, and the program is made to give the
// same wherever an element is none of the padding. Invariant: an element of a result that is within the lengths is what
// the function's own program for them gives, up to the order in which a sum adds zeros.
#pragma once

#include "passes/lengths.h"

namespace sheaf::passes {

/// f as a program of any lengths up to its own: its parameters, then each length (i32[]), then each marked constant.
struct Padded {
  ir::FunctionRef function;
  LengthError error;  // of an op that has no rule for what it does with a length
};
Padded padded_program(const ir::Function& f, const LengthMarks& marks, int num_lengths);

}  // namespace sheaf::passes
