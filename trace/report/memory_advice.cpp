// Three things are looked for: what a forward pass keeps for the backward one, arrays that every device of a mesh has
// whole, and GPUs that have nothing to do. Virtual CPU devices are no room: they all have the host's memory.
#include "trace/report/memory_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "passes/pipeline.h"
#include "runtime/device.h"
#include "trace/mesh.h"
#include "trace/report/memory_map.h"
#include "trace/report/page.h"
#include "trace/runnable.h"

namespace sheaf {
namespace {

/// What is less than this part of the whole is not worth a word.
constexpr double kWorthwhile = 0.2;

std::string bytes(std::int64_t n) { return bytes_text(static_cast<double>(n)); }

bool is_worthwhile(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) >= kWorthwhile * static_cast<double>(whole) && part > 0;
}

std::int64_t bytes_of(const std::vector<ir::Type>& types) {
  std::int64_t sum = 0;
  for (const ir::Type t : types) sum += t.bytes();
  return sum;
}

/// Of one device.
std::int64_t all_bytes(const passes::Plan& plan) {
  return plan.arena_bytes + bytes_of(plan.function->param_types()) + bytes_of(plan.function->result_types());
}

std::string checkpoint_advice(const passes::Plan& plan) {
  const MemoryMap map = memory_map(plan);
  if (map.values.empty()) return "";
  const int peak = map.peak();
  std::int64_t kept = 0;
  const MemoryMap::Value* largest = nullptr;
  const std::vector<MemoryMap::Value> alive = map.alive_at(peak);  // the largest first
  for (const MemoryMap::Value& v : alive) {
    if (!v.is_kept_for_backward) continue;
    kept += v.bytes;
    if (!largest) largest = &v;
  }
  if (!is_worthwhile(kept, all_bytes(plan))) return "";
  return fmt::format(
      "\n  checkpoint(f) of parts of the function would make again what is kept for the gradient: {} of the {} that "
      "intermediate results take, {} of it {} made at {}",
      bytes(kept), bytes(map.live[peak]), bytes(largest->bytes), largest->type, to_string(largest->loc));
}

/// The axes of the mesh that a dim of an array could be divided over, and none is.
std::string unused_axis(ir::Type whole, const Mesh& mesh) {
  const ir::MeshAtoms& atoms = atoms_of(mesh);
  if (!ir::sharding_of(whole, atoms).is_replicated()) return "";
  for (const MeshAxis& axis : mesh.axes())
    for (const std::int64_t extent : whole.dims())
      if (axis.size > 1 && extent % axis.size == 0 && extent > 0) return axis.name;
  return "";
}

std::string sharding_advice(const passes::Plan& plan, const MeshProgram& program) {
  std::string text;
  for (std::size_t i = 0; i < plan.in_types.size(); ++i) {
    const ir::Type type = plan.in_types[i];
    const std::string axis = unused_axis(type, program.mesh);
    if (axis.empty() || !is_worthwhile(type.bytes(), all_bytes(plan))) continue;
    text += fmt::format("\n  {} is whole on each of the {} devices, {}: a dim of it could be divided over {}",
                        input_name(*program.function, i), program.mesh.size(), bytes(type.bytes()), axis);
  }
  return text;
}

std::string idle_gpus_advice(const passes::Plan& plan, const MeshProgram& program) {
  if (!program.target.is_gpu() || program.function->mesh()) return "";
  const std::int64_t gpus = std::ranges::count_if(
      runtime::devices(), [](const runtime::Device* d) { return d->backend().cuda_context() != nullptr; });
  std::size_t largest = 0;
  const std::vector<ir::Type> types = plan.function->param_types();
  for (std::size_t i = 0; i < types.size(); ++i)
    if (types[i].bytes() > types[largest].bytes()) largest = i;
  if (gpus < 2 || types.empty() || types[largest].rank() == 0) return "";
  return fmt::format(
      "\n  the program is on one of {} GPUs: with arrays divided over a mesh of them (device_put) each has a part; the "
      "largest argument is {}, {}",
      gpus, input_name(*program.function, largest), bytes(types[largest].bytes()));
}

}  // namespace

std::string memory_advice(const MeshProgram& program, const std::vector<bool>& donated) {
  const passes::Plan plan = passes::run_pipeline(
      program.function, {.target = program.target, .donated = donated, .results = program.results, .observe = {}});
  const std::string text = checkpoint_advice(plan) + sharding_advice(plan, program) + idle_gpus_advice(plan, program);
  return text.empty() ? "" : "\nwhat would take less memory:" + text;
}

}  // namespace sheaf
