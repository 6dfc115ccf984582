// What happens when an execution's turn has come: wait for inputs, run the steps in order, publish the result. The pins
// are dropped before the outputs become ready, so that who has waited for this run can reuse its inputs at once. A GPU
// is only asked for the steps: the host waits for none but those that decide what comes next.
#include <algorithm>
#include <new>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "fmt/format.h"
#include "ir/callbacks.h"
#include "ir/check.h"
#include "ir/environment.h"
#include "runtime/backend.h"
#include "runtime/collectives.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/device_span.h"
#include "runtime/execution.h"
#include "runtime/host_call.h"
#include "runtime/lapack.h"
#include "runtime/spmd.h"

namespace sheaf::runtime {

struct Executable::Outcome {
  absl::Status status;
  bool is_inherited = false;  // the status is an input's
  FlightPtr flight = nullptr;  // null: the work is over
};

Executable::Outcome Executable::perform(Execution& execution) const {
  counters().executions.fetch_add(1, std::memory_order_relaxed);
  Outcome outcome{.status = wait_for_inputs(execution)};
  outcome.is_inherited = !outcome.status.ok();
  if (outcome.is_inherited) return outcome;
  absl::StatusOr<FlightPtr> done = execute_steps(execution);
  if (done.ok()) outcome.flight = *std::move(done);
  else outcome.status = error_of(execution, done.status(), outcome.is_inherited);
  return outcome;
}

void Executable::execute(Execution& execution) const {
  auto [status, is_inherited, flight] = perform(execution);
  execution.inputs.clear();
  execution.outputs.clear();
  if (execution.spmd)
    execution.spmd->end(execution.position, {.status = std::move(status), .inherited = is_inherited, .flight = flight});
  else if (flight) execution.completion->issue({flight});
  else execution.completion->finish(std::move(status));
  if (flight) execution.device.backend().flights().add(std::move(flight), execution.completion);
}

Buffers Executable::run_here(Execution& execution) const {
  counters().executions_inline.fetch_add(1, std::memory_order_relaxed);
  absl::Status status = perform(execution).status;
  execution.inputs.clear();
  if (!status.ok()) {
    execution.completion = std::make_shared<Completion>();
    execution.completion->finish(std::move(status));
  }
  return outputs_of(execution);
}

/// The host waits for those that nobody was asked for yet, the device for those in flight.
absl::Status Executable::wait_for_inputs(const Execution& execution) const {
  Backend& backend = execution.device.backend();
  for (const std::shared_ptr<Completion>& input : execution.waits) {
    absl::Status status = backend.is_host() ? input->wait() : input->wait_for_issue();
    if (!status.ok()) return status;  // told from now on by the outputs
    for (const EventPtr& event : input->events())
      if (absl::Status after = backend.await(*event); !after.ok()) return after;
  }
  return absl::OkStatus();
}

/// That of an input which was in flight when the run began, else its own.
absl::Status Executable::error_of(const Execution& execution, absl::Status own, bool& is_inherited) const {
  for (const std::shared_ptr<Completion>& input : execution.waits) {
    absl::Status status = input->wait();
    is_inherited = !status.ok();
    if (is_inherited) return status;
  }
  return own;
}

struct Executable::Addresses {
  Addresses(const Executable& executable, Execution& of, std::byte* arena_begin)
      : execution(of), arena(arena_begin), slots(executable.program_.num_slots) {}

  Backend& backend() const { return execution.device.backend(); }

  std::byte* operator[](const codegen::BufferRef& ref) const {
    switch (ref.space) {
      case codegen::BufferRef::Space::input: return execution.inputs[ref.index].storage()->data();
      case codegen::BufferRef::Space::output: return execution.outputs[ref.index]->data();
      case codegen::BufferRef::Space::arena: return arena + ref.index;
      case codegen::BufferRef::Space::constant: return (*execution.constants)[ref.index]->data();
      case codegen::BufferRef::Space::slot: return slots[ref.index];
    }
    return nullptr;
  }

