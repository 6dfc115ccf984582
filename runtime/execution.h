// One run of an Executable, between its dispatch and the moment its outputs are ready.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "runtime/executable.h"

namespace sheaf::runtime {

class SpmdRun;

struct Executable::Execution {
  Device& device;
  Loc loc;                                        // of the call
  ExecutablePtr executable = nullptr;             // of one that outlives its call: keeps the code and the constants
  std::shared_ptr<Completion> completion = nullptr;  // of the outputs; null: they are born ready, or failed
  const Constants* constants = nullptr;           // in the device's memory
  std::shared_ptr<Memory> arena = nullptr;  // of a GPU, which runs that are dispatched later cannot take from it
  absl::InlinedVector<Pin, 4> inputs = {};
  absl::InlinedVector<std::shared_ptr<Completion>, 2> waits = {};  // of inputs that were not ready from birth
  absl::InlinedVector<std::shared_ptr<Storage>, 4> outputs = {};
  absl::InlinedVector<int, 4> copied_from = {};   // per output: the input whose bytes it begins with, or -1
  absl::InlinedVector<Storage*, 2> taken = {};  // of `inputs`: their memory is an output's; others may still read them
  std::shared_ptr<SpmdRun> spmd = nullptr;  // of a run on several devices, which finishes the completion
  int position = 0;  // of the device in the mesh
  std::uint64_t call = 0;  // that a profile knows it by
  bool is_rehearsal = false;  // a GPU's launches become graphs, and nothing is asked of it
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
  absl::InlinedVector<Storage*, 2> claimed_;
};

}  // namespace sheaf::runtime
