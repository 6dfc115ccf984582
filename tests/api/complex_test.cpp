// Complex arrays in programs: made, computed with eagerly and under jit, through loops and branches, and
// differentiated with JAX's conventions.
#include <doctest/doctest.h>

#include <cmath>
#include <complex>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

using Z = std::complex<double>;
using Zs = std::vector<Z>;
using D = std::vector<double>;

Zs complexes(const Array& x) { return x.to_vector<Z>(); }
D reals(const Array& x) { return x.to_vector<double>(); }

const Zs kPoints{{1, 2}, {-3, 0.5}, {0.25, -4}};
Array points() { return array(kPoints); }

bool is_near(const Array& got, const Zs& want, double tolerance = 1e-14) {
  const Zs all = complexes(got);
  bool near = all.size() == want.size();
  for (std::size_t i = 0; near && i < all.size(); ++i)
    near = std::abs(all[i] - want[i]) <= tolerance * (1 + std::abs(want[i]));
  return near;
}

template <class F>
Zs each(F f) {
  Zs out;
  for (const Z z : kPoints) out.push_back(f(z));
  return out;
}

}  // namespace

TEST_CASE("complex arrays are made of C++'s, of parts, and of real arrays, and read back") {
  CHECK(points().dtype() == c128);
  CHECK(array(std::vector<std::complex<float>>{{1, 2}}).dtype() == c64);
  CHECK(complexes(points()) == kPoints);
  CHECK(complexes(array(std::vector<std::complex<float>>{{1, 2}})) == Zs{{1, 2}});
  CHECK(points()[1].item<Z>() == Z(-3, 0.5));
  CHECK(complexes(complex(array({1.0, 2.0}), 3.0)) == Zs{{1, 3}, {2, 3}});
  CHECK(complex(1.0, ones({2}, f64)).dtype() == c128);
  CHECK(complex(ones({2}, f16), 0).dtype() == c64);
  CHECK(complexes(convert(array({1, -2}), c64)) == Zs{1, -2});
  CHECK(complexes(zeros({2}, c64)) == Zs{0, 0});
  CHECK(complexes(full({1}, 2.5, c128)) == Zs{2.5});
  CHECK(reals(real(points())) == D{1, -3, 0.25});
  CHECK(reals(imag(points())) == D{2, 0.5, -4});
  CHECK(reals(imag(ones({2}))) == D{0, 0});
  CHECK(imag(array({1, 2}, i8)).dtype() == i8);
  CHECK(real(array({true})).dtype() == bool_);
  CHECK(conj(array({1, 2}, i8)).dtype() == i8);
  CHECK(conj(ones({2}, c64)).dtype() == c64);
  CHECK(to_string(complex(1.0, -2.0)) == "1-2i");
}

TEST_CASE("real numbers become complex elements, and those no real ones") {
  CHECK(complexes(array({1.0, 2.0}, c64)) == Zs{1, 2});
  CHECK(complexes(array({1, -2}, c128)) == Zs{1, -2});
  CHECK(complexes(array({{true}, {false}}, c64)) == Zs{1, 0});
  CHECK(complexes(array(std::vector<double>{0.1}, {}, c128)) == Zs{0.1});
  CHECK(complexes(array(std::vector<float>{}, {}, c64)) == Zs{});
  CHECK(complexes(array(kPoints, {}, c64)) == kPoints);
  CHECK(reals(array(Zs{{0, 1}, 0, 2}, {}, bool_)) == D{1, 0, 1});
}

TEST_CASE("NaN and infinity are found in either part of a complex result") {
  const auto said = [](auto f) {
    std::string text = "nothing was thrown";
    set_debug_nans(true);
    set_debug_infs(true);
    try {
      f();
    } catch (const RuntimeError& e) { text = e.what(); }
    set_debug_nans(false);
    set_debug_infs(false);
    return text;
  };
  const Array large = array(Zs{{1, 2}, {0, 1e308}}), given = array(Zs{{1, std::nan("")}});
  const auto infinite = [&] { large * 10.0; };
  CHECK(said(infinite) ==
        "complex_test.cpp:86: mul: result 0 is infinity at [1]\n"
        "  complex_test.cpp:86: mul gives infinity at [1]\n"
        "  operand 0: f64[2] in [2, 1e+308]\n  operand 1: f64[] in [10, 10]");
  const auto passed_on = [&] { given + 1.0; };
  CHECK(said(passed_on) == "complex_test.cpp:91: add: result 0 is NaN at [0]\n  it was given: input 0 is NaN at [0]");
  const auto fine = [&] { large + 1.0; };
  CHECK(said(fine) == "nothing was thrown");
}

