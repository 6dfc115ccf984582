// The prelude's GPU instructions on the process's GPU, for the bits that the emulator gives. Where there is none,
// nothing is compared, and that is said; on the fake driver the emulator is compared with itself, which tests this
// file.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <random>

#include "codegen/cuda/nvrtc.h"
#include "ir/literal.h"
#include "runtime/driver/cuda.h"
#include "tests/emulator/intrinsic_texts.h"
#include "tests/emulator/on_engine.h"

using namespace sheaf;
using namespace sheaf::emulator;

namespace {

using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Multiples of 1/8 from -2 to 2: their products and sums are exact, whatever the order and wherever they are rounded.
std::vector<float> small_numbers(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(static_cast<int>(random() % 33) - 16) / 8;
  return v;
}
Bytes halves(DType t, const std::vector<float>& v) {
  std::vector<std::uint16_t> bits;
  for (const float x : v) bits.push_back(static_cast<std::uint16_t>(ir::to_bits(t, x)));
  return bytes_of(bits);
}
template <class T>
std::vector<T> counting(int n, int factor = 1) {
  std::vector<T> v;
  for (int i = 0; i < n; ++i) v.push_back(static_cast<T>(i * factor));
  return v;
}

struct Case {
  const char* kernel;
  std::vector<Bytes> inputs;
  std::vector<std::size_t> outputs;  // bytes
  unsigned blocks = 1;
  int least_capability = 75;
};

/// The GPU of this process: the first of the driver's.
struct Gpu {
  const runtime::Cuda* cuda = nullptr;
  const codegen::Nvrtc* nvrtc = nullptr;
  int capability = 0;
  std::string architecture;
  cuda::CUstream stream = nullptr;

