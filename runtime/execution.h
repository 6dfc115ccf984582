// One run of an Executable, between its dispatch and the moment its outputs are ready.
#pragma once

#include <memory>
#include <vector>

#include "runtime/executable.h"

namespace sheaf::runtime {

struct Executable::Execution {
  ExecutablePtr executable;  // keeps the code and the constants alive
  Device& device;
  Loc loc;                                        // of the call
  std::vector<Pin> inputs;
  std::vector<std::shared_ptr<Completion>> waits; // of inputs that were not ready from birth
  std::vector<std::shared_ptr<Storage>> outputs;
  std::vector<int> copied_from;                   // per output: the input whose bytes it begins with, or -1
  std::vector<Storage*> taken;  // of `inputs`: their memory is an output's; others may still read them
  std::shared_ptr<Completion> completion = std::make_shared<Completion>();
};

}  // namespace sheaf::runtime
