// Loading and dispatch. Everything that can fail at dispatch comes before the first donation, so a refused run changes
// nothing.
#include "runtime/executable.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "ir/log.h"
#include "ir/profile.h"
#include "ir/recycled.h"
#include "runtime/counters.h"
#include "runtime/cuda_products.h"
#include "runtime/device.h"
#include "runtime/execution.h"
#include "runtime/fork.h"
#include "runtime/host_call.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"

namespace sheaf::runtime {

namespace {

std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}
std::int64_t saturating_mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

// A loop that runs until its condition fails is taken to run as often as this.
constexpr std::int64_t kGuessedTrips = 64;

std::int64_t work_of(std::span<const codegen::Step> steps, std::span<const KernelPtr> kernels) {
  std::int64_t work = 0;
  for (const codegen::Step& step : steps) {
    if (!step.control) {
      work = saturating_add(work, kernels[step.kernel]->work_ps());
    } else if (const auto* loop = std::get_if<codegen::Loop>(&step.control->what)) {
      const std::int64_t once = saturating_add(work_of(loop->body, kernels), work_of(loop->condition, kernels));
      work = saturating_add(work, saturating_mul(once, loop->length < 0 ? kGuessedTrips : loop->length));
    } else if (const auto* library = std::get_if<codegen::LibraryCall>(&step.control->what)) {
      const auto* routine = std::get_if<ir::lowering::Library>(&library->what);
      work = saturating_add(
          work, routine ? saturating_mul(library->matrix_ps, routine->batch) : work_of(library->otherwise, kernels));
    } else if (const auto* choice = std::get_if<codegen::Branch>(&step.control->what)) {
      std::int64_t longest = 0;
      for (const std::vector<codegen::Step>& branch : choice->branches)
        longest = std::max(longest, work_of(branch, kernels));
      work = saturating_add(work, longest);
    }
  }
  return work;
}

bool needs_host(std::span<const codegen::Step> steps) {
  return std::ranges::any_of(steps, [](const codegen::Step& step) {
    if (!step.control || std::holds_alternative<codegen::Check>(step.control->what)) return false;
    if (const auto* call = std::get_if<codegen::LibraryCall>(&step.control->what))
      return call->otherwise.empty() || needs_host(call->otherwise);
    const auto* loop = std::get_if<codegen::Loop>(&step.control->what);
    return !loop || loop->length < 0 || needs_host(loop->body);
  });
}

}  // namespace

Executable::Executable(codegen::Program program, LoadOptions options)
    : program_(std::move(program)),
      name_(std::make_shared<const std::string>(program_.name)),
      options_(std::move(options)),
      cache_(options_.cache ? *options_.cache : KernelCache::global()),
      kernels_(cache_.get(program_.kernels)) {
  work_ps_ = work_of(program_.steps, kernels_);
  needs_host_ = needs_host(program_.steps);
}

absl::StatusOr<ExecutablePtr> Executable::load(codegen::Program program, LoadOptions options) {
  if (program.has_products) open_cublaslt_early();
  std::shared_ptr<Executable> executable(new Executable(std::move(program), std::move(options)));
  const LoadOptions& how = executable->options_;
  const bool is_tiny = executable->work_ps_ <= how.interpret_below_ps;
  const bool can_interpret = !executable->program_.target.is_gpu();
  if (!can_interpret || how.tier == Tier::compiled || (how.tier == Tier::automatic && !is_tiny)) {
    if (absl::Status status = executable->cache_.compile(executable->kernels_); !status.ok()) return status;
  }
  ir::log(ir::LogTopic::runtime, "loaded {}: {} kernels, {} steps, {} bytes of arena, {} us of work",
          executable->program_.name, executable->kernels_.size(), executable->program_.steps.size(),
          executable->program_.arena_bytes, executable->work_ps_ / 1'000'000);
  return executable;
}

std::int64_t Executable::code_bytes() const {
  std::int64_t bytes = 0;
  for (auto kernel = kernels_.begin(); kernel != kernels_.end(); ++kernel)
    if (std::find(kernels_.begin(), kernel, *kernel) == kernel) bytes += (*kernel)->code_bytes();
  return bytes;
}

absl::StatusOr<const Executable::Constants*> Executable::constants_on(Device& device) const {
  static const Constants none;
  if (program_.constants.empty()) return &none;
  {
    std::lock_guard lock(mutex_);
    if (const auto known = constants_.find(&device.allocator()); known != constants_.end()) return &known->second;
  }
  Constants all;  // made outside the lock: memory may have to be waited for, behind a run that needs it
  for (const codegen::Constant& constant : program_.constants) {
    auto memory = Memory::allocate(device.allocator(), std::ssize(constant.data), Loc{});
    absl::Status status = memory.status();
    if (status.ok()) {
      const absl::StatusOr<EventPtr> there =
          device.backend().upload((*memory)->data(), constant.data.data(), std::ssize(constant.data));
      status = there.ok() && *there ? (*there)->wait() : there.status();
    }
    if (!status.ok()) return status;
    all.push_back(*std::move(memory));
  }
  std::lock_guard lock(mutex_);
  return &constants_.try_emplace(&device.allocator(), std::move(all)).first->second;
}

