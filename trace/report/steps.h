// A program's steps by what they are: how often each runs, what it moves and computes, and from which lines it comes.
#pragma once

#include <string>
#include <vector>

#include "codegen/program.h"
#include "ir/cost.h"
#include "passes/plan.h"

namespace sheaf {

struct StepSummary {
  std::string name;
  int kernel = -1;       // index into Program::kernels; -1: of a library, the host or all devices
  double times = 0;      // per run of the program; a loop whose length is not known counts once
  ir::Work work = {};    // of all of them
  std::vector<Loc> lines = {};  // of all equations in it, without repeats
};

/// Those that move most first.
std::vector<StepSummary> summaries_of(const codegen::Program& program, const passes::Plan& plan);

/// The text of a source line; empty where the file cannot be read.
std::string source_line(Loc loc);

}  // namespace sheaf
