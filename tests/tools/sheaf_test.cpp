// The sheaf tool as a process: what it prints, and what it says when it cannot.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "passes/sharding/profile.h"
#include "sheaf/data.h"
#include "tests/environment.h"
#include "tests/places.h"
#include "tests/tools/ran.h"

using namespace sheaf;

namespace {

/// Runs the tool with `arguments` on `input`.
tests::Ran sheaf_tool(const std::string& arguments, const std::string& input = "") {
  return tests::ran("printf '%s' '" + input + "' | " SHEAF_BINARY_DIR "/sheaf " + arguments);
}

std::string said(const std::string& arguments, const std::string& input = "") {
  const tests::Ran ran = sheaf_tool(arguments, input);
  CHECK(ran.status == 2);
  return ran.text;
}

constexpr const char* kFakeCuda = SHEAF_BINARY_DIR "/libsheaf_fake_cuda.so";
constexpr const char* kFakeNvrtc = SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so";
constexpr const char* kTwice =
    "func @twice(%x: i64[3]) -> i64[3] {\n  %0: i64[3] = add %x, %x  loc(a.cpp:1)\n  return %0\n}\n";

}  // namespace

TEST_CASE("opt prints the program after the passes, with lines only where they are asked for") {
  const std::string dead = "func @f(%x: f32[]) -> f32[] {\n  %0: f32[] = exp %x  loc(a.cpp:1)\n  return %x\n}\n";
  CHECK(sheaf_tool("opt --pass=dce -", dead).text == "func @f(%x: f32[]) -> f32[] {\n  return %x\n}\n");
  CHECK(sheaf_tool("opt --locs -", kTwice).text == kTwice);
}

TEST_CASE("run gives whole integers, and the same from the interpreter as compiled, for the CPU and for a GPU") {
  const std::string file = SHEAF_BINARY_DIR "/tool_test.npy";
  write_npy(file, to_host(array(std::vector<std::int64_t>{1, -2, 4611686018427387903}, {}, i64)));
  const std::string expected = "%0: i64[3] = 2 -4 9223372036854775806\n";
  CHECK(sheaf_tool("run --input=" + file + " -", kTwice).text == expected);
  CHECK(sheaf_tool("run --interpret --input=" + file + " -", kTwice).text == expected);
  const tests::Variable platform("SHEAF_PLATFORM", "cuda"), driver("SHEAF_LIBCUDA", kFakeCuda),
      nvrtc("SHEAF_LIBNVRTC", kFakeNvrtc);
  CHECK(sheaf_tool("run --input=" + file + " -", kTwice).text == expected);
  const std::string nans =
      "func @f(%x: f32[40]) -> f32[40] {\n  %0: f32[40] = sub %x, inf:f32\n  %1: f32[40] = sub %0, %0\n"
      "  return %1\n}\n";
  std::string seventeen = "%0: f32[40] =";
  for (int i = 0; i < 16; ++i) seventeen += " nan";
  CHECK(sheaf_tool("run -", nans).text == seventeen + " ...\n");
}

TEST_CASE("run prints both parts of complex numbers") {
  const std::string parts =
      "func @f(%x: f32[2]) -> c64[2] {\n  %0: f32[2] = mul %x, 0.0:f32\n  %1: f32[2] = add %0, 1.5:f32\n"
      "  %2: f32[2] = sub %0, 2.0:f32\n  %3: c64[2] = complex %1, %2\n  return %3\n}\n";
  CHECK(sheaf_tool("run -", parts).text == "%0: c64[2] = 1.5-2i 1.5-2i\n");
  CHECK(sheaf_tool("run --interpret -", parts).text == "%0: c64[2] = 1.5-2i 1.5-2i\n");
}

TEST_CASE("compile prints what each function of each kernel takes of a GPU that need not be here") {
  const tests::Variable nvrtc("SHEAF_LIBNVRTC", kFakeNvrtc);
  std::istringstream lines(sheaf_tool("compile --target=sm_90 -", kTwice).text);
  std::string target, blocks, kernel, rest;
  lines >> target >> blocks;
  CHECK(target == "sm_90a");
  CHECK(blocks == "blocks");
  std::getline(lines, rest);
  CHECK(rest == " threads registers  shared   stack spilled");
  std::int64_t threads = 0, registers = 0, shared = 0, stack = 0, spilled = 0;
  lines >> kernel >> blocks >> threads >> registers >> shared >> stack >> spilled;
  CHECK(kernel.starts_with("add_"));
  CHECK(blocks == "1");
  CHECK(registers == 32);
  CHECK(spilled == 0);
  CHECK(said("compile -", kTwice) == "sheaf: --target takes the architecture of a GPU, such as sm_90a, not ''\n");
}

TEST_CASE("the interpreter runs the forward derivative of a rule for the backward one") {
  const std::string derivative =
      "func @f(%x: f32[2]) -> f32[2] {\n  %0: f32[2] = mul %x, 0.0:f32\n  %1: f32[2] = add %0, 3.0:f32\n"
      "  %2: f32[2] = custom_linear %1, %1 {residuals=1} (%r: f32[2], %ct: f32[2]) {\n"
      "    %0: f32[2] = mul %r, %ct\n    return %0\n  }\n  return %2\n}\n";
  CHECK(sheaf_tool("run --interpret -", derivative).text == "%0: f32[2] = 9 9\n");
  CHECK(sheaf_tool("run -", derivative).text == "%0: f32[2] = 9 9\n");
}

