// The prelude's GPU instructions: what their host bodies compute, what the engine says of their misuse, and that the
// device bodies are what NVRTC takes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>

#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/prelude.h"
#include "ir/literal.h"
#include "tests/emulator/intrinsic_texts.h"
#include "tests/emulator/on_engine.h"
#include "tests/places.h"

using namespace sheaf;
using namespace sheaf::emulator;

namespace {

const Text& warps() {
  static const Text text(kWarps);
  return text;
}
const Text& tensor_cores() {
  static const Text text(kTensorCores);
  return text;
}
const Text& warpgroups() {
  static const Text text(kWarpgroups);
  return text;
}

void run_all(const Kernel& kernel, Buffers& b, unsigned blocks = 1, const Policy& policy = {}) {
  const auto ran = run(
      kernel, {.grid = {blocks}, .block = {static_cast<unsigned>(kernel.max_threads)}, .dynamic_shared_bytes = 1024},
      b.params().data(), b.allocations, policy);
  REQUIRE_MESSAGE(ran.ok(), ran.status().ToString());
}

std::vector<int> counting(int n) {
  std::vector<int> v(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) v[static_cast<std::size_t>(i)] = i;
  return v;
}

std::vector<float> small_numbers(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(static_cast<int>(random() % 33) - 16) / 8;
  return v;
}

std::vector<std::uint16_t> as_halves(DType t, const std::vector<float>& v) {
  std::vector<std::uint16_t> bits;
  for (float x : v) bits.push_back(static_cast<std::uint16_t>(ir::to_bits(t, x)));
  return bits;
}

/// c[m, n] = sum over k of a[m, k] b[k, n], exact for these numbers.
template <class T>
std::vector<float> product(const std::vector<T>& a, const std::vector<T>& b, int m, int n, int k, float start = 0) {
  std::vector<float> c;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = start;
      for (int l = 0; l < k; ++l)
        sum += static_cast<float>(a[static_cast<std::size_t>(i * k + l)]) *
               static_cast<float>(b[static_cast<std::size_t>(l * n + j)]);
      c.push_back(sum);
    }
  }
  return c;
}

template <class T>
std::vector<float> to_vector(const T* p, std::size_t n) {
  return std::vector<float>(p, p + n);
}

/// Runs a kernel of kWarpgroups on matrices of `steps` boxes along k; the status, or the result in `c`.
absl::Status run_pipeline(const std::string& name, const Policy& policy, int steps, std::vector<float>& c) {
  const std::size_t k = static_cast<std::size_t>(64 * steps);
  const std::vector<float> a = small_numbers(64 * k, 1), b = small_numbers(64 * k, 2);
  Buffers buffers;
  sf_host::TensorMap maps[2];
  for (int i = 0; i < 2; ++i) {
    const auto* data = buffers.add(i == 0 ? "a" : "b", as_halves(DType::bf16, i == 0 ? a : b));
    maps[i] = {data, {k, 64}, 2 * k, {64, 64}, 2, 128, {}};
  }
  float* out = buffers.add_unwritten<float>("c", 64 * 64);
  void* params[] = {&maps[0], &maps[1], &out, &steps};
  const auto ran = run(warpgroups().kernel(name), {.block = {256}, .dynamic_shared_bytes = 2 * 16384 + 32}, params,
                       buffers.allocations, policy);
  c.assign(out, out + 64 * 64);
  return ran.status();
}

std::string contents(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The identifiers of the prelude that a text holds.
std::set<std::string> names_of(const std::string& text) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::set<std::string> names;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = static_cast<std::size_t>(
        std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), is_part) - text.begin());
    const std::string word = text.substr(at, end - at);
    if (word.starts_with("sf_") || word.starts_with("SF_")) names.insert(word);
    at = end + 1;
  }
  return names;
}

}  // namespace

TEST_CASE("lanes exchange, vote and meet") {
  for (const Policy& policy : all_policies()) {
    Buffers b;
    b.add("x", counting(64));
    const int* y = b.add_unwritten<int>("y", 7 * 64);
    run_all(warps().kernel("lanes"), b, 1, policy);
    for (int t = 0; t < 64; ++t) {
      const int lane = t % 32, warp = t / 32;
      REQUIRE(y[t] == (warp == 0 ? 496 : 1520));
      REQUIRE(y[64 + t] == (lane < 3 ? t : t - 3));
      REQUIRE(y[128 + t] == (t % 8 < 5 ? t + 3 : t));
      REQUIRE(y[192 + t] == 32 * warp + 5);
      REQUIRE(static_cast<unsigned>(y[256 + t]) == (warp == 0 ? 0x49249249u : 0x92492492u));
      REQUIRE(y[320 + t] == 13);
      REQUIRE(y[384 + t] == (warp == 0 ? 2 : 1) + 8);
    }
  }
}