  Execution& execution;
  std::byte* arena;
  absl::InlinedVector<std::byte*, 32> slots;
  absl::flat_hash_map<int, HostCopies> under_way;  // collectives begun, by their groups
  // Kernels that the device has not been asked for yet, so that it may be asked for all of them at once.
  absl::InlinedVector<const codegen::Step*, 8> waiting;
  absl::InlinedVector<void*, 32> buffers;  // theirs, in order
  bool is_long = false;  // some before them had to go already
  std::vector<Flight::Check> checks;
};

namespace {

/// Of checks whose work is over; null if all hold.
const Flight::Check* first_failed(std::span<const Flight::Check> checks) {
  const auto failed = std::ranges::find(checks, std::byte{0}, [](const Flight::Check& c) { return *c.holds; });
  return failed == checks.end() ? nullptr : &*failed;
}

template <class Addresses>
SpanOf span_of(ir::Activity activity, std::string_view name, const codegen::Step& step, const Addresses& at) {
  return {activity, name, step.loc, step.work, at.execution.call};
}

/// Its bytes are read and written.
template <class Execution>
SpanOf copy_span(std::string_view name, std::int64_t bytes, const Execution& execution) {
  return {ir::Activity::copy, name, execution.loc, {.bytes = 2.0 * static_cast<double>(bytes)}, execution.call};
}

std::string_view name_of(const codegen::LibraryCall& call) {
  constexpr std::string_view kRoutines[] = {"cholesky", "triangular_solve", "lu", "qr", "svd", "eigh"};
  const auto* routine = std::get_if<ir::lowering::Library>(&call.what);
  return routine ? kRoutines[static_cast<std::size_t>(routine->routine)] : "product by the library";
}

}  // namespace

absl::StatusOr<FlightPtr> Executable::execute_steps(Execution& execution) const {
  Backend& backend = execution.device.backend();
  std::shared_ptr<Memory> arena = std::move(execution.arena);
  if (program_.arena_bytes > 0 && !arena) {
    absl::StatusOr<std::shared_ptr<Memory>> leased = backend.arena(program_.arena_bytes, execution.loc);
    if (!leased.ok()) return with_advice(leased.status());
    arena = *std::move(leased);
  }
  Addresses at(*this, execution, arena ? arena->data() : nullptr);
  absl::Status status = begin_outputs(execution);
  if (status.ok()) status = run_steps(program_.steps, at);
  if (status.ok()) status = launch_waiting(at);
  if (status.ok() && execution.spmd) status = settle_checks(at);  // here it is known which device's they are
  if (status.ok()) {
    absl::StatusOr<EventPtr> end = backend.record();
    if (end.ok() && *end) return in_flight(at, *std::move(end), std::move(arena));
    status = end.status();
  }
  // What this device brought to collectives that it has not waited for may lie in the arena.
  if (!status.ok() && execution.spmd) execution.spmd->leave(execution.position);
  // Nothing may still use the arena when it goes back.
  if (absl::Status done = backend.drain(); !done.ok()) {
    if (status.ok()) status = std::move(done);
  } else if (const Flight::Check* failed = first_failed(at.checks)) {
    status = failed->otherwise;  // came before whatever could not be asked for
  }
  if (!status.ok()) return status;
  return nullptr;
}

/// Memory taken from an input may still be read for others; memory that is not begins as a copy.
absl::Status Executable::begin_outputs(const Execution& execution) const {
  Backend& backend = execution.device.backend();
  for (Storage* storage : execution.taken) {
    storage->wait_for_pins(1);
    for (const EventPtr& reader : storage->readers())
      if (absl::Status status = backend.await(*reader); !status.ok()) return status;
  }
  for (std::size_t o = 0; o < execution.outputs.size(); ++o) {
    const int from = execution.copied_from[o];
    if (from < 0) continue;
    const DeviceSpan span(
        backend, [&] { return copy_span("copy of a donated argument", program_.outputs[o].bytes(), execution); });
    absl::Status copied = backend.copy(execution.outputs[o]->data(), execution.inputs[from].storage()->data(),
                                       program_.outputs[o].bytes());
    if (!copied.ok()) return copied;
  }
  return absl::OkStatus();
}

FlightPtr Executable::in_flight(Addresses& at, EventPtr end, std::shared_ptr<Memory> arena) const {
  Execution& execution = at.execution;
  Flight::Load load{.end = std::move(end),
                    .what = fmt::format("{}: {}", to_string(execution.loc), program_.name),
                    .late = execution.spmd ? execution.spmd->late_error() : nullptr,
                    .checks = std::move(at.checks)};
  for (std::shared_ptr<Completion>& input : execution.waits)
    if (!input->is_known_ready()) load.inputs.push_back(std::move(input));  // it may have failed since it was awaited
  for (const Pin& input : execution.inputs) load.keeps.push_back(input.storage());
  for (const std::shared_ptr<Storage>& output : execution.outputs) load.keeps.push_back(output);
  if (arena) load.keeps.push_back(std::move(arena));
  load.keeps.push_back(execution.executable);
  return std::make_shared<Flight>(std::move(load));
}

absl::Status Executable::rehearse(Device& device) const {
  Execution execution{.device = device, .loc = {}};
  execution.is_rehearsal = true;
  const absl::StatusOr<const Constants*> constants = constants_on(device);
  if (!constants.ok()) return constants.status();
  execution.constants = *constants;
  std::int64_t largest = 0;
  for (const ir::Type& input : program_.inputs) largest = std::max(largest, input.bytes());
  const absl::StatusOr<BufferPtr> any_input = Buffer::allocate(device, largest, Loc{});  // stands for each of them
  if (!any_input.ok()) return any_input.status();
  for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
    absl::StatusOr<Pin> pin = (*any_input)->pin();
    if (!pin.ok()) return pin.status();
    execution.inputs.push_back(*std::move(pin));
  }
  for (const ir::Type& output : program_.outputs) {
    absl::StatusOr<std::shared_ptr<Memory>> memory = Memory::allocate(device.allocator(), output.bytes(), Loc{});
    if (!memory.ok()) return memory.status();
    execution.outputs.push_back(std::make_shared<Storage>(*std::move(memory)));
  }
  const std::lock_guard launch(launch_mutex());
  if (absl::Status status = device.queue().drain(); !status.ok()) return status;  // graphs have one user at a time
  const absl::StatusOr<std::shared_ptr<Memory>> arena = device.backend().arena(program_.arena_bytes, Loc{});
  if (!arena.ok()) return arena.status();
  Addresses at(*this, execution, (*arena)->data());
  if (absl::Status status = run_steps(program_.steps, at); !status.ok()) return status;
  return launch_waiting(at);
}

