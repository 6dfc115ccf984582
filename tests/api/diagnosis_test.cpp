// Programs that went wrong, and what is said of them: out of memory, runs that differ.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstdlib>

#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/places.h"

using namespace sheaf;

namespace {

// ---- Out of memory ----

constexpr int kLayers = 16;

constexpr int kLineOfLayer = __LINE__ + 4;

Array layers(const Array& w, const Array& x, int count) {
  Array y = x;
  for (int k = 0; k < count; ++k) y = tanh(dot(y, w));
  return y;
}

Array loss(const Array& w, const Array& x) { return mean(layers(w, x, kLayers)); }

Array loss_of_checkpoints(const Array& w, const Array& x) {
  const auto four = checkpoint([](Array v, Array y) { return layers(v, y, 4); });
  Array y = x;
  for (int k = 0; k < kLayers / 4; ++k) y = four(w, y);
  return mean(y);
}

template <class F>
void say_error_of(F f) {
  try {
    f();
    std::fputs("no error\n", stderr);
  } catch (const Error& error) { std::fprintf(stderr, "%s\n", error.what()); }
}

// The lines of what a child says, from the one that begins the advice on.
std::string advice_in(const std::string& text) {
  const std::size_t at = text.find("\nwhat would take less memory:");
  return at == text.npos ? "" : text.substr(at + 1);
}

}  // namespace

// Activations of 1 MiB.
TEST_CASE("[deep] a program" * doctest::skip()) {
  const Array w = 0.1 * ones({256, 256}), x = ones({1024, 256});
  const bool is_checkpointed = std::getenv("CHECKPOINTED") != nullptr;
  const auto step = jit(is_checkpointed ? grad(loss_of_checkpoints) : grad(loss), {.name = "deep"});
  say_error_of([&] { step(w, x).wait(); });
}

TEST_CASE("a gradient that is out of memory is told of the checkpoints that it could have, and with them it is not") {
  const std::string text = tests::said_by_child("deep", {{"SHEAF_MEMORY_LIMIT", "20M"}});
  CHECK(text.find("out of memory: ") != text.npos);
  CHECK(text.find("made at diagnosis_test.cpp:") != text.npos);  // who has the rest
  CHECK(
      advice_in(text) ==
      fmt::format("what would take less memory:\n"
                  "  checkpoint(f) of parts of the function would make again what is kept for the gradient: 15 MiB of "
                  "the 16.2 MiB that intermediate results take, 1 MiB of it f32[1024, 256] made at "
                  "diagnosis_test.cpp:{}\n",
                  kLineOfLayer));
  CHECK(tests::said_by_child("deep", {{"SHEAF_MEMORY_LIMIT", "20M"}, {"CHECKPOINTED", "1"}}) == "no error\n");
}

TEST_CASE("[wide] a program" * doctest::skip()) {
  ensure_devices(4);
  const Mesh mesh({{"data", 4}});
  const Array x = device_put(ones({64, 1024}), mesh, P("data"));
  const auto f = jit([](Array a, Array v) { return dot(tanh(dot(a, v)), v); }, {.name = "wide", .args = {"x", "w"}});
  const Array w = device_put(ones({1024, 1024}), mesh, P());
  say_error_of([&] {
    f(x, w).wait();
    const auto more = jit([](Array v) { return v + 1.0; }, {.name = "more", .args = {"w"}});
    more(w).wait();
  });
}

TEST_CASE("a program on a mesh that is out of memory is told which arguments every device has whole") {
  const std::string text = tests::said_by_child("wide", {{"SHEAF_MEMORY_LIMIT", "24M"}});
  CHECK(text.find("out of memory: ") != text.npos);
  CHECK(advice_in(text) ==
        "what would take less memory:\n"
        "  w is whole on each of the 4 devices, 4 MiB: a dim of it could be divided over data\n");
}

