// All kernels of the process by their key, so that equal kernels of different programs are compiled once. Invariant: a
// kernel is compiled by one thread, whoever wants it waits for that one, and an error is not remembered.
#pragma once

#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/kernel.h"
#include "runtime/queue.h"
#include "runtime/single_flight.h"

namespace sheaf::runtime {

/// KIR in, callable code out. Called from any thread.
using KernelCompiler = std::function<absl::StatusOr<CompiledKernel>(const codegen::KernelCode& code)>;

class KernelCache {
 public:
  explicit KernelCache(KernelCompiler compiler);

  /// The process's cache, over the LLVM plug-in. Never destroyed.
  static KernelCache& global();

  /// The kernels of a program, in order; made known, not compiled.
  std::vector<KernelPtr> get(std::span<const codegen::KernelCode> kernels);
  /// Compiles those that are not, in parallel on the pool. The first error in order.
  absl::Status compile(std::span<const KernelPtr> kernels);
  /// Has one compiled by the background thread, once per kernel; a failure is logged, and the interpreter stays.
  void compile_in_background(const KernelPtr& kernel);
  /// Waits for the background thread to finish what was asked of it.
  void wait_for_background();

 private:
  absl::Status compile(Kernel& kernel);
  absl::Status compile_for_gpu(std::vector<Kernel*> kernels);

  const KernelCompiler compiler_;
  std::mutex mutex_;
  absl::flat_hash_map<std::string, KernelPtr> kernels_;
  SingleFlightMap<std::string, CompiledKernelPtr> compiled_;
  std::mutex gpu_mutex_;  // held while kernels for GPUs are compiled
  Queue background_;  // last: its thread uses the rest
};

}  // namespace sheaf::runtime
