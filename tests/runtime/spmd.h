// Programs of several devices through passes, code generation and runtime, for tests that compare them with the
// reference.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "codegen/lower.h"
#include "ir/literal.h"
#include "ir/text.h"
#include "passes/memory.h"
#include "passes/overlap.h"
#include "passes/pipeline.h"
#include "runtime/device.h"
#include "runtime/executable.h"

namespace sheaf::tests {

/// From text; the first function.
inline ir::FunctionRef parsed(const std::string& text) {
  const absl::StatusOr<ir::Module> module = ir::parse(text);
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return module->functions[0];
}

/// The program of one device of f's mesh, ready to run on the process's platform.
inline runtime::ExecutablePtr load_local(const ir::FunctionRef& f, const std::vector<bool>& donated = {},
                                         runtime::Tier tier = runtime::Tier::interpreted) {
  // The passes are to take it as it is, not as a program over global arrays that they have to split.
  ir::FunctionRef kernels;
  const auto keep = [&](int, std::string_view pass, const ir::FunctionRef& g) {
    if (pass == "schedule") kernels = passes::overlap(g->on_mesh(f->mesh()), ir::Target{});
  };
  const codegen::Target& target = runtime::device(0).backend().target();
  passes::run_pipeline(f->on_mesh({}), {.target = target, .observe = keep});
  const passes::Memory memory = passes::assign_memory(kernels, donated);
  const passes::Plan plan{.function = memory.function->on_mesh(f->mesh()),
                          .optimised = nullptr,
                          .arena_bytes = memory.arena_bytes,
                          .alias = memory.alias};
  auto executable = runtime::Executable::load(codegen::lower(plan, target), {.tier = tier});
  REQUIRE_MESSAGE(executable.ok(), std::string(executable.status().message()));
  return *executable;
}

/// Small integers, other ones on each device of its mesh.
inline std::vector<ir::Literals> inputs_of(const ir::FunctionRef& f) {
  std::vector<ir::Literals> inputs(f->mesh().size());
  for (std::size_t d = 0; d < inputs.size(); ++d)
    for (const ir::Value p : f->params()) {
      inputs[d].emplace_back(p.type());
      for (std::int64_t i = 0; i < inputs[d].back().size(); ++i)
        inputs[d].back().set(i, static_cast<double>((3 * i + 5 * static_cast<std::int64_t>(d) + p.index()) % 7));
    }
  return inputs;
}

inline bool is_on_gpus() { return runtime::platform() == "cuda"; }

/// `text` about devices of the CPU, about those of the process's platform.
inline std::string of_platform(std::string text) {
  const std::string from = "cpu:", to = std::string(runtime::platform()) + ":";
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

inline std::vector<runtime::Device*> first_devices(int count) {
  runtime::ensure_devices(count);
  std::vector<runtime::Device*> devices = runtime::devices();
  devices.resize(count);
  return devices;
}

using PerDevice = std::vector<runtime::Buffers>;

inline PerDevice to_devices(std::span<const ir::Literals> inputs, const std::vector<runtime::Device*>& devices) {
  PerDevice buffers(inputs.size());
  for (std::size_t d = 0; d < inputs.size(); ++d)
    for (const ir::Literal& x : inputs[d]) {
      auto buffer = runtime::Buffer::from_host(*devices[d], std::span(x.data(), x.bytes()), {});
      REQUIRE(buffer.ok());
      buffers[d].push_back(*std::move(buffer));
    }
  return buffers;
}

inline PerDevice to_devices(std::span<const ir::Literals> inputs) {
  return to_devices(inputs, first_devices(static_cast<int>(inputs.size())));
}

inline PerDevice start(const runtime::ExecutablePtr& executable, const PerDevice& inputs,
                       const runtime::RunOptions& options = {}) {
  auto outputs = executable->run_spmd(first_devices(static_cast<int>(inputs.size())), inputs, options);
  REQUIRE_MESSAGE(outputs.ok(), std::string(outputs.status().message()));
  return *std::move(outputs);
}

inline std::vector<ir::Literals> to_host(const PerDevice& outputs, const ir::Function& f) {
  std::vector<ir::Literals> results(outputs.size());
  for (std::size_t d = 0; d < outputs.size(); ++d)
    for (std::size_t j = 0; j < outputs[d].size(); ++j) {
      ir::Literal& y = results[d].emplace_back(f.results()[j].type());
      const absl::Status s = outputs[d][j]->to_host(std::span(y.data(), y.bytes()));
      REQUIRE_MESSAGE(s.ok(), std::string(s.message()));
    }
  return results;
}

inline std::vector<ir::Literals> run_local(const ir::FunctionRef& f, std::span<const ir::Literals> inputs) {
  return to_host(start(load_local(f), to_devices(inputs)), *f);
}

}  // namespace sheaf::tests
