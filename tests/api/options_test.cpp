// Functions of the library that end with options, taken by reference: transforms call them with options or without.
#include <doctest/doctest.h>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

// The options may be left out, and count where they are given.
template <class F, class Options, class... A>
void check_left_out(F* f, const Options& options, const A&... args) {
  const Array plain = jit(f)(args...), chosen = jit(f)(args..., options);
  CHECK(all_equal(plain, f(args..., {})));
  CHECK(all_equal(chosen, f(args..., options)));
  CHECK_FALSE(all_equal(plain, chosen));
}

}  // namespace

TEST_CASE("every function that ends with options is jit's with them and without") {
  const Array x = reshape(arange(6.0) + 1, {2, 3}) * 0.25, square = reshape(arange(4.0) + 1, {2, 2});
  for (const auto f : {sum, prod, mean, max, min, any, all, logsumexp}) check_left_out(f, Reduce{.axes = {0}}, x);
  for (const auto f : {var, stddev}) check_left_out(f, Moments{.ddof = 1}, x);
  for (const auto f : {cumsum, cumprod, cumlogsumexp}) check_left_out(f, Cumulative{.axis = 1}, x);
  for (const auto f : {cummax, cummin}) check_left_out(f, Cumulative{.reverse = true}, x);
  check_left_out(linear_recurrence, Cumulative{.axis = 1}, x, x);
  check_left_out(linalg::norm, linalg::NormOptions{.kind = linalg::Norm::one}, x);
  check_left_out(linalg::triangular_solve, linalg::Triangular{.transposed = true}, square, square);

  const Array image = reshape(arange(16.0), {1, 4, 4, 1}), kernel = ones({2, 2, 1, 1});
  check_left_out(conv, Conv{.padding = "VALID"}, image, kernel);
  for (const auto f : {max_pool, min_pool, avg_pool}) check_left_out(f, Pool{.window = {3, 3}}, image);

  const Array heads = reshape(arange(12.0), {1, 3, 2, 2}) * 0.1;
  check_left_out(dot_product_attention, AttentionOptions{.causal = true}, heads, heads, heads);
  for (const auto f : {dot, matmul}) {
    CHECK(all_equal(jit(f)(square, square), f(square, square, {})));
    CHECK(all_equal(jit(f)(square, square, {.precision = Precision::tf32}),
                    f(square, square, {.precision = Precision::tf32})));
  }
  const Array far = array({0, 7});
  check_left_out(take, Indexing{.mode = OutOfRange::fill, .fill = -1}, x, far, 1);
}

TEST_CASE("other transforms take them so too, and each other's results") {
  const Array x = reshape(arange(6.0), {2, 3});
  CHECK(vmap(sum)(x).to_vector<float>() == std::vector<float>{3, 12});
  CHECK(vmap(sum)(x, {.keepdims = true}).shape() == Shape{2, 1});
  CHECK(jit(vmap(sum))(x).shape() == Shape{2});
  CHECK(jit(vmap(sum))(x, {.keepdims = true}).shape() == Shape{2, 1});
  CHECK(all_equal(grad(sum)(x), ones({2, 3})));
  CHECK(all_equal(jvp(max, x, ones({2, 3})).second, full({}, 1.0)));
  CHECK(all_equal(std::get<0>(vjp(mean, x).second(full({}, 6.0))), ones({2, 3})));
  CHECK(eval_shape(cumsum, x).shape() == Shape{2, 3});
  CHECK(jit(sum).text(x, Reduce{.axes = {0}}).find("-> f32[3]") != std::string::npos);
}

TEST_CASE("a user's function may end with options too, of the library or of the user") {
  struct Mine {
    using IsLeftOut = void;
    double factor = 2;
  };
  const auto scaled = jit([](Array x, const Mine& options) { return x * options.factor; });
  CHECK(scaled(ones({})).item<float>() == 2);
  CHECK(scaled(ones({}), {.factor = 5}).item<float>() == 5);
}
