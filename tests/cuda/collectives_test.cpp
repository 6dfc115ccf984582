// Collectives and moves between GPUs that are not there: no byte goes through the host, streams run in every order, and
// a GPU that fails or never comes ends the run with its name. Each case is a process with a platform of its own.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <future>
#include <set>
#include <thread>

#include "ir/eval_spmd.h"
#include "runtime/counters.h"
#include "runtime/cuda_context.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/emulator/fake_gpu.h"
#include "tests/lap.h"
#include "tests/places.h"
#include "tests/runtime/spmd.h"

using namespace sheaf;
using namespace sheaf::tests;
using ir::FunctionRef;
using ir::Literal;
using ir::Literals;
using runtime::counters;
using std::chrono::milliseconds;

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

Variables on_gpus(int count, const Variables& more = {}) {
  const std::string build = SHEAF_BINARY_DIR;
  Variables all = {{"SHEAF_PLATFORM", "cuda"},
                   {"SHEAF_LIBCUDA", build + "/libsheaf_fake_cuda.so"},
                   {"SHEAF_LIBNVRTC", build + "/libsheaf_fake_nvrtc.so"},
                   {"SHEAF_LIBNCCL", build + "/libsheaf_fake_nccl.so"},
                   {"SHEAF_FAKE_CUDA_REPORT", "/dev/null"},
                   {"SHEAF_FAKE_CUDA_DEVICES", std::to_string(count)}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  std::fprintf(stderr, "%s\n", fmt::format(text, std::forward<Args>(args)...).c_str());
}

void say_error_of(const PerDevice& outputs) {
  std::set<std::string> errors;
  for (const auto& of_device : outputs)
    for (const runtime::BufferPtr& y : of_device) errors.insert(std::string(y->wait().message()));
  for (const std::string& error : errors) say("{}", error);
}

int gpu_count() { return static_cast<int>(runtime::devices_of("cuda")->size()); }

std::int64_t through_host() { return counters().bytes_through_host; }

/// A function that the fake driver has beyond those of a driver.
template <class F>
F* of_driver(const char* name) {
  return reinterpret_cast<F*>(dlsym(dlopen(std::getenv("SHEAF_LIBCUDA"), RTLD_NOW | RTLD_LOCAL), name));
}
/// What it has found, if anything.
std::string fault() { return of_driver<decltype(sheafFakeCudaLastFault)>("sheafFakeCudaLastFault")(); }
bool has_fault() {
  fake_cuda::Counters counters;
  of_driver<decltype(sheafFakeCudaCounters)>("sheafFakeCudaCounters")(&counters);
  return counters.faults > 0;
}

/// Every kind, over values of one, two and four bytes, and what NCCL does not do as it is.
FunctionRef all_kinds(int n) {
  return parsed(fmt::format(R"(mesh @m = [x={0}]
func @f(%a: f32[8, 16], %b: i16[8], %c: bool[8], %d: bf16[8, 16]) -> f32[8, 16], f32[8, 16], i16[8], bool[8], f32[8, {1}], f32[8, {2}], bf16[{3}, {1}], bf16[8, 16], i32[], f32[8, 8] on @m {{
  %s: f32[8, 16] = all_reduce %a {{axes=[x]}}
  %p: f32[8, 8] = dot %a, %a {{lhs=[1], rhs=[1]}}
  %m: f32[8, 16] = all_reduce %a {{axes=[x], kind=max}}
  %i: i16[8] = all_reduce %b {{axes=[x]}}
  %o: bool[8] = all_reduce %c {{axes=[x], kind=or}}
  %r: f32[8, {1}] = reduce_scatter %a {{axes=[x], size={0}, dim=1, tiled=true}}
  %g: f32[8, {2}] = all_gather %a {{axes=[x], size={0}, dim=1, tiled=true}}
  %t: bf16[{3}, {1}] = all_to_all %d {{axes=[x], size={0}, split=1, concat=0, tiled=true}}
  %n: bf16[8, 16] = ppermute %d {{axes=[x], sources=[0], targets=[{4}]}}
  %w: i32[] = axis_index {{axes=[x]}}
  return %s, %m, %i, %o, %r, %g, %t, %n, %w, %p
}}
)",
                            n, 16 / n, 16 * n, 8 * n, n - 1));
}

