// `sheaf gpus`, `tests/run --gpu` and `bench/run --gpu` where there is no GPU: what is missing, and where it was looked
// for; and where there is one.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "fmt/format.h"
#include "tests/places.h"
#include "tests/tools/ran.h"

using namespace sheaf;

namespace {

/// With the variables that name NVIDIA's libraries in front of the command.
tests::Ran run_with(const std::string& libraries, const std::string& command) {
  return tests::ran("cd " SHEAF_SOURCE_DIR "; " + libraries + command);
}

/// In an environment where every library is looked for in /nowhere.
tests::Ran run(const std::string& command) {
  std::string libraries;
  for (const char* library : {"CUDA", "NVRTC", "CUBLASLT", "CUBLAS", "CUSOLVER", "NCCL"})
    libraries += std::string("SHEAF_LIB") + library + "=/nowhere/" + library + " ";
  tests::Ran ran = run_with(libraries, command);
  // What NVRTC says is tests/cuda/nvrtc_test.cpp's.
  const std::size_t nvrtc = ran.text.find("NVRTC     no NVRTC"), next = ran.text.find("cuBLASLt  ");
  REQUIRE((nvrtc != std::string::npos && next != std::string::npos));
  ran.text.erase(nvrtc, next - nvrtc);
  return ran;
}

const std::string kMissing =
    "driver    no CUDA driver; tried:\n"
    "            /nowhere/CUDA: cannot open shared object file: No such file or directory\n"
    "          Sheaf uses NVIDIA's driver for CUDA 12.0 or newer; SHEAF_LIBCUDA names one that lies elsewhere\n"
    "cuBLASLt  no cuBLASLt; tried:\n"
    "            /nowhere/CUBLASLT: cannot open shared object file: No such file or directory\n"
    "          Sheaf uses cuBLASLt 12 or newer; SHEAF_LIBCUBLASLT names one that lies elsewhere\n"
    "cuBLAS    no cuBLAS; tried:\n"
    "            /nowhere/CUBLAS: cannot open shared object file: No such file or directory\n"
    "          Sheaf uses cuBLAS 12 or newer; SHEAF_LIBCUBLAS names one that lies elsewhere\n"
    "cuSOLVER  no cuSOLVER; tried:\n"
    "            /nowhere/CUSOLVER: cannot open shared object file: No such file or directory\n"
    "          Sheaf uses cuSOLVER 11 or newer; SHEAF_LIBCUSOLVER names one that lies elsewhere\n"
    "NCCL      no NCCL; tried:\n"
    "            /nowhere/NCCL: cannot open shared object file: No such file or directory\n"
    "          Sheaf uses NCCL 2.18.1 or newer between GPUs; SHEAF_LIBNCCL names one that lies elsewhere\n"
    "no GPU can be used: there is no driver with a device\n";

}  // namespace

TEST_CASE("the tool lists what a GPU needs, and what is missing") {
  const tests::Ran ran = run(SHEAF_BINARY_DIR "/sheaf gpus");
  CHECK(ran.status == 1);
  CHECK(ran.text == kMissing);
}

TEST_CASE("the tool says which libraries were found, of what versions, and what the GPUs are") {
  std::string libraries = "SHEAF_FAKE_CUDA_DEVICES=1 SHEAF_FAKE_CUDA_ARCH=sm_90 ";
  for (const auto& [library, fake] :
       {std::pair("CUDA", "cuda"), std::pair("NVRTC", "nvrtc"), std::pair("CUBLASLT", "cublaslt"),
        std::pair("CUBLAS", "cusolver"), std::pair("CUSOLVER", "cusolver"), std::pair("NCCL", "nccl")})
    libraries += fmt::format("SHEAF_LIB{}=" SHEAF_BINARY_DIR "/libsheaf_fake_{}.so ", library, fake);
  const tests::Ran ran = run_with(libraries, SHEAF_BINARY_DIR "/sheaf gpus");
  CHECK(ran.status == 0);
  CHECK(ran.text == "driver    " SHEAF_BINARY_DIR
                    "/libsheaf_fake_cuda.so, for CUDA 13.0\n"
                    "NVRTC     " SHEAF_BINARY_DIR
                    "/libsheaf_fake_nvrtc.so, 13.0\n"
                    "cuBLASLt  " SHEAF_BINARY_DIR
                    "/libsheaf_fake_cublaslt.so, 13.0.0\n"
                    "cuBLAS    " SHEAF_BINARY_DIR
                    "/libsheaf_fake_cusolver.so, 13.0.0\n"
                    "cuSOLVER  " SHEAF_BINARY_DIR
                    "/libsheaf_fake_cusolver.so, 12.0.0\n"
                    "NCCL      " SHEAF_BINARY_DIR
                    "/libsheaf_fake_nccl.so, 2.28.9\n"
                    "cuda:0    Sheaf's fake sm_90, sm_90, 132 multiprocessors, 1.0 GiB\n");
}

TEST_CASE("a GPU day without a GPU says what is missing, and does nothing") {
  const tests::Ran tests = run("tests/gpu_day " SHEAF_BINARY_DIR);
  CHECK(tests.status == 1);
  CHECK(tests.text == kMissing + "== stopped: there is no GPU to test on\n");
  const tests::Ran bench = run("bench/gpu_day " SHEAF_BINARY_DIR);
  CHECK(bench.status == 1);
  CHECK(bench.text == kMissing + "== stopped: there is no GPU to measure\n");
}
