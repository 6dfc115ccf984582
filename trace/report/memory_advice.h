// What would make a program that ran out of memory smaller, where that can be told from it; nothing else is proposed.
#pragma once

#include <string>

#include "trace/execute.h"

namespace sheaf {

/// A line for each thing to do, with what it is about: "\n  checkpoint: .."; empty where there is none. Plans again.
std::string memory_advice(const MeshProgram& program, const std::vector<bool>& donated);

}  // namespace sheaf
