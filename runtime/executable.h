// A loaded Program: `run` dispatches it on a device and returns buffers that may still be pending. Invariant: an
// Executable is immutable after `load`, so any number of threads may run it at once; each run leases an arena of its
// own from the device's allocator, which in steady state is the one the last run gave back.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/program.h"
#include "runtime/backend.h"
#include "runtime/buffer.h"
#include "runtime/cache.h"

namespace sheaf::runtime {

/// How a kernel is executed. The bits of the result do not depend on it.
enum class Tier : std::uint8_t {
  automatic,    // interpret while the work is tiny and the kernel is rare, then compile in the background
  interpreted,  // the KIR interpreter only
  compiled,     // machine code from the first run on; `load` compiles what is missing
};

struct LoadOptions {
  Tier tier = Tier::automatic;
  std::int64_t interpret_below_ps = 2'000'000;  // automatic: of estimated compiled work, per run of the program
  int interpreted_runs = 8;                     // automatic: of a kernel, before it is compiled in the background
  KernelCache* cache = nullptr;                 // null: the process's
  std::function<std::string()> memory_advice = {};  // what to say besides, where there is no memory for a run
};

inline const std::vector<bool> kNothingDonated;

/// For the time of a call: it refers to what it is made from.
struct RunOptions {
  const std::vector<bool>& donated = kNothingDonated;  // per input; empty: none
  Loc loc = {};  // the user's line of this call: who made the outputs, who took the donations
  /// How long a device waits for the others at a collective (0: for ever); the process's unless it is set.
  std::optional<std::chrono::milliseconds> collective_timeout = {};
};

class Executable;
using ExecutablePtr = std::shared_ptr<const Executable>;

class Executable : public std::enable_shared_from_this<Executable> {
 public:
  /// The compiler's errors, and ResourceExhausted where the constants do not fit.
  static absl::StatusOr<ExecutablePtr> load(codegen::Program program, LoadOptions options = {});

  /// Runs on `device`, where all inputs must be. Errors known at dispatch are returned; later ones are carried by the
  /// outputs (docs/async.md).
  absl::StatusOr<Buffers> run(Device& device, std::span<Buffer* const> inputs, const RunOptions& options = {}) const;
  absl::StatusOr<Buffers> run(Device& device, std::span<const BufferPtr> inputs, const RunOptions& options = {}) const;
  /// Runs a program of several devices on these, the i-th being the mesh's i-th, with the inputs of each; the outputs
  /// of each. All become ready, or fail, together: docs/async.md.
  absl::StatusOr<std::vector<Buffers>> run_spmd(std::span<Device* const> devices, std::span<const Buffers> inputs,
                                                const RunOptions& options = {}) const;
  /// Compiles every kernel that is not.
  absl::Status compile_rest() const;
  /// Compiles every kernel that is not, and touches the memory a run needs, without running anything.
  absl::Status warm(Device& device) const;

  const codegen::Program& program() const { return program_; }
  /// Those of the program, in its order.
  std::span<const KernelPtr> kernels() const { return kernels_; }
  /// The estimated work of one run on one core.
  std::int64_t work_ps() const { return work_ps_; }
  /// Machine code of its kernels, those it shares with other programs included.
  std::int64_t code_bytes() const;

 private:
  struct Execution;
  Executable(codegen::Program program, LoadOptions options);

  using Constants = std::vector<std::shared_ptr<Memory>>;
  /// Those of the program in the device's memory, put there once.
  absl::StatusOr<const Constants*> constants_on(Device& device) const;
  std::unique_ptr<Replays>& replays_on(Device& device) const;
  absl::Status check_inputs(const Device& device, std::span<Buffer* const> inputs, const RunOptions& options) const;
  bool is_small() const;
  bool runs_inline(const Execution& execution) const;
  class Claims;
  /// Pins the inputs and finds memory for the outputs; changes nothing that a later failure would have to undo.
  absl::Status prepare(Execution& execution, std::span<Buffer* const> inputs, const RunOptions& options,
                       Claims& claims) const;
  void donate(std::span<Buffer* const> inputs, const RunOptions& options) const;
  Buffers outputs_of(const Execution& execution) const;
  /// Done when it returns.
  Buffers run_here(Execution& execution) const;

  // execute.cpp
  /// Makes the graphs that runs on a GPU will ask it for, of memory that stands for theirs.
  absl::Status rehearse(Device& device) const;
  struct Outcome;
  Outcome perform(Execution& execution) const;
  void execute(Execution& execution) const;
  absl::Status wait_for_inputs(const Execution& execution) const;
  absl::Status error_of(const Execution& execution, absl::Status own, bool& is_inherited) const;
  /// What is in flight of it, or null when it is done.
  absl::StatusOr<FlightPtr> execute_steps(Execution& execution) const;
  absl::Status begin_outputs(const Execution& execution) const;
  struct Addresses;  // of what the steps of one execution touch
  class CarryPlaces;
  FlightPtr in_flight(Addresses& at, EventPtr end, std::shared_ptr<Memory> arena) const;
  absl::Status run_steps(std::span<const codegen::Step> steps, Addresses& at) const;
  absl::Status run_kernel(const codegen::Step& step, Addresses& at) const;
  absl::Status launch(const codegen::Step& step, std::span<void* const> buffers, const Addresses& at,
                      Phases packed = 0) const;
  absl::Status launch_packed(const codegen::Step& step, std::span<void*> buffers, const Addresses& at) const;
  /// Asks for the kernels that wait to be asked for; before anything else is.
  absl::Status launch_waiting(Addresses& at) const;
  absl::Status launch_together(Addresses& at) const;
  absl::InlinedVector<Launch, 8> launches_of(const Addresses& at) const;
  absl::Status launch_one_by_one(Addresses& at) const;
  absl::Status run_check(const codegen::Check& check, Loc loc, Addresses& at) const;
  absl::Status settle_checks(Addresses& at) const;
  absl::Status run_scan(const codegen::Loop& loop, Addresses& at) const;
  absl::Status run_while(const codegen::Loop& loop, Addresses& at) const;
  absl::Status run_branch(const codegen::Branch& branch, Addresses& at) const;
  absl::Status run_control(const codegen::Step& step, Addresses& at) const;
  absl::Status run_library(const codegen::LibraryCall& call, const codegen::Step& step, Addresses& at) const;
  absl::Status run_collective(const codegen::Collective& what, Loc loc, Addresses& at) const;
  absl::Status await_collective(int groups, Addresses& at) const;
  /// Where there is no memory for a run, with advice.
  absl::Status with_advice(absl::Status status) const;
  void note_interpreted_run(const KernelPtr& kernel) const;

  codegen::Program program_;
  const std::shared_ptr<const std::string> name_;  // the program's, for those who outlive it
  LoadOptions options_;
  KernelCache& cache_;
  std::vector<KernelPtr> kernels_;
  mutable std::mutex mutex_;  // guards the maps
  mutable std::map<const Allocator*, Constants> constants_;  // by the memory that holds them
  mutable std::map<const Device*, std::unique_ptr<Replays>> replays_;
  std::int64_t work_ps_ = 0;
  bool needs_host_ = false;  // to decide, compute or call something between its first step and its last
};

}  // namespace sheaf::runtime
