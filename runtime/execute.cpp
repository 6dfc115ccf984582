// What happens when an execution's turn has come: wait for inputs, run the steps in order, publish the result. The pins
// are dropped before the outputs become ready, so that who has waited for this run can reuse its inputs at once.
#include <cstring>
#include <exception>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "fmt/format.h"
#include "ir/check.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/execution.h"

namespace sheaf::runtime {

void Executable::execute(Execution& execution) const {
  counters().executions.fetch_add(1, std::memory_order_relaxed);
  absl::Status status = execute_steps(execution);
  execution.inputs.clear();
  execution.outputs.clear();
  execution.completion->finish(std::move(status));
}

absl::Status Executable::execute_steps(Execution& execution) const {
  for (const std::shared_ptr<Completion>& input : execution.waits) {
    if (absl::Status status = input->wait(); !status.ok()) return status;  // told from now on by the outputs
  }
  for (Storage* storage : execution.taken) storage->wait_for_pins(1);
  for (std::size_t o = 0; o < execution.outputs.size(); ++o) {
    const int from = execution.copied_from[o];
    if (from >= 0)
      std::memcpy(execution.outputs[o]->data(), execution.inputs[from].storage()->data(),
                  static_cast<std::size_t>(program_.outputs[o].bytes()));
  }
  absl::StatusOr<std::shared_ptr<Memory>> arena =
      Memory::allocate(execution.device.allocator(), program_.arena_bytes, execution.loc);
  if (!arena.ok()) return arena.status();
  for (const codegen::Step& step : program_.steps) {
    if (absl::Status status = run_step(step, execution, (*arena)->data()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Executable::run_step(const codegen::Step& step, const Execution& execution, std::byte* arena) const {
  absl::InlinedVector<void*, 16> buffers;
  for (const codegen::BufferRef& ref : step.buffers) {
    switch (ref.space) {
      case codegen::BufferRef::Space::input: buffers.push_back(execution.inputs[ref.index].storage()->data()); break;
      case codegen::BufferRef::Space::output: buffers.push_back(execution.outputs[ref.index]->data()); break;
      case codegen::BufferRef::Space::arena: buffers.push_back(arena + ref.index); break;
      case codegen::BufferRef::Space::constant: buffers.push_back(constants_[ref.index]->data()); break;
    }
  }
  const KernelPtr& kernel = kernels_[step.kernel];
  note_interpreted_run(kernel);
  try {
    kernel->run(buffers.data());
  } catch (const std::exception& error) {
    return absl::InternalError(fmt::format("{}: {} of {}: {}", to_string(step.loc), kernel->code().name, program_.name,
                                           error.what()));
  }
  return absl::OkStatus();
}

void Executable::note_interpreted_run(const KernelPtr& kernel) const {
  if (options_.tier == Tier::automatic && !kernel->is_compiled() &&
      kernel->interpreted_runs() + 1 >= options_.interpreted_runs)
    cache_.compile_in_background(kernel);
}

}  // namespace sheaf::runtime
