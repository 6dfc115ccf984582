// Arrays, operators, broadcasting, promotion, indexing and printing, against values worked out by hand.
#include <doctest/doctest.h>

#include <sstream>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

std::vector<double> values(const Array& x) { return x.to_vector<double>(); }
using V = std::vector<double>;

}  // namespace

TEST_CASE("arrays come from literals, vectors, ranges and constants") {
  CHECK(array({1, 2, 3}).dtype() == i32);
  CHECK(array({1.0, 2.0}).dtype() == f32);
  CHECK(array(std::vector<double>{1, 2}).dtype() == f64);
  const std::vector<float> six(6, 1);
  CHECK(type_text(array(six, {2, 3})) == "f32[2, 3]");
  CHECK(type_text(array(std::span(six), {3, 2}, bf16)) == "bf16[3, 2]");
  CHECK(type_text(array(six, {}, f64)) == "f64[6]");
  CHECK(array({{1, 2, 3}, {4, 5, 6}}).shape() == Shape{2, 3});
  CHECK(array({true, false}).dtype() == bool_);
  CHECK(values(arange(3)) == V{0, 1, 2});
  CHECK(values(arange(1.0, 2.0, 0.5)) == V{1, 1.5});
  CHECK(values(linspace(0, 1, 3)) == V{0, 0.5, 1});
  CHECK(values(eye(2)) == V{1, 0, 0, 1});
  CHECK(values(full({2}, 7)) == V{7, 7});
  CHECK(zeros({0, 3}).size() == 0);
  CHECK(values(zeros({0, 3}) + 1).empty());
}

TEST_CASE("C++ numbers are weak and take the dtype of the array") {
  const Array h = ones({2}, bf16), x = ones({2}), n = array({1, 2}), d = ones({2}, f64);
  CHECK((2.0 * h).dtype() == bf16);
  CHECK((2.0 * x).dtype() == f32);
  CHECK((2 * x).dtype() == f32);
  CHECK((n * 2).dtype() == i32);
  CHECK((n * 0.5).dtype() == f32);
  CHECK((n / 2).dtype() == i32);
  CHECK((x + d).dtype() == f64);
  CHECK(values(0.1 * d)[0] == 0.1);  // not rounded to f32 on the way
  CHECK((Array(2.0) * h).dtype() == bf16);
  CHECK((Array(2) * 0.5).dtype() == f32);
}

TEST_CASE("operators broadcast as NumPy does") {
  const Array column = array({{1}, {2}}), row = array({10, 20, 30});
  CHECK(values(column + row) == V{11, 21, 31, 12, 22, 32});
  CHECK(values(-row % 7) == V{-3, -6, -2});
  CHECK(values(mod(-row, 7)) == V{4, 1, 5});
  CHECK(values(floor_divide(-row, 7)) == V{-2, -3, -5});
  CHECK(values((row > 10) & (row < 30)) == V{0, 1, 0});
  CHECK(values(row << 1) == V{20, 40, 60});
  CHECK(values(~row) == V{-11, -21, -31});
  CHECK(values(!array({true, false})) == V{0, 1});
  Array p = row;
  p -= 5;
  CHECK(values(p) == V{5, 15, 25});
  CHECK(values(row) == V{10, 20, 30});
}

TEST_CASE("indexing follows NumPy") {
  const Array x = reshape(arange(12), {3, 4});
  CHECK(values(x[1]) == V{4, 5, 6, 7});
  CHECK(values(x[-1]) == V{8, 9, 10, 11});
  CHECK(values(x(1, 2)) == V{6});
  CHECK(values(x(slice(), 1)) == V{1, 5, 9});
  CHECK(values(x(slice(1, none), slice(0, 4, 2))) == V{4, 6, 8, 10});
  CHECK(values(x(slice(none, none, -1), 0)) == V{8, 4, 0});
  CHECK(values(x(0, slice(none, 0, -2))) == V{3, 1});
  CHECK(x(newaxis, ellipsis, 0).shape() == Shape{1, 3});
  CHECK(x(slice(2, 1)).shape() == Shape{0, 4});
  CHECK(values(x(array({2, 0}), array({-1, 1}))) == V{11, 1});
  CHECK(values(x(array({0, 2}))) == V{0, 1, 2, 3, 8, 9, 10, 11});
  CHECK(x(slice(), array({{0, 1}, {2, 3}})).shape() == Shape{3, 2, 2});
  CHECK(values(x(slice(1, 3), array({3, 0}))) == V{7, 4, 11, 8});
  CHECK(values(take(x, array({1, 1}), 1)) == V{1, 1, 5, 5, 9, 9});
  CHECK(values(take_along_axis(x, array({{3}, {0}, {1}}), 1)) == V{3, 4, 9});
}

TEST_CASE("at writes into a copy") {
  const Array x = zeros({5}), m = zeros({2, 3});
  CHECK(values(x.at(1).set(2)) == V{0, 2, 0, 0, 0});
  CHECK(values(x.at(slice(1, 3)).add(array({1.0, 2.0}))) == V{0, 1, 2, 0, 0});
  CHECK(values(x.at(slice(none, none, 2)).set(array({1.0, 2.0, 3.0}))) == V{1, 0, 2, 0, 3});
  CHECK(values(x.at(slice(none, none, -2)).set(array({1.0, 2.0, 3.0}))) == V{3, 0, 2, 0, 1});
  CHECK(values(x.at(array({0, 0, -1})).add(1)) == V{2, 0, 0, 0, 1});
  CHECK(values(x.at(array({9})).set(1)) == V{0, 0, 0, 0, 0});
  CHECK(values(m.at(1, slice(0, 2)).set(4)) == V{0, 0, 0, 4, 4, 0});
  CHECK(values(m.at(slice(), array({0, 2})).add(array({{1.0, 2.0}, {3.0, 4.0}}))) == V{1, 0, 2, 3, 0, 4});
  CHECK(values(m.at(array({1}), slice(1, 3)).set(array({{5.0, 6.0}}))) == V{0, 0, 0, 0, 5, 6});
  CHECK(values(x) == V{0, 0, 0, 0, 0});
}

