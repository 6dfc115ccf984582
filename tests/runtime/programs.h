// Programs for the runtime's tests: out = 2 * a + b over rows of floats, as KIR and as plain functions that tests can
// hold up or count.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codegen/kir/build.h"
#include "codegen/program.h"
#include "fmt/format.h"
#include "runtime/device.h"
#include "runtime/executable.h"

namespace sheaf::runtime::testing {

inline constexpr std::int64_t kRow = 100;

/// `offset` moves the reads of `a`: anything but 0 makes the last row read out of bounds.
inline kir::Kernel affine_kir(std::int64_t rows, std::int64_t offset = 0) {
  const std::int64_t count = rows * kRow;
  using Access = kir::Param::Access;
  kir::Kernel kernel{.name = "affine",
                     .params = {{DType::f32, count, Access::read},
                                {DType::f32, count, Access::read},
                                {DType::f32, count, Access::write}},
                     .phases = {},
                     .contract = {}};
  kir::PhaseBuilder b(kernel.params, rows);
  const kir::AxisId i = b.begin_for("i", kRow, kir::LoopKind::vector);
  const kir::Index at = b.indices().add(b.indices().scale(b.unit(), kRow), b.axis(i));
  const kir::ValueId twice =
      b.op(ir::ScalarOp::mul, b.load(0, b.indices().add(at, offset)), b.constant_value(DType::f32, 2));
  b.store(2, at, b.op(ir::ScalarOp::add, twice, b.load(1, at)));
  b.end();
  kernel.phases.push_back(b.finish(10'000));
  return kernel;
}

struct ProgramOptions {
  std::int64_t rows = 10;
  std::int64_t unit_ps = 10'000;  // per row; 10^9 and the program is never run by the caller
  std::int64_t offset = 0;
  std::string key = "affine";     // part of the kernel's; tests with caches of their own need not care
  std::vector<int> alias = {};
};

/// Two steps over one kernel with a row of arena between them: out = 2 * (2 * a + b) + b.
inline codegen::Program affine_program(const ProgramOptions& options) {
  const std::int64_t bytes = options.rows * kRow * 4;
  const ir::Type type(DType::f32, {options.rows, kRow});
  using Space = codegen::BufferRef::Space;
  const codegen::BufferRef a{Space::input, 0, bytes}, b{Space::input, 1, bytes}, out{Space::output, 0, bytes},
      half{Space::arena, 0, bytes};
  codegen::Program program;
  program.name = "step";
  program.inputs = {type, type};
  program.outputs = {type};
  program.kernels = {{.name = "affine",
                      .key = fmt::format("{} {} {} {}", options.key, options.rows, options.unit_ps, options.offset),
                      .kir = std::make_shared<const kir::Kernel>(affine_kir(options.rows, options.offset)),
                      .phases = {{.entry = "affine_p0", .extent = options.rows, .unit_ps = options.unit_ps}}}};
  program.steps = {{.kernel = 0, .buffers = {a, b, half}, .loc = {"model.cpp", 7}},
                   {.kernel = 0, .buffers = {half, b, out}, .loc = {"model.cpp", 8}}};
  program.arena_bytes = bytes;
  program.alias = options.alias;
  return program;
}

inline BufferPtr floats(std::int64_t rows, float value, Loc made_at = Loc::current(), Device& on = device(0)) {
  const std::vector<float> data(rows * kRow, value);
  auto buffer = Buffer::from_host(on, std::as_bytes(std::span(data)), made_at);
  REQUIRE(buffer.ok());
  return *buffer;
}

/// The value all elements have; fails the test if they differ or the buffer is in error.
inline float only_value(const BufferPtr& buffer) {
  std::vector<float> data(buffer->bytes() / 4);
  const absl::Status status = buffer->to_host(std::as_writable_bytes(std::span(data)));
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  for (const float value : data) {
    if (value != data[0]) return NAN;
  }
  return data[0];
}

inline ExecutablePtr load(const ProgramOptions& options, LoadOptions load_options = {.tier = Tier::interpreted}) {
  auto executable = Executable::load(affine_program(options), load_options);
  REQUIRE_MESSAGE(executable.ok(), std::string(executable.status().message()));
  return *executable;
}

inline BufferPtr run_one(const ExecutablePtr& executable, const std::vector<BufferPtr>& inputs,
                         const RunOptions& options = {.donated = {}, .loc = Loc::current()}) {
  auto outputs = executable->run(inputs[0]->device(), inputs, options);
  REQUIRE_MESSAGE(outputs.ok(), std::string(outputs.status().message()));
  return (*outputs)[0];
}

/// A compiled form of `affine` that waits while the gate is shut.
inline std::atomic<bool> is_gate_open{true};
inline void gated_affine(void* const* buffers, std::int64_t begin, std::int64_t end, std::byte*) {
  is_gate_open.wait(false);
  const auto *a = static_cast<const float*>(buffers[0]), *b = static_cast<const float*>(buffers[1]);
  auto* out = static_cast<float*>(buffers[2]);
  for (std::int64_t i = begin * kRow; i < end * kRow; ++i) out[i] = 2 * a[i] + b[i];
}
inline void open_gate() {
  is_gate_open = true;
  is_gate_open.notify_all();
}

/// A cache whose compiler gives `gated_affine` for every kernel. Never destroyed, as executables refer to it.
inline KernelCache& gated_cache() {
  static auto* const cache = new KernelCache(
      [](const codegen::KernelCode&) { return CompiledKernel{.phases = {gated_affine}, .owner = nullptr}; });
  return *cache;
}

}  // namespace sheaf::runtime::testing
