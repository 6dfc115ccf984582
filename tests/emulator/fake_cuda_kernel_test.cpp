// The fake driver's modules and launches: images that will not do, the device's limits, faults that stay, and the
// memory that a kernel may touch.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/emulator/engine.h"
#include "tests/emulator/fake_gpu.h"

using namespace sheaf::cuda;
using namespace sheaf::emulator;

namespace {

const char* const kText = R"(
extern "C" __global__ void __launch_bounds__(64) add_one(const int* x, int* y, int count) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < count) y[i] = x[i] + 1;
}
extern "C" __global__ void set(int* x, int value) { x[threadIdx.x] = value; }
)";

CUresult load(const FakeGpu& gpu, const std::string& image, std::string* log = nullptr) {
  CUmodule module = nullptr;
  char buffer[4096] = "";
  CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {buffer, reinterpret_cast<void*>(sizeof buffer)};
  const CUresult result = gpu->cuModuleLoadDataEx(&module, image.data(), 2, names, values);
  if (log) *log = buffer;
  return result;
}

CUresult launch(const FakeGpu& gpu, CUfunction f, Dim grid, Dim block, unsigned shared, CUstream s) {
  CUdeviceptr x = 0;
  int value = 0;
  void* parameters[] = {&x, &value};
  const CUlaunchConfig config{.gridDimX = grid.x,
                              .gridDimY = grid.y,
                              .gridDimZ = grid.z,
                              .blockDimX = block.x,
                              .blockDimY = block.y,
                              .blockDimZ = block.z,
                              .sharedMemBytes = shared,
                              .hStream = s,
                              .attrs = nullptr,
                              .numAttrs = 0};
  return gpu->cuLaunchKernelEx(&config, f, parameters, nullptr);
}

}  // namespace

TEST_CASE("a kernel runs when its stream is waited for, with the arguments it was launched with") {
  const FakeGpu gpu{{"COUNT", "1"}};
  const CUstream s = gpu.stream();
  const CUfunction f = gpu.function(gpu.module(kText), "add_one");
  const CUdeviceptr x = gpu.memory(400), y = gpu.memory(400);
  CHECK(gpu.write(x, std::vector<int>(100, 41), s) == CUDA_SUCCESS);
  CHECK(gpu.launch(f, 2, 64, s, x, y, 100) == CUDA_SUCCESS);
  CHECK(gpu.read<int>(y, 100, s) == std::vector<int>(100, 42));
  CHECK(gpu.counters().kernels == 1);
  CHECK(gpu.counters().sectors_written == 13);  // of 32 bytes
  CHECK(gpu.counters().sectors_written == gpu.counters().ideal_sectors_written);
}