absl::Status Executable::run_steps(std::span<const codegen::Step> steps, Addresses& at) const {
  for (const codegen::Step& step : steps) {
    if (absl::Status status = step.control ? run_control(step, at) : run_kernel(step, at); !status.ok()) return status;
  }
  return absl::OkStatus();
}

/// Looked at where the host waits anyway, and at the end; until then what follows a check runs for nothing.
absl::Status Executable::run_check(const codegen::Check& check, Loc loc, Addresses& at) const {
  constexpr std::size_t kMost = 4096;
  absl::StatusOr<std::shared_ptr<const std::byte>> holds = at.backend().note(at[check.holds], 1);
  if (!holds.ok()) return holds.status();
  at.checks.push_back({*std::move(holds), absl::FailedPreconditionError(
                                              fmt::format("{}: check failed: {}", to_string(loc), check.message))});
  return at.backend().is_host() || at.checks.size() >= kMost ? settle_checks(at) : absl::OkStatus();
}

absl::Status Executable::settle_checks(Addresses& at) const {
  if (at.checks.empty()) return absl::OkStatus();
  if (absl::Status status = at.backend().drain(); !status.ok()) return status;
  if (const Flight::Check* failed = first_failed(at.checks)) return failed->otherwise;
  at.checks.clear();
  return absl::OkStatus();
}

