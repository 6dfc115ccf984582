// Convolution, pooling and running reductions as users call them: values by hand, gradients, and the exact texts of
// errors.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_of;

namespace {

using V = std::vector<double>;

V values(const Array& x) { return x.to_vector<double>(); }

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Array ramp(const Shape& shape) {
  std::int64_t n = 1;
  for (std::int64_t d : shape) n *= d;
  return reshape(arange(static_cast<double>(n)), shape);
}

}  // namespace

TEST_CASE("conv slides a kernel over every position; SAME keeps the extents and VALID the windows that fit") {
  const Array x = reshape(array({1.0f, 2.0f, 3.0f, 4.0f}), {1, 4, 1}),
              k = reshape(array({1.0f, 10.0f, 100.0f}), {3, 1, 1});
  CHECK(values(conv(x, k)) == V{210, 321, 432, 43});
  CHECK(values(conv(x, k, {.padding = "VALID"})) == V{321, 432});
  CHECK(values(conv(x, k, {.padding = {{0, 1}}})) == V{321, 432, 43});
  CHECK(values(conv(x, k, {.padding = {{-1, 0}}})) == V{432});
  CHECK(values(conv(x, k, {.strides = {2}})) == V{321, 43});
  CHECK(values(conv(x, k, {.padding = "VALID", .input_dilation = {2}})) == V{201, 20, 302, 30, 403});
  CHECK(values(conv(x, reshape(array({1.0f, 10.0f}), {2, 1, 1}), {.padding = "VALID", .kernel_dilation = {3}})) ==
        V{41});
}

TEST_CASE("an even SAME window takes its odd element of padding from the end") {
  const Array x = reshape(array({1.0f, 2.0f, 3.0f}), {1, 3, 1}), k = reshape(array({1.0f, 10.0f}), {2, 1, 1});
  CHECK(values(conv(x, k)) == V{21, 32, 3});
}

TEST_CASE("conv sums over the channels it is told of") {
  const Array x = ramp({1, 2, 2, 2}), k = ramp({1, 1, 2, 3});  // 1 x 1 windows: a product of matrices
  CHECK(values(conv(x, k)) == values(matmul(reshape(x, {4, 2}), reshape(k, {2, 3}))));
  const Array first = transpose(x, {0, 3, 1, 2}), kernel = transpose(k, {3, 2, 0, 1});
  const Array y = conv(first, kernel, {.input = "NCHW", .kernel = "OIHW"});
  CHECK(y.shape() == Shape{1, 3, 2, 2});
  CHECK(all_equal(transpose(y, {0, 2, 3, 1}), conv(x, k)));
  CHECK(all_equal(conv(first, kernel, {.input = "NCHW", .kernel = "OIHW", .output = "NHWC"}), conv(x, k)));
}

TEST_CASE("groups of channels meet only their own kernels") {
  const Array x = ramp({1, 3, 4}), k = ramp({2, 2, 6});
  const Array both = conv(x, k, {.padding = "VALID", .groups = 2});
  const Array left = conv(x(ellipsis, slice(0, 2)), k(ellipsis, slice(0, 3)), {.padding = "VALID"});
  const Array right = conv(x(ellipsis, slice(2, 4)), k(ellipsis, slice(3, 6)), {.padding = "VALID"});
  CHECK(all_equal(both, concatenate({left, right}, 2)));
}

TEST_CASE("bf16 convolutions give f32 where asked") {
  const Array x = convert(ramp({1, 4, 2}), bf16), k = convert(ramp({3, 2, 2}), bf16);
  CHECK(conv(x, k).dtype() == bf16);
  CHECK(all_equal(conv(x, k, {.dtype = f32}), conv(ramp({1, 4, 2}), ramp({3, 2, 2}))));
}

TEST_CASE("the gradients of conv are those of the sum it stands for") {
  const Array x = ramp({1, 3, 1}), k = reshape(array({1.0f, 10.0f}), {2, 1, 1});
  const auto loss = [](Array a, Array b) {
    return sum(conv(a, b, {.padding = "VALID"}) * array({1.0f, 2.0f}).reshape({1, 2, 1}));
  };
  CHECK(values(grad(loss)(x, k)) == V{1, 12, 20});
  CHECK(values(grad([&](Array b) { return loss(x, b); })(k)) == V{2, 5});
}

TEST_CASE("vmap of conv over images, kernels or both is a loop") {
  const Array x = ramp({3, 1, 4, 2}), k = ramp({3, 2, 2, 2});
  const auto f = [](Array a, Array b) { return conv(a, b); };
  const Array both = vmap(f)(x, k), images = vmap(f, {.in = {0, none}})(x, k[0]),
              kernels = vmap(f, {.in = {none, 0}})(x[0], k);
  for (int i = 0; i < 3; ++i) {
    CHECK(all_equal(both[i], conv(x[i], k[i])));
    CHECK(all_equal(images[i], conv(x[i], k[0])));
    CHECK(all_equal(kernels[i], conv(x[0], k[i])));
  }
}

