// The fake driver's memory: bounds, lives, the stream-ordered pool, limits, pinned memory, and what is never given
// back.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <numeric>

#include "tests/emulator/fake_gpu.h"

using namespace sheaf::cuda;
using namespace sheaf::emulator;

namespace {

std::string at(CUdeviceptr p) { return fmt::format("{:#x}", p); }

}  // namespace

TEST_CASE("bytes go to the device and back") {
  const FakeGpu gpu;
  const CUstream s = gpu.stream();
  const CUdeviceptr a = gpu.memory(64), b = gpu.memory(64);
  std::vector<int> values(16);
  std::iota(values.begin(), values.end(), 3);
  CHECK(gpu.write(a, values, s) == CUDA_SUCCESS);
  CHECK(gpu->cuMemcpyDtoDAsync(b, a, 64, s) == CUDA_SUCCESS);
  CHECK(gpu->cuMemsetD32Async(b + 8, 7, 2, s) == CUDA_SUCCESS);
  CHECK(gpu->cuMemsetD8Async(b + 16, 0, 4, s) == CUDA_SUCCESS);
  values[2] = values[3] = 7;
  values[4] = 0;
  CHECK(gpu.read<int>(b, 16, s) == values);
  CHECK(gpu.fault().empty());
  CHECK(gpu.counters().bytes_to_device == 64);
  CHECK(gpu.counters().bytes_to_host == 64);
  CHECK(gpu.counters().bytes_on_device == 64);
}

TEST_CASE("copies past the end of an allocation are refused at once") {
  const FakeGpu gpu;
  const CUstream s = gpu.stream();
  const CUdeviceptr a = gpu.memory(64);
  CHECK(gpu.write(a + 4, std::vector<int>(16), s) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.fault() == "cuMemcpyHtoDAsync: 64 bytes at " + at(a + 4) + " are not within one allocation of device 0");
  CHECK(gpu->cuMemsetD32Async(a + 2, 0, 1, s) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.fault() == "cuMemsetD32Async: " + at(a + 2) + " is not a multiple of 4");
  CHECK(gpu->cuMemcpyHtoDAsync(a, reinterpret_cast<const void*>(a), 4, s) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.fault() == "cuMemcpyHtoDAsync: " + at(a) + " is no host memory");
}

