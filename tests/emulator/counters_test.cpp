// What kernels would move on a GPU, counted: sectors of global memory and wavefronts of shared memory, against what the
// bytes they use would fill.
#include <doctest/doctest.h>

#include <numeric>

#include "tests/emulator/on_engine.h"

using namespace sheaf::emulator;

namespace {

const char* const kKernels = R"(
extern "C" __global__ void __launch_bounds__(256) copy4(const float* x, float* y) {
  const int i = 4 * (blockIdx.x * 256 + threadIdx.x);
  sf_store(y + i, sf_load<4>(x + i));
}
extern "C" __global__ void __launch_bounds__(256) copy_every_other(const float* x, float* y) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  y[i] = x[2 * i];
}
extern "C" __global__ void __launch_bounds__(256) transpose(const float* x, float* y) {
  const int c = threadIdx.x % 32;
  for (int r = threadIdx.x / 32; r < 32; r += 8) y[32 * c + r] = x[32 * r + c];
}
template <int Pitch> __device__ void transpose_by_tile(float* tile, const float* x, float* y) {
  const int c = threadIdx.x % 32;
  for (int r = threadIdx.x / 32; r < 32; r += 8) tile[Pitch * r + c] = x[32 * r + c];
  __syncthreads();
  for (int r = threadIdx.x / 32; r < 32; r += 8) y[32 * r + c] = tile[Pitch * c + r];
}
extern "C" __global__ void __launch_bounds__(256) transpose_plain_tile(const float* x, float* y) {
  SF_SHARED(float, tile, 1024);
  transpose_by_tile<32>(tile, x, y);
}
extern "C" __global__ void __launch_bounds__(256) transpose_padded_tile(const float* x, float* y) {
  SF_SHARED(float, tile, 1056);
  transpose_by_tile<33>(tile, x, y);
}
)";

Counters counters_of(const std::string& kernel, unsigned blocks) {
  static const Text text(kKernels);
  Buffers b;
  std::vector<float> x(8192);
  std::iota(x.begin(), x.end(), 0.0f);
  b.add("x", x);
  b.add_unwritten<float>("y", 8192);
  const auto ran = run(text.kernel(kernel), {.grid = {blocks}, .block = {256}}, b.params().data(), b.allocations,
                       {.counts_accesses = true});
  REQUIRE_MESSAGE(ran.ok(), ran.status().ToString());
  return *ran;
}

double sectors_over_ideal(const Counters& c) {
  return static_cast<double>(c.sectors_read + c.sectors_written) /
         static_cast<double>(c.ideal_sectors_read + c.ideal_sectors_written);
}

double wavefronts_over_ideal(const Counters& c) {
  return static_cast<double>(c.shared_wavefronts) / static_cast<double>(c.ideal_shared_wavefronts);
}

}  // namespace

TEST_CASE("a copy of 16 bytes per thread moves what it must") {
  const Counters c = counters_of("copy4", 8);
  CHECK(c.sectors_read == 8192 * 4 / 32);
  CHECK(c.sectors_written == 8192 * 4 / 32);
  CHECK(sectors_over_ideal(c) == 1.0);
  CHECK(c.threads == 2048);
  CHECK(sectors_over_ideal(counters_of("copy_every_other", 8)) == 1.5);
}

TEST_CASE("a transpose through a padded tile is ideal, and others are not") {
  CHECK(sectors_over_ideal(counters_of("transpose", 1)) == 4.5);
  const Counters plain = counters_of("transpose_plain_tile", 1), padded = counters_of("transpose_padded_tile", 1);
  CHECK(sectors_over_ideal(plain) == 1.0);
  CHECK(wavefronts_over_ideal(plain) == 16.5);
  CHECK(sectors_over_ideal(padded) == 1.0);
  CHECK(wavefronts_over_ideal(padded) == 1.0);
}