TEST_CASE("atomics of all blocks meet in one word") {
  for (const Policy& policy : all_policies()) {
    Buffers b;
    b.add("x", counting(64));
    const int* y = b.add("y", std::vector<int>{0, -1, 1000, 0, 0, 0, -1});
    run_all(warps().kernel("atomics"), b, 3, policy);
    CHECK(y[0] == 191 * 192 / 2);
    CHECK(y[1] == 191);
    CHECK(y[2] == 0);
    CHECK(static_cast<unsigned>(y[3]) == 0xffffffffu);
    CHECK(std::bit_cast<float>(y[4]) == 96);
    CHECK(y[6] == y[5] - 1);
  }
}

TEST_CASE("a barrier of some warps orders those and no others") {
  Buffers b;
  b.add("x", counting(64));
  const int* y = b.add_unwritten<int>("y", 64);
  run_all(warps().kernel("half_block"), b);
  for (int t = 0; t < 64; ++t) REQUIRE(y[t] == (t ^ 31));
  const auto ran =
      run(warps().kernel("other_half"), {.block = {64}}, b.params().data(), b.allocations, {.order = Order::reverse});
  CHECK(ran.status().message() ==
        fmt::format("race: kernel other_half, block 0, thread 0 loads shared part+128 at line {}, which thread 32 "
                    "stored at line {}, with no barrier between",
                    warps().line("other half"), warps().line("its half")));
}

TEST_CASE("halves and floats convert as everywhere") {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  Buffers b;
  b.add("x", all);
  const auto* y = b.add_unwritten<std::uint16_t>("y", 65536);
  const auto* z = b.add_unwritten<float>("z", 65536);
  run_all(warps().kernel("halves"), b, 256);
  std::size_t bad = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double want = ir::from_bits(DType::f16, i);
    bad += want == want ? z[i] != static_cast<float>(want) || y[i] != i : z[i] == z[i] || y[i] != 0x7fff;
  }
  CHECK(bad == 0);
}

TEST_CASE("the tensor cores of a warp multiply") {
  const auto a = small_numbers(256, 1), b = small_numbers(128, 2);
  for (const auto& [kernel, t] : {std::pair("bf16_product", DType::bf16), std::pair("f16_product", DType::f16)}) {
    for (const Policy& policy : all_policies()) {
      Buffers buffers;
      buffers.add("a", as_halves(t, a));
      buffers.add("b", as_halves(t, b));
      const float* c = buffers.add_unwritten<float>("c", 128);
      run_all(tensor_cores().kernel(kernel), buffers, 1, policy);
      CHECK(to_vector(c, 128) == product(a, b, 16, 8, 16));
    }
  }
  const std::vector<float> short_a(a.begin(), a.begin() + 128), short_b(b.begin(), b.begin() + 64);
  Buffers floats;
  floats.add("a", short_a);
  floats.add("b", short_b);
  const float* c = floats.add_unwritten<float>("c", 128);
  run_all(tensor_cores().kernel("tf32_product"), floats);
  CHECK(to_vector(c, 128) == product(short_a, short_b, 16, 8, 8, 1));
}

TEST_CASE("the tensor cores of a warp multiply bytes") {
  std::vector<std::int8_t> a, b;
  for (int i = 0; i < 16 * 32; ++i) a.push_back(static_cast<std::int8_t>(i * 37));
  for (int i = 0; i < 32 * 8; ++i) b.push_back(static_cast<std::int8_t>(i * 91 + 5));
  Buffers buffers;
  buffers.add("a", a);
  buffers.add("b", b);
  const int* c = buffers.add_unwritten<int>("c", 128);
  run_all(tensor_cores().kernel("s8_product"), buffers);
  CHECK(to_vector(c, 128) == product(a, b, 16, 8, 32));
}

TEST_CASE("two halves go into a register with one rounding each") {
  std::vector<float> x = small_numbers(64, 3);
  x[0] = 1.0f + 0x1p-9f, x[1] = 1e-7f, x[2] = 70000.0f;
  Buffers b;
  b.add("x", x);
  const auto* y = b.add_unwritten<std::uint32_t>("y", 64);
  run_all(tensor_cores().kernel("packs"), b);
  for (std::size_t t = 0; t < 32; ++t) {
    const auto packed = [&](DType d) { return ir::to_bits(d, x[2 * t]) | ir::to_bits(d, x[2 * t + 1]) << 16; };
    CHECK(y[2 * t] == packed(DType::bf16));
    CHECK(y[2 * t + 1] == packed(DType::f16));
  }
}