TEST_CASE("an allocation is freed once, and by its start") {
  const FakeGpu gpu;
  const CUdeviceptr a = gpu.memory(64);
  const std::string end = " is not the start of an allocation, or it was freed before";
  CHECK(gpu->cuMemFree(a + 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.fault() == "cuMemFree: " + at(a + 16) + end);
  CHECK(gpu->cuMemFree(a) == CUDA_SUCCESS);
  CHECK(gpu->cuMemFree(a) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.fault() == "cuMemFree: " + at(a) + end);
  CHECK(gpu->cuMemFree(0) == CUDA_SUCCESS);
  CHECK(gpu.write(a, std::vector<int>{1}, gpu.stream()) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("bytes that nothing wrote are not for the host to read") {
  const FakeGpu gpu;
  const CUstream s = gpu.stream();
  const CUdeviceptr a = gpu.memory(64), b = gpu.memory(64);
  CHECK(gpu.write(a, std::vector<int>(8), s) == CUDA_SUCCESS);
  CHECK(gpu->cuMemcpyDtoDAsync(b, a, 64, s) == CUDA_SUCCESS);
  CHECK(gpu->cuStreamSynchronize(s) == CUDA_SUCCESS);
  int value[16];
  CHECK(gpu->cuMemcpyDtoHAsync(value, b, 64, s) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(
      gpu.fault() ==
      "cuMemcpyDtoHAsync on stream 0 of device 0 reads bytes [0, 64) of allocation 1 of device 0 (64 bytes), of which "
      "byte 32 was never written");
  CHECK(value[8] == -1);
}

TEST_CASE("a full device says so, and has room again after a free") {
  const FakeGpu gpu{{"MEMORY", "4096"}};
  CUdeviceptr a = 0, b = 0;
  CHECK(gpu->cuMemAlloc(&a, 4097) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(gpu->cuMemAlloc(&a, 3000) == CUDA_SUCCESS);
  CHECK(gpu->cuMemAlloc(&b, 1025) == CUDA_ERROR_OUT_OF_MEMORY);
  std::size_t free = 0, total = 0;
  CHECK(gpu->cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
  CHECK(free == 1024);
  CHECK(total == 4096);
  CHECK(gpu->cuMemFree(a) == CUDA_SUCCESS);
  CHECK(gpu->cuMemAlloc(&b, 1025) == CUDA_SUCCESS);
  CHECK(gpu.counters().faults == 0);
}

TEST_CASE("the pool gives a stream its own memory again, and keeps it as its threshold says") {
  const FakeGpu gpu{{"MEMORY", "4096"}};
  const CUstream s = gpu.stream(), t = gpu.stream();
  CUdeviceptr a = 0, b = 0, c = 0;
  CHECK(gpu->cuMemAllocAsync(&a, 3000, s) == CUDA_SUCCESS);
  CHECK(gpu->cuMemFreeAsync(a, s) == CUDA_SUCCESS);
  CHECK(gpu->cuMemAllocAsync(&c, 3000, t) == CUDA_ERROR_OUT_OF_MEMORY);  // nothing says that the other stream is done
  CHECK(gpu->cuMemAllocAsync(&b, 3000, s) == CUDA_SUCCESS);
  CHECK(a == b);
  CHECK(gpu->cuMemFreeAsync(b, s) == CUDA_SUCCESS);
  const auto reserved = [&] {
    CUmemoryPool pool = nullptr;
    std::uint64_t bytes = 0;
    CHECK(gpu->cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    CHECK(gpu->cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS);
    return bytes;
  };
  CHECK(reserved() == 3072);
  CHECK(gpu->cuStreamSynchronize(s) == CUDA_SUCCESS);
  CHECK(reserved() == 0);
  CUmemoryPool pool = nullptr;
  std::uint64_t threshold = 1 << 20;
  CHECK(gpu->cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
  CHECK(gpu->cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) == CUDA_SUCCESS);
  CHECK(gpu->cuMemAllocAsync(&a, 3000, s) == CUDA_SUCCESS);
  CHECK(gpu->cuMemFreeAsync(a, s) == CUDA_SUCCESS);
  CHECK(gpu->cuStreamSynchronize(s) == CUDA_SUCCESS);
  CHECK(reserved() == 3072);
  CHECK(gpu->cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
  CHECK(reserved() == 0);
}

TEST_CASE("memory that is used on another stream, before its place there or after its end, is a fault") {
  for (const char* order : {"waited_first", "random", "waited_last"}) {
    const FakeGpu gpu{{"ORDER", order}};
    const CUstream s = gpu.stream(), t = gpu.stream();
    CUdeviceptr a = 0;
    CHECK(gpu->cuMemAllocAsync(&a, 64, s) == CUDA_SUCCESS);
    CHECK(gpu.write(a, std::vector<int>(16), t) == CUDA_SUCCESS);
    CHECK(gpu->cuStreamSynchronize(t) == CUDA_ERROR_ILLEGAL_ADDRESS);
    const std::string what = "cuMemcpyHtoDAsync on stream 1 of device 0 ";
    const std::string whole = "bytes [0, 64) of allocation 0 of device 0 (64 bytes)";
    const bool is_early =
        gpu.fault() == what + "touches " + whole + ", which is freed, or comes into being on another stream later";
    const bool is_unordered =
        gpu.fault() ==
        what + "writes " + whole + ", which cuMemAllocAsync on stream 0 of device 0 writes, and nothing orders the two";
    CAPTURE(gpu.fault());
    CHECK((is_early || is_unordered));
  }
}

TEST_CASE("a free that another stream's use does not come before is a fault, in every order") {
  for (const char* order : {"waited_first", "random", "waited_last"}) {
    const FakeGpu gpu{{"ORDER", order}};
    const CUstream s = gpu.stream(), t = gpu.stream();
    const CUevent e = gpu.event();
    CUdeviceptr a = 0;
    CHECK(gpu->cuMemAllocAsync(&a, 64, s) == CUDA_SUCCESS);
    CHECK(gpu->cuEventRecord(e, s) == CUDA_SUCCESS);
    CHECK(gpu->cuStreamWaitEvent(t, e, 0) == CUDA_SUCCESS);
    CHECK(gpu.write(a, std::vector<int>(16), t) == CUDA_SUCCESS);
    CHECK(gpu->cuMemFreeAsync(a, s) == CUDA_SUCCESS);
    gpu->cuStreamSynchronize(t);
    CHECK(gpu->cuStreamSynchronize(s) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(gpu.counters().faults == 1);
  }
}

TEST_CASE("pinned memory is read when the copy is done, other memory when it is asked for") {
  const FakeGpu gpu;
  const CUstream s = gpu.stream();
  const CUdeviceptr a = gpu.memory(4), b = gpu.memory(4);
  int* pinned = gpu.pinned<int>(1);
  int plain = *pinned = 1;
  CHECK(gpu->cuMemcpyHtoDAsync(a, pinned, 4, s) == CUDA_SUCCESS);
  CHECK(gpu->cuMemcpyHtoDAsync(b, &plain, 4, s) == CUDA_SUCCESS);
  plain = *pinned = 2;
  CHECK(gpu.read<int>(a, 1, s) == std::vector{2});
  CHECK(gpu.read<int>(b, 1, s) == std::vector{1});
  CHECK(gpu->cuMemcpyDtoHAsync(pinned, b, 4, s) == CUDA_SUCCESS);
  CHECK(*pinned == 2);
  CHECK(gpu->cuStreamSynchronize(s) == CUDA_SUCCESS);
  CHECK(*pinned == 1);
}

TEST_CASE("host memory is pinned once, and given back as it was taken") {
  const FakeGpu gpu;
  std::vector<int> memory(64);
  CHECK(gpu->cuMemHostRegister(memory.data(), 256, kHostRegisterPortable) == CUDA_SUCCESS);
  CHECK(gpu->cuMemHostRegister(memory.data() + 8, 16, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CUdeviceptr p = 0;
  CHECK(gpu->cuMemHostGetDevicePointer(&p, memory.data() + 3, 0) == CUDA_SUCCESS);
  CHECK(p == reinterpret_cast<CUdeviceptr>(memory.data() + 3));
  CHECK(gpu->cuMemFreeHost(memory.data()) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu->cuMemHostUnregister(memory.data()) == CUDA_SUCCESS);
  CHECK(gpu->cuMemHostUnregister(memory.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CHECK(gpu->cuMemHostGetDevicePointer(&p, memory.data(), 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("what was not given back is listed") {
  const FakeGpu gpu;
  CHECK(gpu.leaks().empty());
  const CUdeviceptr a = gpu.memory(64), b = gpu.memory(100);
  int* pinned = gpu.pinned<int>(4);
  const CUstream s = gpu.stream();
  const CUevent e = gpu.event();
  CHECK(gpu->cuMemFree(a) == CUDA_SUCCESS);
  CHECK(gpu.leaks() == "allocation 1 of device 0 (100 bytes)\n16 bytes of pinned host memory\n1 stream\n1 event\n");
  CHECK(gpu->cuMemFree(b) == CUDA_SUCCESS);
  CHECK(gpu->cuMemFreeHost(pinned) == CUDA_SUCCESS);
  CHECK(gpu->cuStreamDestroy(s) == CUDA_SUCCESS);
  CHECK(gpu->cuEventDestroy(e) == CUDA_SUCCESS);
  CHECK(gpu.leaks().empty());
}

TEST_CASE("copies between devices go through both contexts") {
  const FakeGpu gpu{{"DEVICES", "2"}};
  const CUstream s = gpu.stream();
  const CUdeviceptr a = gpu.memory(8);
  gpu.use(1);
  const CUdeviceptr b = gpu.memory(8);
  CHECK(gpu.write(a, std::vector<int>{4, 5}, s) == CUDA_SUCCESS);
  CHECK(gpu->cuMemcpyPeerAsync(b, gpu.context(1), a, gpu.context(0), 8, s) == CUDA_SUCCESS);
  CHECK(gpu->cuStreamSynchronize(s) == CUDA_SUCCESS);
  CHECK(gpu.read<int>(b, 2, gpu.stream()) == std::vector{4, 5});
  CHECK(gpu->cuMemcpyDtoDAsync(b, a, 8, s) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gpu.fault() == "cuMemcpyDtoDAsync: 8 bytes at " + at(b) + " are not within one allocation of device 0");
}