  void check(cuda::CUresult result, const char* call) const {
    REQUIRE_MESSAGE(result == cuda::CUDA_SUCCESS, std::string(cuda->status(result, call).message()));
  }
  cuda::CUdeviceptr memory(std::size_t bytes) const {
    cuda::CUdeviceptr at = 0;
    check(cuda->cuMemAlloc(&at, bytes), "cuMemAlloc");
    return at;
  }
};

/// Null, and said why, where there is none.
const Gpu* gpu() {
  static Gpu* const found = []() -> Gpu* {
    const auto cuda = runtime::Cuda::load();
    const auto nvrtc = codegen::Nvrtc::load();
    if (!cuda.ok() || !nvrtc.ok()) {
      std::printf("conformance: no GPU to compare the emulator with: %s\n",
                  (cuda.ok() ? nvrtc.status() : cuda.status()).ToString().c_str());
      return nullptr;
    }
    auto* g = new Gpu{.cuda = *cuda, .nvrtc = *nvrtc, .architecture = ""};
    int major = 0, minor = 0;
    cuda::CUcontext context = nullptr;
    g->check(g->cuda->cuDeviceGetAttribute(&major, cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0), "attribute");
    g->check(g->cuda->cuDeviceGetAttribute(&minor, cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0), "attribute");
    g->capability = 10 * major + minor;
    g->architecture = "sm_" + std::to_string(g->capability) + (major >= 9 ? "a" : "");
    g->check(g->cuda->cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    g->check(g->cuda->cuCtxSetCurrent(context), "cuCtxSetCurrent");
    g->check(g->cuda->cuStreamCreate(&g->stream, cuda::CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return g;
  }();
  return found;
}

std::vector<Bytes> on_emulator(const Text& text, const Case& c) {
  Buffers buffers;
  for (const Bytes& input : c.inputs) buffers.add("in", input);
  std::vector<const std::byte*> results;
  for (const std::size_t bytes : c.outputs)
    results.push_back(buffers.add_unwritten<std::byte>("out", static_cast<std::int64_t>(bytes)));
  const Kernel& kernel = text.kernel(c.kernel);
  const auto ran = run(
      kernel, {.grid = {c.blocks}, .block = {static_cast<unsigned>(kernel.max_threads)}, .dynamic_shared_bytes = 1024},
      buffers.params().data(), buffers.allocations, {});
  REQUIRE_MESSAGE(ran.ok(), ran.status().ToString());
  std::vector<Bytes> all;
  for (std::size_t i = 0; i < results.size(); ++i) all.emplace_back(results[i], results[i] + c.outputs[i]);
  return all;
}

cuda::CUmodule load_on(const Gpu& g, const char* functions) {
  const auto image = g.nvrtc->compile(codegen::cuda_program(functions), "conformance", g.architecture);
  REQUIRE_MESSAGE(image.ok(), image.status().ToString());
  cuda::CUmodule module = nullptr;
  g.check(g.cuda->cuModuleLoadDataEx(&module, image->code.data(), 0, nullptr, nullptr), "cuModuleLoadDataEx");
  return module;
}

std::vector<Bytes> on_gpu(const Gpu& g, cuda::CUmodule module, const Case& c, unsigned threads) {
  std::vector<cuda::CUdeviceptr> buffers;
  for (const Bytes& input : c.inputs) {
    buffers.push_back(g.memory(input.size()));
    g.check(g.cuda->cuMemcpyHtoDAsync(buffers.back(), input.data(), input.size(), g.stream), "write");
  }
  for (const std::size_t bytes : c.outputs) buffers.push_back(g.memory(bytes));
  std::vector<void*> parameters;
  for (cuda::CUdeviceptr& at : buffers) parameters.push_back(&at);
  cuda::CUfunction function = nullptr;
  g.check(g.cuda->cuModuleGetFunction(&function, module, c.kernel), "cuModuleGetFunction");
  const cuda::CUlaunchConfig config{.gridDimX = c.blocks,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = threads,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .sharedMemBytes = 1024,
                                    .hStream = g.stream,
                                    .attrs = nullptr,
                                    .numAttrs = 0};
  g.check(g.cuda->cuLaunchKernelEx(&config, function, parameters.data(), nullptr), "cuLaunchKernelEx");
  std::vector<Bytes> all;
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    all.emplace_back(c.outputs[i]);
    g.check(g.cuda->cuMemcpyDtoHAsync(all[i].data(), buffers[c.inputs.size() + i], c.outputs[i], g.stream), "read");
  }
  g.check(g.cuda->cuStreamSynchronize(g.stream), c.kernel);
  for (const cuda::CUdeviceptr at : buffers) g.check(g.cuda->cuMemFree(at), "cuMemFree");
  return all;
}

void compare(const char* functions, const std::vector<Case>& cases) {
  const Gpu* const g = gpu();
  if (!g) return;
  const Text text(functions);
  const cuda::CUmodule module = load_on(*g, functions);
  for (const Case& c : cases) {
    if (g->capability < c.least_capability) continue;
    CAPTURE(c.kernel);
    const auto threads = static_cast<unsigned>(text.kernel(c.kernel).max_threads);
    CHECK(on_gpu(*g, module, c, threads) == on_emulator(text, c));
  }
  g->check(g->cuda->cuModuleUnload(module), "cuModuleUnload");
}

}  // namespace

TEST_CASE("lanes, barriers and conversions on the GPU give the emulator's bits") {
  const Bytes threads = bytes_of(counting<int>(64));
  compare(kWarps, {{.kernel = "lanes", .inputs = {threads}, .outputs = {7 * 64 * 4}},
                   {.kernel = "half_block", .inputs = {threads}, .outputs = {64 * 4}},
                   {.kernel = "halves",
                    .inputs = {bytes_of(counting<std::uint16_t>(65536))},
                    .outputs = {65536 * 2, 65536 * 4},
                    .blocks = 256}});
}

TEST_CASE("tensor cores, asynchronous copies and packing on the GPU give the emulator's bits") {
  const std::vector<float> a = small_numbers(256, 1), b = small_numbers(128, 2);
  std::vector<float> x = small_numbers(64, 3);
  x[0] = 1.0f + 0x1p-9f, x[1] = 1e-7f, x[2] = 70000.0f;
  const std::size_t c = 16 * 8 * 4;
  const std::vector<float> short_a(a.begin(), a.begin() + 128), short_b(b.begin(), b.begin() + 64);
  compare(kTensorCores,
          {{.kernel = "bf16_product",
            .inputs = {halves(DType::bf16, a), halves(DType::bf16, b)},
            .outputs = {c},
            .least_capability = 80},
           {.kernel = "f16_product",
            .inputs = {halves(DType::f16, a), halves(DType::f16, b)},
            .outputs = {c},
            .least_capability = 80},
           {.kernel = "tf32_product",
            .inputs = {bytes_of(short_a), bytes_of(short_b)},
            .outputs = {c},
            .least_capability = 80},
           {.kernel = "s8_product",
            .inputs = {bytes_of(counting<std::int8_t>(16 * 32, 37)), bytes_of(counting<std::int8_t>(32 * 8, 91))},
            .outputs = {c},
            .least_capability = 80},
           {.kernel = "packs", .inputs = {bytes_of(x)}, .outputs = {64 * 4}, .least_capability = 80}});
}

// c[64, 64] = a[64, 64 steps] b[64, 64 steps]^T, exact for these numbers.
TEST_CASE("tensor copies and warpgroup products on the GPU give the exact result") {
  const Gpu* const g = gpu();
  if (!g || g->architecture != "sm_90a" || !g->cuda->cuTensorMapEncodeTiled) return;
  int steps = 5;
  const std::uint64_t k = 64 * static_cast<std::uint64_t>(steps);
  const std::vector<float> values[] = {small_numbers(64 * k, 1), small_numbers(64 * k, 2)};
  cuda::CUtensorMap maps[2];
  for (int i = 0; i < 2; ++i) {
    const Bytes bytes = halves(DType::bf16, values[i]);
    const cuda::CUdeviceptr at = g->memory(bytes.size());
    g->check(g->cuda->cuMemcpyHtoDAsync(at, bytes.data(), bytes.size(), g->stream), "write");
    g->check(g->cuda->cuStreamSynchronize(g->stream), "write");
    const std::uint64_t dims[] = {k, 64}, strides[] = {2 * k};
    const std::uint32_t box[] = {64, 64}, ones[] = {1, 1};
    g->check(g->cuda->cuTensorMapEncodeTiled(
                 &maps[i], cuda::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, reinterpret_cast<void*>(at), dims, strides, box,
                 ones, cuda::CU_TENSOR_MAP_INTERLEAVE_NONE, cuda::CU_TENSOR_MAP_SWIZZLE_128B,
                 cuda::CU_TENSOR_MAP_L2_PROMOTION_NONE, cuda::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
             "cuTensorMapEncodeTiled");
  }
  cuda::CUdeviceptr c = g->memory(64 * 64 * 4);
  const cuda::CUmodule module = load_on(*g, kWarpgroups);
  cuda::CUfunction function = nullptr;
  g->check(g->cuda->cuModuleGetFunction(&function, module, "piped"), "cuModuleGetFunction");
  void* parameters[] = {&maps[0], &maps[1], &c, &steps};
  const cuda::CUlaunchConfig config{.gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 256,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .sharedMemBytes = 2 * 16384 + 32,
                                    .hStream = g->stream,
                                    .attrs = nullptr,
                                    .numAttrs = 0};
  g->check(g->cuda->cuLaunchKernelEx(&config, function, parameters, nullptr), "cuLaunchKernelEx");
  std::vector<float> got(64 * 64), want(64 * 64);
  g->check(g->cuda->cuMemcpyDtoHAsync(got.data(), c, got.size() * 4, g->stream), "read");
  g->check(g->cuda->cuStreamSynchronize(g->stream), "piped");
  for (std::size_t i = 0; i < 64; ++i)
    for (std::size_t j = 0; j < 64; ++j)
      for (std::size_t t = 0; t < k; ++t) want[64 * i + j] += values[0][i * k + t] * values[1][j * k + t];
  CHECK(got == want);
}