namespace {

template <class Addresses>
absl::Status call_back(const codegen::Callback& callback, Loc loc, const Addresses& at) {
  ir::Literals in, out;
  for (std::size_t k = 0; k < callback.operands.size(); ++k) {
    in.emplace_back(callback.operand_types[k]);
    const auto bytes = static_cast<std::int64_t>(in[k].bytes());
    if (absl::Status read = at.backend().read(in[k].data(), at[callback.operands[k]], bytes); !read.ok()) return read;
  }
  for (ir::Type t : callback.result_types) out.emplace_back(t);
  const HostCall within(callback.name);
  const absl::Status s = ir::run_callback(callback.slot, callback.lanes, in, out);
  if (!s.ok())
    return absl::Status(s.code(), fmt::format("{}: {}: {}", to_string(loc), callback.name, std::string(s.message())));
  for (std::size_t j = 0; j < out.size(); ++j) {
    const auto bytes = static_cast<std::int64_t>(out[j].bytes());
    if (absl::Status put = at.backend().write(at[callback.results[j]], out[j].data(), bytes); !put.ok()) return put;
  }
  return absl::OkStatus();
}

/// In the host's memory.
template <class Addresses>
absl::Status call_lapack(const codegen::LibraryCall& call, Loc loc, const Addresses& at) {
  HostCopies copies(at.backend());
  absl::InlinedVector<const std::byte*, 2> operands;
  absl::InlinedVector<std::byte*, 3> results;
  for (const codegen::BufferRef& ref : call.operands) {
    const absl::StatusOr<const std::byte*> operand = copies.operand(at[ref], ref.bytes);
    if (!operand.ok()) return operand.status();
    operands.push_back(*operand);
  }
  for (const codegen::BufferRef& ref : call.results) results.push_back(copies.result(at[ref], ref.bytes));
  try {
    run_lapack(call, operands, results);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(fmt::format("{}: no memory for the work space of LAPACK", to_string(loc)));
  }
  return copies.finish();
}

}  // namespace

absl::Status Executable::run_control(const codegen::Step& step, Addresses& at) const {
  const codegen::Control& control = *step.control;
  if (!std::holds_alternative<codegen::Loop>(control.what)) {
    if (absl::Status status = launch_waiting(at); !status.ok()) return status;
    if (at.execution.is_rehearsal && !std::holds_alternative<codegen::Branch>(control.what)) return absl::OkStatus();
    if (!std::holds_alternative<codegen::Check>(control.what) &&
        !std::holds_alternative<codegen::LibraryCall>(control.what))
      if (absl::Status status = settle_checks(at); !status.ok()) return status;
  }
  struct Run {
    const Executable& executable;
    const codegen::Step& step;
    Addresses& at;
    absl::Status operator()(const codegen::Loop& loop) const {
      return loop.length < 0 ? executable.run_while(loop, at) : executable.run_scan(loop, at);
    }
    absl::Status operator()(const codegen::Branch& branch) const { return executable.run_branch(branch, at); }
    absl::Status operator()(const codegen::Check& check) const { return executable.run_check(check, step.loc, at); }
    absl::Status operator()(const codegen::Callback& callback) const {
      const DeviceSpan span(at.backend(), [&] { return span_of(ir::Activity::launch, callback.name, step, at); });
      return call_back(callback, step.loc, at);
    }
    absl::Status operator()(const codegen::LibraryCall& call) const { return executable.run_library(call, step, at); }
    absl::Status operator()(const codegen::Collective& what) const {
      if (meets_in_streams()) return executable.run_collective(what, step.loc, at);  // there the streams are timed
      const DeviceSpan span(at.backend(), [&] { return span_of(ir::Activity::collective, what.name, step, at); });
      return executable.run_collective(what, step.loc, at);
    }
    absl::Status operator()(const codegen::Await& await) const {
      if (meets_in_streams()) return executable.await_collective(await.groups, at);
      const DeviceSpan span(at.backend(), [&] { return span_of(ir::Activity::collective, "await", step, at); });
      return executable.await_collective(await.groups, at);
    }
    bool meets_in_streams() const { return at.execution.spmd && at.execution.spmd->meets_in_streams(); }
  };
  return std::visit(Run{*this, step, at}, control.what);
}

