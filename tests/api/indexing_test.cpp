// What happens to positions out of range: by each mode, for reads and writes, with their gradients; and the functions
// that pick elements by value.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

using D = std::vector<double>;
using I = std::vector<std::int64_t>;

D reals(const Array& x) { return x.to_vector<double>(); }
I integers(const Array& x) { return x.to_vector<std::int64_t>(); }

const Indexing kClip{.mode = OutOfRange::clip}, kFill{.mode = OutOfRange::fill}, kPromise{.mode = OutOfRange::promise};

}  // namespace

TEST_CASE("reads out of range clip, or give the fill value") {
  const Array x = array({10.0, 20.0, 30.0}), at = array({-4, -1, 1, 3});
  CHECK(reals(x[at]) == D{10, 30, 20, 30});
  CHECK(reals(take(x, at)) == D{10, 30, 20, 30});
  CHECK(reals(take(x, at, 0, {.mode = OutOfRange::fill, .fill = -1})) == D{-1, 30, 20, -1});
  CHECK(std::isnan(reals(take(x, at, 0, kFill))[0]));
  CHECK(reals(take(x, array({2, 0}), 0, kPromise)) == D{30, 10});
  CHECK(reals(x.at(at).get({.mode = OutOfRange::fill, .fill = 0.5})) == D{0.5, 30, 20, 0.5});
  const Array rows = array({{1, 2}, {3, 4}});
  CHECK(integers(take(rows, array({2, -2}), 1, {.mode = OutOfRange::fill, .fill = 9})) == I{9, 1, 9, 3});
  CHECK(integers(take(rows, array({5}), 0, kFill)) == I{-2147483648, -2147483648});
  CHECK(integers(take_along_axis(rows, array({{2}, {-1}}), 1, {.mode = OutOfRange::fill, .fill = 7})) == I{7, 4});
  CHECK(integers(take_along_axis(rows, array({{2}, {-3}}), 1)) == I{2, 3});
  CHECK(take(array({true, false}), array({4}), 0, {.mode = OutOfRange::fill, .fill = false}).item<bool>() == false);
}

TEST_CASE("writes out of range are dropped, or clipped where that is asked for") {
  const Array x = zeros({3}), at = array({-4, -1, 3});
  CHECK(reals(x.at(at).add(1)) == D{0, 0, 1});
  CHECK(reals(x.at(at).add(1, kClip)) == D{1, 0, 2});
  CHECK(reals(x.at(at).set(5, kFill)) == D{0, 0, 5});
  CHECK(reals(ones({3}).at(at).mul(3, kClip)) == D{3, 1, 9});
  CHECK(reals(x.at(at).min(-2, kClip)) == D{-2, 0, -2});
  CHECK(reals(x.at(at).max(2)) == D{0, 0, 2});
  CHECK(reals(x.at(array({0, 2})).set(array({1.0, 2.0}), {.mode = OutOfRange::promise, .unique = true})) == D{1, 0, 2});
  CHECK(reals(zeros({0}).at(array({0})).add(1, kClip)) == D{});
}

TEST_CASE("what meets may be combined in any order where the user says so, in gradients of reads too") {
  const Indexing any{.deterministic = false};
  const Array ids = array({0, 2, 0, 0, -1, 2, 0, 1, 0, 0, 2, 1, 0, 0, 0, 2, 1, 0});
  const Array one = ones({18});
  CHECK(reals(zeros({3}).at(ids).add(one, any)) == D{10, 3, 5});
  CHECK(reals(ones({3}).at(ids).mul(one * 2, any)) == D{1024, 8, 32});
  CHECK(reals(zeros({3}).at(ids).set(arange(18, f32), any)) == D{17, 16, 15});
  const auto read = [&](Array table) { return sum(take(table, ids, 0, any)); };
  CHECK(reals(grad(read)(zeros({3}))) == D{10, 3, 5});
  const auto written = [&](Array u) { return sum(square(zeros({3}).at(ids).add(u, any))); };
  CHECK(reals(grad(written)(one))[0] == 20);
  for (const std::string& text : {jit(grad(read)).trace(zeros({3})).text(), jit(written).trace(one).text()})
    CHECK(text.find("deterministic=false") != std::string::npos);
  CHECK(reals(jit(vmap(grad(read)))(zeros({2, 3}))) == D{10, 3, 5, 10, 3, 5});
}