TEST_CASE("arithmetic and functions of complex arrays are the standard library's, eagerly and compiled") {
  const Array z = points(), w = array(Zs{{2, -1}, {0, 3}, {1, 1}});
  const auto check = [&](auto f, const Zs& want) {
    CHECK(is_near(f(z), want));
    CHECK(is_near(jit(f)(z), want));
  };
  check([](Array x) { return 2.0 * x + 1; }, each([](Z v) { return 2.0 * v + 1.0; }));
  check([&](Array x) { return x * w - x / w; },
        {kPoints[0] * Z(2, -1) - kPoints[0] / Z(2, -1), kPoints[1] * Z(0, 3) - kPoints[1] / Z(0, 3),
         kPoints[2] * Z(1, 1) - kPoints[2] / Z(1, 1)});
  check([](Array x) { return exp(x); }, each([](Z v) { return std::exp(v); }));
  check([](Array x) { return log(-x); }, each([](Z v) { return std::log(-v); }));
  check([](Array x) { return sqrt(x); }, each([](Z v) { return std::sqrt(v); }));
  check([](Array x) { return pow(x, 3); }, each([](Z v) { return v * v * v; }));
  check([](Array x) { return pow(x, -2); }, each([](Z v) { return 1.0 / (v * v); }));
  check([](Array x) { return pow(x, 0.5); }, each([](Z v) { return std::pow(v, 0.5); }));
  check([](Array x) { return conj(x) - x; }, each([](Z v) { return std::conj(v) - v; }));
  CHECK(reals(angle(z))[1] == doctest::Approx(std::arg(kPoints[1])));
  CHECK(reals(abs(z))[0] == doctest::Approx(std::sqrt(5.0)));
  CHECK(reals(z == conj(conj(z))) == D{1, 1, 1});
}

TEST_CASE("B45: the square root of -1 - 0i is -i, eagerly and compiled (jax 39110)") {
  const auto root = jit([](Array x) { return sqrt(x); });
  for (const double zero : {0.0, -0.0}) {
    CHECK(sqrt(complex(-1.0, zero)).item<Z>() == Z(0, std::copysign(1, zero)));
    CHECK(root(complex(-1.0, zero)).item<Z>() == Z(0, std::copysign(1, zero)));
  }
}

TEST_CASE("sums, products of matrices and shape functions take complex arrays") {
  const Array z = points();
  CHECK(is_near(sum(z), {kPoints[0] + kPoints[1] + kPoints[2]}));
  CHECK(is_near(mean(z), {(kPoints[0] + kPoints[1] + kPoints[2]) / 3.0}));
  CHECK(var(array(Zs{{1, 1}, {3, -1}})).item<double>() == 2);
  CHECK(is_near(cumsum(z), {kPoints[0], kPoints[0] + kPoints[1], kPoints[0] + kPoints[1] + kPoints[2]}));
  CHECK(is_near(dot(z, z), {kPoints[0] * kPoints[0] + kPoints[1] * kPoints[1] + kPoints[2] * kPoints[2]}));
  const Array m = reshape(concatenate({z, z}), {2, 3});
  CHECK(is_near(matmul(m, transpose(m))(0, 1), {dot(z, z).item<Z>()}));
  CHECK(is_near(einsum("ij->j", m), {2.0 * kPoints[0], 2.0 * kPoints[1], 2.0 * kPoints[2]}));
  CHECK(complexes(z[slice(none, none, -1)]) == Zs{kPoints[2], kPoints[1], kPoints[0]});
  CHECK(complexes(z[array({2, 0})]) == Zs{kPoints[2], kPoints[0]});
  CHECK(complexes(take(z, array({7}), 0, {.mode = OutOfRange::fill, .fill = 5})) == Zs{5});
  CHECK(complexes(z.at(array({0, 0})).add(1.0)) == Zs{kPoints[0] + 2.0, kPoints[1], kPoints[2]});
  CHECK(complexes(where(real(z) > 0, z, 0)) == Zs{kPoints[0], 0, kPoints[2]});
  CHECK(complexes(pad(z, {{1, 0}}))[0] == 0.0);
  CHECK(complexes(broadcast_to(z[0], {2})) == Zs{kPoints[0], kPoints[0]});
}

