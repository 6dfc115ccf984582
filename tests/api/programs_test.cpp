// Whole programs that have to work, each a named case.
#include <doctest/doctest.h>

#include <string>

#include "sheaf/sheaf.h"
#include "tests/environment.h"
#include "tests/message.h"

using namespace sheaf;

namespace {

double distance(const Array& a, const Array& b) { return max(abs(a - b)).item<double>(); }

}  // namespace

TEST_CASE("program 1: a matrix is put together again from its singular values, under jit, grad and vmap") {
  const auto again = [](Array a) {
    const auto [u, s, vt] = linalg::svd(a);
    return matmul(u * s, vt);
  };
  for (const Shape& shape : {Shape{4, 4}, Shape{5, 3}, Shape{2, 6}, Shape{1, 1}}) {
    const Array a = random::normal(random::key(1), shape, f64);
    const Array weights = random::normal(random::key(2), shape, f64);
    CHECK(distance(again(a), a) < 1e-12);
    CHECK(distance(jit(again)(a), a) < 1e-12);
    // As the round trip is the identity, so is its derivative.
    const auto loss = [&](Array x) { return sum(weights * again(x)); };
    CHECK(distance(grad(loss)(a), weights) < 1e-9);
    CHECK(distance(jit(grad(loss))(a), weights) < 1e-9);
    const Array batch = random::normal(random::key(3), {3, shape[0], shape[1]}, f64);
    CHECK(distance(vmap(again)(batch), batch) < 1e-12);
    CHECK(distance(jit(vmap(grad(loss)))(batch), broadcast_to(weights, batch.shape())) < 1e-9);
  }
}

TEST_CASE("program 2: a function that counts its calls is rejected by the purity check, and else runs once per trace") {
  {
    const tests::Variable on("SHEAF_CHECK_PURE", "1");
    int calls = 0;
    const int base = __LINE__;
    const auto counting = [&](Array x) { return x * ++calls; };
    const auto jitted = jit(counting, {.name = "counting"});
    const auto call = [&] { jitted(ones({2})); };
    CHECK(tests::message_of<PurityError>(call, base) ==
          "HERE+2: jit counting: tracing it twice gave two programs; the first difference is constant at "
          "HERE+1. A traced function must depend on its arguments alone, not on counters, clocks, host "
          "random numbers or other changing state");
    const auto flip = [&](Array x) { return ++calls % 2 ? sin(x) : cos(x); };
    const auto gradient = [&] { grad(flip)(1.0); };
    CHECK(tests::message_of<PurityError>(gradient, base) ==
          "HERE+9: grad: tracing it twice gave two programs; the first difference is sin at "
          "HERE+8. A traced function must depend on its arguments alone, not on counters, clocks, host "
          "random numbers or other changing state");
  }
  const tests::Variable off("SHEAF_CHECK_PURE", "0");
  int calls = 0;
  const auto f = jit([&](Array x) { return x * ++calls; });
  for (int i = 0; i < 3; ++i) CHECK(f(ones({2})).to_vector<float>() == std::vector<float>{1, 1});
  CHECK(calls == 1);
  CHECK(f(ones({3})).to_vector<float>() == std::vector<float>{2, 2, 2});
  CHECK(calls == 2);
  CHECK(traces(f) == 2);
}

TEST_CASE("program 10: a checkpointed block has the values and gradients of the plain one, and a smaller peak") {
  struct Weights {
    Array in, out;  // [layers, width, 4 width], [layers, 4 width, width]
  };
  const auto block = [](Array h, Weights w) { return h + matmul(gelu_tanh(matmul(h, w.in)), w.out); };
  const auto step = [&](const auto& layer) {
    const auto loss = [layer](Weights all, Array x) {
      const auto one = [layer](Array h, Weights w) { return std::pair{layer(h, w), none}; };
      return mean(square(scan(one, x, all).first));
    };
    return jit(value_and_grad(loss));
  };
  const auto plain = step(block);
  const auto checkpointed = step(checkpoint(block));
  constexpr std::int64_t kLayers = 8, kWidth = 32, kRows = 128;
  const Weights w{.in = random::normal(random::key(1), {kLayers, kWidth, 4 * kWidth}) * 0.1,
                  .out = random::normal(random::key(2), {kLayers, 4 * kWidth, kWidth}) * 0.1};
  const Array x = random::normal(random::key(3), {kRows, kWidth});
  const auto [value, gradient] = plain(w, x);
  const auto [again, gradient_again] = checkpointed(w, x);
  // What is computed again may be fused otherwise, and round otherwise.
  const auto error = [](const Array& got, const Array& wanted) {
    return distance(got, wanted) / max(abs(wanted)).template item<double>();
  };
  CHECK(error(again, value) < 1e-6);
  CHECK(error(gradient_again.in, gradient.in) < 1e-5);
  CHECK(error(gradient_again.out, gradient.out) < 1e-5);

  const auto lowered = plain.trace(w, x).lower(), lowered_again = checkpointed.trace(w, x).lower();
  // One array of [rows, 4 width] at least that each layer no longer keeps.
  const std::int64_t kept = lowered.compile().memory().temporaries,
                     kept_again = lowered_again.compile().memory().temporaries;
  CHECK(kept_again + kLayers * kRows * 4 * kWidth * 4 <= kept);
  const auto count_of = [](const std::string& part, const std::string& text) {
    int n = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  };
  // Forward in the one loop; in the other also on the way back.
  CHECK(count_of("= tanh ", lowered.text()) == 1);
  CHECK(count_of("= tanh ", lowered_again.text()) == 2);
}