TEST_CASE("gradients of reads keep the mode, by reverse, forward and batched reverse") {
  const Array p = array({1.0});
  for (const auto& [options, slope] : {std::pair(kClip, 1.0), std::pair(kFill, 0.0)}) {
    const auto f = [options](Array q) { return sum(take(q, array({1}), 0, options)); };
    CHECK(reals(grad(f)(p)) == D{slope});
    CHECK(jvp(f, p, ones({1}, p.dtype())).second.item<double>() == slope);
    CHECK(reals(vmap(grad(f))(array({{1.0}, {2.0}}))) == D{slope, slope});
  }
  const auto filled = [](Array q) { return sum(take(q, array({1, 0}), 0, {.mode = OutOfRange::fill, .fill = 3.0})); };
  CHECK(filled(p).item<double>() == 4);
  CHECK(reals(grad(filled)(p)) == D{1});
}

TEST_CASE("gradients of writes go where what they wrote went") {
  const Array x = array({1.0, 2.0, 3.0}), at = array({0, 3, 0});
  const auto weighted = [](Array y) { return sum(y * array({1.0, 10.0, 100.0})); };
  const auto added = [&](const Indexing& options) {
    return [&, options](Array u) { return weighted(x.at(at).add(u, options)); };
  };
  CHECK(reals(grad(added({}))(ones({3}))) == D{1, 0, 1});
  CHECK(reals(grad(added(kClip))(ones({3}))) == D{1, 100, 1});
  const auto set = [&](Array u) { return weighted(x.at(at).set(u)); };
  CHECK(reals(grad(set)(ones({3}))) == D{0, 0, 1});
  const auto larger = [&](Array u) { return weighted(x.at(at).max(u)); };
  CHECK(reals(grad(larger)(array({5.0, 9.0, 5.0}))) == D{0.5, 0, 0.5});
}

TEST_CASE("the gradient of a segment product is exact at zeros, and the same for sorted places") {
  const Array ids = array({0, 0, 1});
  for (const bool sorted : {false, true}) {
    const auto product = [&](Array x) { return ones({2}).at(ids).mul(x, {.sorted = sorted}); };
    const auto total = [&](Array x) { return sum(product(x)); };
    CHECK(reals(product(array({2.0, 3.0, 5.0}))) == D{6, 5});
    CHECK(reals(grad(total)(array({2.0, 3.0, 5.0}))) == D{3, 2, 1});
    CHECK(reals(grad(total)(array({0.0, 3.0, 5.0}))) == D{3, 0, 1});
    CHECK(reals(vmap(grad(total))(array({{2.0, 3.0, 5.0}, {0.0, 3.0, 5.0}}))) == D{3, 2, 1, 3, 0, 1});
  }
}

TEST_CASE("sorted places keep the gradient where a range makes several of each") {
  const Array ids = array({0, 0, 1}), u = array({{2.0, 3.0}, {5.0, 7.0}, {11.0, 13.0}});
  const auto product = [&](Array x) { return sum(ones({2, 3}, f64).at(ids, slice(0, 2)).mul(x, {.sorted = true})); };
  CHECK(product(u).item<double>() == 10 + 21 + 1 + 11 + 13 + 1);
  CHECK(reals(grad(product)(u)) == D{5, 7, 2, 3, 1, 1});
}

TEST_CASE("apply changes each listed place once") {
  const auto f = [](const Array& v) { return v * v + 1; };
  const Array x = array({1.0, 2.0, 3.0});
  CHECK(reals(x.at(array({2, 2, 0})).apply(f)) == D{2, 2, 10});
  CHECK(reals(x.at(slice(1, none)).apply(f)) == D{1, 5, 10});
  CHECK(reals(grad([&](Array y) { return sum(y.at(array({2, 2})).apply(f)); })(x)) == D{1, 1, 6});
}

