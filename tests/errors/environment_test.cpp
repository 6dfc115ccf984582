// What a process says to a wrong environment variable: each is read once, so each case is a process of its own, which
// runs the hidden case at the end and whose stderr is compared.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "codegen/cuda/nvrtc.h"
#include "runtime/thread_pool.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"

using namespace sheaf;

namespace {

/// Everything the hidden case writes to stderr with `name` set to `value`.
std::string said_with(const char* name, const std::string& value) {
  return tests::said_by_child("environment", {{name, value}});
}

}  // namespace

TEST_CASE("a wrong environment variable is one warning, and the program runs") {
  CHECK(said_with("SHEAF_NUM_THREADS", "many")
            .starts_with("sheaf warning: SHEAF_NUM_THREADS=many is not a number from 1 to 1024; using "));
  for (const std::string count : {"0", "-4", "1025", "8 devices", "4.0", "99999999999999999999"})
    CHECK(said_with("SHEAF_CPU_DEVICES", count) ==
          "sheaf warning: SHEAF_CPU_DEVICES=" + count + " is not a number from 1 to 1024; using 1\n");
  CHECK(
      said_with("SHEAF_MEMORY_LIMIT", "all") ==
      "sheaf warning: SHEAF_MEMORY_LIMIT: 'all' is not a size: a number of bytes, or one with K, M, G or %; the limit is "
      "all there is\n");
  CHECK(said_with("SHEAF_CPU_ISA", "avx2")
            .starts_with(
                "sheaf warning: SHEAF_CPU_ISA=avx2 is none of x86-64, x86-64-v2, x86-64-v3, x86-64-v4; using x86-64"));
  CHECK(said_with("SHEAF_LOG", "pases") ==
        "sheaf warning: SHEAF_LOG: unknown topic 'pases'; there are all, passes, compile, cache, runtime\n");
  CHECK(said_with("SHEAF_DUMP", "/proc/self/nowhere") ==
        "sheaf warning: SHEAF_DUMP: /proc/self/nowhere/scaled cannot be made: No such file or directory\n");
}

TEST_CASE("a switch is 0 or 1; anything else is one warning, and leaves it off") {
  for (const std::string name :
       {"SHEAF_INTERPRET", "SHEAF_CHECK_PURE", "SHEAF_DEBUG_NANS", "SHEAF_DEBUG_INFS", "SHEAF_DEBUG_INDEX"}) {
    CHECK(said_with(name.c_str(), "yes") == "sheaf warning: " + name + "=yes is neither 0 nor 1; using 0\n");
    CHECK(said_with(name.c_str(), "").empty());
    CHECK(said_with(name.c_str(), "0").empty());
  }
  CHECK(said_with("SHEAF_VERIFY", "on").starts_with("sheaf warning: SHEAF_VERIFY=on is neither 0 nor 1; using "));
}

TEST_CASE("the log says what each pass leaves of a program, and why a function is traced") {
  const std::string text = said_with("SHEAF_LOG", "passes,cache");
  CHECK(text.find(" equations after traced, ") != std::string::npos);
  CHECK(text.find("sheaf passes: scaled: 1 equations after fuse, ") != std::string::npos);
  CHECK(text.find("sheaf cache: jit scaled at environment_test.cpp:") != std::string::npos);
  CHECK(text.find("sheaf compile: ") == std::string::npos);
}

TEST_CASE("a compiler that cannot be opened is an error on the line that needed it") {
  CHECK(said_with("SHEAF_LLVM_PLUGIN", "/nowhere.so") ==
        "program.cpp:1: cannot open the LLVM plug-in that compiles CPU kernels; tried\n"
        "  /nowhere.so: cannot open shared object file: No such file or directory\n");
  CHECK(said_with("SHEAF_LLVM_PLUGIN", "libc.so.6") == "program.cpp:1: libc.so.6 is not Sheaf's LLVM plug-in\n");
}

TEST_CASE("too little memory is an error that names the line and the limit") {
  CHECK(
      said_with("SHEAF_MEMORY_LIMIT", "1M") ==
      "program.cpp:1: out of memory: 16.0 MiB asked at program.cpp:1; 0 B in use in 0 blocks, 0 B reserved of a limit of "
      "1.0 MiB, largest hole 0 B\n");
}

TEST_CASE("SHEAF_DEBUG_NANS and SHEAF_DEBUG_INFS look into the results of the process") {
  CHECK(said_with("SHEAF_DEBUG_NANS", "1") ==
        "program.cpp:2: log: result 0 is NaN at []\n  program.cpp:2: log gives NaN at []\n"
        "  operand 0: f32[] in [-1, -1]\n");
  CHECK(said_with("SHEAF_DEBUG_INFS", "1") ==
        "program.cpp:3: log: result 0 is infinity at []\n  program.cpp:3: log gives infinity at []\n"
        "  operand 0: f32[] in [0, 0]\n");
  CHECK(said_with("SHEAF_DEBUG_NANS", "0").empty());
}

TEST_CASE("an NVRTC that is not there names the place") {
  const std::string advice =
      "Sheaf compiles for GPUs with NVIDIA's NVRTC 12.0 or newer; SHEAF_LIBNVRTC names one that lies elsewhere\n";
  CHECK(said_with("SHEAF_LIBNVRTC", "/nowhere.so")
            .ends_with("no NVRTC; tried:\n  /nowhere.so: cannot open shared object file: No such file or directory\n" +
                       advice));
  CHECK(said_with("SHEAF_LIBNVRTC", "libc.so.6")
            .ends_with("no NVRTC; tried:\n  libc.so.6: lacks an entry point\n" + advice));
}

TEST_CASE("[environment] a program" * doctest::skip()) {
  const Loc here{"program.cpp", 1};
  try {
    const auto scaled = jit([](Array x) { return x * 2; }, {.name = "scaled"});
    const Array x = array(std::vector<float>(4 << 20, 3.0f), {}, {}, here);
    if (scaled(x, here)(0).item<float>() != 6) std::exit(1);
    take(arange(3), array({1}));
    log(Operand(-1.0f, Loc{"program.cpp", 2}));
    log(Operand(0.0f, Loc{"program.cpp", 3}));
  } catch (const Error& error) { std::fprintf(stderr, "%s\n", error.what()); }
  if (std::getenv("SHEAF_LIBNVRTC"))
    std::fprintf(stderr, "%s\n", std::string(codegen::Nvrtc::load().status().message()).c_str());
}