namespace {

/// The two buffers a carry alternates between, or the one it stays in.
struct CarryPlace {
  std::byte* now;
  std::byte* result;
  std::byte* spare;
  std::int64_t bytes;
  bool in_place;
};

}  // namespace

class Executable::CarryPlaces {
 public:
  CarryPlaces(const Executable& executable, const codegen::Loop& loop, Addresses& at)
      : executable_(executable), at_(at) {
    for (const codegen::Loop::Carry& c : loop.carries)
      places_.push_back({at[c.start], at[c.result], at[c.spare], c.start.bytes, c.in_place()});
  }
  /// Those that stay in one buffer begin there.
  absl::Status begin() {
    for (CarryPlace& place : places_)
      if (absl::Status status = place.in_place ? settle(place) : absl::OkStatus(); !status.ok()) return status;
    return absl::OkStatus();
  }
  /// All end in their results.
  absl::Status end() {
    for (CarryPlace& place : places_)
      if (absl::Status status = settle(place); !status.ok()) return status;
    return absl::OkStatus();
  }
  std::size_t size() const { return places_.size(); }
  CarryPlace& operator[](std::size_t k) { return places_[k]; }

 private:
  absl::Status settle(CarryPlace& place) {
    const std::byte* from = std::exchange(place.now, place.result);
    if (from == place.result) return absl::OkStatus();
    if (absl::Status status = executable_.launch_waiting(at_); !status.ok()) return status;
    if (at_.execution.is_rehearsal) return absl::OkStatus();
    const DeviceSpan span(at_.backend(),
                          [&] { return copy_span("copy of a loop's carry", place.bytes, at_.execution); });
    return at_.backend().copy(place.result, from, place.bytes);
  }

  const Executable& executable_;
  Addresses& at_;
  absl::InlinedVector<CarryPlace, 16> places_;
};

absl::Status Executable::run_scan(const codegen::Loop& loop, Addresses& at) const {
  CarryPlaces places(*this, loop, at);
  if (absl::Status status = places.begin(); !status.ok()) return status;
  for (std::int64_t i = 0; i < loop.length; ++i) {
    const std::int64_t t = loop.reverse ? loop.length - 1 - i : i;
    const bool ends_in_result = (loop.length - 1 - i) % 2 == 0;
    for (std::size_t k = 0; k < places.size(); ++k) {
      CarryPlace& place = places[k];
      at.slots[loop.carries[k].from] = place.now;
      if (place.in_place) continue;
      at.slots[loop.carries[k].to] = place.now = ends_in_result ? place.result : place.spare;
    }
    for (const codegen::Loop::Row& row : loop.rows) at.slots[row.slot] = at[row.stack] + t * row.row_bytes;
    if (absl::Status status = run_steps(loop.body, at); !status.ok()) return status;
  }
  return places.end();  // of a loop of no steps
}

