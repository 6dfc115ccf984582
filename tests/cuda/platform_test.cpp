// A platform that cannot be used says so wherever it is asked for something, and takes nothing away from the CPU.
#include <doctest/doctest.h>

#include <cstdio>

#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/message.h"
#include "tests/places.h"

using namespace sheaf;

namespace {

template <class F>
void say_error_of(F&& f) {
  try {
    f();
    std::fprintf(stderr, "no error\n");
  } catch (const RuntimeError& error) { std::fprintf(stderr, "%s\n", error.what()); }
}

const std::string kMissing =
    "no CUDA driver; tried:\n"
    "  /nowhere/libcuda.so: cannot open shared object file: No such file or directory\n"
    "Sheaf uses NVIDIA's driver for CUDA 12.0 or newer; SHEAF_LIBCUDA names one that lies elsewhere\n";

const std::vector<std::pair<std::string, std::string>> kNowhere = {{"SHEAF_LIBCUDA", "/nowhere/libcuda.so"}};

}  // namespace

TEST_CASE("[gpu platform] a program" * doctest::skip()) {
  say_error_of([] { devices(); });
  say_error_of([] { array({1.0, 2.0}); });
  say_error_of([] { Mesh({{"x", 2}}); });
  std::fprintf(stderr, "%s\n", to_string(devices("cpu")[0]).c_str());
}

TEST_CASE("[cpu platform] a program" * doctest::skip()) {
  say_error_of([] { devices("cuda"); });
  say_error_of([] { devices("tpu"); });
  std::fprintf(stderr, "%g\n", sum(array({1.0, 2.0})).item<double>());
}

TEST_CASE("[mesh of four] a program" * doctest::skip()) {
  std::fprintf(stderr, "%s\n", tests::message_here<ShardingError>([] { Mesh({{"x", 4}}); }).c_str());
}

TEST_CASE("a mesh of more GPUs than there are says how to plan without them") {
  CHECK(tests::said_by_child("mesh of four", {{"SHEAF_PLATFORM", "cuda"},
                                              {"SHEAF_LIBCUDA", SHEAF_BINARY_DIR "/libsheaf_fake_cuda.so"},
                                              {"SHEAF_FAKE_CUDA_DEVICES", "2"}}) ==
        "HERE: Mesh [x=4]: it takes 4 devices, and there are 2: plan with Mesh::abstract\n");
}

TEST_CASE("without a driver the platform cuda fails with where it was looked for, and the CPU is there") {
  std::vector<std::pair<std::string, std::string>> on_gpus = kNowhere;
  on_gpus.emplace_back("SHEAF_PLATFORM", "cuda");
  const std::string text = tests::with_here(tests::said_by_child("gpu platform", on_gpus), {});
  const std::string first = "HERE: devices: SHEAF_PLATFORM=cuda: " + kMissing;
  CHECK(text == first + "HERE: SHEAF_PLATFORM=cuda: " + kMissing +
                    "HERE: Mesh [x=2]: SHEAF_PLATFORM=cuda: " + kMissing + "cpu:0\n");
}

TEST_CASE("without a driver the GPUs cannot be listed, and nothing else changes") {
  CHECK(tests::with_here(tests::said_by_child("cpu platform", kNowhere), {}) ==
        "HERE: devices: " + kMissing + "HERE: devices: there is no platform 'tpu', only cpu and cuda\n3\n");
}

TEST_CASE("an unknown platform is one warning, and the program runs") {
  CHECK(tests::said_by_child("cpu platform", {{"SHEAF_PLATFORM", "gpu"}, kNowhere[0]})
            .starts_with("sheaf warning: SHEAF_PLATFORM=gpu is neither cpu nor cuda; using cpu\n"));
}
