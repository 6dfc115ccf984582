// Tiles of halves in shared memory: the four ways to read fragments give the four products they should, and none of
// them, nor the copy, meets in a bank.
#include "codegen/cuda/tiles.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ir/literal.h"
#include "tests/emulator/on_engine.h"

using namespace sheaf;
using namespace sheaf::emulator;

namespace {

constexpr int kWidths[] = {16, 32, 64, 96, 128, 256};

// c[form] = a b of 16 x 16 blocks at (16, width - 16) of 32-row tiles; form: 2 * (lhs is [k, m]) + (rhs is [k, n]).
std::string kernels() {
  std::string text = R"(
template <int Width> __device__ __forceinline__ void products(const sf_u16* a, const sf_u16* b, float* c) {
  SF_DYNAMIC_SHARED(sf_u16, memory);
  sf_u16* const lhs = memory;
  sf_u16* const rhs = memory + 32 * Width;
  sf_tile_copy<32, Width, 64>(lhs, a, Width, 32, Width);
  sf_tile_copy<32, Width, 64>(rhs, b, Width, 32, Width);
  sf_cp_async_commit();
  sf_cp_async_wait<0>();
  __syncthreads();
  const int lane = threadIdx.x % 32, at = Width - 16;
  for (int form = threadIdx.x / 32; form < 4; form += 2) {
    sf_u32 left[4], right[4];
    if (form / 2) sf_lhs_fragment_trans<Width>(left, lhs, at, 16);
    else sf_lhs_fragment<Width>(left, lhs, 16, at);
    if (form % 2) sf_rhs_fragments_trans<Width>(right, rhs, at, 16);
    else sf_rhs_fragments<Width>(right, rhs, 16, at);
    for (int n = 0; n < 2; ++n) {
      float d[4] = {0, 0, 0, 0};
      sf_mma_bf16(d, left, right + 2 * n);
      for (int e = 0; e < 4; ++e) c[form * 256 + (lane / 4 + e / 2 * 8) * 16 + n * 8 + lane % 4 * 2 + e % 2] = d[e];
    }
  }
}
extern "C" __global__ void __launch_bounds__(64) part(const sf_u16* a, sf_u16* c) {
  SF_DYNAMIC_SHARED(sf_u16, tile);
  sf_tile_copy<8, 32, 64>(tile, a, 40, 5, 24);
  sf_cp_async_commit();
  sf_cp_async_wait<0>();
  __syncthreads();
  for (int i = threadIdx.x; i < 8 * 32; i += 64) c[i] = tile[sf_tile_at<32>(i / 32, i % 32)];
}
)";
  for (int w : kWidths)
    text += fmt::format(
        "extern \"C\" __global__ void __launch_bounds__(64) products{0}(const sf_u16* a, const sf_u16* b, float* c) {{ "
        "products<{0}>(a, b, c); }}\n",
        w);
  return text;
}

std::vector<std::uint16_t> small_halves(int count, int step) {
  std::vector<std::uint16_t> all;
  for (int i = 0; i < count; ++i)
    all.push_back(static_cast<std::uint16_t>(ir::to_bits(DType::bf16, (i * step + i / 7) % 17 - 8)));
  return all;
}

double value(std::uint16_t half) { return ir::from_bits(DType::bf16, half); }

const Text& text() {
  static const Text t(kernels());
  return t;
}

}  // namespace

TEST_CASE("fragments of a tile multiply in all four layouts, and no access meets another in a bank") {
  for (int w : kWidths) {
    CAPTURE(w);
    const auto a = small_halves(32 * w, 5), b = small_halves(32 * w, 3);
    Buffers buffers;
    buffers.add("a", a);
    buffers.add("b", b);
    const float* c = buffers.add_unwritten<float>("c", 1024);
    const auto ran = run(text().kernel(fmt::format("products{}", w)),
                         {.grid = {1}, .block = {64}, .dynamic_shared_bytes = 2 * 2 * 32 * w}, buffers.params().data(),
                         buffers.allocations, {.counts_accesses = true});
    REQUIRE_MESSAGE(ran.ok(), ran.status().ToString());
    CHECK(ran->shared_wavefronts == ran->ideal_shared_wavefronts);
    const auto lhs = [&](int form, int m, int k) {
      return value(a[form / 2 ? (16 + k) * w + w - 16 + m : (16 + m) * w + w - 16 + k]);
    };
    const auto rhs = [&](int form, int n, int k) {
      return value(b[form % 2 ? (16 + k) * w + w - 16 + n : (16 + n) * w + w - 16 + k]);
    };
    for (int form = 0; form < 4; ++form)
      for (int m = 0; m < 16; ++m)
        for (int n = 0; n < 16; ++n) {
          double sum = 0;
          for (int k = 0; k < 16; ++k) sum += lhs(form, m, k) * rhs(form, n, k);
          CHECK(c[form * 256 + m * 16 + n] == sum);
        }
  }
}

TEST_CASE("a tile that reaches beyond its matrix has zeros there") {
  const auto a = small_halves(8 * 40, 5);
  Buffers buffers;
  buffers.add("a", a);
  const auto* c = buffers.add_unwritten<std::uint16_t>("c", 8 * 32);
  for (const Policy& policy : all_policies()) {
    const auto ran = run(text().kernel("part"), {.grid = {1}, .block = {64}, .dynamic_shared_bytes = 512},
                         buffers.params().data(), buffers.allocations, policy);
    REQUIRE_MESSAGE(ran.ok(), ran.status().ToString());
    for (int i = 0; i < 8 * 32; ++i) CHECK(c[i] == (i / 32 < 5 && i % 32 < 24 ? a[i / 32 * 40 + i % 32] : 0));
  }
}
