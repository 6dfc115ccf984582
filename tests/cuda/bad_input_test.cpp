// GPUs and compilers that will not do, found while a program runs: what is said, and that the CPU still works after it.
#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <sstream>

#include "codegen/fingerprint.h"
#include "runtime/counters.h"
#include "runtime/disk_cache.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/emulator/image.h"
#include "tests/message.h"
#include "tests/places.h"

using namespace sheaf;

namespace {

const std::string kFolder = SHEAF_BINARY_DIR "/bad_input_test";

std::string said_on_gpu(const std::string& name, const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<std::pair<std::string, std::string>> variables = {
      {"SHEAF_PLATFORM", "cuda"},
      {"SHEAF_FAKE_CUDA_REPORT", "/dev/null"},
      {"SHEAF_LIBCUDA", SHEAF_BINARY_DIR "/libsheaf_fake_cuda.so"},
      {"SHEAF_LIBNVRTC", SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so"}};
  variables.insert(variables.end(), more.begin(), more.end());
  return tests::said_by_child(name, variables);
}

void say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

template <class F>
void say_error_of(F&& f) {
  say(tests::message_here<RuntimeError>(f));
}

Array three_on_the_cpu() {
  const Array three = device_put(array({3.0}), devices("cpu")[0]);
  three.wait();  // it was on the GPU
  return three;
}
void say_twice(const Array& on_the_cpu) { say("the CPU has " + std::to_string((on_the_cpu * 2.0).item<int>())); }

}  // namespace

TEST_CASE("[three products] a program" * doctest::skip()) {
  const Array x = array({1.0, 2.0, 3.0}), on_the_cpu = three_on_the_cpu();
  say_error_of([&] { exp(x * 3.0 + 1.0).wait(); });
  say_error_of([&] { tanh(x * 3.0 + 1.0).wait(); });
  say_twice(on_the_cpu);
}

TEST_CASE("[faulty kernel] a program" * doctest::skip()) {
  const Array x = array({1.0, 2.0, 3.0}), on_the_cpu = three_on_the_cpu();
  const auto f = jit([](Array v) { return v * 2.0; });
  say_error_of([&] { f(x).wait(); });
  say_error_of([&] { to_host(f(x)); });
  say_twice(on_the_cpu);
}

TEST_CASE("a GPU that NVRTC does not compile for is told with those it does") {
  CHECK(said_on_gpu("three products", {{"SHEAF_FAKE_CUDA_ARCH", "sm_75"}}) ==
        "HERE: NVRTC 13.0 does not compile for sm_75, only for sm_80, sm_90, sm_100, sm_120\n"
        "HERE: NVRTC 13.0 does not compile for sm_75, only for sm_80, sm_90, sm_100, sm_120\n"
        "the CPU has 6\n");
}

TEST_CASE("a text that NVRTC refuses is an error with the kernel, the user's line and the lines around") {
  const std::string text = said_on_gpu("three products", {{"SHEAF_FAKE_NVRTC_REFUSES", "threadIdx"}});
  const std::string word = text.substr(0, text.find(", first"));  // the kernel's name ends with a fingerprint
  CHECK(word.starts_with("HERE: kernel mul_"));
  const std::size_t line = text.find("error: this word is refused\n\n1 error detected.\n");
  REQUIRE(line != std::string::npos);
  CHECK(text.substr(word.size(), text.find("kernels.cu(") - word.size()) ==
        ", first needed at HERE: NVRTC 13.0 refuses the text for sm_90a:\n");
  const std::size_t marked = text.find("\n> ", line);
  REQUIRE(marked != std::string::npos);
  CHECK(text.substr(marked, text.find('\n', marked + 1) - marked).find("threadIdx") != std::string::npos);
  CHECK(text.ends_with("the CPU has 6\n"));
}

TEST_CASE("a kernel that faults is an error of what it should have made, and of all that comes after on that GPU") {
  std::filesystem::remove_all(kFolder);
  CHECK(said_on_gpu("faulty kernel", {{"SHEAF_CACHE_DIR", kFolder}}) ==
        "nothing was thrown\nnothing was thrown\nthe CPU has 6\n");
  // Every kernel on disk gets a body that writes where nothing is.
  runtime::DiskCache disk({.folder = kFolder});
  for (const auto& file : std::filesystem::recursive_directory_iterator(kFolder)) {
    if (file.path().extension() != ".cubin") continue;
    emulator::Image image = *emulator::read_image(disk.find("cubin", file.path().stem().string())->bytes.data());
    for (std::size_t at = 0; (at = image.text.find(") {\n", image.text.find("__global__", at))) != std::string::npos;)
      image.text.insert(at + 4, "*(int*)16 = 0;\n");
    disk.store("cubin", file.path().stem().string(), "", emulator::write_image(image));
  }
  std::istringstream lines(said_on_gpu("faulty kernel", {{"SHEAF_CACHE_DIR", kFolder}}));
  for (int i = 0; i < 2; ++i) {
    std::string line;
    std::getline(lines, line);
    CAPTURE(line);
    CHECK(line.starts_with("HERE: "));
    CHECK(line.find(": CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered") != line.npos);
  }
  std::string last;
  std::getline(lines, last);
  CHECK(last == "the CPU has 6");
}
