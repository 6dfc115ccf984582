// Convolution and pooling beyond the plain case: the same values and gradients in every layout, a kernel for each
// channel, strides, groups, narrow floats that accumulate in f32, and images of one element or none.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/counters.h"
#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

using V = std::vector<double>;

V values(const Array& x) { return x.to_vector<double>(); }

// Small integers, so that sums are exact in any order.
Array integers(std::uint64_t seed, const Shape& shape, DType dtype = f32) {
  return convert(random::randint(random::key(seed), shape, -3, 4), dtype);
}

struct Gradients {
  Array y, dx, dk;
};

// Of a sum that weighs every element of the result differently.
Gradients gradients(const Array& x, const Array& k, const Conv& o) {
  const Array y = conv(x, k, o);
  const Array weight = integers(9, y.shape(), y.dtype());
  const auto loss = [&](Array a, Array b) { return sum(conv(a, b, o) * weight); };
  return {y, grad([&](Array a) { return loss(a, k); })(x), grad([&](Array b) { return loss(x, b); })(k)};
}

Array channel(const Array& x, std::int64_t c) { return x(ellipsis, slice(c, c + 1)); }

}  // namespace

TEST_CASE("channels first give the bits that channels last do, and so do their gradients") {
  const auto normal = [](std::uint64_t seed, const Shape& shape) { return random::normal(random::key(seed), shape); };
  const Array x = normal(1, {2, 6, 7, 5});
  for (const Shape& window : {Shape{3, 3}, {1, 1}}) {
    for (const std::int64_t stride : {1, 2}) {
      const Array k = normal(2, {window[0], window[1], 5, 4});
      const Array first = transpose(x, {0, 3, 1, 2}), kernel = transpose(k, {3, 2, 0, 1});
      const Conv last{.strides = {stride, stride}};
      Conv channels_first = last;
      channels_first.input = "NCHW";
      channels_first.kernel = "OIHW";
      const Array y = conv(x, k, last), z = conv(first, kernel, channels_first);
      CHECK(all_equal(transpose(z, {0, 2, 3, 1}), y));
      const Array weight = normal(3, y.shape()), weight_first = transpose(weight, {0, 3, 1, 2});
      const auto loss = [&](Array a, Array b) { return sum(conv(a, b, last) * weight); };
      const auto loss_first = [&](Array a, Array b) { return sum(conv(a, b, channels_first) * weight_first); };
      CHECK(all_equal(transpose(grad([&](Array a) { return loss_first(a, kernel); })(first), {0, 2, 3, 1}),
                      grad([&](Array a) { return loss(a, k); })(x)));
      CHECK(all_equal(transpose(grad([&](Array b) { return loss_first(first, b); })(kernel), {2, 3, 1, 0}),
                      grad([&](Array b) { return loss(x, b); })(k)));
    }
  }
}

TEST_CASE("a kernel for each channel is a loop over channels, and so are its gradients") {
  for (const DType dtype : {f32, bf16, f16}) {
    const Array x = integers(1, {2, 9, 8, 6}, dtype), k = integers(2, {3, 2, 1, 6}, dtype);
    for (const std::int64_t stride : {1, 2}) {
      const Conv one{.strides = {stride, stride}};
      Conv each = one;
      each.groups = 6;
      const Array y = conv(x, k, each), weight = integers(3, y.shape(), dtype);
      const auto loss = [](const Conv& o, const Array& w) {
        return [o, w](Array a, Array b) { return sum(conv(a, b, o) * w); };
      };
      const Array dx = grad([&](Array a) { return loss(each, weight)(a, k); })(x);
      const Array dk = grad([&](Array b) { return loss(each, weight)(x, b); })(k);
      for (std::int64_t c = 0; c < 6; ++c) {
        const Array own_x = channel(x, c), own_k = channel(k, c), w = channel(weight, c);
        CHECK(all_equal(channel(y, c), conv(own_x, own_k, one)));
        CHECK(all_equal(channel(dx, c), grad([&](Array a) { return loss(one, w)(a, own_k); })(own_x)));
        CHECK(all_equal(channel(dk, c), grad([&](Array b) { return loss(one, w)(own_x, b); })(own_k)));
      }
    }
  }
}

