// Faults planted in small kernels, each reported with its kind, kernel, threads, bytes and lines; and the same kernels
// without the fault, which run the same in every order.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <numeric>

#include "tests/emulator/on_engine.h"

using namespace sheaf::emulator;

namespace {

const char* const kKernels = R"(
extern "C" __global__ void __launch_bounds__(64) right(const float* x, float* y) {
  SF_SHARED(float, total, 1);
  for (int i = 0; i < 2; ++i) {
    if (threadIdx.x == 0) total[0] = x[i];
    __syncthreads();
    y[i * 64 + threadIdx.x] = total[0];
    __syncthreads();
  }
}
extern "C" __global__ void __launch_bounds__(64) no_barrier_before(const float* x, float* y) {
  SF_SHARED(float, total, 1);
  if (threadIdx.x == 0) total[0] = x[0];  // [early store]
  y[threadIdx.x] = total[0];  // [early load]
}
extern "C" __global__ void __launch_bounds__(64) no_barrier_after(const float* x, float* y) {
  SF_SHARED(float, total, 1);
  for (int i = 0; i < 2; ++i) {
    if (threadIdx.x == 0) total[0] = x[i];  // [late store]
    __syncthreads();
    y[i * 64 + threadIdx.x] = total[0];  // [late load]
  }
}
extern "C" __global__ void __launch_bounds__(64) scratch_used_twice(const float* x, float* y) {
  SF_SHARED(float, scratch, 64);
  scratch[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float sum = scratch[threadIdx.x ^ 1];  // [first use]
  scratch[threadIdx.x] = sum + x[threadIdx.x];  // [second use]
  __syncthreads();
  y[threadIdx.x] = scratch[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(64) copies(const float* x, float* y) {
  SF_SHARED(float, tile, 512);
  for (int stage = 0; stage < 2; ++stage) {
    sf_cp_async<16>(tile + 256 * stage + 4 * threadIdx.x, x + 256 * stage + 4 * threadIdx.x, true);
    sf_cp_async_commit();
  }
  sf_cp_async_wait<0>();
  __syncthreads();
  y[threadIdx.x] = tile[256 + 4 * (63 - threadIdx.x)];
}
extern "C" __global__ void __launch_bounds__(64) one_copy_waited_for(const float* x, float* y) {
  SF_SHARED(float, tile, 512);
  for (int stage = 0; stage < 2; ++stage) {
    sf_cp_async<16>(tile + 256 * stage + 4 * threadIdx.x, x + 256 * stage + 4 * threadIdx.x, true);  // [copy]
    sf_cp_async_commit();
  }
  sf_cp_async_wait<1>();
  __syncthreads();
  y[threadIdx.x] = tile[256 + 4 * (63 - threadIdx.x)];  // [copied]
}
extern "C" __global__ void __launch_bounds__(64) own_copy_waited_for(const float* x, float* y) {
  SF_SHARED(float, tile, 256);
  sf_cp_async<16>(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, true);  // [own copy]
  sf_cp_async_commit();
  sf_cp_async_wait<0>();
  y[threadIdx.x] = tile[4 * threadIdx.x];
  if (threadIdx.x < 32) y[threadIdx.x] += tile[4 * (threadIdx.x ^ 32)];  // [other's copy]
}
extern "C" __global__ void __launch_bounds__(64) overrun(const float* x, float* y) {
  y[threadIdx.x + 1] = x[threadIdx.x];  // [overrun]
}
extern "C" __global__ void __launch_bounds__(64) overrun_of_shared(const float* x, float* y) {
  SF_SHARED(float, small, 63);
  SF_SHARED(float, next, 64);
  small[threadIdx.x] = x[threadIdx.x];  // [overrun of shared]
  next[threadIdx.x] = 0;
  y[threadIdx.x] = small[threadIdx.x] + next[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(64) wild(const float* x, float* y) {
  y[threadIdx.x] = x[(long long)threadIdx.x - 1];  // [wild]
}
extern "C" __global__ void __launch_bounds__(64) misaligned(const float* x, float* y) {
  sf_vec<float, 4> v = sf_load<4>(x + threadIdx.x);  // [misaligned]
  y[threadIdx.x] = v.v[0];
}
extern "C" __global__ void __launch_bounds__(64) barrier_for_some(const float* x, float* y) {
  if (threadIdx.x < 16) __syncthreads();  // [for some]
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(64) two_barriers(const float* x, float* y) {
  if (threadIdx.x < 16) __syncthreads();  // [this]
  else __syncthreads();  // [that]
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(64) shuffle_for_some(const float* x, float* y) {
  float v = x[threadIdx.x];
  if (threadIdx.x % 32 < 16) v += __shfl_xor_sync(0xffffffffu, v, 1);  // [shuffle]
  y[threadIdx.x] = v;
}
extern "C" __global__ void __launch_bounds__(64) shuffle_of_others(const float* x, float* y) {
  float v = x[threadIdx.x];
  if (threadIdx.x % 32 < 16) v += __shfl_xor_sync(0x0000ffffu, v, 16);  // [others]
  y[threadIdx.x] = v;
}
extern "C" __global__ void __launch_bounds__(64) one_word_for_all_blocks(const float* x, float* y) {
  if (threadIdx.x == 5) y[0] = x[blockIdx.x];  // [one word]
}
extern "C" __global__ void __launch_bounds__(64) reads_its_output(const float* x, float* y) {
  y[threadIdx.x] = y[threadIdx.x] + x[threadIdx.x];  // [output]
}
extern "C" __global__ void __launch_bounds__(64) reads_its_scratch(const float* x, float* y) {
  SF_SHARED(float, scratch, 64);
  if (threadIdx.x != 9) scratch[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = scratch[threadIdx.x];  // [scratch]
}
extern "C" __global__ void __launch_bounds__(64) waits_for_nobody(const float* x, float* y) {
  SF_SHARED(sf_u64, gate, 1);
  if (threadIdx.x == 0) sf_mbarrier_init(gate, 2);
  __syncthreads();
  if (threadIdx.x == 0) sf_mbarrier_arrive(gate);
  sf_mbarrier_wait(gate, 0);  // [nobody]
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(64) arrives_too_often(const float* x, float* y) {
  SF_SHARED(sf_u64, gate, 1);
  if (threadIdx.x == 0) sf_mbarrier_init(gate, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    sf_mbarrier_expect(gate, 64);
    sf_mbarrier_arrive(gate);  // [often]
  }
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(64) spins(const float* x, float* y) {
  while (atomicAdd((int*)y, 0) == 0) __nanosleep(100);  // [spins]
}
extern "C" __global__ void __launch_bounds__(64) gives_up(const float* x, float* y) {
  if (threadIdx.x == 3) __trap();  // [trap]
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(64) adds_without_atomics(const float* x, float* y) {
  if (threadIdx.x % 2 == 0) atomicAdd(y, x[threadIdx.x]);  // [atomic]
  else y[0] += x[threadIdx.x];  // [plain]
}
)";

const Text& text() {
  static const Text compiled(kKernels);
  return compiled;
}

std::vector<float> numbers(int count) {
  std::vector<float> v(static_cast<std::size_t>(count));
  std::iota(v.begin(), v.end(), 1.0f);
  return v;
}

/// What running `kernel` on 512 numbers and `outputs` floats not yet written says.
std::string fault_of(const std::string& kernel, const Policy& policy = {}, unsigned blocks = 1, int outputs = 128) {
  Buffers b;
  b.add("x", numbers(512));
  b.add_unwritten<float>("y", outputs);
  const auto ran =
      run(text().kernel(kernel), {.grid = {blocks}, .block = {64}}, b.params().data(), b.allocations, policy);
  return ran.ok() ? "nothing" : std::string(ran.status().message());
}

}  // namespace

TEST_CASE("a right kernel writes the same in every order") {
  for (const Policy& policy : all_policies()) {
    Buffers b;
    b.add("x", numbers(512));
    const float* y = b.add_unwritten<float>("y", 128);
    const auto ran = run(text().kernel("right"), {.block = {64}}, b.params().data(), b.allocations, policy);
    REQUIRE_MESSAGE(ran.ok(), ran.status().ToString());
    CHECK(ran->threads == 64);
    CHECK(ran->barriers == 4);
    for (int i = 0; i < 128; ++i) REQUIRE(y[i] == static_cast<float>(1 + i / 64));
    CHECK(fault_of("copies", policy) == "nothing");
  }
}

TEST_CASE("a missing barrier before a read is a race, or a read of nothing, by the order of threads") {
  CHECK(fault_of("no_barrier_before") ==
        fmt::format("race: kernel no_barrier_before, block 0, thread 1 loads shared total+0 at line {}, which thread 0 "
                    "stored at line {}, with no barrier between",
                    text().line("early load"), text().line("early store")));
  CHECK(
      fault_of("no_barrier_before", {.order = Order::reverse}) ==
      fmt::format("uninitialised: kernel no_barrier_before, block 0, thread 63: a load of 4 bytes at line {} of shared "
                  "total+0, which nothing has written",
                  text().line("early load")));
}

TEST_CASE("a missing barrier after a read is a race in every order") {
  CHECK(fault_of("no_barrier_after") ==
        fmt::format("race: kernel no_barrier_after, block 0, thread 0 stores shared total+0 at line {}, which several "
                    "threads loaded at line {}, with no barrier between",
                    text().line("late store"), text().line("late load")));
  CHECK(fault_of("no_barrier_after", {.order = Order::reverse}) ==
        fmt::format("race: kernel no_barrier_after, block 0, thread 63 loads shared total+0 at line {}, which thread 0 "
                    "stored at line {}, with no barrier between",
                    text().line("late load"), text().line("late store")));
}

TEST_CASE("scratch used again without a barrier is a race though the result is right") {
  CHECK(
      fault_of("scratch_used_twice") ==
      fmt::format("race: kernel scratch_used_twice, block 0, thread 1 loads shared scratch+0 at line {}, which thread "
                  "0 stored at line {}, with no barrier between",
                  text().line("first use"), text().line("second use")));
}

TEST_CASE("a copy that nobody waited for is caught however early it lands") {
  for (const bool late : {true, false}) {
    CHECK(fault_of("one_copy_waited_for", {.late_copies = late}) ==
          fmt::format("race: kernel one_copy_waited_for, block 0, thread 63 loads shared tile+1024 at line {}, into "
                      "which thread 0 copies since line {}, and nothing has waited for the copy",
                      text().line("copied"), text().line("copy")));
  }
  const std::string other = fault_of("own_copy_waited_for", {.order = Order::reverse});
  CHECK(other == fmt::format("race: kernel own_copy_waited_for, block 0, thread 31 loads shared tile+1008 at line {}, "
                             "which thread 63 stored at line {}, with no barrier between",
                             text().line("other's copy"), text().line("own copy")));
}

TEST_CASE("accesses outside of buffers name the nearest one") {
  CHECK(fault_of("overrun", {}, 1, 64) ==
        fmt::format("bounds: kernel overrun, block 0, thread 63: a store of 4 bytes at line {} begins 0 bytes past the "
                    "end of y of 256 bytes",
                    text().line("overrun")));
  CHECK(
      fault_of("overrun_of_shared") ==
      fmt::format("bounds: kernel overrun_of_shared, block 0, thread 63: a store of 4 bytes at line {} begins 0 bytes "
                  "past the end of shared small of 252 bytes",
                  text().line("overrun of shared")));
  CHECK(fault_of("wild") == fmt::format("bounds: kernel wild, block 0, thread 0: a load of 4 bytes at line {} begins 4 "
                                        "bytes before x of 2048 bytes",
                                        text().line("wild")));
}

TEST_CASE("a wide access needs its own alignment") {
  CHECK(fault_of("misaligned") ==
        fmt::format("misaligned: kernel misaligned, block 0, thread 1: a load of 16 bytes at line {} of x+4",
                    text().line("misaligned")));
}

TEST_CASE("a barrier that some threads do not reach is reported by whoever cannot come") {
  CHECK(fault_of("barrier_for_some") ==
        fmt::format("divergence: kernel barrier_for_some, block 0: threads 0-15 wait at line {}, thread 16 has ended",
                    text().line("for some")));
  CHECK(
      fault_of("barrier_for_some", {.order = Order::reverse}) ==
      fmt::format("divergence: kernel barrier_for_some, block 0: thread 15 waits at line {}, threads 16-63 have ended",
                  text().line("for some")));
  CHECK(fault_of("two_barriers") ==
        fmt::format("divergence: kernel two_barriers, block 0: threads 0-15 wait at line {}, thread 16 at line {}",
                    text().line("this"), text().line("that")));
}

TEST_CASE("a shuffle that lanes of its mask do not reach, or that takes from outside of it") {
  CHECK(fault_of("shuffle_for_some", {.order = Order::reverse}) ==
        fmt::format("divergence: kernel shuffle_for_some, block 0: thread 47 waits at line {}, threads 48-63 of mask "
                    "0xffffffff have ended",
                    text().line("shuffle")));
  CHECK(fault_of("shuffle_for_some") ==
        fmt::format("divergence: kernel shuffle_for_some, block 0: threads 0-15 wait at line {}, thread 16 has ended",
                    text().line("shuffle")));
  CHECK(fault_of("shuffle_of_others") ==
        fmt::format("divergence: kernel shuffle_of_others, block 0: thread 0 waits at line {}, and takes from lane 16, "
                    "which is not in mask 0x0000ffff",
                    text().line("others")));
}

TEST_CASE("blocks must not meet in global memory") {
  CHECK(fault_of("one_word_for_all_blocks", {}, 3) ==
        fmt::format("race: kernel one_word_for_all_blocks, block 1, thread 5 stores y+0 at line {0}, which block 0, "
                    "thread 5 stored at line {0}",
                    text().line("one word")));
}

TEST_CASE("reads of what nothing has written") {
  CHECK(fault_of("reads_its_output") ==
        fmt::format("uninitialised: kernel reads_its_output, block 0, thread 0: a load of 4 bytes at line {} of y+0, "
                    "which nothing has written",
                    text().line("output")));
  CHECK(
      fault_of("reads_its_scratch") ==
      fmt::format("uninitialised: kernel reads_its_scratch, block 0, thread 9: a load of 4 bytes at line {} of shared "
                  "scratch+36, which nothing has written",
                  text().line("scratch")));
}

TEST_CASE("threads that wait for what will not come") {
  CHECK(fault_of("waits_for_nobody") ==
        fmt::format("deadlock: kernel waits_for_nobody, block 0: threads 0-63 wait at the mbarrier of line {}",
                    text().line("nobody")));
  CHECK(fault_of("arrives_too_often") ==
        fmt::format("mbarrier: kernel arrives_too_often, block 0, thread 0: an arrival too many at line {}: the phase "
                    "takes 1 and waits for 64 bytes",
                    text().line("often")));
  Buffers b;
  b.add("x", numbers(64));
  b.add("y", std::vector<float>(64));
  const auto ran = run(text().kernel("spins"), {.block = {64}}, b.params().data(), b.allocations);
  CHECK(ran.status().message() ==
        fmt::format("livelock: kernel spins, block 0: threads 0-63 wait in the loop of line {}", text().line("spins")));
  CHECK(fault_of("gives_up") ==
        fmt::format("trap: kernel gives_up, block 0, thread 3 at line {}", text().line("trap")));
}

TEST_CASE("an atomic update races with a plain one") {
  Buffers b;
  b.add("x", numbers(64));
  b.add("y", std::vector<float>(1));
  const auto ran = run(text().kernel("adds_without_atomics"), {.block = {64}}, b.params().data(), b.allocations);
  CHECK(ran.status().message() ==
        fmt::format(
            "race: kernel adds_without_atomics, block 0, thread 1 loads y+0 at line {}, which thread 0 atomically "
            "updated at line {}, with no barrier between",
            text().line("plain"), text().line("atomic")));
  CHECK(fault_kind(ran.status()) == "race");
}
