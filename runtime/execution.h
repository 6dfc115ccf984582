// One run of an Executable, between its dispatch and the moment its outputs are ready.
#pragma once

#include <memory>
#include <vector>

#include "runtime/executable.h"

namespace sheaf::runtime {

class SpmdRun;

struct Executable::Execution {
  ExecutablePtr executable;  // keeps the code and the constants alive
  Device& device;
  Loc loc;                                        // of the call
  std::shared_ptr<Completion> completion;         // of the outputs
  const Constants* constants = nullptr;           // in the device's memory
  std::vector<Pin> inputs = {};
  std::vector<std::shared_ptr<Completion>> waits = {};  // of inputs that were not ready from birth
  std::vector<std::shared_ptr<Storage>> outputs = {};
  std::vector<int> copied_from = {};              // per output: the input whose bytes it begins with, or -1
  std::vector<Storage*> taken = {};  // of `inputs`: their memory is an output's; others may still read them
  std::shared_ptr<SpmdRun> spmd = nullptr;        // of a run on several devices, which finishes the completion
  int position = 0;                               // of the device in the mesh
};

/// Storage claimed for outputs, given back if the dispatch fails before the donation.
class Executable::Claims {
 public:
  Claims() = default;
  ~Claims() {
    for (Storage* storage : claimed_) storage->end_claim();
  }
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;
  bool take(Storage* storage) {
    if (!storage->claim()) return false;
    claimed_.push_back(storage);
    return true;
  }

 private:
  std::vector<Storage*> claimed_;
};

}  // namespace sheaf::runtime
