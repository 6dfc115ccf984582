// einsum: every odd spec against the operations it stands for, derivatives through it, and the texts of its errors.
#include <doctest/doctest.h>

#include <cmath>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

using V = std::vector<double>;
V values(const Array& x) { return x.to_vector<double>(); }
Array counted(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return reshape(convert(arange(n), f64), shape);
}

}  // namespace

TEST_CASE("a repeated letter takes the diagonal") {
  const Array a = counted({3, 3});
  CHECK(values(einsum("ii->i", a)) == V{0, 4, 8});
  CHECK(einsum("ii", a).item<double>() == 12);
  CHECK(values(einsum("iij->ji", counted({2, 2, 2}))) == V{0, 6, 1, 7});
  CHECK(values(einsum("iii->i", counted({2, 2, 2}))) == V{0, 7});
  CHECK(values(einsum("ii,i->i", a, array({1.0, 2.0, 3.0}))) == V{0, 8, 24});
  CHECK(values(einsum("ii->i", array({{1.0, INFINITY}, {2.0, 3.0}}))) == V{1, 3});
}

TEST_CASE("an ellipsis stands for dims that broadcast") {
  const Array a = counted({2, 1, 2, 3}), b = counted({4, 3, 5});
  CHECK(all_equal(einsum("...ij,...jk->...ik", a, b), matmul(a, b)));
  CHECK(all_equal(einsum("...ij,...jk", a, b), matmul(a, b)));
  CHECK(all_equal(einsum("i...->...i", counted({2, 3, 4})), transpose(counted({2, 3, 4}), {1, 2, 0})));
  CHECK(all_equal(einsum("...i->...", counted({2, 3})), sum(counted({2, 3}), {.axes = {1}})));
  CHECK(einsum("...,...->...", counted({1, 2}), counted({1, 2})).shape() == Shape{1, 2});
  CHECK(all_equal(einsum("...i,i->...", counted({3}), counted({3})), dot(counted({3}), counted({3}))));
}

TEST_CASE("sums, transposes, outer products and scalars") {
  const Array a = counted({2, 3}), v = counted({3});
  CHECK(einsum("ij->", a).item<double>() == 15);
  CHECK(all_equal(einsum("ba", a), transpose(a)));
  CHECK(all_equal(einsum(" i , j -> j i ", v, v), outer(v, v)));
  CHECK(einsum(",->", 2.0, 3.0).item<double>() == 6);
  CHECK(values(einsum(",i", 2.0, v)) == V{0, 2, 4});
  CHECK(einsum("ij,ij", a, a).item<double>() == sum(a * a).item<double>());
  CHECK(values(einsum("ij,ik->i", a, a)) == V{9, 144});
  CHECK(all_equal(einsum("ij,jk->ik", zeros({2, 0}), zeros({0, 2})), zeros({2, 2})));
}

TEST_CASE("many operands are multiplied two by two") {
  const Array a = counted({2, 3}), b = counted({3, 4}), c = counted({4, 5});
  CHECK(all_equal(einsum("ij,jk,kl->il", {a, b, c}), matmul(matmul(a, b), c)));
  CHECK(all_equal(einsum("i,i,i->i", {counted({3}), counted({3}), counted({3})}),
                  counted({3}) * counted({3}) * counted({3})));
  CHECK(einsum("i,j,k->", {counted({3}), counted({4}), counted({2})}).item<double>() == 18);
  CHECK(all_equal(einsum("ij->ji", std::vector{a}), transpose(a)));
}

TEST_CASE("einsum differentiates and maps") {
  const Array a = counted({3, 3});
  CHECK(all_equal(grad([](Array x) { return einsum("ii", x); })(a), eye(3, f64)));
  CHECK(all_equal(vmap([](Array x) { return einsum("ii->i", x); })(counted({2, 3, 3})),
                  einsum("bii->bi", counted({2, 3, 3}))));
  CHECK(all_equal(jit([](Array x) { return einsum("ij,kj->ik", x, x); })(a), matmul(a, transpose(a))));
}

TEST_CASE("einsum says what is wrong with a spec") {
  const Array a = zeros({2, 3});
  const auto says = [](const auto& f) {
    try {
      f();
    } catch (const ShapeError& e) {
      const std::string text = e.what();
      return text.substr(text.find("einsum: "));
    }
    return std::string("nothing was thrown");
  };
  CHECK(says([&] { einsum("i2->i", a); }) == "einsum: unexpected '2' in \"i2->i\"");
  CHECK(says([&] { einsum("i->i", a); }) == "einsum: \"i\" names 1 dims of [2, 3] in \"i->i\"");
  CHECK(says([&] { einsum("ij,jk->ik", a); }) == "einsum: 2 operands are named and 1 given in \"ij,jk->ik\"");
  CHECK(says([&] { einsum("ij->ik", a); }) == "einsum: 'k' is not among the operands in \"ij->ik\"");
  CHECK(says([&] { einsum("ij->ii", a); }) == "einsum: 'i' is repeated in the result in \"ij->ii\"");
  CHECK(says([&] { einsum("ii->i", a); }) == "einsum: 'i' is 2 in one place and 3 in another in \"ii->i\"");
  CHECK(says([&] { einsum("...j->j", a); }) == "einsum: the result lacks the ellipsis of an operand in \"...j->j\"");
  CHECK(says([&] { einsum("...,...", zeros({2}), zeros({3})); }) ==
        "einsum: extents 2 and 3 of the ellipsis cannot be broadcast together in \"...,...\"");
  CHECK(says([&] { einsum("", std::vector<Array>{}); }) == "einsum: no operands for \"\"");
}