TEST_CASE("pooling") {
  const Array x = reshape(array({1.0f, 5.0f, 2.0f, 4.0f, 3.0f, 0.0f}), {1, 6, 1});
  CHECK(values(max_pool(x, {.window = {2}})) == V{5, 4, 3});
  CHECK(values(min_pool(x, {.window = {2}})) == V{1, 2, 0});
  CHECK(values(avg_pool(x, {.window = {2}})) == V{3, 3, 1.5});
  CHECK(values(max_pool(x, {.window = {3}, .strides = {2}})) == V{5, 4});
  CHECK(values(max_pool(x, {.window = {3}, .strides = {2}, .padding = "SAME"})) == V{5, 4, 3});
  CHECK(values(avg_pool(x, {.window = {3}, .strides = {3}, .padding = {{2, 1}}})) ==
        values(array({1.0 / 3, 11.0 / 3, 1.0})));
  CHECK(values(avg_pool(x, {.window = {3}, .strides = {3}, .padding = {{2, 1}}, .counts_padding = false})) ==
        values(array({1.0, 11.0 / 3, 1.5})));
  CHECK(values(avg_pool(convert(x, i32), {.window = {2}})) == V{3, 3, 1.5});
  CHECK(values(max_pool(reshape(x, {1, 1, 6}), {.window = {2}, .input = "NCW"})) == V{5, 4, 3});
}

TEST_CASE("the gradient of max_pool goes to the first of equal elements of each window") {
  const Array x = reshape(array({2.0f, 2.0f, 1.0f, 3.0f, 3.0f}), {1, 5, 1});
  const auto g = [](Pool pool) { return grad([pool](Array v) { return sum(max_pool(v, pool)); }); };
  CHECK(values(g({.window = {2}})(x)) == V{1, 0, 0, 1, 0});
  CHECK(values(g({.window = {3}, .strides = {1}})(x)) == V{1, 0, 0, 2, 0});
  CHECK(values(grad([](Array v) { return sum(avg_pool(v, {.window = {2}, .strides = {1}})); })(x)) ==
        V{0.5, 1, 1, 1, 0.5});
}

TEST_CASE("window reductions over any dims") {
  const Array x = ramp({3, 3});
  CHECK(values(window_sum(x, {.window = {2, 2}})) == V{8, 12, 20, 24});
  CHECK(values(window_prod(x, {.window = {1, 2}, .strides = {1, 2}})) == V{0, 12, 42});
  CHECK(values(window_max(x, {.window = {2, 1}, .padding = "SAME"})) == V{3, 4, 5, 6, 7, 8, 6, 7, 8});
  CHECK(values(window_min(array({3, 1, 2}), {.window = {2}, .dilation = {2}})) == V{2});
  CHECK(values(window_sum(array({1, 2, 3}), {.window = {2}, .base_dilation = {2}})) == V{1, 2, 2, 3});
  CHECK(values(window_max(array({1.0f, 2.0f}), {.window = {1}, .padding = {{1, 0}}})) == V{-kInfinity, 1, 2});
}

TEST_CASE("running reductions, from both ends") {
  const Array x = array({3, 1, 4, 1, 5});
  CHECK(values(cumsum(x)) == V{3, 4, 8, 9, 14});
  CHECK(values(cumsum(x, {.reverse = true})) == V{14, 11, 10, 6, 5});
  CHECK(values(cumprod(x)) == V{3, 3, 12, 12, 60});
  CHECK(values(cummax(x)) == V{3, 3, 4, 4, 5});
  CHECK(values(cummin(x, {.reverse = true})) == V{1, 1, 1, 1, 5});
  CHECK(values(cumsum(array({true, true, false, true}))) == V{1, 2, 2, 3});
  CHECK(values(cumsum(ramp({2, 2}), {.axis = -1})) == V{0, 1, 2, 5});
  const Array rows = random::normal(random::key(0), {40, 70});  // as many columns as do not fill the lanes evenly
  CHECK(all_equal(cumsum(rows), transpose(cumsum(transpose(rows), {.axis = 1}))));
}

TEST_CASE("the running logsumexp never overflows") {
  const V y = values(cumlogsumexp(array({-kInfinity, 1000.0, 1000.0, -kInfinity})));
  CHECK(y[0] == -kInfinity);
  CHECK(y[1] == 1000);
  CHECK(y[2] == doctest::Approx(1000 + std::log(2.0)));
  CHECK(y[3] == y[2]);
  CHECK(values(cumlogsumexp(array({kInfinity, 0.0}))) == V{kInfinity, kInfinity});
}

TEST_CASE("gradients of running reductions at zeros and ties") {
  const auto last = [](auto f) { return grad([f](Array v) { return f(v)[-1]; }); };
  CHECK(values(last([](Array v) { return cumprod(v); })(array({0.0f, 2.0f, 3.0f}))) == V{6, 0, 0});
  CHECK(values(last([](Array v) { return cumprod(v); })(array({0.0f, 2.0f, 0.0f}))) == V{0, 0, 0});
  CHECK(values(last([](Array v) { return cummax(v); })(array({2.0f, 1.0f, 2.0f, 0.0f}))) == V{0.5, 0, 0.5, 0});
  CHECK(values(last([](Array v) { return cumlogsumexp(v); })(array({-kInfinity, 0.0, 0.0}))) == V{0, 0.5, 0.5});
}