TEST_CASE("what cannot be run or read is said in one line") {
  CHECK(said("") == "sheaf: no command; see sheaf --help\n");
  CHECK(said("brew -") == "sheaf: no command 'brew'; see sheaf --help\n");
  CHECK(said("run") == "sheaf: no FILE; see sheaf --help\n");
  CHECK(said("run /") == "sheaf: /: Is a directory\n");
  CHECK(said("run a b") == "sheaf: one FILE at a time: a and b\n");
  CHECK(said("run --fast -") == "sheaf: unknown option --fast; see sheaf --help\n");
  CHECK(said("run --seed=x -") == "sheaf: --seed takes a number, not 'x'\n");
  CHECK(said("run /nowhere.sheaf") == "sheaf: /nowhere.sheaf: No such file or directory\n");
  CHECK(said("run -", "mesh @m = [x=2]\nfunc @f(%a: f32[4@x]) -> f32[4@x] on @m {\n  return %a\n}\n") ==
        "sheaf: @f is for the devices of [x=2]; run takes programs of one device\n");
  CHECK(said("run -") == "sheaf: -: holds no function\n");
  CHECK(said("opt --pass=polish -", kTwice) == "sheaf: no pass named 'polish'; see sheaf passes\n");
  CHECK(said("opt -", "func @f(").starts_with("sheaf: -:1:"));
  CHECK(said("run --input=a --input=b -", kTwice) == "sheaf: 2 inputs for 1 parameters\n");
  CHECK(said("run -", "func @f(%x: c128[2]) -> c128[2] {\n  return %x\n}") ==
        "sheaf: parameter 0 is c128[2]; only bool, integers and floats can be run\n");
  CHECK(said("run --input=/nowhere.npy -", kTwice) ==
        "sheaf: read_npy: /nowhere.npy: cannot be opened: No such file or directory\n");
  const std::string file = SHEAF_BINARY_DIR "/tool_test_other.npy";
  write_npy(file, to_host(array({1.0f, 2.0f})));
  CHECK(said("run --input=" + file + " -", kTwice) == "sheaf: " + file + ": is f32[2], parameter 0 is i64[3]\n");
}

TEST_CASE("a pass that does not take the program says what it takes") {
  CHECK(said("opt --pass=schedule -", kTwice) == "sheaf: --pass=schedule: it takes what fuse makes\n");
  CHECK(said("opt --pass=memory -", kTwice) == "sheaf: --pass=memory: it takes what schedule makes\n");
  CHECK(said("opt --pass=fuse,memory -", kTwice) == "sheaf: --pass=memory: it takes what schedule makes\n");
  CHECK(said("opt --pass=fuse,batch -", kTwice) == "sheaf: --pass=batch: it takes programs that are not fused yet\n");
  CHECK(said("opt --pass=grad -", kTwice) == "sheaf: --pass=grad: the result must be one float scalar\n");
  CHECK(said("opt --pass=transpose -", "func @f(%x: f32[2]) -> f32[2] {\n  %0: f32[2] = mul %x, %x\n  return %0\n}") ==
        "sheaf: --pass=transpose: the function is not linear in its differentiable parameters\n");
  CHECK(sheaf_tool("opt --pass=fuse,schedule,memory -", kTwice).status == 0);
}

TEST_CASE("passes lists every pass with what it does") {
  const tests::Ran ran = sheaf_tool("passes");
  CHECK(ran.status == 0);
  for (const char* name : {"inline ", "simplify ", "fuse ", "memory ", "jvp ", "linearize "}) {
    CAPTURE(name);
    CHECK(ran.text.find(name) != std::string::npos);
  }
}

TEST_CASE("docs/ops.md is what the ops have") {
  const std::string page = SHEAF_SOURCE_DIR "/docs/ops.md";
  const tests::Ran ran = sheaf_tool("ops");
  REQUIRE(ran.status == 0);
  const char* bless = std::getenv("SHEAF_BLESS");
  if (bless && *bless == '1') std::ofstream(page) << ran.text;
  std::ostringstream committed;
  committed << std::ifstream(page).rdbuf();
  CHECK_MESSAGE(committed.str() == ran.text,
                "docs/ops.md is out of date; to print it again: build/sheaf ops > docs/ops.md");
}

TEST_CASE("calibrate measures every collective and writes a profile that can be read") {
  const std::string file = SHEAF_BINARY_DIR "/calibrate_test.profile";
  const tests::Ran ran = sheaf_tool("calibrate --devices=2 " + file);
  CHECK(ran.text.empty());
  CHECK(ran.status == 0);
  const auto profile = passes::load_profile(file);
  REQUIRE_MESSAGE(profile.ok(), std::string(profile.status().message()));
  CHECK(profile->name == "measured on 2 devices");
  CHECK(profile->links.size() == 6);
  for (const passes::LinkRow& row : profile->links) CHECK(row.link.bandwidth > 0);
  {
    const tests::Variable platform("SHEAF_PLATFORM", "cuda"), driver("SHEAF_LIBCUDA", kFakeCuda);
    CHECK(sheaf_tool("calibrate --devices=2 " + file).text.empty());  // on CPUs all the same
  }
  CHECK(said("calibrate --devices=1") == "sheaf: --devices takes a number from 2 to 1024, not '1'\n");
  CHECK(said("calibrate --devices=2 /nowhere/file") ==
        "sheaf: /nowhere/file cannot be written: No such file or directory\n");
}
