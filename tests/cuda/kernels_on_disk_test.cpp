// Kernels from one process to the next: what a machine without a GPU compiled for one, a process with that GPU runs
// without a compiler; and whatever is wrong with a file costs a compilation at most.
#include <doctest/doctest.h>
#include <link.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "codegen/fingerprint.h"
#include "fmt/format.h"
#include "runtime/counters.h"
#include "runtime/disk_cache.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/emulator/image.h"
#include "tests/message.h"
#include "tests/places.h"

using namespace sheaf;
using runtime::DiskCache;

namespace {

namespace fs = std::filesystem;

const std::string kFolder = SHEAF_BINARY_DIR "/kernels_on_disk_test";

void say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

/// What the program below says, on a CPU or a GPU, with or without the compiler.
std::string said_on(const std::string& device, const std::string& nvrtc,
                    const std::vector<std::pair<std::string, std::string>>& more = {}) {
  std::vector<std::pair<std::string, std::string>> variables = {
      {"SHEAF_CACHE_DIR", kFolder},
      {"SHEAF_LIBNVRTC", nvrtc},
      {"SHEAF_FAKE_CUDA_REPORT", "/dev/null"},
      {"SHEAF_LIBCUDA", SHEAF_BINARY_DIR "/libsheaf_fake_cuda.so"}};
  if (device == "gpu") variables.emplace_back("SHEAF_PLATFORM", "cuda");
  else variables.emplace_back("SHEAF_TARGET", "sm_90");
  variables.insert(variables.end(), more.begin(), more.end());
  return tests::said_by_child("kernels on disk", variables);
}

const std::string kNvrtc = SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so", kNone = "/nowhere/libnvrtc.so";

std::vector<fs::path> files(const std::string& kind) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(kFolder))
    if (entry.path().extension() == "." + kind) found.push_back(entry.path());
  return found;
}

/// Whether a library with this in its name is in memory.
bool is_mapped(const char* name) {
  const auto visit = [](dl_phdr_info* library, std::size_t, void* wanted) {
    return std::strstr(library->dlpi_name, static_cast<const char*>(wanted)) ? 1 : 0;
  };
  return dl_iterate_phdr(visit, const_cast<char*>(name)) == 1;
}

std::string ran(int compiled, int read) { return fmt::format("4 3: {} compiled, {} read\n", compiled, read); }

/// A folder as a process on a machine without a GPU leaves it, with so many kernels.
int fill() {
  fs::remove_all(kFolder);
  const std::string said = said_on("cpu", kNvrtc);
  const auto kernels = static_cast<int>(files("kernel").size());
  CHECK(kernels > 3);
  CHECK(said == ran(kernels, 0));
  return kernels;
}

}  // namespace

TEST_CASE("[kernels on disk] a program" * doctest::skip()) {
  try {
    const Array x = array({1.0, 2.0, 3.0});
    const Array y = jit([](Array v) { return sort(v)[1] * 2.0; })(x), z = exp(x * 0.0);
    const double middle = y.item<double>(), total = sum(z).item<double>();
    const auto& c = runtime::counters();
    say(fmt::format("{} {}: {} compiled, {} read", middle, total, c.kernels_compiled.load(), c.kernels_read.load()));
    if (c.kernels_compiled == 0) CHECK(!is_mapped("nvrtc"));
  } catch (const Error& error) { say(tests::with_here(error.what(), {})); }
}

TEST_CASE("what was compiled for a target without such a device runs on one without a compiler") {
  const int kernels = fill();
  CHECK(said_on("gpu", kNone) == ran(0, kernels));
}

TEST_CASE("without the kernels on disk, the missing compiler is an error with the places that were tried") {
  fs::remove_all(kFolder);
  CHECK(said_on("gpu", kNone) ==
        "HERE: no NVRTC; tried:\n"
        "  /nowhere/libnvrtc.so: cannot open shared object file: No such file or directory\n"
        "Sheaf compiles for GPUs with NVIDIA's NVRTC 12.0 or newer; SHEAF_LIBNVRTC names one that lies elsewhere\n");
}

TEST_CASE("for another architecture the kernels are others") {
  const int kernels = fill();
  CHECK(said_on("gpu", kNvrtc, {{"SHEAF_FAKE_CUDA_ARCH", "sm_80"}}) == ran(kernels, 0));
}

