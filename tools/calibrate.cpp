// Two sizes of each collective give its two numbers: what does not grow with the message is latency. A program of many
// less one of a single one leaves out what it takes to start a program.
#include "tools/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "codegen/lower.h"
#include "ir/builder.h"
#include "ir/ops/attrs.h"
#include "passes/pipeline.h"
#include "passes/sharding/cost.h"
#include "runtime/device.h"
#include "runtime/executable.h"
#include "sheaf/error.h"

namespace sheaf {
namespace {

using passes::CollectiveKind;

constexpr int kMany = 9;
constexpr std::int64_t kSmall = 1 << 8, kLarge = 1 << 18;  // f32 elements of the whole, times the number of devices

const ir::Axes kAxis = {"x"};

template <class T>
T value_or_throw(absl::StatusOr<T> x) {
  if (!x.ok()) throw RuntimeError(std::string(x.status().message()));
  return *std::move(x);
}

ir::Value emit(ir::Builder& b, ir::Value x, CollectiveKind kind, std::int64_t n) {
  using namespace ir;
  switch (kind) {
    case CollectiveKind::all_reduce: return b.emit(ops::all_reduce, {x}, ops::AllReduce{.axes = kAxis});
    case CollectiveKind::all_gather:
      return b.emit(ops::all_gather, {x}, ops::AllGather{.axes = kAxis, .size = n, .tiled = true});
    case CollectiveKind::reduce_scatter:
      return b.emit(ops::reduce_scatter, {x}, ops::ReduceScatter{.axes = kAxis, .size = n, .tiled = true});
    case CollectiveKind::all_to_all:
      return b.emit(ops::all_to_all, {x}, ops::AllToAll{.axes = kAxis, .size = n, .tiled = true});
    case CollectiveKind::ppermute: {
      ops::Ppermute ring{.axes = kAxis};
      for (std::int64_t d = 0; d < n; ++d) {
        ring.sources.push_back(d);
        ring.targets.push_back((d + 1) % n);
      }
      return b.emit(ops::ppermute, {x}, std::move(ring));
    }
    case CollectiveKind::axis_index: break;
  }
  return x;
}

/// Seconds that a program of `count` collectives takes, the fastest of some runs.
double seconds_of(CollectiveKind kind, std::int64_t elements, int count, ir::Mesh mesh) {
  const std::int64_t n = mesh.size();
  const ir::Type type(DType::f32, {kind == CollectiveKind::all_gather ? elements / n : elements});
  ir::Builder b;
  ir::Values results;
  for (int i = 0; i < count; ++i) results.push_back(emit(b, b.param(type), kind, n));
  passes::Plan plan = passes::run_pipeline(b.finish(results));
  plan.function = plan.function->on_mesh(mesh);
  const auto executable =
      value_or_throw(runtime::Executable::load(codegen::lower(plan), {.tier = runtime::Tier::interpreted}));
  std::vector<runtime::Device*> devices = value_or_throw(runtime::devices_of("cpu"));
  devices.resize(static_cast<std::size_t>(n));
  std::vector<runtime::Buffers> inputs;
  const std::vector<std::byte> zeros(static_cast<std::size_t>(type.bytes()));
  for (runtime::Device* d : devices) {
    const runtime::BufferPtr x = value_or_throw(runtime::Buffer::from_host(*d, zeros, {}));
    inputs.emplace_back(static_cast<std::size_t>(count), x);
  }
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 8; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const auto outputs = value_or_throw(executable->run_spmd(devices, inputs));
    if (const absl::Status s = outputs[0][0]->wait(); !s.ok()) throw RuntimeError(std::string(s.message()));
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

passes::Link measured(CollectiveKind kind, ir::Mesh mesh) {
  const ir::MeshAtoms atoms(mesh);
  const auto seconds = [&](std::int64_t elements) {
    return (seconds_of(kind, elements, kMany, mesh) - seconds_of(kind, elements, 1, mesh)) / (kMany - 1);
  };
  // What a message of no bytes takes at a latency of one second is the number of latencies.
  const passes::Profile unit{.links = {{.link = {1, 1e300}}}};
  const double latencies = cost_of(kind, 0, atoms, atoms.of(kAxis), unit).seconds;
  const auto bytes = [&](std::int64_t elements) {
    return cost_of(kind, static_cast<double>(4 * elements), atoms, atoms.of(kAxis), unit).bytes;
  };
  const std::int64_t small = kSmall * mesh.size(), large = kLarge * mesh.size();
  const double of_small = seconds(small), of_large = seconds(large);
  constexpr double kLeast = 1e-9;  // a second run may be the faster one by chance
  const double per_byte = std::max(of_large - of_small, kLeast) / (bytes(large) - bytes(small));
  return {.latency = std::max(of_small - bytes(small) * per_byte, kLeast) / latencies, .bandwidth = 1 / per_byte};
}

}  // namespace

passes::Profile calibrate(int devices) {
  runtime::ensure_devices(devices);
  const ir::Mesh mesh = *ir::Mesh::make({{.name = kAxis[0], .size = devices}});
  passes::Profile profile = *passes::built_in_profile("cpu");
  profile.name = fmt::format("measured on {} devices", devices);
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
        CollectiveKind::all_to_all, CollectiveKind::ppermute})
    profile.links.push_back({.kind = kind, .link = measured(kind, mesh)});
  return profile;
}

}  // namespace sheaf
