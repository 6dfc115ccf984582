// Compiling for a GPU that is not there: kernels with what they take, machine code, and what is said where it cannot
// be.
#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/emulator/image.h"
#include "tests/message.h"
#include "tests/places.h"

using namespace sheaf;

namespace {

void say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

/// Asks the hidden case below, on a machine with the stand-in for NVRTC and no GPU.
std::string said_by(const std::string& name, const std::vector<std::pair<std::string, std::string>>& more = {}) {
  std::vector<std::pair<std::string, std::string>> variables = {
      {"SHEAF_LIBNVRTC", SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so"}, {"SHEAF_LIBCUDA", "/nowhere/libcuda.so"}};
  variables.insert(variables.end(), more.begin(), more.end());
  return tests::said_by_child(name, variables);
}

auto lowered() {
  return jit([](Array x, Array w) { return sort(tanh(dot(x, w))); })
      .trace(abstract({8, 32}), abstract({32, 4}))
      .lower();
}

/// The target, and what images all kernels have, if they are whole.
std::string alike(const aot::CompiledFor& c) {
  std::set<std::string> images;
  for (const aot::Kernel& k : c.kernels()) {
    bool is_whole = k.cubin && !k.loops.empty() && k.cuda.find(k.functions.at(0).name) != std::string::npos;
    for (const aot::Function& f : k.functions) is_whole &= f.registers == 32 && f.blocks > 0 && f.threads > 0;
    const auto image = emulator::read_image(k.cubin->data());
    is_whole &= image.ok() && image->text.find(k.functions.at(0).name) != std::string::npos;
    images.insert(is_whole ? image->architecture : "?");
  }
  return fmt::format("{}: {}", c.target(), fmt::join(images, ", "));
}

}  // namespace

TEST_CASE("[compile for] a program" * doctest::skip()) {
  const auto l = lowered();
  say(alike(l.compile_for("sm_90a")));
  say(alike(l.compile_for("sm_80")));
  const aot::CompiledFor here = l.compile_for("cpu");
  say(here.target() + (here.kernels().at(0).assembly.empty() ? " without assembly" : " with assembly"));
  say(here.text() == l.compile().text() ? "the same plan" : "another plan");
  for (const char* target : {"sm_90b", "gpu", "sm_75"})
    say(tests::message_here<RuntimeError>([&] { l.compile_for(target); }));
}

TEST_CASE("[spilling] a program" * doctest::skip()) {
  const std::vector<aot::Kernel> kernels =
      jit([](Array x) { return sort(x); }).trace(abstract({40})).lower().compile_for("sm_90a").kernels();
  for (const aot::Kernel& k : kernels)
    say(fmt::format("{} of stack, {} spilled", k.functions[0].stack_bytes, k.functions[0].spilled_bytes));
}

TEST_CASE("[abstract mesh] a program" * doctest::skip()) {
  const Mesh mesh = Mesh::abstract({{"data", 4}});
  const auto l = jit([](Array x) { return sum(exp(x)); }, {.mesh = mesh, .in_shardings = {P("data")}})
                     .trace(abstract({64}))
                     .lower();
  say(alike(l.compile_for("sm_90a")));
}

TEST_CASE("a machine without a GPU compiles for any that its NVRTC knows, and says what the kernels take") {
  const std::string text = said_by("compile for");
  CHECK(text ==
        "sm_90a: sm_90a\n"
        "sm_80: sm_80\n"
        "cpu with assembly\n"
        "the same plan\n"
        "HERE: compile_for: 'sm_90b' is no target: cpu, or the architecture of a GPU, such as sm_90a\n"
        "HERE: compile_for: 'gpu' is no target: cpu, or the architecture of a GPU, such as sm_90a\n"
        "HERE: NVRTC 13.0 does not compile for sm_75, only for sm_80, sm_90, sm_100, sm_120\n");
}

TEST_CASE(
    "a kernel that spills for the sake of more blocks at once is compiled without that, and one that must is told") {
  CHECK(said_by("spilling", {{"SHEAF_FAKE_NVRTC_SPILLS", "guess"}}) == "0 of stack, 0 spilled\n");
  CHECK(said_by("spilling", {{"SHEAF_FAKE_NVRTC_SPILLS", "always"}}) == "24 of stack, 48 spilled\n");
}

TEST_CASE("a program on a mesh is compiled for GPUs that nobody has") {
  CHECK(said_by("abstract mesh") == "sm_90a: sm_90a\n");
}

TEST_CASE("a target that is none is one warning, and a compiler that is missing an error of every program") {
  CHECK(said_by("program with a target", {{"SHEAF_TARGET", "h100"}}) ==
        "sheaf warning: SHEAF_TARGET: 'h100' is no target: cpu, or the architecture of a GPU, such as sm_90a; ignored\n"
        "6\n");
  CHECK(said_by("program with a target", {{"SHEAF_TARGET", "sm_90a"}, {"SHEAF_LIBNVRTC", "libm.so.6"}}) ==
        "HERE: SHEAF_TARGET=sm_90a: no NVRTC; tried:\n"
        "  libm.so.6: lacks an entry point\n"
        "Sheaf compiles for GPUs with NVIDIA's NVRTC 12.0 or newer; SHEAF_LIBNVRTC names one that lies elsewhere\n");
  CHECK(said_by("program with a target", {{"SHEAF_TARGET", "sm_90a"}, {"SHEAF_FAKE_NVRTC_VERSION", "11080"}}) ==
        "HERE: SHEAF_TARGET=sm_90a: " SHEAF_BINARY_DIR
        "/libsheaf_fake_nvrtc.so is NVRTC 11.8, and Sheaf needs NVRTC 12.0 or newer\n");
}

TEST_CASE("[dumped for a target] a program" * doctest::skip()) {
  jit([](Array x) { return sort(x); }, {.name = "dumped"})(arange(40)).wait();
}

TEST_CASE("what is compiled for another target is dumped beside what runs, its texts below the user's line") {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(SHEAF_BINARY_DIR) / "compile_for_test";
  fs::remove_all(root);
  CHECK(said_by("dumped for a target", {{"SHEAF_TARGET", "sm_90a"}, {"SHEAF_DUMP", root.string()}}).empty());
  CHECK(fs::exists(root / "dumped" / "steps.txt"));
  CHECK(fs::exists(root / "dumped.2" / "steps.txt"));
  std::set<std::string> first_lines;
  for (const auto& entry : fs::directory_iterator(root / "dumped.2")) {
    if (entry.path().extension() != ".cu") continue;
    std::string line;
    std::ifstream text(entry.path());
    std::getline(text, line);
    first_lines.insert(tests::with_here(line, {}));
  }
  CHECK(first_lines == std::set<std::string>{"// HERE"});
}

TEST_CASE("[program with a target] a program" * doctest::skip()) {
  try {
    say(std::to_string(sum(array({1.0, 2.0, 3.0})).item<int>()));
  } catch (const RuntimeError& error) { say(tests::with_here(error.what(), {})); }
}