const char* const kSum = R"(mesh @m = [x=2]
func @f(%x: f32[8]) -> f32[8] on @m {
  %y: f32[8] = all_reduce %x {axes=[x]}  loc(model.cpp:8)
  %z: f32[8] = mul %y, %y
  return %z
}
)";

/// From here on the work of GPU `gpu` comes after what `put` puts into a stream.
template <class F>
void hold_up(int gpu, F&& put) {
  runtime::Backend& backend = runtime::device(gpu).backend();
  runtime::CudaContext& context = *backend.cuda_context();
  REQUIRE(context.enter().ok());
  cuda::CUstream stream = nullptr;
  REQUIRE(context.cuda.cuStreamCreate(&stream, cuda::CU_STREAM_NON_BLOCKING) == cuda::CUDA_SUCCESS);
  put(context, stream);
  const absl::StatusOr<runtime::EventPtr> event = context.record(stream);
  REQUIRE(event.ok());
  REQUIRE(backend.await(**event).ok());
}

}  // namespace

TEST_CASE("[all kinds] a program" * doctest::skip()) {
  const FunctionRef f = all_kinds(gpu_count());
  const runtime::ExecutablePtr executable = load_local(f);
  const std::vector<Literals> inputs = inputs_of(f), expected = ir::eval_spmd(f, inputs);
  const PerDevice on_devices = to_devices(inputs);
  bool is_right = true;
  for (int run = 0; run < 3; ++run) is_right &= to_host(start(executable, on_devices), *f) == expected;
  say("{}, {} bytes through the host", is_right ? "right" : "wrong", through_host());
  for (int k = 0; k < runtime::kCollectiveKinds - 1; ++k)
    say("{} in {}", counters().collectives[k].bytes.load(), counters().collectives[k].meetings.load());
  say("{}", counters().overlapped_launches > 0 ? "overlapped" : "one after the other");
  say("{}", fault());
}

TEST_CASE("every collective of 2, 4 and 8 GPUs is that of the reference, whatever order the streams go on in") {
  for (const int n : {2, 4, 8})
    for (const char* order : {"waited_first", "waited_last", "random"}) {
      INFO(n, " GPUs, ", order);
      const int a = 8 * 16 * 4, d = 8 * 16 * 2, each = n - 1;  // bytes of %a and %d; what a ring passes on
      const std::string expected =
          fmt::format("right, 0 bytes through the host\n{} in 12\n{} in 3\n{} in 3\n{} in 3\n{} in 3\noverlapped\n\n",
                      3 * 2 * each * (a + a + 8 * 4 + 8), 3 * each * a * n, 3 * each * a, 3 * each * d, 3 * d);
      CHECK(said_by_child("all kinds", on_gpus(n, {{"SHEAF_FAKE_CUDA_ORDER", order}})) == expected);
    }
}

TEST_CASE("[moves] a program" * doctest::skip()) {
  const Mesh mesh({{"x", 2}, {"y", 2}});
  const Array x = reshape(arange(2 * 4 * 6 * 8, f32), {2, 4, 6, 8});
  const Array one = device_put(x, devices()[1]);
  bool is_right = true;
  const auto check = [&](const Array& y) { is_right &= y.to_vector<float>() == x.to_vector<float>(); };
  const Array rows = device_put(one, mesh, P("x", "y"));
  check(rows);
  const Array columns = device_put(rows, mesh, P(none, none, "y", "x"));
  check(columns);
  const Array inner = device_put(columns, mesh, P(none, "x", none, "y"));
  check(inner);
  check(device_put(inner, devices()[3]));
  check(device_put(device_put(one * 2.0, devices()[2]), mesh, P(none, none, "x")) / 2.0);
  say("{}, {} bytes through the host", is_right ? "right" : "wrong", through_host());
  say("{}", fault());
}

