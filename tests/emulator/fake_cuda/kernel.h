// Modules, functions and launches of the fake driver: what the engine runs, on which memory, and within which of the
// device's limits.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulator/engine.h"
#include "tests/emulator/fake_cuda/driver.h"

namespace sheaf::fake_cuda {

struct Function {
  Device* device = nullptr;
  std::shared_ptr<emulator::Module> code;  // owns `kernel`
  const emulator::Kernel* kernel = nullptr;
  std::int64_t max_dynamic_bytes = 0;  // until MAX_DYNAMIC_SHARED_SIZE_BYTES says more
};
using FunctionPtr = std::shared_ptr<Function>;

struct Module {
  Device* device = nullptr;
  std::shared_ptr<emulator::Module> code;
  std::map<std::string, FunctionPtr> functions = {};  // those asked for
};

/// A launch as it was asked for: its arguments are copied then.
struct LaunchCall {
  FunctionPtr function;
  emulator::Launch launch;
  std::vector<std::vector<std::byte>> arguments;
  std::string name() const { return function->kernel->name; }
};

/// What a device of this architecture allows.
struct Limits {
  int shared_bytes = 49152, shared_bytes_opt_in = 0, shared_bytes_per_multiprocessor = 0;
  int multiprocessors = 0, threads_per_multiprocessor = 2048, blocks_per_multiprocessor = 32;
};
Limits limits();

/// The module of an image; its errors, and the log for the caller.
CUresult load_module(Device& device, const void* image, std::shared_ptr<Module>* module, std::string* log);
/// "" or what is wrong with the shape of a launch.
std::string wrong_with(const Function& function, const emulator::Launch& launch);
/// The copy of a launch's arguments.
std::vector<std::vector<std::byte>> arguments_of(const Function& function, void* const* parameters);
Work work_of(LaunchCall call);

}  // namespace sheaf::fake_cuda