absl::Status Executable::run_while(const codegen::Loop& loop, Addresses& at) const {
  CarryPlaces places(*this, loop, at);
  if (absl::Status status = places.begin(); !status.ok()) return status;
  for (std::int64_t trip = 0; trip != loop.max_trips; ++trip) {
    for (std::size_t k = 0; k < places.size(); ++k) at.slots[loop.carries[k].from] = places[k].now;
    if (absl::Status status = run_steps(loop.condition, at); !status.ok()) return status;
    if (absl::Status status = launch_waiting(at); !status.ok()) return status;
    if (absl::Status status = settle_checks(at); !status.ok()) return status;
    const absl::StatusOr<std::uint8_t> holds = at.execution.is_rehearsal
                                                   ? static_cast<std::uint8_t>(trip == 0)  // each step's launches once
                                                   : read_value<std::uint8_t>(at.backend(), at[loop.holds]);
    if (!holds.ok()) return holds.status();
    if (*holds == 0) break;
    for (std::size_t k = 0; k < places.size(); ++k) {
      CarryPlace& place = places[k];
      if (place.in_place) continue;
      at.slots[loop.carries[k].to] = place.now = place.now == place.result ? place.spare : place.result;
    }
    if (absl::Status status = run_steps(loop.body, at); !status.ok()) return status;
  }
  return places.end();
}