TEST_CASE("loops and branches carry complex values") {
  const auto julia = [](Array z, Array c) { return fori_loop(0, 5, [&](Array, Array x) { return x * x + c; }, z); };
  Z want(0.1, 0.2);
  for (int i = 0; i < 5; ++i) want = want * want + Z(-0.4, 0.6);
  const Array z = complex(full({}, 0.1, f64), 0.2), c = complex(full({}, -0.4, f64), 0.6);
  CHECK(is_near(jit(julia)(z, c), {want}));
  const auto sums = [](Array x) {
    return scan([](Array s, Array v) { return std::pair{s + v, s * v}; }, x[0], x).second;
  };
  CHECK(is_near(jit(sums)(points()), {kPoints[0] * kPoints[0], 2.0 * kPoints[0] * kPoints[1],
                                      (2.0 * kPoints[0] + kPoints[1]) * kPoints[2]}));
  const auto branch = [](Array p, Array x) {
    return cond(p, [](Array y) { return y * y; }, [](Array y) { return conj(y); }, x);
  };
  CHECK(is_near(jit(branch)(true, points()[0]), {kPoints[0] * kPoints[0]}));
  CHECK(is_near(jit(vmap([](Array x) { return x / conj(x); }))(points()), each([](Z v) { return v / std::conj(v); })));
}

TEST_CASE("complex values are printed from compiled programs, and not passed to host functions") {
  std::vector<std::string> lines;
  set_debug_output([&](std::string_view line) { lines.emplace_back(line); });
  jit([](Array z) {
    debug_print("z = {}", z);
    return z;
  })(complex(1.0, 2.0))
      .wait();
  set_debug_output(nullptr);
  CHECK(lines == std::vector<std::string>{"z = 1+2i"});
  const HostFunction f("twice", [](auto, auto) {});
  std::string said;
  try {
    f({complex(1.0, 2.0)}, {ones({})});
  } catch (const TypeError& e) { said = e.what(); }
  CHECK(said.ends_with(": twice: a host function takes and gives no c64[]: pass real() and imag()"));
}

TEST_CASE("the gradient of a real function of x + iy is du/dx - i du/dy") {
  const Array z = points();
  const auto squared = [](Array x) { return sum(real(x * conj(x))); };
  CHECK(is_near(grad(squared)(z), each([](Z v) { return 2.0 * std::conj(v); })));
  CHECK(is_near(grad([](Array x) { return sum(abs(x)); })(z), each([](Z v) { return std::conj(v) / std::abs(v); })));
  CHECK(is_near(grad([](Array x) { return sum(imag(x)); })(z), {Z(0, -1), Z(0, -1), Z(0, -1)}));
  CHECK(grad([](Array x) { return abs(x); })(complex(0.0, 0.0)).item<Z>() == Z(0, 0));
  const auto of_parts = [](Array x) { return real(exp(complex(x, 2 * x))); };
  CHECK(grad(of_parts)(full({}, 0.3, f64)).item<double>() == doctest::Approx((Z(1, 2) * std::exp(Z(0.3, 0.6))).real()));
}

TEST_CASE("checkpoints of complex programs keep their gradients, whatever they save") {
  const auto f = [](Array x) { return real(sum(exp(x * x) * dot(x, x))); };
  const std::vector<Z> want = complexes(grad(f)(points()));
  CHECK(is_near(grad(checkpoint(f, save::dots))(points()), want));
  CHECK(is_near(grad(checkpoint(f))(points()), want));
}

TEST_CASE("holomorphic functions have their derivative, forward and by a cotangent of 1") {
  const Array z = points(), one = ones({3}, c128);
  const auto check = [&](auto f, const Zs& slope) {
    CHECK(is_near(jvp(f, z, one).second, slope, 1e-13));
    CHECK(is_near(std::get<0>(vjp(f, z).second(one)), slope, 1e-13));
  };
  check([](Array x) { return exp(x); }, each([](Z v) { return std::exp(v); }));
  check([](Array x) { return log(x); }, each([](Z v) { return 1.0 / v; }));
  check([](Array x) { return sqrt(x); }, each([](Z v) { return 0.5 / std::sqrt(v); }));
  check([](Array x) { return 1.0 / x; }, each([](Z v) { return -1.0 / (v * v); }));
  check([](Array x) { return pow(x, 2.5); }, each([](Z v) { return 2.5 * std::pow(v, 1.5); }));
  check([](Array x) { return x * x * x; }, each([](Z v) { return 3.0 * v * v; }));
  const auto twice = [](Array x) { return jvp([](Array y) { return y * y * y; }, x, ones_like(x)).second; };
  CHECK(is_near(jvp(twice, z, one).second, each([](Z v) { return 6.0 * v; })));
}
