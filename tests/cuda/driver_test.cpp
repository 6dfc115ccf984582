// Opening NVIDIA's driver and NCCL: what is said where there is none, or another library in its place.
#include <doctest/doctest.h>

#include "runtime/driver/cuda.h"
#include "runtime/driver/nccl.h"

using namespace sheaf;
using runtime::Cuda;
using runtime::Nccl;

namespace {

std::string why_not(const std::vector<std::string>& paths) { return Cuda::open(paths).status().ToString(); }

}  // namespace

TEST_CASE("where there is no driver, the places that were tried are told") {
  CHECK(why_not({"/nowhere/libcuda.so.1", "/dev/null"}) ==
        "UNAVAILABLE: no CUDA driver; tried:\n"
        "  /nowhere/libcuda.so.1: cannot open shared object file: No such file or directory\n"
        "  /dev/null: file too short\n"
        "Sheaf uses NVIDIA's driver for CUDA 12.0 or newer; SHEAF_LIBCUDA names one that lies elsewhere");
}

TEST_CASE("a library that is no driver is told by its name") {
  CHECK(why_not({"libm.so.6"}) == "UNAVAILABLE: libm.so.6 is no CUDA driver: it does not tell its version");
}

TEST_CASE("where there is no NCCL, the places that were tried are told") {
  CHECK(Nccl::open({"/nowhere/libnccl.so.2"}).status().ToString() ==
        "UNAVAILABLE: no NCCL; tried:\n"
        "  /nowhere/libnccl.so.2: cannot open shared object file: No such file or directory\n"
        "Sheaf uses NCCL 2.18.1 or newer between GPUs; SHEAF_LIBNCCL names one that lies elsewhere");
}

TEST_CASE("a library that is no NCCL is told by its name") {
  CHECK(Nccl::open({"libm.so.6"}).status().ToString() ==
        "UNAVAILABLE: libm.so.6 is no NCCL: it does not tell its version");
}