TEST_CASE("a linear recurrence broadcasts its factor") {
  CHECK(values(linear_recurrence(0.5, array({8.0f, 4.0f, 2.0f}))) == V{8, 8, 6});
  CHECK(values(linear_recurrence(array({9.0f, 2.0f, 3.0f}), array({1.0f, 1.0f, 1.0f}))) == V{1, 3, 10});
}

TEST_CASE("wrong convolutions name the line, both shapes and what does not fit") {
  std::string text;
  const int base = __LINE__;
  const Array x = zeros({2, 8, 8, 3}), k = zeros({3, 3, 4, 5});
  const std::string where = "\n  lhs: f32[2, 8, 8, 3]   (made at HERE+1)\n  rhs: f32[3, 3, 4, 5]   (made at HERE+1)";
  text = message_of<ShapeError>([&] { conv(x, k); }, base);
  CHECK(text == "HERE+3: conv: features: lhs dim 3 (3) and rhs dim 2 (4) must match" + where);
  text = message_of<ShapeError>([&] { conv(x, k, {.groups = 2}); }, base);
  CHECK(text == "HERE+5: conv: 2 groups must divide lhs features (3) and rhs outputs (5)" + where);
  text = message_of<ShapeError>([&] { conv(x, k, {.padding = "same"}); }, base);
  CHECK(text == "HERE+7: conv: the padding \"same\" is none of \"SAME\", \"VALID\" and widths" + where);
  text = message_of<ShapeError>([&] { conv(x, k, {.padding = {{1, 1}}}); }, base);
  CHECK(text == "HERE+9: conv: 1 widths of padding must be 2, one for each dim of the window" + where);
  text = message_of<ShapeError>([&] { conv(x, k, {.strides = {2}}); }, base);
  CHECK(text == "HERE+11: conv: strides [2] must have 2 entries, one for each dim of the window" + where);
  text = message_of<ShapeError>([&] { conv(x, k, {.strides = {2, 0}}); }, base);
  CHECK(text == "HERE+13: conv: strides [2, 0] must be at least 1" + where);
  text = message_of<ShapeError>([&] { conv(x, k, {.input = "NHWN"}); }, base);
  CHECK(text == "HERE+15: conv: the layout \"NHWN\" must name N and C once, and spatial dims by other letters" + where);
  text = message_of<ShapeError>([&] { conv(x, k, {.input = "NHC"}); }, base);
  CHECK(text == "HERE+17: conv: the layout \"NHC\" names 3 dims, not 4" + where);
  text = message_of<ShapeError>([&] { conv(x, k, {.kernel = "DHIO"}); }, base);
  CHECK(text == "HERE+19: conv: the layout \"DHIO\" lacks the spatial dim W" + where);
  text = message_of<ShapeError>([&] { conv(x, zeros({3, 4, 5})); }, base);
  CHECK(text ==
        "HERE+21: conv: the kernel must have as many dims as the input, 4, not 3\n"
        "  lhs: f32[2, 8, 8, 3]   (made at HERE+1)\n  rhs: f32[3, 4, 5]   (made at HERE+21)");
  text = message_of<ShapeError>([&] { conv(x, zeros({3, 3, 3, 1}), {.padding = {{-9, 0}, {0, 0}}}); }, base);
  CHECK(text ==
        "HERE+25: conv: padding (low -9, high 0) of dim 1 leaves -1 elements\n"
        "  lhs: f32[2, 8, 8, 3]   (made at HERE+1)\n  rhs: f32[3, 3, 3, 1]   (made at HERE+25)");
}

TEST_CASE("wrong pools and running reductions name the operand") {
  std::string text;
  const int base = __LINE__;
  const Array x = zeros({2, 8, 3});
  text = message_of<ShapeError>([&] { max_pool(x); }, base);
  CHECK(text ==
        "HERE+2: max_pool: window [2, 2] must have 1 entries, one for each dim of the window\n"
        "  operand: f32[2, 8, 3]   (made at HERE+1)");
  text = message_of<ShapeError>([&] { cumsum(x, {.axis = 3}); }, base);
  CHECK(text == "HERE+6: cumsum: axis 3 is out of range for rank 3\n  operand: f32[2, 8, 3]   (made at HERE+1)");
  text = message_of<TypeError>([&] { cummax(x > 0); }, base);
  CHECK(text ==
        "HERE+8: cummax: cumulative max takes an integer or floating point, not bool[2, 8, 3]\n"
        "  operand: bool[2, 8, 3]   (made at HERE+8)");
  text = message_of<ShapeError>([&] { max_pool(zeros({3})); }, base);
  CHECK(text ==
        "HERE+12: max_pool: there must be dims N and C, and any spatial ones\n  operand: f32[3]   (made at HERE+12)");
}