TEST_CASE("gather and scatter take dimension numbers, and do not count from the end") {
  const Array x = reshape(arange(12), {4, 3}), starts = array({{1}, {3}, {-1}});
  const WindowDims rows{.inside = {1}, .dropped = {0}, .starts = {0}};
  CHECK(integers(gather(x, starts, rows, {1, 3})) == I{3, 4, 5, 9, 10, 11, 0, 1, 2});
  CHECK(integers(gather(x, starts, rows, {1, 3}, {.mode = OutOfRange::fill, .fill = 7}))[6] == 7);
  const WindowDims pairs{.inside = {1, 2}, .starts = {0, 1}};
  CHECK(integers(gather(x, array({{2, 5}}), pairs, {1, 2})) == I{7, 8});
  const Array zero = zeros({4, 3}), ones_at = ones({3, 3});
  CHECK(reals(sum(scatter(zero, starts, ones_at, rows, Combine::add), {.axes = {1}})) == D{0, 3, 0, 3});
  CHECK(reals(sum(scatter(zero, starts, ones_at, rows, Combine::add, kClip), {.axes = {1}})) == D{3, 3, 0, 3});
  CHECK(reals(scatter(ones({2}), array({{0}, {0}}), array({3, 4}), {.dropped = {0}, .starts = {0}}, Combine::mul)) ==
        D{12, 1});
  CHECK(reals(scatter(ones({2}), array({{5}}), array({{3, 4}}), {.inside = {1}, .starts = {0}}, Combine::set, kClip)) ==
        D{3, 4});
}

TEST_CASE("top_k gives values, positions, and gradients to what was chosen") {
  const Array x = array({{1.0, 5.0, 5.0, 2.0}, {4.0, 3.0, 2.0, 1.0}});
  const TopK top = top_k(x, 2);
  CHECK(reals(top.values) == D{5, 5, 4, 3});
  CHECK(integers(top.indices) == I{1, 2, 0, 1});
  CHECK(top.indices.dtype() == i32);
  CHECK(reals(top_k(x, 1, 0).values) == D{4, 5, 5, 2});
  CHECK(top_k(x, 0).values.shape() == Shape{2, 0});
  const auto f = [](Array y) { return sum(top_k(y, 2).values * array({1.0, 10.0})); };
  CHECK(reals(grad(f)(x)) == D{0, 1, 10, 0, 1, 10, 0, 0});
  CHECK(reals(jit(vmap([](Array row) { return top_k(row, 1).values; }))(x)) == D{5, 4});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(integers(top_k(array({1.0, nan, 2.0}), 2).indices) == I{1, 2});
}

TEST_CASE("bitcast between sizes takes parts apart and together, the lowest first") {
  CHECK(integers(bitcast(array({0x01020304}), u8)) == I{4, 3, 2, 1});
  CHECK(bitcast(array({1.0, 2.0}, f64), u16).shape() == Shape{2, 4});
  CHECK(integers(bitcast(array({{4, 3, 2, 1}}, u8), i32)) == I{0x01020304});
  const Array x = array({1.5, -2.25, 1e300}, f64);
  CHECK(reals(bitcast(bitcast(x, i32), f64)) == reals(x));
  CHECK(reals(bitcast(bitcast(x, f16), f64)) == reals(x));
  CHECK(bitcast(zeros({0, 2}), f64).shape() == Shape{0});
}

TEST_CASE("reduce_precision rounds values and gradients") {
  const Array x = array({1.0009765625, 70000.0, 1e-6});
  CHECK(reals(reduce_precision(x, 5, 9)) == D{1, std::numeric_limits<double>::infinity(), 0});
  CHECK(grad([](Array y) { return 1.0009765625 * reduce_precision(y, 5, 9); })(1.0).item<double>() == 1);
  CHECK(reduce_precision(array({3}), 5, 10).dtype() == f32);
}