TEST_CASE("a pipeline of tensor copies and warpgroup products is right however late both happen") {
  for (const Policy& policy : all_policies()) {
    std::vector<float> c, transposed(64 * 320);
    const absl::Status status = run_pipeline("piped", policy, 5, c);
    REQUIRE_MESSAGE(status.ok(), status.ToString());
    const auto a = small_numbers(64 * 320, 1), b = small_numbers(64 * 320, 2);
    for (std::size_t n = 0; n < 64; ++n) {
      for (std::size_t k = 0; k < 320; ++k) transposed[k * 64 + n] = b[n * 320 + k];
    }
    CHECK(c == product(a, transposed, 64, 64, 320));
  }
}

TEST_CASE("faults of a pipeline are found by the order its mbarriers make") {
  std::vector<float> c;
  const auto fault = [&](const std::string& name, const Policy& policy) {
    return std::string(run_pipeline(name, policy, 5, c).message());
  };
  const int copy = warpgroups().line("copy a"), multiply = warpgroups().line("multiply");
  CHECK(fault("never_waits", {.late_copies = false}) ==
        fmt::format(
            "race: kernel never_waits, block 0, thread 128 loads shared memory+0 at line {}, which the tensor copy "
            "stored at line {}, with no barrier between",
            multiply, copy));
  CHECK(fault_kind(run_pipeline("never_waits", {}, 5, c)) == "race");
  CHECK(fault("frees_early", {.late_copies = false}) ==
        fmt::format("race: kernel frees_early, block 0, thread 0 stores shared memory+0 at line {}, which warpgroup 1 "
                    "loaded at line {}, with no barrier between",
                    copy, multiply));
  CHECK(fault("overtakes", {.late_copies = false}) ==
        fmt::format("race: kernel overtakes, block 0, thread 0 stores shared memory+0 at line {0}, which the tensor "
                    "copy stored at line {0}, with no barrier between",
                    copy));
  CHECK(fault("overtakes", {}) ==
        fmt::format("mbarrier: kernel overtakes, block 0, thread 0: an arrival too many at line {}: the phase takes 1 "
                    "and waits for 16384 bytes",
                    warpgroups().line("expect")));
  CHECK(
      fault("expects_half", {}) ==
      fmt::format("race: kernel expects_half, block 0, thread 128 loads shared memory+8192 at line {}, into which the "
                  "tensor copy copies since line {}, and nothing has waited for the copy",
                  multiply, warpgroups().line("copy b")));
}

TEST_CASE("each piece that only a GPU has, has a body for the host") {
  const std::set<std::string> shim = names_of(contents(SHEAF_SOURCE_DIR "/tests/emulator/shim.h"));
  const std::set<std::string> types = {"sf_i8",  "sf_i16", "sf_i32", "sf_i64",  "sf_u8",
                                       "sf_u16", "sf_u32", "sf_u64", "SF_HOST", "sf_dynamic"};
  int guarded = 0;
  for (const codegen::CudaPiece& piece : codegen::cuda_pieces()) {
    const std::string definition(piece.definition);
    if (definition.find("#ifndef SF_HOST") == std::string::npos) {
      // Or it says by itself what is for a GPU.
      CHECK(definition.find("asm") >= definition.find("\n#if"));
      continue;
    }
    ++guarded;
    for (const std::string& name : names_of(definition)) {
      CAPTURE(name);
      CHECK((types.contains(name) || shim.contains(name)));
    }
  }
  CHECK(guarded > 20);
}

TEST_CASE("NVRTC takes the device bodies") {
  const auto nvrtc = codegen::Nvrtc::load();
  int skipped = 0;
  const auto check = [&](const char* functions, const char* architecture) {
    if (!nvrtc.ok() || !(*nvrtc)->supports(architecture)) {
      ++skipped;
      return;
    }
    const auto code = (*nvrtc)->compile(codegen::cuda_program(functions), "pieces", architecture);
    CHECK_MESSAGE(code.ok(), code.status().ToString());
  };
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100", "sm_120"}) {
    check(kWarps, architecture);
    check(kTensorCores, architecture);
  }
  check(kWarpgroups, "sm_90a");
  if (skipped > 0) std::printf("emulator: %d compilations skipped (%s)\n", skipped, nvrtc.status().ToString().c_str());
}