TEST_CASE("damaged files are compiled anew and replaced") {
  const int kernels = fill();
  const fs::path cut = files("kernel")[0];
  fs::resize_file(cut, fs::file_size(cut) - 1);
  fs::remove(files("cubin")[0]);
  const std::string said = said_on("gpu", kNvrtc);
  CHECK(said != ran(0, kernels));
  CHECK(said.starts_with("sheaf warning: " + cut.string() + " is damaged in the cache, and compiled anew\n4 3: "));
  CHECK(said_on("gpu", kNone) == ran(0, kernels));
}

TEST_CASE("machine code that the driver refuses is compiled anew, or told with the file and the driver") {
  const int kernels = fill();
  // Every kernel's file now names an image for another architecture.
  DiskCache disk({.folder = kFolder});
  const std::string foreign = emulator::write_image({"", "sm_80"}), key = codegen::fingerprint(foreign);
  disk.store("cubin", key, "", foreign);
  for (const fs::path& path : files("kernel")) {
    std::string record = disk.find("kernel", path.stem().string())->bytes;
    disk.store("kernel", path.stem().string(), "", record.replace(record.find("module ") + 7, 32, key));
  }
  const std::string text = said_on("gpu", kNone);
  const std::size_t refusal = text.rfind("cuModuleLoadDataEx of ");  // behind the step that needed it
  REQUIRE(refusal != std::string::npos);
  CHECK(text.substr(refusal) ==
        fmt::format("cuModuleLoadDataEx of {} bytes, made by NVRTC 13.0 for sm_90a, read from {}: "
                    "CUDA_ERROR_NO_BINARY_FOR_GPU (209): no kernel image is available for execution on the device; the "
                    "driver {}/libsheaf_fake_cuda.so is for CUDA 13.0\n"
                    "and it cannot be compiled anew: no NVRTC; tried:\n"
                    "  /nowhere/libnvrtc.so: cannot open shared object file: No such file or directory\n"
                    "Sheaf compiles for GPUs with NVIDIA's NVRTC 12.0 or newer; SHEAF_LIBNVRTC names one that lies "
                    "elsewhere\n",
                    foreign.size(), disk.find("cubin", key)->path, SHEAF_BINARY_DIR));
  CHECK(said_on("gpu", kNvrtc) == ran(kernels, kernels));
  CHECK(said_on("gpu", kNone) == ran(0, kernels));
}

TEST_CASE("[CPU kernels on disk] a program" * doctest::skip()) {
  const auto f = jit([](Array v) { return sum(exp(v)); }).trace(abstract({1000})).lower().compile();
  const double total = f(zeros({1000})).item<double>();
  const auto& c = runtime::counters();
  const char* llvm = is_mapped("LLVM") ? "with" : "without";
  say(fmt::format("{}: {} compiled, {} read, {} LLVM", total, c.kernels_compiled.load(), c.kernels_read.load(), llvm));
}

TEST_CASE("kernels for the CPU are read too, and then LLVM is not even opened") {
  fs::remove_all(kFolder);
  const auto said = [](const std::string& variable, const std::string& value) {
    return tests::said_by_child("CPU kernels on disk", {{"SHEAF_CACHE_DIR", kFolder}, {variable, value}});
  };
  CHECK(said("SHEAF_LOG", "") == "1000: 1 compiled, 0 read, with LLVM\n");
  CHECK(said("SHEAF_LLVM_PLUGIN", "/nowhere/libsheaf_llvm.so") == "1000: 0 compiled, 1 read, without LLVM\n");
  const fs::path object = files("object").at(0);
  DiskCache({.folder = kFolder}).store("object", object.stem().string(), "", "no machine code");
  CHECK(said("SHEAF_LOG", "") == "1000: 1 compiled, 0 read, with LLVM\n");
  CHECK(said("SHEAF_LOG", "") == "1000: 0 compiled, 1 read, without LLVM\n");
}

TEST_CASE("a folder that cannot be written is one warning, and the program runs") {
  fs::remove_all(kFolder);
  const std::string text = said_on("gpu", kNvrtc, {{"SHEAF_CACHE_DIR", "/dev/null/cache"}});
  CHECK(text.starts_with("sheaf warning: the cache cannot be written, so other processes compile this again: "));
  CHECK(text.find("Not a directory\n4 3: ") != std::string::npos);
  CHECK(text.ends_with(" compiled, 0 read\n"));
}