/// A device runs one execution at a time, so what this refers to has one user.
std::unique_ptr<Replays>& Executable::replays_on(Device& device) const {
  std::lock_guard lock(mutex_);
  return replays_[&device];
}

absl::Status Executable::check_inputs(const Device& device, std::span<Buffer* const> inputs,
                                      const RunOptions& options) const {
  if (absl::Status status = check_not_forked(); !status.ok()) return status;
  if (absl::Status status = check_not_in_host_call(); !status.ok()) return status;
  if (device.backend().target() != program_.target)
    return absl::InvalidArgumentError(fmt::format("{} is compiled for {}, and {} is {}", program_.name,
                                                  to_string(program_.target), device.name(),
                                                  to_string(device.backend().target())));
  if (inputs.size() != program_.inputs.size() || (!options.donated.empty() && options.donated.size() != inputs.size()))
    return absl::InvalidArgumentError(
        fmt::format("{} takes {} inputs, {} were given", program_.name, program_.inputs.size(), inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]->bytes() != program_.inputs[i].bytes())
      return absl::InvalidArgumentError(fmt::format("input {} of {} is {} bytes, {} has {}", i, program_.name,
                                                    inputs[i]->bytes(), ir::to_string(program_.inputs[i]),
                                                    program_.inputs[i].bytes()));
    if (&inputs[i]->device() != &device)
      return absl::InvalidArgumentError(fmt::format("input {} of {} is on {}, the run is on {}", i, program_.name,
                                                    inputs[i]->device().name(), device.name()));
  }
  return absl::OkStatus();
}

namespace {

bool is_donated(const RunOptions& options, int input) { return !options.donated.empty() && options.donated[input]; }

/// The memory of a donated input may be overwritten unless another input reads it too.
bool is_only_use(std::span<const Pin> inputs, int input) {
  return std::ranges::count(inputs, inputs[input].storage(), &Pin::storage) == 1;
}

}  // namespace

/// Small work whose inputs are all there is done by the caller; the interpreter's work counts for what it is. A GPU is
/// asked by the caller wherever that takes no waiting; the launch mutex keeps others from its work meanwhile.
bool Executable::runs_inline(const Execution& execution) const {
  const bool waits_for_pins =
      std::ranges::any_of(execution.taken, [](const Storage* storage) { return storage->pins() > 1; });
  if (program_.target.is_gpu())
    return !needs_host_ && !waits_for_pins && execution.device.queue().is_idle() &&
           std::ranges::all_of(execution.waits, &Completion::is_issued, &std::shared_ptr<Completion>::operator*);
  return !waits_for_pins && is_small() &&
         std::ranges::none_of(execution.waits, &Completion::is_pending, &std::shared_ptr<Completion>::operator*);
}

bool Executable::is_small() const {
  if (work_ps_ >= kSerialPs) return false;
  return work_ps_ * kInterpreterSlowdown < kSerialPs ||
         std::ranges::all_of(kernels_, &Kernel::is_compiled, &KernelPtr::operator*);
}

absl::Status Executable::prepare(Execution& execution, std::span<Buffer* const> inputs, const RunOptions& options,
                                 Claims& claims) const {
  const absl::StatusOr<const Constants*> constants = constants_on(execution.device);
  if (!constants.ok()) return constants.status();
  execution.constants = *constants;
  if (program_.arena_bytes > 0 && program_.target.is_gpu()) {
    absl::StatusOr<std::shared_ptr<Memory>> arena = execution.device.backend().arena(program_.arena_bytes, options.loc);
    if (!arena.ok()) return arena.status();
    execution.arena = *std::move(arena);
  }
  for (Buffer* input : inputs) {
    absl::StatusOr<Pin> pin = input->pin();
    if (!pin.ok()) return pin.status();
    execution.inputs.push_back(*std::move(pin));
    if (input->completion()) execution.waits.push_back(input->completion());
  }
  for (int o = 0; o < std::ssize(program_.outputs); ++o) {
    const int from = program_.alias.empty() ? -1 : program_.alias[o];
    if (from >= 0 && is_donated(options, from) && is_only_use(execution.inputs, from) &&
        claims.take(execution.inputs[from].storage().get())) {
      Storage* taken = execution.inputs[from].storage().get();
      execution.outputs.push_back(ir::make_recycled<Storage>(taken->memory()));
      execution.taken.push_back(taken);
      execution.copied_from.push_back(-1);
    } else {
      absl::StatusOr<std::shared_ptr<Memory>> memory =
          Memory::allocate(execution.device.allocator(), program_.outputs[o].bytes(), options.loc);
      if (!memory.ok()) return with_advice(memory.status());
      execution.outputs.push_back(ir::make_recycled<Storage>(*std::move(memory)));
      execution.copied_from.push_back(from);
    }
  }
  return absl::OkStatus();
}