TEST_CASE("several outputs of each channel, and channels first, are a loop over channels, and so are their gradients") {
  const Array x = integers(1, {2, 7, 6, 3}), k = integers(2, {3, 3, 1, 6});
  const Conv one{.strides = {2, 1}};
  Conv each = one, first = one;
  each.groups = first.groups = 3;
  first.input = "NCHW";
  const Array y = conv(x, k, each), weight = integers(3, y.shape());
  const Array x_first = transpose(x, {0, 3, 1, 2}), weight_first = transpose(weight, {0, 3, 1, 2});
  const auto loss = [](const Conv& o, const Array& w) {
    return [o, w](Array a, Array b) { return sum(conv(a, b, o) * w); };
  };
  const Array dx = grad([&](Array a) { return loss(each, weight)(a, k); })(x);
  const Array dk = grad([&](Array b) { return loss(each, weight)(x, b); })(k);
  for (std::int64_t c = 0; c < 3; ++c) {
    const Array own_k = k(ellipsis, slice(2 * c, 2 * c + 2)), w = weight(ellipsis, slice(2 * c, 2 * c + 2));
    CHECK(all_equal(y(ellipsis, slice(2 * c, 2 * c + 2)), conv(channel(x, c), own_k, one)));
    CHECK(all_equal(channel(dx, c), grad([&](Array a) { return loss(one, w)(a, own_k); })(channel(x, c))));
    CHECK(all_equal(dk(ellipsis, slice(2 * c, 2 * c + 2)),
                    grad([&](Array b) { return loss(one, w)(channel(x, c), b); })(own_k)));
  }
  CHECK(all_equal(transpose(conv(x_first, k, first), {0, 2, 3, 1}), y));
  const Array dx_first = grad([&](Array a) { return loss(first, weight_first)(a, k); })(x_first);
  CHECK(all_equal(transpose(dx_first, {0, 2, 3, 1}), dx));
  CHECK(all_equal(grad([&](Array b) { return loss(first, weight_first)(x_first, b); })(k), dk));
}

TEST_CASE("a strided convolution and its gradients are every other place of the dense one") {
  const Array x = integers(1, {2, 11, 10, 3}), k = integers(2, {3, 4, 3, 5});
  for (const std::int64_t stride : {2, 3}) {
    const Conv strided{.strides = {stride, stride}, .padding = {{1, 1}, {2, 0}}}, dense{.padding = {{1, 1}, {2, 0}}};
    const auto picked = [&](const Array& a, const Array& b) {
      return conv(a, b, dense)(slice(), slice(none, none, stride), slice(none, none, stride));
    };
    const Array y = conv(x, k, strided), weight = integers(3, y.shape());
    CHECK(all_equal(y, picked(x, k)));
    CHECK(all_equal(grad([&](Array a) { return sum(conv(a, k, strided) * weight); })(x),
                    grad([&](Array a) { return sum(picked(a, k) * weight); })(x)));
    CHECK(all_equal(grad([&](Array b) { return sum(conv(x, b, strided) * weight); })(k),
                    grad([&](Array b) { return sum(picked(x, b) * weight); })(k)));
  }
}

TEST_CASE("groups of the batch meet only their own kernels, forward and backward") {
  const Array x = integers(1, {4, 5, 3}), k = integers(2, {2, 3, 6});
  const auto [y, dx, dk] = gradients(x, k, {.batch_groups = 2});
  const Array weight = integers(9, y.shape());
  for (std::int64_t g = 0; g < 2; ++g) {
    const Array images = x(slice(2 * g, 2 * g + 2)), kernel = k(ellipsis, slice(3 * g, 3 * g + 3));
    const Array w = weight(ellipsis, slice(3 * g, 3 * g + 3));
    CHECK(all_equal(y(ellipsis, slice(3 * g, 3 * g + 3)), conv(images, kernel)));
    CHECK(all_equal(dx(slice(2 * g, 2 * g + 2)), grad([&](Array a) { return sum(conv(a, kernel) * w); })(images)));
    CHECK(all_equal(dk(ellipsis, slice(3 * g, 3 * g + 3)),
                    grad([&](Array b) { return sum(conv(images, b) * w); })(kernel)));
  }
}

TEST_CASE("convolutions of narrow floats and their gradients accumulate in f32") {
  // 3000 ones would stop at 256 in bf16 and at 2048 in f16.
  for (const DType dtype : {bf16, f16}) {
    const Array x = ones({1, 3, 1000}, dtype), k = ones({3, 1000, 1}, dtype);
    CHECK(values(conv(x, k, {.padding = "VALID"})) == values(convert(array({3000.0f}), dtype)));
    const Array images = ones({3, 1000, 1}, dtype), tap = ones({1, 1, 1}, dtype);
    CHECK(values(grad([&](Array b) { return sum(convert(conv(images, b), f32)); })(tap)) ==
          values(convert(array({3000.0f}), dtype)));
    const Array wide = ones({1, 1, 3000}, dtype);
    CHECK(values(grad([&](Array a) { return sum(convert(conv(a, wide), f32)); })(ones({1, 1, 1}, dtype))) ==
          values(convert(array({3000.0f}), dtype)));
    const Array pictures = ones({3, 1000, 2}, dtype);  // a kernel for each channel
    CHECK(values(grad([&](Array b) { return sum(convert(conv(pictures, b, {.groups = 2}), f32)); })(
              ones({1, 1, 2}, dtype))) == values(convert(array({3000.0f, 3000.0f}), dtype)));
  }
}