TEST_CASE("arrays move from GPU to GPU and between layouts without the host") {
  for (const char* order : {"waited_first", "waited_last", "random"}) {
    INFO(order);
    CHECK(said_by_child("moves", on_gpus(4, {{"SHEAF_FAKE_CUDA_ORDER", order}})) ==
          "right, 0 bytes through the host\n\n");
  }
}

TEST_CASE("[sum of GPUs] a program" * doctest::skip()) {
  const FunctionRef f = parsed(kSum);
  const std::vector<Literals> inputs = inputs_of(f);
  const runtime::ExecutablePtr executable = load_local(f);
  for (int run = 0; run < 2; ++run)
    say("{}", to_host(start(executable, to_devices(inputs)), *f) == ir::eval_spmd(f, inputs) ? "right" : "wrong");
  say("{} bytes through the host", through_host());
}

TEST_CASE("without NCCL collectives go through the host, and that is told once") {
  CHECK(said_by_child("sum of GPUs", on_gpus(2, {{"SHEAF_LIBNCCL", "/nowhere/libnccl.so"}})) ==
        "sheaf warning: collectives between GPUs go through the host's memory, which is slow: no NCCL; tried:\n"
        "  /nowhere/libnccl.so: cannot open shared object file: No such file or directory\n"
        "Sheaf uses NCCL 2.18.1 or newer between GPUs; SHEAF_LIBNCCL names one that lies elsewhere\n"
        "right\nright\n256 bytes through the host\n");
}

TEST_CASE("[never asked] a program" * doctest::skip()) {
  const FunctionRef f = parsed(kSum);
  const PerDevice inputs = to_devices(inputs_of(f));
  std::promise<void> gate;
  const std::shared_future<void> is_open = gate.get_future().share();
  REQUIRE(runtime::device(1).queue().push([is_open] { is_open.wait(); }).ok());
  say_error_of(start(load_local(f), inputs, {.donated = {}, .loc = {}, .collective_timeout = milliseconds(200)}));
  gate.set_value();
}

TEST_CASE("[never comes] a program" * doctest::skip()) {
  const FunctionRef f = parsed(kSum);
  const runtime::ExecutablePtr executable = load_local(f);
  const PerDevice inputs = to_devices(inputs_of(f));
  hold_up(1, [](runtime::CudaContext& gpu, cuda::CUstream stream) {
    const auto until_others_are_let_go = [](void*) {
      while (!has_fault()) std::this_thread::yield();
    };
    REQUIRE(gpu.cuda.cuLaunchHostFunc(stream, until_others_are_let_go, nullptr) == cuda::CUDA_SUCCESS);
  });
  say_error_of(start(executable, inputs, {.donated = {}, .loc = {}, .collective_timeout = milliseconds(200)}));
  say("{}", to_host(start(executable, inputs), *f) == ir::eval_spmd(f, inputs_of(f)) ? "right" : "wrong");
}

TEST_CASE("a GPU that does not come is named, be it that the host does not ask it or that its stream is held up") {
  const std::string error = "model.cpp:8: all_reduce over x: cuda:1 did not come within 0.2 s; cuda:0 waited\n";
  CHECK(said_by_child("never asked", on_gpus(2)) == error);
  for (const char* order : {"waited_first", "waited_last"})
    CHECK(said_by_child("never comes", on_gpus(2, {{"SHEAF_FAKE_CUDA_ORDER", order}})) == error + "right\n");
}