Buffers Executable::outputs_of(const Execution& execution) const {
  Buffers outputs;
  for (std::size_t o = 0; o < program_.outputs.size(); ++o)
    outputs.push_back(ir::make_recycled<Buffer>(execution.device, program_.outputs[o].bytes(), execution.loc,
                                                execution.outputs[o], execution.completion));
  return outputs;
}

absl::Status Executable::with_advice(absl::Status status) const {
  if (!absl::IsResourceExhausted(status) || !options_.memory_advice) return status;
  return absl::ResourceExhaustedError(std::string(status.message()) + options_.memory_advice());
}

void Executable::donate(std::span<Buffer* const> inputs, const RunOptions& options) const {
  for (int i = 0; i < std::ssize(inputs); ++i)  // a buffer that is given twice has gone already the second time
    if (is_donated(options, i)) (void)inputs[i]->donate({name_, options.loc});
}

/// A run takes the launch mutex from its first pin to its place in the queue: then who takes memory comes after those
/// who read it. A run that is over when the call returns, and takes nothing, needs no place.
absl::StatusOr<Buffers> Executable::run(Device& device, std::span<Buffer* const> inputs,
                                        const RunOptions& options) const {
  if (program_.num_devices != 1)
    return absl::InvalidArgumentError(
        fmt::format("{} runs on {} devices, not on {} alone", program_.name, program_.num_devices, device.name()));
  if (absl::Status status = check_inputs(device, inputs, options); !status.ok()) return status;
  Execution execution{.device = device, .loc = options.loc};
  if (ir::is_profiled()) execution.call = ir::current_call();
  const bool needs_no_place = !program_.target.is_gpu() && options.donated.empty() && is_small() &&
                              std::ranges::none_of(inputs, &Buffer::is_pending);
  std::unique_lock launch(launch_mutex(), std::defer_lock);
  if (!needs_no_place) launch.lock();
  {
    Claims claims;
    if (absl::Status status = prepare(execution, inputs, options, claims); !status.ok()) return status;
    donate(inputs, options);
  }
  const bool is_inline = needs_no_place || runs_inline(execution);
  if (is_inline && !program_.target.is_gpu()) {
    if (launch.owns_lock()) launch.unlock();
    return run_here(execution);
  }
  execution.executable = shared_from_this();
  execution.completion = std::make_shared<Completion>();
  Buffers outputs = outputs_of(execution);
  if (is_inline) {
    counters().executions_inline.fetch_add(1, std::memory_order_relaxed);
    execute(execution);
    launch.unlock();
    device.backend().flights().hold_back();
    return outputs;
  }
  const std::shared_ptr<Completion> completion = execution.completion;
  const bool may_be_waiter = device.backend().is_host() && !needs_host_;  // callbacks are not run where the user waits
  absl::Status pushed = device.queue().push(
      [queued = std::make_unique<Execution>(std::move(execution))] {
        queued->executable->execute(*queued);
        queued->device.backend().flights().hold_back();
      },
      may_be_waiter ? Queue::By::waiter : Queue::By::thread);
  if (!pushed.ok()) completion->finish(std::move(pushed));
  return outputs;
}

absl::StatusOr<Buffers> Executable::run(Device& device, std::span<const BufferPtr> inputs,
                                        const RunOptions& options) const {
  return run(device, pointers_to(inputs), options);
}

absl::Status Executable::compile_rest() const {
  if (absl::Status status = check_not_forked(); !status.ok()) return status;
  return options_.tier == Tier::interpreted ? absl::OkStatus() : cache_.compile(kernels_);
}

absl::Status Executable::warm(Device& device) const {
  if (absl::Status status = compile_rest(); !status.ok()) return status;
  for (const KernelPtr& kernel : kernels_)
    if (absl::Status status = device.backend().load(*kernel); !status.ok()) return status;
  if (const auto constants = constants_on(device); !constants.ok()) return constants.status();
  std::vector<std::shared_ptr<Memory>> touched;  // held together, as a run holds them
  std::vector<std::int64_t> sizes;
  for (int d = 0; d < program_.num_devices; ++d) {  // one memory for all of them
    if (device.backend().is_host()) sizes.push_back(program_.arena_bytes);
    for (const ir::Type& output : program_.outputs) sizes.push_back(output.bytes());
  }
  std::int64_t scratch = 0;
  for (const KernelPtr& kernel : kernels_)
    for (const codegen::Phase& phase : kernel->code().phases) scratch = std::max(scratch, phase.scratch_bytes);
  const int threads = scratch > 0 && device.backend().is_host() ? ThreadPool::global().threads() + 1 : 0;
  for (int t = 0; t < threads; ++t)  // of the pool, the queue, and who waits
    sizes.push_back(scratch_block_bytes(scratch));
  for (const std::int64_t bytes : sizes) {
    auto memory = Memory::allocate(device.allocator(), bytes, Loc{});
    if (!memory.ok()) return memory.status();
    if (device.backend().is_host()) std::memset((*memory)->data(), 0, static_cast<std::size_t>(bytes));
    touched.push_back(*std::move(memory));
  }
  return device.backend().is_host() ? absl::OkStatus() : rehearse(device);
}

}  // namespace sheaf::runtime