TEST_CASE("reductions take axes and keep dims") {
  const Array x = reshape(arange(6), {2, 3});
  CHECK(sum(x).item<int>() == 15);
  CHECK(values(sum(x, {.axes = {0}})) == V{3, 5, 7});
  CHECK(sum(x, {.axes = {-1}, .keepdims = true}).shape() == Shape{2, 1});
  CHECK(values(mean(x, {.axes = {1}})) == V{1, 4});
  CHECK(mean(x).dtype() == f32);
  CHECK(values(max(x, {.axes = {0}})) == V{3, 4, 5});
  CHECK(argmax(x).item<int>() == 5);
  CHECK(values(argmin(x, 1)) == V{0, 0});
  CHECK(any(x > 4).item<bool>());
  CHECK_FALSE(all(x > 4).item<bool>());
  CHECK(var(array({1.0, 2.0, 3.0, 4.0})).item<double>() == 1.25);
  CHECK(values(cumsum(array({1, 2, 3, 4, 5}))) == V{1, 3, 6, 10, 15});
}

TEST_CASE("products follow NumPy") {
  const Array a = reshape(arange(6.0), {2, 3}), b = reshape(arange(6.0), {3, 2}), v = arange(3.0);
  CHECK(values(dot(a, b)) == V{10, 13, 28, 40});
  CHECK(values(dot(a, v)) == V{5, 14});
  CHECK(dot(v, v).item<double>() == 5);
  CHECK(matmul(zeros({5, 1, 2, 3}), zeros({4, 3, 6})).shape() == Shape{5, 4, 2, 6});
  CHECK(values(einsum("ij,jk->ki", a, b)) == V{10, 28, 13, 40});
  CHECK(values(einsum("ij->j", a)) == V{3, 5, 7});
  CHECK(outer(v, v).shape() == Shape{3, 3});
}

TEST_CASE("shapes change without changing elements") {
  const Array x = reshape(arange(6), {2, 3});
  CHECK(values(transpose(x)) == V{0, 3, 1, 4, 2, 5});
  CHECK(values(concatenate({x, x}, 1)) == V{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  CHECK(stack({x, x}, 1).shape() == Shape{2, 2, 3});
  CHECK(values(split(x, 3, 1)[1]) == V{1, 4});
  CHECK(values(pad(arange(2), {{1, 2}}, 9)) == V{9, 0, 1, 9, 9});
  CHECK(values(flip(x, {1})) == V{2, 1, 0, 5, 4, 3});
  CHECK(values(roll(arange(4), 1)) == V{3, 0, 1, 2});
  CHECK(values(tile(arange(2), {2})) == V{0, 1, 0, 1});
  CHECK(values(repeat(arange(2), 2)) == V{0, 0, 1, 1});
  CHECK(values(tril(ones({2, 2}))) == V{1, 0, 1, 1});
  CHECK(squeeze(zeros({1, 3, 1})).shape() == Shape{3});
}

TEST_CASE("sorting and searching") {
  const Array x = array({3.0, 1.0, 2.0});
  CHECK(values(sort(x)) == V{1, 2, 3});
  CHECK(values(argsort(x)) == V{1, 2, 0});
  CHECK(values(one_hot(array({1, -1, 2}), 3)) == V{0, 1, 0, 0, 0, 0, 0, 0, 1});
  CHECK(values(dynamic_slice(arange(5), array({9}), {2})) == V{3, 4});
  CHECK(values(dynamic_update_slice(arange(4), array({7, 8}), array({1}))) == V{0, 7, 8, 3});
}

TEST_CASE("arrays print as nested lists and traced ones as their type and line") {
  CHECK(to_string(array({1.0, 2.5})) == "[1.0 2.5]");
  CHECK(to_string(array({1.0, 2.0})) == "[1. 2.]");
  CHECK(to_string(array({{1, 20}, {300, 4}})) == "[[  1  20]\n [300   4]]");
  CHECK(to_string(Array(3)) == "3");
  std::ostringstream out;
  const int line = __LINE__ + 2;
  const auto prints = [&](Array x) {
    out << x * 2;
    return x;
  };
  jit(prints, {.name = "f"})(ones({2}));
  CHECK(out.str().starts_with("Traced f32[2] at array_test.cpp:" + std::to_string(line)));
}

TEST_CASE("what arrays are made of and lie on prints as it is written") {
  std::ostringstream out;
  const Mesh mesh = Mesh::abstract({{"data", 4}, {"model", 2}});
  out << bf16 << ' ' << Device{} << ' ' << Loc{"src/mlp.cpp", 9} << ' ' << mesh << ' ' << P("data", none) << ' '
      << NamedSharding{mesh, P(none, "model")};
  CHECK(out.str() == "bf16 " + to_string(Device{}) +
                         R"( mlp.cpp:9 [data=4, model=2] P("data", none) P(none, "model") on [data=4, model=2])");
}
