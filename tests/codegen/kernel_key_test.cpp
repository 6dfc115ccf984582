// What a kernel's key holds: machine code is found under it by other processes, on whatever machine and after whatever
// update, so everything that the code depends on makes it another key, and nothing else does.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "codegen/compiler.h"
#include "codegen/cpu_target.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/lower.h"
#include "codegen/target.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "tests/child.h"

using namespace sheaf;

namespace {

std::string key(const std::string& text, const codegen::Target& target) {
  const auto module = ir::parse(text);
  REQUIRE(module.ok());
  const codegen::Program program =
      codegen::lower(passes::run_pipeline(module->functions[0], {.target = target}), target);
  REQUIRE(program.kernels.size() == 1);
  return program.kernels[0].key;
}

constexpr const char* kExp =
    "func @f(%x: f32[100]) -> f32[100] {\n  %0: f32[100] = exp %x  loc(a.cpp:1)\n  return %0\n}\n";

}  // namespace

TEST_CASE("the operation, the dtype, the size and a constant make a kernel's key another, for a CPU and for a GPU") {
  const std::vector<std::string> programs = {
      kExp,
      "func @f(%x: f32[100]) -> f32[100] {\n  %0: f32[100] = log %x\n  return %0\n}\n",
      "func @f(%x: f64[100]) -> f64[100] {\n  %0: f64[100] = exp %x\n  return %0\n}\n",
      "func @f(%x: f32[101]) -> f32[101] {\n  %0: f32[101] = exp %x\n  return %0\n}\n",
      "func @f(%x: f32[100]) -> f32[100] {\n  %0: f32[100] = add %x, 1.0:f32\n  return %0\n}\n",
      "func @f(%x: f32[100]) -> f32[100] {\n  %0: f32[100] = add %x, 1.0000001:f32\n  return %0\n}\n",
  };
  std::set<std::string> keys;
  for (const std::string& program : programs)
    for (const codegen::Target& target : {codegen::Target{}, codegen::gpu_target(9, 0)})
      keys.insert(key(program, target));
  CHECK(keys.size() == 2 * programs.size());
}

TEST_CASE("names and lines are no part of a kernel's key") {
  const std::string other =
      "func @g(%y: f32[100]) -> f32[100] {\n  %z: f32[100] = exp %y  loc(b.cpp:7)\n  return %z\n}\n";
  for (const codegen::Target& target : {codegen::Target{}, codegen::gpu_target(8, 0)})
    CHECK(key(other, target) == key(kExp, target));
}

TEST_CASE("every architecture of a GPU has keys of its own, which hold NVRTC's options") {
  std::set<std::string> keys;
  for (const auto& [major, minor] : {std::pair(7, 5), {8, 0}, {8, 6}, {9, 0}, {10, 0}, {12, 0}})
    keys.insert(key(kExp, codegen::gpu_target(major, minor)));
  CHECK(keys.size() == 6);
  for (const char* option : codegen::nvrtc_options())
    CHECK(codegen::key_of(codegen::gpu_target(9, 0)).find(option) != std::string::npos);
}

TEST_CASE("[kernel key] a program" * doctest::skip()) { std::fputs(key(kExp, {}).c_str(), stderr); }

TEST_CASE("every level of a CPU has keys of its own, which hold its features and the compiler's version and sources") {
  std::set<std::string> keys, targets;
  std::size_t levels = 0;  // of this machine
  for (const char* isa : {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    targets.insert(codegen::cpu_target(isa)->key());
    if (isa > codegen::host_cpu_target().cpu) continue;
    keys.insert(tests::said_by_child("kernel key", {{"SHEAF_CPU_ISA", isa}}));
    ++levels;
  }
  CHECK(targets.size() == 4);
  CHECK(keys.size() == levels);
  keys.insert(tests::said_by_child("kernel key", {{"SHEAF_CPU_ISA", ""}}));  // the highest, with its features
  CHECK(keys.contains(key(kExp, {})));
  const codegen::CpuTarget& host = codegen::host_cpu_target();
  codegen::CpuTarget more = host;
  more.features += "+avx512fp16";
  CHECK(more.key() != host.key());
  CHECK(codegen::key_of({}).find(host.key()) != std::string::npos);
  CHECK(codegen::key_of({}).find(codegen::compiler_id()) != std::string::npos);
}

TEST_CASE("two processes make the same keys") {
  CHECK(tests::said_by_child("kernel key", {{"HOME", "/elsewhere"}, {"SHEAF_NUM_THREADS", "1"}}) == key(kExp, {}));
}
