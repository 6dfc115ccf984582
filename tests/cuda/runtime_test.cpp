// The runtime on a fake GPU, in processes of their own: what a program says there is the same in every order that a
// driver may choose, and the fake driver has nothing to report.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codegen/lower.h"
#include "fmt/format.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/driver/cuda.h"
#include "runtime/executable.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/emulator/fake_cuda/fake_cuda.h"
#include "tests/message.h"
#include "tests/places.h"

using namespace sheaf;

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// What the hidden case "[name] a program" says on a fake GPU.
std::string said_on_gpu(const std::string& name, const Variables& more = {}) {
  Variables all = {{"SHEAF_PLATFORM", "cuda"},
                   {"SHEAF_LIBCUDA", SHEAF_BINARY_DIR "/libsheaf_fake_cuda.so"},
                   {"SHEAF_LIBNVRTC", SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so"}};
  all.insert(all.end(), more.begin(), more.end());
  return tests::with_here(tests::said_by_child(name, all), {});
}

/// The same in every order.
std::string said_in_any_order(const std::string& name, const Variables& more = {}) {
  std::string first;
  for (const char* order : {"waited_first", "waited_last", "random"}) {
    Variables all = {{"SHEAF_FAKE_CUDA_ORDER", order}, {"SHEAF_FAKE_CUDA_SEED", "7"}};
    all.insert(all.end(), more.begin(), more.end());
    const std::string said = said_on_gpu(name, all);
    if (first.empty()) first = said;
    CAPTURE(order);
    CHECK(said == first);
  }
  return first;
}

std::int64_t kernels_done() {
  void* library = dlopen(std::getenv("SHEAF_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
  fake_cuda::Counters counts = {};
  reinterpret_cast<decltype(sheafFakeCudaCounters)*>(dlsym(library, "sheafFakeCudaCounters"))(&counts);
  return counts.kernels;
}

std::int64_t kernels_asked() { return runtime::counters().launches; }

template <class... Arguments>
void say(const std::string& format, const Arguments&... arguments) {
  std::fputs(fmt::format(fmt::runtime(format + "\n"), arguments...).c_str(), stderr);
}

/// What was counted since it was made.
class Counted {
 public:
  std::string graphs() const {
    const runtime::Counters& c = runtime::counters();
    return fmt::format("{} kernels, {} graphs made, {} launched, {} kernels patched", c.launches - launches_,
                       c.graphs_instantiated - graphs_, c.graph_launches - graph_launches_, c.nodes_patched - patched_);
  }

 private:
  std::int64_t launches_ = runtime::counters().launches, graphs_ = runtime::counters().graphs_instantiated,
               graph_launches_ = runtime::counters().graph_launches, patched_ = runtime::counters().nodes_patched;
};

Array square(double from) { return reshape(arange(64, f32), {8, 8}) * 0.01 + from; }

/// The last rows of three kernels, since a product is one of its own.
Array layers(Array h, const Array& w) {
  for (int i = 0; i < 3; ++i) h = tanh(dot(h, w));
  return h;
}

float corner(const Array& x) { return x[0][0].item<float>(); }

template <class F>
void say_error_of(F&& f) {
  try {
    f();
    say("no error");
  } catch (const Error& error) { say("{}", error.what()); }
}

}  // namespace

TEST_CASE("[gpu ahead] a program" * doctest::skip()) {
  auto steps =
      jit([](Array h, Array w) { return fori_loop(0, 40, [&](Array, Array x) { return tanh(dot(x, w)); }, h); });
  const Array w = square(0.1).wait();
  const Array first = steps(square(0.5), w).wait();
  const std::int64_t asked = kernels_asked(), done = kernels_done();
  Array h = first;
  for (int i = 0; i < 5; ++i) h = steps(h, w);
  const std::int64_t ahead = (kernels_asked() - asked) - (kernels_done() - done);
  say(ahead > 100 ? "far ahead" : "{} ahead", ahead);
  say("{:.6f}", corner(h));
}

TEST_CASE("the host asks for loops of fixed length and goes on; who reads a result waits for it") {
  CHECK(said_in_any_order("gpu ahead") == "far ahead\n0.995369\n");
}

TEST_CASE("[gpu beside] a program" * doctest::skip()) {
  auto steps =
      jit([](Array h, Array w) { return fori_loop(0, 40, [&](Array, Array x) { return tanh(dot(x, w)); }, h); });
  const Array w = square(0.1).wait();
  (void)steps(square(0.5), w).wait();
  const Array kept = device_put(square(0.1), devices("cpu")[0]).wait();
  std::vector<Array> all = {square(0.5)};
  const std::int64_t asked = kernels_asked(), done = kernels_done();
  for (int i = 0; i < 5; ++i) all.push_back(steps(all.back(), w));
  const std::int64_t of_one = (kernels_asked() - asked) / 5;
  const std::vector<float> early = all[1].to_vector<float>();
  const Array batch = array({1.0, 2.0}).wait();  // brought meanwhile
  (void)device_put(kept, devices()[0]).wait();
  (void)device_put(all[1], devices("cpu")[0]).wait();
  say("{}", kernels_done() - done < 3 * of_one ? "the others are not waited for" : "all are done");
  say("{:.6f} {:.6f} {}", early[0], corner(all[5]), batch[1].item<double>());
}

TEST_CASE("a result is fetched, and a batch is brought, while later runs are in flight") {
  CHECK(said_on_gpu("gpu beside") == "the others are not waited for\n0.995369 0.995369 2\n");
}

TEST_CASE("[gpu unread] a program" * doctest::skip()) {
  auto positive = jit([](Array x) {
    check(sum(x) > 0.0, "the sum is positive");
    return x * 2.0;
  });
  (void)positive(array({-1.0}));
  synchronize();
}

TEST_CASE("an error in flight that nobody reads is logged") {
  CHECK(said_in_any_order("gpu unread") ==
        "sheaf warning: an error that no one read: HERE: check failed: the sum is positive\n");
}

TEST_CASE("[gpu graphs] a program" * doctest::skip()) {
  auto f = jit([](Array h, Array w) { return layers(h, w); });
  const Array w = square(0.1).wait(), x = square(0.5).wait();
  const auto run = [&](const char* what, auto&& body) {
    const Counted counted;
    body();
    say("{}: {}", what, counted.graphs());
  };
  const auto again = [&] { (void)f(x, w).wait(); };
  run("first", again);
  run("second", again);
  run("third", again);
  Array kept, other, third;
  run("kept", [&] { kept = f(x, w).wait(); });
  run("elsewhere", [&] { other = f(x, w).wait(); });
  run("and elsewhere", [&] { third = f(x, w).wait(); });
  const bool is_alike = corner(kept) == corner(other) && corner(other) == corner(third);
  say("{}", is_alike ? "all alike" : "different");
}

TEST_CASE("a program's second run makes a graph of its kernels, and only those that see other buffers are patched") {
  CHECK(said_in_any_order("gpu graphs") ==
        "first: 3 kernels, 0 graphs made, 0 launched, 0 kernels patched\n"
        "second: 3 kernels, 1 graphs made, 1 launched, 0 kernels patched\n"
        "third: 3 kernels, 0 graphs made, 1 launched, 0 kernels patched\n"
        "kept: 3 kernels, 0 graphs made, 1 launched, 0 kernels patched\n"
        "elsewhere: 3 kernels, 1 graphs made, 1 launched, 0 kernels patched\n"
        "and elsewhere: 3 kernels, 0 graphs made, 1 launched, 1 kernels patched\n"
        "all alike\n");
}

TEST_CASE("[gpu warm] a program" * doctest::skip()) {
  auto f = jit([](Array h, Array w) {
    const Array end = while_loop([](Array x) { return sum(x) > 40; }, [&](Array x) { return layers(x, w) * 0.5; }, h);
    return layers(end + fori_loop(0, 4, [&](Array, Array x) { return tanh(dot(x, w)); }, h), w);
  });
  const Array w = square(0.1).wait(), x = square(0.5).wait();
  const std::int64_t launched = runtime::counters().launches;
  {
    const Counted counted;
    warm(f, x, w);
    say("{}", counted.graphs().find(" 0 graphs") == std::string::npos ? "graphs made" : "no graphs");
  }
  say("{} launched", runtime::counters().launches - launched);
  const std::int64_t made = runtime::counters().graphs_instantiated;
  std::vector<Array> kept;
  for (int i = 0; i < 6; ++i) kept.push_back(f(x, w).wait());
  say("{} made later", runtime::counters().graphs_instantiated - made);
  bool is_alike = true;
  for (const Array& y : kept) is_alike &= corner(y) == corner(kept[0]);
  say("{}", is_alike ? "all alike" : "different");
}

TEST_CASE("warm makes the graphs of a program, loops and all, and runs none of its kernels") {
  CHECK(said_in_any_order("gpu warm") == "graphs made\n0 launched\n0 made later\nall alike\n");
}

TEST_CASE("[gpu many buffers] a program" * doctest::skip()) {
  auto f = jit([](const std::vector<Array>& all) {  // sorted by the first, which is one kernel
    const std::vector<Array> sorted = sort_together(all);
    Array sum = sorted[0];
    for (std::size_t i = 1; i < sorted.size(); ++i) sum = sum + sorted[i] * static_cast<double>(i % 5);
    return sum;
  });
  std::vector<Array> all = {array({2.0f, 1.0f}).wait()};
  for (int i = 1; i < 250; ++i) all.push_back(array({0.0f, static_cast<float>(i % 7)}).wait());
  const auto run = [&] {
    const Counted counted;
    const Array sum = f(all).wait();
    say("{}; {}", counted.graphs(), sum[0].item<float>());
  };
  run();
  run();
  all[3] = array({0.0f, 1003.0f}).wait();
  run();
  all[3] = array({0.0f, 3.0f}).wait();
  all[244] = array({0.0f, 10.0f}).wait();
  run();
}

TEST_CASE("more buffers than a launch has parameters for are given to a kernel in a table, which is patched in parts") {
  CHECK(said_in_any_order("gpu many buffers", {{"SHEAF_FAKE_CUDA_VERSION", "12000"}}) ==
        "6 kernels, 0 graphs made, 0 launched, 0 kernels patched; 1501\n"
        "6 kernels, 1 graphs made, 1 launched, 0 kernels patched; 1501\n"
        "6 kernels, 1 graphs made, 1 launched, 0 kernels patched; 4501\n"
        "6 kernels, 0 graphs made, 1 launched, 2 kernels patched; 1517\n");
}

TEST_CASE("[gpu turns] a program" * doctest::skip()) {
  auto f = jit([](Array h, Array w) { return layers(h, w); });
  auto in_place = jit([](Array h, Array w) { return layers(h, w); }, {.donate = {0}});
  const Array w = square(0.1).wait();
  const auto steps = [&](const char* what, auto& step) {
    Array h = square(0.5).wait();
    for (int i = 0; i < 4; ++i) h = step(h, w).wait();
    const Counted counted;
    for (int i = 0; i < 20; ++i) h = step(h, w).wait();
    const std::string graphs = counted.graphs();
    say("{}: {}, {:.6f}", what, graphs, corner(h));
  };
  steps("taking turns", f);
  steps("in place", in_place);
}

TEST_CASE("[gpu no patch] a program" * doctest::skip()) {
  runtime::device(0);
  auto& cuda = const_cast<runtime::Cuda&>(**runtime::Cuda::load());
  auto f = jit([](Array h, Array v) { return sum(layers(h, v)); });
  const Array w = square(0.1).wait(), x = square(0.5).wait(), y = square(0.7).wait(), z = square(-0.2).wait();
  const Array v = square(-0.1).wait();
  std::vector<float> right;
  for (const Array& input : {x, y, z}) right.push_back(f(input, w).item<float>());  // graphs with two of them
  static decltype(cuda.cuGraphExecKernelNodeSetParams) patches;
  static int calls = 0;
  patches = cuda.cuGraphExecKernelNodeSetParams;
  cuda.cuGraphExecKernelNodeSetParams = [](cuda::CUgraphExec graph, cuda::CUgraphNode node,
                                           const cuda::CUDA_KERNEL_NODE_PARAMS* to) {
    return calls++ == 1 ? cuda::CUDA_ERROR_INVALID_VALUE : patches(graph, node, to);
  };
  say_error_of([&] { f(y, v).wait(); });
  say("{} calls", calls);
  bool is_right = true;
  for (int i = 0; i < 2; ++i) is_right &= f(z, w).item<float>() == right[2] && f(y, w).item<float>() == right[1];
  say("{}", is_right ? "right" : "wrong");
}

TEST_CASE("a graph that was patched in part only is patched as a whole before it runs again") {
  const std::string said = said_on_gpu("gpu no patch");
  CHECK(said.find("cuGraphExecKernelNodeSetParams: CUDA_ERROR_INVALID_VALUE (1): invalid argument\n2 calls\nright\n") !=
        std::string::npos);
}

TEST_CASE("callers whose buffers take turns, and those that donate them, patch nothing") {
  CHECK(said_in_any_order("gpu turns") ==
        "taking turns: 60 kernels, 0 graphs made, 20 launched, 0 kernels patched, 0.995369\n"
        "in place: 60 kernels, 0 graphs made, 20 launched, 0 kernels patched, 0.995369\n");
}

TEST_CASE("[gpu checks] a program" * doctest::skip()) {
  auto positive = jit([](Array x) {
    check(sum(x) > 0.0, "the sum is positive");
    check(max(x) < 100.0, "nothing is large");
    return x * 2.0;
  });
  auto more = jit([](Array x) { return x + 1.0; });
  say("{}", sum(more(positive(array({1.0, 2.0})))).item<double>());
  const Array bad = positive(array({-1.0, 200.0})), after = more(bad), far = more(more(after));
  say_error_of([&] { far.wait(); });
  say_error_of([&] { bad.wait(); });
  say("{}", sum(more(array({1.0, 2.0}))).item<double>());
}

TEST_CASE("a check that fails is told by everything that was computed from the run, and by nothing else") {
  const std::string failed = "HERE: HERE: check failed: nothing is large\n";
  CHECK(said_in_any_order("gpu checks") == "8\n" + failed + failed + "5\n");
}

TEST_CASE("[gpu refused behind a check] a program" * doctest::skip()) {
  runtime::device(0);
  auto& cuda = const_cast<runtime::Cuda&>(**runtime::Cuda::load());
  auto f = jit([](Array x, Array w) {
    check(sum(x) > 0.0, "the sum is positive");
    return dot(x, w);
  });
  const Array w = square(0.1).wait(), good = square(0.5).wait(), bad = square(-5.0).wait();
  static decltype(cuda.cuLaunchKernelEx) launches;
  static int calls = 0, refused = 0;
  launches = cuda.cuLaunchKernelEx;
  cuda.cuLaunchKernelEx = [](const cuda::CUlaunchConfig* config, cuda::CUfunction function, void** parameters,
                             void** extra) {
    return ++calls == refused ? cuda::CUDA_ERROR_INVALID_VALUE : launches(config, function, parameters, extra);
  };
  (void)f(good, w).wait();
  refused = calls;  // the last
  for (const Array& x : {good, bad}) {
    calls = 0;
    say_error_of([&] { f(x, w).wait(); });
  }
}

TEST_CASE("a check that does not hold is told, though a later kernel could not be asked for") {
  const std::string said = said_on_gpu("gpu refused behind a check");
  CHECK(said.find(": CUDA_ERROR_INVALID_VALUE (1): invalid argument\n") != std::string::npos);
  CHECK(said.ends_with("\nHERE: HERE: check failed: the sum is positive\n"));
}

TEST_CASE("[gpu found meanwhile] a program" * doctest::skip()) {
  auto positive = jit([](Array x) {
    check(sum(x) > 0.0, "the sum is positive");
    return x * 2.0;
  });
  const Array bad = positive(array({-1.0, 0.5}));
  const HostFunction finds(
      "finds", [&](std::span<const HostTensor>, std::span<const HostTensor>) { say_error_of([&] { bad.wait(); }); });
  const auto more = jit([&](Array x) {
    finds({x});
    return x + 1.0;
  });
  const Array after = more(bad);
  say_error_of([&] { after.wait(); });
}

TEST_CASE("an error that somebody finds while a run from it is being asked for is told by that run too") {
  const std::string failed = "HERE: HERE: check failed: the sum is positive\n";
  CHECK(said_in_any_order("gpu found meanwhile") == failed + failed);
}

TEST_CASE("[gpu control] a program" * doctest::skip()) {
  const Array w = square(0.1);
  auto loop = jit([](Array h, Array v) {
    return while_loop([](Array x) { return max(x) < 100.0; }, [&](Array x) { return dot(x, v) + x; }, h);
  });
  auto choice = jit([](Array n, Array h, Array v) {
    return cond(n > 0, [](Array a, Array b) { return layers(a, b); }, [](Array a, Array b) { return a - b; }, h, v);
  });
  const Array grown = loop(square(0.5), w);
  say("{:.3f} {:.6f} {:.6f}", corner(grown), corner(choice(ones({}, i32), grown, w)),
      corner(choice(-ones({}, i32), grown, w)));
}

TEST_CASE("the host reads what decides a loop or a branch") {
  CHECK(said_in_any_order("gpu control") == "182.999 0.995370 182.899002\n");
}

TEST_CASE("[gpu steps of loops] a program" * doctest::skip()) {
  using Carry = std::pair<Array, Array>;
  auto loop = jit([](Array h, Array v) {
    return while_loop([](Carry c) { return c.first < 20; },
                      [&](Carry c) { return Carry{c.first + 1, layers(c.second, v)}; }, Carry{zeros({}, i32), h})
        .second;
  });
  auto scan_of_many =
      jit([](Array h, Array v) { return fori_loop(0, 1500, [&](Array, Array x) { return tanh(dot(x, v)); }, h); });
  const Array w = square(0.1).wait(), x = square(0.5).wait();
  const auto run = [&](const char* what, auto& f) {
    const Counted counted;
    const Array h = f(x, w).wait();
    const std::string graphs = counted.graphs();
    say("{}: {}, {:.6f}", what, graphs, corner(h));
  };
  run("while", loop);
  run("again", loop);
  run("long", scan_of_many);
}

TEST_CASE("a loop that the host decides launches each step as a graph; what is very long is launched one by one") {
  CHECK(said_in_any_order("gpu steps of loops") ==
        "while: 101 kernels, 1 graphs made, 19 launched, 0 kernels patched, 0.995369\n"
        "again: 101 kernels, 0 graphs made, 20 launched, 0 kernels patched, 0.995369\n"
        "long: 1500 kernels, 0 graphs made, 0 launched, 0 kernels patched, 0.995369\n");
}

TEST_CASE("[gpu bad limit] a program" * doctest::skip()) { say("{}", corner(square(0.5))); }

TEST_CASE("a limit of a GPU's memory that is no size is one warning, and counts as not set") {
  CHECK(said_on_gpu("gpu bad limit", {{"SHEAF_GPU_MEMORY_LIMIT", "lots"}, {"SHEAF_FAKE_CUDA_DEVICES", "3"}}) ==
        "sheaf warning: SHEAF_GPU_MEMORY_LIMIT: 'lots' is not a size: a number of bytes, or one with K, M, G or %; the "
        "limit is all there is\n0.5\n");
}

TEST_CASE("[gpu exit] a program" * doctest::skip()) {
  auto f = jit([](Array h, Array w) { return layers(h, w); });
  static Array last;
  last = square(0.5);
  for (int i = 0; i < 10; ++i) last = f(last, square(0.1));
}

TEST_CASE("a process may end with work in flight") { CHECK(said_in_any_order("gpu exit") == ""); }

TEST_CASE("[gpu threads] a program" * doctest::skip()) {
  auto f = jit([](Array h, Array w) { return layers(h, w); });
  auto in_place = jit([](Array h, Array w) { return layers(h, w); }, {.donate = {0}});
  const Array w = square(0.1), start = square(0.5);
  const float right = corner(f(f(f(start, w), w), w));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        Array h = start * 1.0;
        for (int k = 0; k < 3; ++k) h = (t + k) % 2 == 0 ? f(h, w) : in_place(h, w);
        if (corner(h) != right) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  say("{} wrong", wrong.load());
}

TEST_CASE("threads share a GPU, and graphs of one program") { CHECK(said_in_any_order("gpu threads") == "0 wrong\n"); }

TEST_CASE("[gpu run ahead of memory] a program" * doctest::skip()) {
  auto twice = jit([](Array x) { return x * 2.0 + 1.0; });
  Array x = zeros({1 << 18});
  for (int i = 0; i < 50; ++i) x = twice(x);  // 1 MiB each
  say("{:.6g}", x[7].item<float>());
  say("at most {} MiB in use", memory_stats(devices()[0]).peak_bytes >> 20 <= 16 ? "16" : "more than 16");
}

TEST_CASE("where memory is short, the host waits for work in flight to give some back") {
  CHECK(said_in_any_order("gpu run ahead of memory", {{"SHEAF_GPU_MEMORY_LIMIT", "16M"}}) ==
        "1.1259e+15\nat most 16 MiB in use\n");
}

TEST_CASE("[gpu queued ahead of memory] a program" * doctest::skip()) {
  auto twice = jit([](Array x) {
    return while_loop([](Array y) { return y[0] < 1e15; }, [](Array y) { return y * 2.0 + 1.0; }, x) * 0.5;
  });
  Array x = zeros({1 << 18});
  for (int i = 0; i < 20; ++i) x = twice(x);  // 1 MiB each, and the host looks at them
  say("{:.6g}", x[7].item<float>());
  say("at most {} MiB in use", memory_stats(devices()[0]).peak_bytes >> 20 <= 12 ? "12" : "more than 12");
}

TEST_CASE("where memory is short, the host waits for runs that wait for their turn to give some back") {
  CHECK(said_in_any_order("gpu queued ahead of memory", {{"SHEAF_GPU_MEMORY_LIMIT", "12M"}}) ==
        "5.6295e+14\nat most 12 MiB in use\n");
}

TEST_CASE("[gpu full] a program" * doctest::skip()) {
  runtime::device(0);
  const runtime::Cuda& cuda = **runtime::Cuda::load();
  cuda::CUdeviceptr another = 0;  // what another process has
  if (std::getenv("SHEAF_TAKEN")) REQUIRE(cuda.cuMemAlloc(&another, 24 << 20) == cuda::CUDA_SUCCESS);
  const Array a = ones({4 << 20}).wait();
  const Array b = ones({2 << 20}).wait();
  say_error_of([] { ones({4 << 20}); });
  say("{}", sum(b).item<float>());
}

TEST_CASE("a GPU that is full says what was asked, what is in use and who holds it") {
  const std::string asked = "HERE: out of memory on cuda:0: 16.0 MiB asked at HERE; 24.0 MiB in use in 3 blocks, ";
  const std::string held =
      "\n  16.0 MiB made at HERE\n  8.0 MiB made at HERE\n  64 B in blocks of at most 64 KiB\n2097152\n";
  CHECK(said_on_gpu("gpu full", {{"SHEAF_GPU_MEMORY_LIMIT", "32M"}}) ==
        asked + "32.0 MiB reserved of a limit of 32.0 MiB, largest hole 7.8 MiB" + held);
  CHECK(said_on_gpu("gpu full", {{"SHEAF_FAKE_CUDA_MEMORY", "67108864"}, {"SHEAF_TAKEN", "1"}}) ==
        asked + "26.0 MiB reserved of a limit of 64.0 MiB, largest hole 1.8 MiB, and the driver has no more" + held);
}

TEST_CASE("[gpu fork] a program" * doctest::skip()) {
  const Array a = square(0.5);
  const pid_t child = fork();
  if (child == 0) {
    say_error_of([&] { a.wait(); });
    say_error_of([&] { corner(a); });
    say_error_of([&] { array({1.0, 2.0}); });
    std::fflush(stderr);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  say("{:.2f}", corner(a));
}

TEST_CASE("a child of a process that uses a GPU is told so") {
  const std::string told =
      "HERE: this process was forked after Sheaf had started its threads, and they do not exist in the child; fork "
      "before the first use of Sheaf, or start the child with exec\n";
  CHECK(said_on_gpu("gpu fork") == told + told + told + "0.50\n");
}

TEST_CASE("[gpu fork exits] a program" * doctest::skip()) {
  static Array last;
  last = square(0.5);
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  say("{} {:.2f}", status, corner(last));
}

TEST_CASE("a child of a process that uses a GPU may end by itself, and says nothing of its parent's work") {
  CHECK(said_in_any_order("gpu fork exits") == "0 0.50\n");
}

TEST_CASE("[gpu fault] a program" * doctest::skip()) {
  using namespace sheaf::runtime;
  runtime::Device& gpu = runtime::device(0);
  const auto module =
      ir::parse("func @step(%x: f32[100]) -> f32[100] {\n  %y: f32[100] = sin %x loc(model.cpp:7)\n  return %y\n}\n");
  REQUIRE(module.ok());
  const auto step =
      Executable::load(codegen::lower(passes::run_pipeline(module->functions[0]), gpu.backend().target()));
  REQUIRE(step.ok());
  // A kernel that reads what nobody wrote is a fault of the fake driver's.
  const BufferPtr never_written = *Buffer::allocate(gpu, 400, {});
  const auto first = (*step)->run(gpu, {{never_written}}, {.loc = {"train.cpp", 31}});
  REQUIRE(first.ok());
  const auto second = (*step)->run(gpu, *first, {.loc = {"train.cpp", 32}});
  REQUIRE(second.ok());
  say("{}", (*second)[0]->wait().ToString());
  say("{}", (*first)[0]->wait().ToString());
  const auto third = (*step)->run(gpu, *first, {.loc = {"train.cpp", 33}});
  say("{}", third.ok() ? (*third)[0]->wait().ToString() : third.status().ToString());
  say_error_of([] { array({1.0, 2.0}).wait(); });
  const float two[] = {1, 2};
  const auto on_cpu = Buffer::from_host(*(*devices_of("cpu"))[0], std::as_bytes(std::span(two)), {});
  say("on the CPU: {}", on_cpu.ok() ? (*on_cpu)->wait().ToString() : on_cpu.status().ToString());
}

TEST_CASE("a fault of a kernel is told by the results, and the GPU is lost but not the process") {
  const std::string error = "CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure",
                    told = "INTERNAL: train.cpp:31: step: work on cuda:0: " + error +
                           "; SHEAF_WAIT_FOR_KERNELS=1 finds the kernel\n",
                    later = "HERE: cuMemAllocHost of 4194304 bytes: " + error + "\non the CPU: OK\n";
  CHECK(said_on_gpu("gpu fault", {{"SHEAF_FAKE_CUDA_REPORT", "/dev/null"}}) == told + told + told + later);
}

TEST_CASE("SHEAF_WAIT_FOR_KERNELS=1 names the kernel that faults, and the line it is from") {
  const std::string said =
      said_on_gpu("gpu fault", {{"SHEAF_FAKE_CUDA_REPORT", "/dev/null"}, {"SHEAF_WAIT_FOR_KERNELS", "1"}});
  CHECK(said.starts_with("INTERNAL: model.cpp:7: sin_"));  // and a hash
  CHECK(said.find(" of step: work on cuda:0: CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure\n") < 40);
}