absl::Status Executable::run_branch(const codegen::Branch& branch, Addresses& at) const {
  if (at.execution.is_rehearsal) {  // what comes behind is another graph for each; here it goes with the last
    for (const std::vector<codegen::Step>& steps : branch.branches) {
      if (absl::Status status = launch_waiting(at); !status.ok()) return status;
      if (absl::Status status = run_steps(steps, at); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  const absl::StatusOr<std::int32_t> index = read_value<std::int32_t>(at.backend(), at[branch.index]);
  if (!index.ok()) return index.status();
  const auto last = static_cast<std::int32_t>(branch.branches.size()) - 1;
  return run_steps(branch.branches[std::clamp(*index, 0, last)], at);
}

/// The device's library; where there is none, a kernel or the host's.
absl::Status Executable::run_library(const codegen::LibraryCall& call, const codegen::Step& step, Addresses& at) const {
  absl::InlinedVector<const std::byte*, 2> operands;
  absl::InlinedVector<std::byte*, 3> results;
  for (const codegen::BufferRef& ref : call.operands) operands.push_back(at[ref]);
  for (const codegen::BufferRef& ref : call.results) results.push_back(at[ref]);
  Kernel* const around = call.kernel < 0 ? nullptr : kernels_[call.kernel].get();
  DeviceSpan span(at.backend(), [&] { return span_of(ir::Activity::launch, name_of(call), step, at); });
  const absl::StatusOr<bool> called = at.backend().call(call, around, operands, results);
  if (!called.ok())
    return absl::Status(called.status().code(),
                        fmt::format("{}: {}", to_string(step.loc), std::string(called.status().message())));
  if (*called) return absl::OkStatus();
  if (!call.otherwise.empty()) {
    span.drop();  // its steps have their own
    return run_steps(call.otherwise, at);
  }
  if (absl::Status status = settle_checks(at); !status.ok()) return status;
  return call_lapack(call, step.loc, at);
}

absl::Status Executable::run_collective(const codegen::Collective& what, Loc loc, Addresses& at) const {
  const int position = at.execution.position;
  if (what.kind == ir::lowering::Collective::Kind::axis_index) {
    const codegen::Groups& groups = program_.groups[what.groups];
    std::int32_t index = 0;
    for (const std::vector<int>& group : groups)
      if (const auto self = std::find(group.begin(), group.end(), position); self != group.end())
        index = static_cast<std::int32_t>(self - group.begin());
    return at.backend().write(at[what.result], reinterpret_cast<const std::byte*>(&index), sizeof index);
  }
  if (!at.execution.spmd) {  // of a mesh of one device
    const bool gets_nothing = what.kind == ir::lowering::Collective::Kind::ppermute && what.source[0] < 0;
    if (!gets_nothing) return at.backend().copy(at[what.result], at[what.operand], what.result.bytes);
    const std::vector<std::byte> zeros(what.result.bytes);
    return at.backend().write(at[what.result], zeros.data(), what.result.bytes);
  }
  Rendezvous::Part part{.what = &what, .loc = loc, .call = at.execution.call};
  if (at.execution.spmd->meets_in_streams()) {
    part.operand = at[what.operand];
    part.result = at[what.result];
    return at.execution.spmd->collective(position, std::move(part));
  }
  // One that is under way over the same groups is done first: it has copies of its own.
  if (absl::Status before = await_collective(what.groups, at); !before.ok()) return before;
  HostCopies copies(at.backend());
  const absl::StatusOr<const std::byte*> operand = copies.operand(at[what.operand], what.operand.bytes);
  if (!operand.ok()) return operand.status();
  part.operand = *operand;
  part.result = copies.result(at[what.result], what.result.bytes);
  if (absl::Status met = at.execution.spmd->collective(position, std::move(part)); !met.ok()) return met;
  if (what.waits) return copies.finish();
  at.under_way.emplace(what.groups, std::move(copies));
  return absl::OkStatus();
}

absl::Status Executable::await_collective(int groups, Addresses& at) const {
  if (!at.execution.spmd) return absl::OkStatus();
  if (at.execution.spmd->meets_in_streams()) return at.execution.spmd->await(at.execution.position, groups);
  const auto begun = at.under_way.find(groups);
  if (begun == at.under_way.end()) return absl::OkStatus();
  HostCopies copies = std::move(begun->second);
  at.under_way.erase(begun);
  if (absl::Status met = at.execution.spmd->await(at.execution.position, groups); !met.ok()) return met;
  return copies.finish();
}

/// A CPU runs it; a GPU is asked for it with others.
absl::Status Executable::run_kernel(const codegen::Step& step, Addresses& at) const {
  constexpr std::size_t kMost = 1024;
  const KernelPtr& kernel = kernels_[step.kernel];
  note_interpreted_run(kernel);
  if (at.execution.spmd && at.execution.spmd->has_begun(at.execution.position))
    counters().overlapped_launches.fetch_add(1, std::memory_order_relaxed);
  if (at.backend().is_host() && (step.joins_next || !at.waiting.empty())) {
    for (const codegen::BufferRef& ref : step.buffers) at.buffers.push_back(at[ref]);
    at.waiting.push_back(&step);
    return step.joins_next ? absl::OkStatus() : launch_together(at);
  }
  if (at.backend().is_host()) {
    absl::InlinedVector<void*, 16> buffers;
    for (const codegen::BufferRef& ref : step.buffers) buffers.push_back(at[ref]);
    return kernel->packed_operands().empty() ? launch(step, buffers, at) : launch_packed(step, buffers, at);
  }
  for (const codegen::BufferRef& ref : step.buffers) at.buffers.push_back(at[ref]);
  at.waiting.push_back(&step);
  if (at.waiting.size() < kMost) return absl::OkStatus();
  at.is_long = true;  // what takes so long gains nothing by being asked for at once
  return launch_one_by_one(at);
}

namespace {

/// Then a fault is told with the kernel and the line.
bool waits_for_kernels() {
  static const bool waits = ir::is_switched_on("SHEAF_WAIT_FOR_KERNELS");
  return waits;
}

}  // namespace

absl::Status Executable::launch(const codegen::Step& step, std::span<void* const> buffers, const Addresses& at,
                                Phases packed) const {
  const KernelPtr& kernel = kernels_[step.kernel];
  const DeviceSpan span(at.backend(), [&] { return span_of(ir::Activity::launch, kernel->code().name, step, at); });
  absl::Status status = at.backend().run(*kernel, buffers, packed);
  if (status.ok() && waits_for_kernels()) status = at.backend().drain();
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("{}: {} of {}: {}", to_string(step.loc), kernel->code().name,
                                                 program_.name, std::string(status.message())));
}

absl::InlinedVector<Launch, 8> Executable::launches_of(const Addresses& at) const {
  absl::InlinedVector<Launch, 8> launches;
  void* const* buffers = at.buffers.data();
  for (const codegen::Step* step : at.waiting) {
    launches.push_back({kernels_[step->kernel].get(), {buffers, step->buffers.size()}});
    buffers += step->buffers.size();
  }
  return launches;
}

/// Of a CPU, at once.
absl::Status Executable::launch_together(Addresses& at) const {
  if (ir::is_profiled()) return launch_one_by_one(at);
  const absl::Status status = at.backend().run_together(launches_of(at));
  if (!status.ok())
    return absl::Status(
        status.code(),
        fmt::format("{}: {} and what runs with it, of {}: {}", to_string(at.waiting[0]->loc),
                    kernels_[at.waiting[0]->kernel]->code().name, program_.name, std::string(status.message())));
  at.waiting.clear();
  at.buffers.clear();
  return absl::OkStatus();
}

absl::Status Executable::launch_waiting(Addresses& at) const {
  if (at.waiting.empty() || at.is_long || waits_for_kernels() || ir::is_profiled()) {  // each is to have its time
    at.is_long = false;
    return launch_one_by_one(at);
  }
  const absl::InlinedVector<Launch, 8> launches = launches_of(at);
  std::unique_ptr<Replays>& replays = replays_on(at.execution.device);
  const absl::StatusOr<bool> replayed =
      at.execution.is_rehearsal ? at.backend().rehearse(launches, replays) : at.backend().replay(launches, replays);
  if (!replayed.ok())
    return absl::Status(replayed.status().code(), fmt::format("{}: {}: {}", to_string(at.execution.loc), program_.name,
                                                              std::string(replayed.status().message())));
  if (!*replayed) return launch_one_by_one(at);
  at.waiting.clear();
  at.buffers.clear();
  return absl::OkStatus();
}

absl::Status Executable::launch_one_by_one(Addresses& at) const {
  void* const* buffers = at.buffers.data();
  for (const codegen::Step* step : at.waiting) {
    if (at.execution.is_rehearsal) break;
    if (absl::Status status = launch(*step, {buffers, step->buffers.size()}, at); !status.ok()) return status;
    buffers += step->buffers.size();
  }
  at.waiting.clear();
  at.buffers.clear();
  return absl::OkStatus();
}

/// Where the program's inputs have been packed before, from those copies.
absl::Status Executable::launch_packed(const codegen::Step& step, std::span<void*> buffers, const Addresses& at) const {
  const KernelPtr& kernel = kernels_[step.kernel];
  struct Made {
    PackedCopies* of;
    const std::string* layout;
    std::shared_ptr<Memory> memory;
  };
  absl::InlinedVector<std::shared_ptr<Memory>, 2> read;
  absl::InlinedVector<Made, 2> made;
  Phases done = 0;
  for (const codegen::PackedOperand& packed : kernel->packed_operands()) {
    const codegen::BufferRef& ref = step.buffers[packed.operand];
    if (ref.space != codegen::BufferRef::Space::input || !kernel->is_compiled()) continue;
    PackedCopies& copies = at.execution.inputs[ref.index].storage()->packed();
    PackedCopies::Place place = copies.place(packed.layout, packed.bytes);
    if (!place.memory) continue;
    buffers[packed.copy] = place.memory->data();
    if (place.is_made) done |= Phases{1} << packed.phase;
    if (place.is_made) read.push_back(std::move(place.memory));
    else made.push_back({&copies, &packed.layout, std::move(place.memory)});
  }
  absl::Status status = launch(step, buffers, at, done);
  for (const Made& copy : made) copy.of->finish(*copy.layout, status.ok());
  return status;
}

void Executable::note_interpreted_run(const KernelPtr& kernel) const {
  if (options_.tier == Tier::automatic && !kernel->is_compiled() &&
      kernel->interpreted_runs() + 1 >= options_.interpreted_runs)
    cache_.compile_in_background(kernel);
}

}  // namespace sheaf::runtime
