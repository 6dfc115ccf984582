// Gather, scatter, dynamic slices and sort at the borders: starts out of range, collisions, empty windows, NaN.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ir/on_numbers.h"

namespace sheaf::ir {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
using lowering::OutOfBounds;
using Combines = lowering::Scatter::Combine;

// Elements of a list at indices [n, 1].
ops::Gather elements(OutOfBounds mode) {
  return {.collapsed = {0}, .start_index_map = {0}, .index_dim = {1}, .slice_sizes = {1}, .mode = mode};
}
ops::Scatter elements(Combines combine) {
  return {.combine = combine, .inserted = {0}, .scatter_dims = {0}, .index_dim = {1}};
}
Literal at(const Numbers& indices) { return Literal(i32, {static_cast<std::int64_t>(indices.size()), 1}, indices); }

TEST_CASE("gather out of range: clip moves inside, fill shows") {
  const Literal x(f32, {3}, {10, 20, 30});
  CHECK(run(ops::gather, {x, at({-1, 0, 2, 3})}, elements(OutOfBounds::clip)) == Numbers{10, 10, 30, 30});
  const Numbers filled = run(ops::gather, {x, at({-1, 0, 3})}, elements(OutOfBounds::fill));
  CHECK(std::isnan(filled[0]));
  CHECK(filled[1] == 10);
  CHECK(std::isnan(filled[2]));
  CHECK(run(ops::gather, {Literal(i8, {1}, {5}), at({1})}, elements(OutOfBounds::fill)) == Numbers{-128});
  CHECK(run(ops::gather, {Literal(u16, {1}, {5}), at({1})}, elements(OutOfBounds::fill)) == Numbers{65535});
  CHECK(run(ops::gather, {Literal(bool_, {1}, {0}), at({1})}, elements(OutOfBounds::fill)) == Numbers{1});
  CHECK(run(ops::gather, {x, Literal(u64, {1, 1}, {1e19})}, elements(OutOfBounds::clip)) == Numbers{30});
}

TEST_CASE("a window partly out of range is filled whole, and clip moves it whole") {
  const Literal x(f32, {4}, {1, 2, 3, 4});
  ops::Gather pairs{.offset_dims = {1}, .start_index_map = {0}, .index_dim = {1}, .slice_sizes = {2}};
  CHECK(run(ops::gather, {x, at({3})}, pairs) == Numbers{3, 4});
  pairs.mode = OutOfBounds::fill;
  pairs.has_fill = true;
  CHECK(run(ops::gather, {x, at({3, 2})}, pairs) == Numbers{0, 0, 3, 4});
}

TEST_CASE("gradients of gather keep its mode, forward and reverse") {
  const Literal p(f32, {1}, {1});
  for (const auto& [mode, slope] : {std::pair(OutOfBounds::clip, 1.0), std::pair(OutOfBounds::fill, 0.0)}) {
    const FunctionRef f = function_of(ops::gather, {p.type(), Type(i32, {1, 1})}, elements(mode));
    const double value = numbers(eval(*f, Literals{p, at({1})})[0])[0];
    CHECK((mode == OutOfBounds::clip ? value == 1 : std::isnan(value)));
    CHECK(gradients(ops::gather, {p, at({1})}, elements(mode)) == std::vector<Numbers>{{slope}});
    const passes::Jvp forward = passes::jvp(f, {true, false});
    CHECK(numbers(eval(*forward.function, Literals{p, at({1}), ones_like(p.type())})[1]) == Numbers{slope});
  }
}

TEST_CASE("the reverse gradient of clip stays 1 when batched") {
  const FunctionRef f = function_of(ops::gather, {Type(f32, {1}), Type(i32, {1, 1})}, elements(OutOfBounds::clip));
  const passes::Vjp v = passes::vjp(f, {true, false});
  const passes::Batch forward = passes::batch(v.forward, {0, 0}, 2);
  Literals residuals =
      eval(*forward.function, Literals{Literal(f32, {2, 1}, {1, 2}), Literal(i32, {2, 1, 1}, {1, -4})});
  std::vector<int> dims(forward.out_dims.begin() + 1, forward.out_dims.end());
  residuals.erase(residuals.begin());
  residuals.push_back(Literal(f32, {2, 1}, {1, 1}));
  dims.push_back(0);
  const passes::Batch backward = passes::batch(v.backward, dims, 2);
  CHECK(numbers(eval(*backward.function, residuals)[0]) == Numbers{1, 1});
}

TEST_CASE("dynamic slices wrap a negative start once and never leave the array") {
  const Literal x(i32, {5}, {0, 1, 2, 3, 4});
  const auto slice = [&](double start) {
    return run(ops::dynamic_slice, {x, Literal(i32, {1}, {start})},
               ops::DynamicSlice{.dims = {0}, .sizes = {2}, .index_dim = {0}});
  };
  CHECK(slice(1) == Numbers{1, 2});
  CHECK(slice(-4) == Numbers{1, 2});
  CHECK(slice(-1) == Numbers{3, 4});
  CHECK(slice(-9) == Numbers{0, 1});
  CHECK(slice(9) == Numbers{3, 4});
  CHECK(run(ops::dynamic_slice, {x, Literal(u8, {1}, {255})},
            ops::DynamicSlice{.dims = {0}, .sizes = {2}, .index_dim = {0}}) == Numbers{3, 4});
}

TEST_CASE("an update too far out lands at the last place it fits") {
  const Literal x(f32, {1, 3, 33}, Numbers(99, 0.0)), update(f32, {1, 1, 8}, Numbers(8, 1.0));
  const auto landed = [&](const Numbers& starts) {
    const Numbers y = run(ops::dynamic_update_slice, {x, update, Literal(i32, {3}, starts)},
                          ops::DynamicUpdateSlice{.dims = {0, 1, 2}, .index_dim = {0}});
    CHECK(std::count(y.begin(), y.end(), 1.0) == 8);
    return std::find(y.begin(), y.end(), 1.0) - y.begin();
  };
  CHECK(landed({1, 1, 31}) == 33 + 25);
  CHECK(landed({0, -1, -1}) == 2 * 33 + 25);
}

TEST_CASE("scatter combines in order and drops what is out of range") {
  const Literal x(f32, {3}, {1, 2, 3}), u(f32, {4}, {10, 20, 30, 40});
  const Literal indices = at({0, 2, 0, 3});
  CHECK(run(ops::scatter, {x, indices, u}, elements(Combines::add)) == Numbers{41, 2, 23});
  CHECK(run(ops::scatter, {x, indices, u}, elements(Combines::set)) == Numbers{30, 2, 20});
  CHECK(run(ops::scatter, {x, indices, u}, elements(Combines::mul)) == Numbers{300, 2, 60});
  CHECK(run(ops::scatter, {x, indices, u}, elements(Combines::max)) == Numbers{30, 2, 20});
  CHECK(run(ops::scatter, {x, indices, u}, elements(Combines::min)) == Numbers{1, 2, 3});
  const Literal nan(f32, {1}, {kNaN});
  CHECK(std::isnan(run(ops::scatter, {x, at({0}), nan}, elements(Combines::max))[0]));
}

TEST_CASE("colliding updates share gradients as their values do") {
  const Literal x(f32, {2}, {1, 9}), u(f32, {3}, {5, 5, 7});
  const auto grads = [&](Combines combine, const Numbers& indices) {
    return gradients(ops::scatter, {x, at(indices), u}, elements(combine));
  };
  CHECK(grads(Combines::set, {0, 0, 5}) == std::vector<Numbers>{{0, 1}, {0, 1, 0}});
  CHECK(grads(Combines::max, {0, 0, 1}) == std::vector<Numbers>{{0, 1}, {.5, .5, 0}});
  CHECK(grads(Combines::add, {0, 0, 2}) == std::vector<Numbers>{{1, 1}, {1, 1, 0}});
}

TEST_CASE("the gradient of a segment product needs no division") {
  const Literal ones = ones_like(Type(f32, {2}));
  const auto grad = [&](const Numbers& x) {
    return gradients(ops::scatter, {ones, at({0, 0, 1}), Literal(f32, {3}, x)}, elements(Combines::mul))[1];
  };
  CHECK(run(ops::scatter, {ones, at({0, 0, 1}), Literal(f32, {3}, {2, 3, 5})}, elements(Combines::mul)) ==
        Numbers{6, 5});
  CHECK(grad({2, 3, 5}) == Numbers{3, 2, 1});
  CHECK(grad({0, 3, 5}) == Numbers{3, 0, 1});
  CHECK(grad({0, 0, 5}) == Numbers{0, 0, 1});
}

TEST_CASE("sort is stable, NaN comes last, -0 equals +0, and operands follow the keys") {
  const Literal key(f32, {6}, {3, kNaN, 0.0, -0.0, -1, 3}), carried(i32, {6}, {0, 1, 2, 3, 4, 5});
  const Literals y = run_all(ops::sort, {key, carried}, ops::Sort{.dim = {0}});
  CHECK(numbers(y[1]) == Numbers{4, 2, 3, 0, 5, 1});
  CHECK(std::isnan(y[0].get(5)));
  CHECK_FALSE(std::signbit(y[0].get(1)));
  CHECK(std::signbit(y[0].get(2)));
  const Literals two = run_all(
      ops::sort, {Literal(i8, {4}, {1, 0, 1, 0}), Literal(u64, {4}, {7, 9, 3, 9}), Literal(i32, {4}, {0, 1, 2, 3})},
      ops::Sort{.dim = {0}, .num_keys = 2});
  CHECK(numbers(two[2]) == Numbers{1, 3, 2, 0});
}

TEST_CASE("the gradient of sort goes back to where each element came from") {
  const FunctionRef f = function_of(ops::sort, {Type(f32, {3}), Type(f32, {3})}, ops::Sort{.dim = {0}});
  const passes::Vjp v = passes::vjp(f, {true, true});
  Literals residuals = eval(*v.forward, Literals{Literal(f32, {3}, {3, 1, 2}), Literal(f32, {3}, {0, 0, 0})});
  residuals.erase(residuals.begin(), residuals.begin() + 2);
  residuals.push_back(Literal(f32, {3}, {10, 20, 30}));
  residuals.push_back(Literal(f32, {3}, {1, 2, 3}));
  const Literals g = eval(*v.backward, residuals);
  CHECK(numbers(g[0]) == Numbers{30, 10, 20});
  CHECK(numbers(g[1]) == Numbers{3, 1, 2});
}

TEST_CASE("indexing errors say which dim does not fit") {
  const Type x(f32, {3, 4}), indices(i32, {5, 1});
  const ops::Gather rows{
      .offset_dims = {1}, .collapsed = {0}, .start_index_map = {0}, .index_dim = {1}, .slice_sizes = {1, 4}};
  ops::Gather bad = rows;
  bad.slice_sizes = {1, 5};
  CHECK(error(ops::gather, {x, indices}, bad) == "slice size 5 does not fit dim 1 (4)");
  bad = rows;
  bad.slice_sizes = {2, 4};
  CHECK(error(ops::gather, {x, indices}, bad) == "slice size of dim 0 must be 1, not 2");
  CHECK(error(ops::gather, {x, Type(f32, {5, 1})}, rows) == "indices (f32[5, 1]) must be integers");
  CHECK(error(ops::gather, {x, Type(i32, {5, 2})}, rows) ==
        "indices dim 1 (2) must hold one start for each of the operand's dims [0]");
  const ops::Scatter add{.update_window_dims = {1}, .inserted = {0}, .scatter_dims = {0}, .index_dim = {1}};
  CHECK(error(ops::scatter, {x, indices, Type(f32, {6, 4})}, add) == "updates (f32[6, 4]) must be f32[5, 4]");
  CHECK(error(ops::scatter, {x, indices, Type(f32, {5, 7})}, add) == "an update window of 7 does not fit dim 1 (4)");
  CHECK(error(ops::dynamic_slice, {x, Type(i32, {1})},
              ops::DynamicSlice{.dims = {1}, .sizes = {5}, .index_dim = {0}}) == "a slice of 5 does not fit dim 1 (4)");
  CHECK(error(ops::dynamic_update_slice, {x, Type(f32, {2, 2}), Type(i32, {1})},
              ops::DynamicUpdateSlice{.dims = {1}, .index_dim = {0}}) ==
        "update dim 0 (2) and operand dim 0 (3) must match");
  CHECK(error(ops::sort, {x, Type(f32, {4, 3})}, ops::Sort{.dim = {0}}) ==
        "operands 0 (f32[3, 4]) and 1 (f32[4, 3]) must have the same shape");
}

}  // namespace
}  // namespace sheaf::ir