TEST_CASE("[one of two gpus] a program" * doctest::skip()) {
  const auto f = jit([](Array a) { return tanh(a) * 2.0; }, {.name = "alone", .args = {"x"}});
  const Array x = ones({4 << 20});
  say_error_of([&] { f(x).wait(); });
}

TEST_CASE("a program that fills one GPU of several is told of the others") {
  const std::string text =
      tests::said_by_child("one of two gpus", {{"SHEAF_PLATFORM", "cuda"},
                                               {"SHEAF_FAKE_CUDA_DEVICES", "2"},
                                               {"SHEAF_GPU_MEMORY_LIMIT", "24M"},
                                               {"SHEAF_LIBCUDA", SHEAF_BINARY_DIR "/libsheaf_fake_cuda.so"},
                                               {"SHEAF_LIBNVRTC", SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so"}});
  CHECK(text.find("out of memory on cuda:0: ") != text.npos);
  CHECK(advice_in(text) ==
        "what would take less memory:\n"
        "  the program is on one of 2 GPUs: with arrays divided over a mesh of them (device_put) each has a part; the "
        "largest argument is x, 16 MiB\n");
}

TEST_CASE("[plain] a program" * doctest::skip()) {
  ensure_devices(4);
  const auto f = jit([](Array a) { return dot(a, a); }, {.name = "plain"});
  say_error_of([&] { f(ones({1024, 1024})).wait(); });
}

TEST_CASE("a program that neither checkpoints nor devices would help is told of neither") {
  const std::string text = tests::said_by_child("plain", {{"SHEAF_MEMORY_LIMIT", "6M"}});
  CHECK(text.find("out of memory: ") != text.npos);
  CHECK(advice_in(text).empty());
}

// ---- Runs that differ ----

TEST_CASE("a program whose runs agree to the bit is told nothing of") {
  CHECK(find_nondeterminism([](Array x) { return sum(exp(x)); }, ones({1000})).empty());
  CHECK(find_nondeterminism([](Array x) { return log(x); }, array({-1.0f, 1.0f})).empty());  // a NaN is itself
}

TEST_CASE("where runs differ the result, the element and the first equation at fault are named") {
  std::atomic<int> runs{0};
  const HostFunction clock("clock", [&](std::span<const HostTensor>, std::span<const HostTensor> out) {
    out[0].as<float>()[1] = static_cast<float>(++runs);
  });
  struct Result {
    Array steady, loss;
  };
  int line = 0;
  const auto f = [&](Array x) {
    line = __LINE__ + 1;
    const Array now = clock({}, {abstract({2})})[0];
    return Result{.steady = x * 2.0, .loss = x + now};
  };
  const std::string text = find_nondeterminism(f, array({1.0f, 10.0f}));
  CHECK(text == fmt::format("the result .loss differs between runs at [1]: 11 and 12, 1 of 2 elements\n"
                            "  the first equation whose values differ is callback at diagnosis_test.cpp:{}, at [1]: 5 "
                            "and 6, 1 of 2 elements",
                            line));
}

TEST_CASE("values that differ in their last bit are told with the digits that show it, integers whole") {
  int runs = 0;
  const HostFunction last("last", [&](std::span<const HostTensor>, std::span<const HostTensor> out) {
    out[0].as<double>()[0] = runs % 2 == 0 ? 1.0 : std::nextafter(1.0, 2.0);
    out[1].as<std::int64_t>()[0] = (std::int64_t{1} << 60) + runs++ % 2;
  });
  const auto told = [&](std::size_t result) {
    return find_nondeterminism([&](Array) { return last({}, {abstract({1}, f64), abstract({1}, i64)})[result]; },
                               array({0.0f}));
  };
  CHECK(told(0).starts_with("the result differs between runs at [0]: 1 and 1.0000000000000002, 1 of 1 elements\n"));
  CHECK(told(1).starts_with(
      "the result differs between runs at [0]: 1152921504606846976 and 1152921504606846977, 1 of 1 elements\n"));
}