TEST_CASE("pooling gradients of narrow floats: the first of equal elements, and shares of those that count") {
  for (const DType dtype : {bf16, f16}) {
    const Array x = reshape(convert(array({2.0f, 2.0f, 1.0f, 3.0f, 3.0f}), dtype), {1, 5, 1});
    CHECK(values(grad([](Array v) { return sum(max_pool(v, {.window = {2}})); })(x)) == V{1, 0, 0, 1, 0});
    CHECK(values(grad([](Array v) { return sum(max_pool(v, {.window = {3}, .strides = {1}})); })(x)) ==
          V{1, 0, 0, 2, 0});
    const Pool counted{.window = {2}, .strides = {2}, .padding = {{1, 0}}};
    Pool uncounted = counted;
    uncounted.counts_padding = false;
    CHECK(values(avg_pool(x, counted)) == V{1, 1.5, 3});
    CHECK(values(avg_pool(x, uncounted)) == V{2, 1.5, 3});
    CHECK(values(grad([&](Array v) { return sum(avg_pool(v, counted)); })(x)) == V{0.5, 0.5, 0.5, 0.5, 0.5});
    CHECK(values(grad([&](Array v) { return sum(avg_pool(v, uncounted)); })(x)) == V{1, 0.5, 0.5, 0.5, 0.5});
    // 1000 windows over each element: their shares would stop at 1/4 of the sum in bf16.
    const Pool overlapping{.window = {1000}, .strides = {1}, .padding = {{999, 999}}};
    CHECK(values(grad([&](Array v) { return sum(convert(avg_pool(v, overlapping), f32)); })(
              ones({1, 1, 1}, dtype)))[0] == doctest::Approx(1).epsilon(0.01));
  }
}

TEST_CASE("images of one element, and of none") {
  const Array k = integers(2, {3, 3, 2, 4});
  const auto [y, dx, dk] = gradients(integers(1, {2, 1, 1, 2}), k, {});
  CHECK(all_equal(y, conv(integers(1, {2, 1, 1, 2}), k(slice(1, 2), slice(1, 2)))));
  CHECK(dx.shape() == Shape{2, 1, 1, 2});
  CHECK(all_equal(dk(slice(0, 1)), zeros({1, 3, 2, 4})));
  for (const Shape& shape : {Shape{0, 4, 4, 2}, {2, 0, 4, 2}}) {
    const auto [none_y, none_dx, none_dk] = gradients(zeros(shape), k, {});
    CHECK(none_y.shape() == Shape{shape[0], shape[1], 4, 4});
    CHECK(none_dx.shape() == shape);
    CHECK(all_equal(none_dk, zeros({3, 3, 2, 4})));
  }
  const auto [edge, edge_dx, edge_dk] = gradients(zeros({1, 0, 2, 2}), k, {.padding = {{2, 2}, {1, 1}}});
  CHECK(all_equal(edge, zeros({1, 2, 2, 4})));  // windows of nothing but padding
  CHECK(all_equal(edge_dk, zeros({3, 3, 2, 4})));
  CHECK(values(max_pool(ones({1, 1, 1, 2}), {.padding = "SAME"})) == V{1, 1});
  CHECK(max_pool(ones({1, 1, 1, 2})).shape() == Shape{1, 0, 0, 2});
}

TEST_CASE("padding beside an infinite element of the kernel gives NaN") {
  const double infinity = std::numeric_limits<double>::infinity();
  const Array x = ones({1, 6, 1}), k = reshape(array({infinity, 1.0, 1.0}), {3, 1, 1});
  const V y = values(conv(x, k, {.padding = {{1, 1}}}));
  CHECK(std::isnan(y[0]));
  CHECK(V(y.begin() + 1, y.end()) == V(5, infinity));
}

TEST_CASE("zeros around images are in no array of their own: padding takes no kernel") {
  if (to_string(devices()[0]).starts_with("cuda")) return;
  const Array x = integers(1, {2, 8, 9, 16});
  const auto check = [&](const Array& k, const Conv& o) {
    Conv inside = o;
    inside.padding = "VALID";
    const auto jitted = [](const Conv& options) {
      return jit([options](Array a, Array b) { return conv(a, b, options); });
    };
    const auto f = jitted(o), g = jitted(inside);
    const Array y = f(x, k), around = pad(x, {{0, 0}, {1, 1}, {1, 1}, {0, 0}});
    CHECK(all_equal(y, g(around, k)));
    const auto launches_of = [&](const auto& function, const Array& images) {
      synchronize();
      const std::int64_t before = runtime::counters().launches;
      function(images, k);
      synchronize();
      return runtime::counters().launches - before;
    };
    CHECK(launches_of(f, x) == launches_of(g, around));
    const Array bias = integers(4, {k.shape().back()});
    const auto layer = [](Array a, Array b) { return maximum(a + b, 0.0f) * 2.0f; };
    const auto whole = jit([o, layer](Array a, Array b, Array c) { return layer(conv(a, b, o), c); });
    CHECK(all_equal(whole(x, k, bias), layer(y, bias)));
  };
  for (const std::int64_t stride : {1, 2}) {
    const Conv o{.strides = {stride, stride}, .padding = {{1, 1}, {1, 1}}};
    check(integers(2, {3, 3, 16, 40}), o);
    Conv each = o;
    each.groups = 16;
    check(integers(3, {3, 3, 1, 16}), each);
    each.groups = 4;
    check(integers(3, {3, 3, 4, 8}), each);
  }
}