TEST_CASE("[dies] a program" * doctest::skip()) {
  const FunctionRef f = parsed(kSum);
  const runtime::ExecutablePtr executable = load_local(f);
  const PerDevice inputs = to_devices(inputs_of(f));
  hold_up(1, [&](runtime::CudaContext& gpu, cuda::CUstream stream) {
    const std::string image = emulator::write_image(
        {codegen::cuda_program("extern \"C\" __global__ void k(int* x) { x[threadIdx.x] = 1; }\n"), "sm_90a"});
    cuda::CUmodule module = nullptr;
    cuda::CUfunction k = nullptr;
    REQUIRE(gpu.cuda.cuModuleLoadDataEx(&module, image.data(), 0, nullptr, nullptr) == cuda::CUDA_SUCCESS);
    REQUIRE(gpu.cuda.cuModuleGetFunction(&k, module, "k") == cuda::CUDA_SUCCESS);
    void* nowhere = nullptr;
    void* parameters[] = {&nowhere};
    const cuda::CUlaunchConfig config{.gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .sharedMemBytes = 0,
                                      .hStream = stream,
                                      .attrs = nullptr,
                                      .numAttrs = 0};
    REQUIRE(gpu.cuda.cuLaunchKernelEx(&config, k, parameters, nullptr) == cuda::CUDA_SUCCESS);
  });
  say_error_of(start(executable, inputs));
}

TEST_CASE("a GPU that fails before it comes lets the others go, and the error names it") {
  for (const char* order : {"waited_first", "waited_last"})
    CHECK(said_by_child("dies", on_gpus(2, {{"SHEAF_FAKE_CUDA_ORDER", order}})) ==
          "model.cpp:8: all_reduce over x: work on cuda:1: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access "
          "was encountered\n");
}

TEST_CASE("[fails once begun] a program" * doctest::skip()) {
  const FunctionRef f = parsed(kSum);
  const PerDevice inputs = to_devices(inputs_of(f));
  say_error_of(start(load_local(f), inputs, {.donated = {}, .loc = {}, .collective_timeout = milliseconds(200)}));
}

TEST_CASE("a collective that does not end, has an error, or is not taken, is given up with what NCCL says of it") {
  const auto error = [](const char* fault) {
    return said_by_child("fails once begun", on_gpus(2, {{"SHEAF_FAKE_NCCL_FAULT", fault}}));
  };
  CHECK(error("hang") == "model.cpp:8: all_reduce over x: cuda:0 and cuda:1 did not end it within 0.2 s\n");
  CHECK(error("error") ==
        "model.cpp:8: all_reduce over x: NCCL: remote process exited or there was a network error (6): the link is "
        "down\n");
  CHECK(error("refuse") == "model.cpp:8: all_reduce over x: ncclGroupEnd: internal error (3): out of channels\n");
}

TEST_CASE("[ring] a program" * doctest::skip()) {
  const FunctionRef f = parsed(R"(mesh @m = [x=4]
func @f(%x: f32[5000]) -> f32[5000] on @m {
  %y: f32[5000] = all_reduce %x {axes=[x]}
  return %y
}
)");
  std::vector<Literals> inputs = inputs_of(f);
  for (Literals& of_device : inputs)
    for (std::int64_t i = 0; i < 5000; ++i)
      of_device[0].set(i, std::sin(of_device[0].get(i) + 0.001 * static_cast<double>(i)));
  const std::vector<Literals> got = to_host(start(load_local(f), to_devices(inputs)), *f),
                              want = ir::eval_spmd(f, inputs);
  double most = 0;
  for (std::int64_t i = 0; i < 5000; ++i) most = std::max(most, std::abs(got[0][0].get(i) - want[0][0].get(i)));
  say("{}, {}", got[1] == got[0] && got[2] == got[0] && got[3] == got[0] ? "alike" : "different",
      most > 0 && most < 4 * 3 * 6e-8 ? "rounded elsewhere" : "as the reference");
}

TEST_CASE("sums in NCCL's order are alike on all GPUs, and as near as their roundings") {
  CHECK(said_by_child("ring", on_gpus(4, {{"SHEAF_FAKE_NCCL_ORDER", "ring"}})) == "alike, rounded elsewhere\n");
}