TEST_CASE("images that are none, or for another device, or that no compiler takes, are refused") {
  const FakeGpu gpu;
  std::string log;
  CHECK(load(gpu, std::string(64, 'x')) == CUDA_ERROR_INVALID_IMAGE);
  CHECK(gpu.fault() == "cuModuleLoadDataEx: not machine code");
  CHECK(load(gpu, write_image({"", "sm_90"}).substr(0, 64) + std::string(64, '\0')) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(gpu.fault() == "cuModuleLoadDataEx: machine code without the text that the emulator runs");
  for (const char* architecture : {"sm_80", "sm_100", "sm_100a"})
    CHECK(load(gpu, write_image({kText, architecture})) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(gpu.fault() == "cuModuleLoadDataEx: an image for sm_100a, and device 0 is sm_90");
  CHECK(load(gpu, write_image({kText, "sm_90a"})) == CUDA_SUCCESS);
  CHECK(load(gpu, write_image({"extern \"C\" __global__ void f() { nonsense; }", "sm_90"}), &log) ==
        CUDA_ERROR_INVALID_SOURCE);
  CHECK(log.find("nonsense") != std::string::npos);
}

TEST_CASE("functions are found by name, and are gone with their module") {
  const FakeGpu gpu;
  const CUmodule m = gpu.module(kText);
  CUfunction f = nullptr;
  int value = 0;
  CHECK(gpu->cuModuleGetFunction(&f, m, "subtract_one") == CUDA_ERROR_NOT_FOUND);
  CHECK(gpu.fault() == "cuModuleGetFunction: the module has no subtract_one");
  f = gpu.function(m, "add_one");
  CHECK(gpu->cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f) == CUDA_SUCCESS);
  CHECK(value == 64);
  CHECK(gpu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, f, 64, 0) == CUDA_SUCCESS);
  CHECK(value == 32);
  CHECK(gpu->cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, f, 64, 40'000) == CUDA_SUCCESS);
  CHECK(value == 5);
  CHECK(gpu->cuModuleUnload(m) == CUDA_SUCCESS);
  CHECK(gpu->cuModuleUnload(m) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(launch(gpu, f, {}, {}, 0, gpu.stream()) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(gpu.fault() == "cuLaunchKernelEx: no such function, or its module is unloaded");
}

TEST_CASE("launches beyond the device's limits are refused with the limit") {
  const FakeGpu gpu;
  const CUstream s = gpu.stream();
  const CUmodule m = gpu.module(kText);
  const CUfunction set = gpu.function(m, "set"), add_one = gpu.function(m, "add_one");
  const auto why = [&](CUfunction f, Dim grid, Dim block, unsigned shared = 0) {
    return launch(gpu, f, grid, block, shared, s) == CUDA_ERROR_INVALID_VALUE ? gpu.fault() : "launched";
  };
  CHECK(why(set, {1, 0, 1}, {}) == "cuLaunchKernelEx: set: an empty grid (1, 0, 1) or block (1, 1, 1)");
  const std::string grid_limit = ", the limit is (2147483647, 65535, 65535)";
  CHECK(why(set, {1, 65536, 1}, {}) == "cuLaunchKernelEx: set: a grid of (1, 65536, 1)" + grid_limit);
  CHECK(why(set, {1, 1, 65536}, {}) == "cuLaunchKernelEx: set: a grid of (1, 1, 65536)" + grid_limit);
  const std::string block_limit = ", the limit is (1024, 1024, 64) and 1024 threads";
  CHECK(why(set, {}, {32, 33, 1}) == "cuLaunchKernelEx: set: a block of (32, 33, 1)" + block_limit);
  CHECK(why(set, {}, {1, 1, 65}) == "cuLaunchKernelEx: set: a block of (1, 1, 65)" + block_limit);
  CHECK(why(add_one, {}, {65, 1, 1}) == "cuLaunchKernelEx: add_one: 65 threads, its launch bound is 64");
  CHECK(why(set, {}, {}, 50'000) == "cuLaunchKernelEx: set: 50000 bytes of dynamic shared memory, it may have 49152");
  CHECK(gpu->cuFuncSetAttribute(set, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232449) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.fault() == "cuFuncSetAttribute: set: 232449 bytes of dynamic shared memory, the most is 232448");
  CHECK(gpu->cuFuncSetAttribute(set, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50'000) == CUDA_SUCCESS);
  CHECK(why(set, {}, {}, 50'000) == "launched");
}

TEST_CASE("after a kernel's fault every call on its device says so, and the other device goes on") {
  const FakeGpu gpu{{"DEVICES", "2"}};
  const CUstream s = gpu.stream();
  const CUdeviceptr x = gpu.memory(64);
  const CUfunction set = gpu.function(gpu.module(kText), "set");
  gpu.use(1);
  const CUstream other = gpu.stream();
  const CUdeviceptr y = gpu.memory(4);
  const CUevent e = gpu.event();
  gpu.use(0);
  CHECK(gpu.launch(set, 1, 17, s, x, 5) == CUDA_SUCCESS);
  CHECK(gpu->cuStreamSynchronize(s) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(gpu.fault().find("set on stream 0 of device 0: bounds: ") == 0);
  CHECK(gpu.fault().find("allocation 0 of device 0 (64 bytes)") != std::string::npos);
  CHECK(gpu.text(gpu->cuMemFree(x)) ==
        "it: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered");
  CHECK(gpu.launch(set, 1, 1, s, x, 5) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(gpu->cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(gpu.counters().faults == 1);
  gpu.use(1);
  CHECK(gpu.write(y, std::vector{6}, other) == CUDA_SUCCESS);
  CHECK(gpu->cuEventRecord(e, other) == CUDA_SUCCESS);
  CHECK(gpu.read<int>(y, 1, other) == std::vector{6});
}

TEST_CASE("who waits for a device that has a fault is not left waiting") {
  const FakeGpu gpu{{"DEVICES", "2"}};
  const CUstream s = gpu.stream();
  const CUevent e = gpu.event();
  const CUfunction set = gpu.function(gpu.module(kText), "set");
  CHECK(gpu.launch(set, 1, 1, s, CUdeviceptr{64}, 5) == CUDA_SUCCESS);
  CHECK(gpu->cuEventRecord(e, s) == CUDA_SUCCESS);
  gpu.use(1);
  const CUstream t = gpu.stream();
  CHECK(gpu->cuStreamWaitEvent(t, e, 0) == CUDA_SUCCESS);
  CHECK(gpu->cuStreamSynchronize(t) == CUDA_SUCCESS);
  CHECK(gpu->cuEventSynchronize(e) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a kernel touches pinned memory, and another device's only once it may") {
  const FakeGpu gpu{{"DEVICES", "2"}};
  const CUstream s = gpu.stream();
  const CUfunction set = gpu.function(gpu.module(kText), "set");
  int* word = gpu.pinned<int>(1);
  CHECK(gpu.launch(set, 1, 1, s, reinterpret_cast<CUdeviceptr>(word), 5) == CUDA_SUCCESS);
  CHECK(gpu->cuStreamSynchronize(s) == CUDA_SUCCESS);
  CHECK(*word == 5);
  gpu.use(1);
  const CUdeviceptr x = gpu.memory(4);
  const CUstream t = gpu.stream();
  gpu.use(0);
  int can = 0;
  CHECK(gpu->cuDeviceCanAccessPeer(&can, 0, 1) == CUDA_SUCCESS);
  CHECK(can == 1);
  CHECK(gpu->cuCtxEnablePeerAccess(gpu.context(1), 0) == CUDA_SUCCESS);
  CHECK(gpu->cuCtxEnablePeerAccess(gpu.context(1), 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  CHECK(gpu.launch(set, 1, 1, s, x, 7) == CUDA_SUCCESS);
  CHECK(gpu->cuStreamSynchronize(s) == CUDA_SUCCESS);
  CHECK(gpu.read<int>(x, 1, t) == std::vector{7});
  CUdeviceptr pooled = 0;
  CHECK(gpu->cuMemAllocAsync(&pooled, 4, t) == CUDA_SUCCESS);
  CHECK(gpu->cuStreamSynchronize(t) == CUDA_SUCCESS);
  CHECK(gpu.launch(set, 1, 1, s, pooled, 7) == CUDA_SUCCESS);  // the pool's memory has an access of its own
  CHECK(gpu->cuStreamSynchronize(s) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a launch names the device that is current, the stream's and the function's") {
  const FakeGpu gpu{{"DEVICES", "2"}};
  const CUstream s = gpu.stream();
  const CUfunction set = gpu.function(gpu.module(kText), "set");
  gpu.use(1);
  CHECK(launch(gpu, set, {}, {}, 0, s) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(gpu.fault() == "cuLaunchKernelEx: set of device 0 on stream 0 of device 0 while device 1 is current");
}

TEST_CASE("a tensor map is of an aligned address, and its box fits its swizzle") {
  const FakeGpu gpu;
  const CUdeviceptr x = gpu.memory(1 << 16);
  const auto encode = [&](CUdeviceptr address, std::uint64_t row_bytes, std::uint32_t columns) {
    CUtensorMap map;
    const std::uint64_t dims[] = {128, 64}, strides[] = {row_bytes};
    const std::uint32_t box[] = {columns, 32}, ones[] = {1, 1};
    const CUresult result =
        gpu->cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, reinterpret_cast<void*>(address), dims,
                                    strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                    CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? "" : gpu.fault();
  };
  CHECK(encode(x, 256, 64) == "");
  CHECK(encode(x + 8, 256, 64) == "cuTensorMapEncodeTiled: an address or a stride that is no multiple of 16");
  CHECK(encode(x, 260, 64) == "cuTensorMapEncodeTiled: an address or a stride that is no multiple of 16");
  CHECK(encode(x, 256, 60) == "cuTensorMapEncodeTiled: a box 120 bytes wide, which is no multiple of 16");
  CHECK(encode(x, 256, 128) == "cuTensorMapEncodeTiled: a box 256 bytes wide, its swizzle has 128");
  CHECK(encode(x, 256, 512) == "cuTensorMapEncodeTiled: a box of 512 x 32, the limit is 256 x 256");
}
