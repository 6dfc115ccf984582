// Complex ops in the reference and in kernels: values against std::complex over all quadrants, the special points of
// C's Annex G, and derivatives against those of the real program that a complex one stands for.
#include "ir/complex.h"

#include <doctest/doctest.h>

#include <cmath>
#include <complex>

#include "ir/op.h"
#include "ir/sample.h"
#include "tests/ir/one_op.h"
#include "tests/lap.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

using Complex = std::complex<double>;

Literal complexes(const std::vector<Complex>& values) {
  Literal x(Type(c128, {static_cast<std::int64_t>(values.size())}));
  for (std::int64_t i = 0; i < x.size(); ++i) x.set_complex(i, values[i].real(), values[i].imag());
  return x;
}

Complex element(const Literal& x, std::int64_t i) { return {x.get_part(i, 0), x.get_part(i, 1)}; }

Complex at(const OpDef& op, Complex z) { return element(run(op, {complexes({z})}), 0); }
Complex at(const OpDef& op, Complex z, Complex w) { return element(run(op, {complexes({z}), complexes({w})}), 0); }

// Directions and sizes on both sides of every cut, the unit circle, and near the ends of the range.
std::vector<Complex> points() {
  std::vector<Complex> all;
  for (const double size : {1e-300, 1e-8, 0.3, 1 - 1e-9, 1.0, 1.7, 40.0, 1e150, 1e300})
    for (int k = 0; k < 12; ++k) all.push_back(std::polar(size, 0.1 + k * 0.5236));
  return all;
}

bool is_near(Complex got, Complex want, double tolerance) {
  return got == want || std::abs(got - want) <= tolerance * std::abs(want) ||
         (std::isinf(std::abs(got)) && std::isinf(std::abs(want)));
}

template <class F>
void check_unary(const OpDef& op, F reference, const std::vector<Complex>& in) {
  const Literal x = complexes(in);
  const Literal by_reference = run(op, {x});
  const Literal by_kernels = tests::run(one_op(op, {x}), {x}, runtime::Tier::interpreted)[0];
  for (std::int64_t i = 0; i < x.size(); ++i) {
    INFO(op.name, " at ", in[i].real(), " + ", in[i].imag(), "i");
    CHECK(is_near(element(by_reference, i), reference(in[i]), 4e-15));
    CHECK(is_near(element(by_kernels, i), reference(in[i]), 4e-15));
  }
}

bool same_complex(Complex got, double re, double im) { return same(got.real(), re) && same(got.imag(), im); }

template <class F>
void for_each_complex_sample(F f) {
  for (Op op : all_ops()) {
    if (!op->samples) continue;
    for (std::string_view text : op->samples()) {
      const auto sample = parse_sample(text);
      REQUIRE(sample.ok());
      if (!has_complex(*sample->function)) continue;
      INFO("sample: ", std::string(text));
      f(*sample);
    }
  }
}

Literals as_parts(const Literals& all) {
  Literals parts;
  for (const Literal& x : all) parts.push_back(x.as_parts());
  return parts;
}

Literal conjugate(Literal x) {
  if (is_complex(x.dtype()))
    for (std::int64_t i = 0; i < x.size(); ++i) x.set_complex(i, x.get_part(i, 0), -x.get_part(i, 1));
  return x;
}

void check_close(const Literal& got, const Literal& want) {
  const Literal a = got.as_parts(), b = want.as_parts();
  REQUIRE(a.type() == b.type());
  const double tolerance = a.dtype() == f64 ? 1e-12 : 2e-4;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    if (std::isnan(b.get(i))) continue;  // behind a case that was not chosen: docs/numerics.md
    CHECK(std::abs(a.get(i) - b.get(i)) <= tolerance * (1 + std::abs(b.get(i))));
  }
}

}  // namespace

TEST_CASE("functions of complex numbers are those of the standard library, to the ends of the range") {
  check_unary(ops::sqrt, [](Complex z) { return std::sqrt(z); }, points());
  check_unary(ops::log, [](Complex z) { return std::log(z); }, points());
  std::vector<Complex> moderate;
  for (const Complex z : points())
    if (std::abs(z) < 600) moderate.push_back(z);
  check_unary(ops::exp, [](Complex z) { return std::exp(z); }, moderate);
  for (const Complex z : points())
    CHECK(run(ops::abs, {complexes({z})}).get(0) == doctest::Approx(std::abs(z)).epsilon(1e-15));
}

TEST_CASE("quotients and powers hold where squares of their parts would not") {
  for (const Complex z : points())
    for (const Complex w : points()) {
      const Complex q = at(ops::div, z, w), ratio = (z / std::abs(w)) / (w / std::abs(w));
      if (std::isfinite(std::abs(ratio)) && std::abs(ratio) > 1e-290) CHECK(is_near(q, ratio, 2e-14));
    }
  CHECK(is_near(at(ops::pow, {-8, 0}, {1.0 / 3, 0}), std::pow(Complex(-8, 0), 1.0 / 3), 1e-14));
  CHECK(is_near(at(ops::pow, {0, 1}, {0, 1}), std::exp(-std::acos(-1.0) / 2), 1e-14));
  CHECK(at(ops::pow, 0, 0) == 1.0);
  CHECK(at(ops::pow, 0, {2, 1}) == 0.0);
}

TEST_CASE("B45: the square root's cut takes the side that the sign of zero says (jax 39110)") {
  CHECK(same_complex(at(ops::sqrt, {-1, -0.0}), 0, -1));
  CHECK(same_complex(at(ops::sqrt, {-1, 0.0}), 0, 1));
  CHECK(same_complex(at(ops::sqrt, {0, -0.0}), 0, -0.0));
  CHECK(same_complex(at(ops::sqrt, {-kInf, 3}), 0, kInf));
  CHECK(same_complex(at(ops::sqrt, {kInf, -3}), kInf, -0.0));
  CHECK(same_complex(at(ops::sqrt, {kNan, -kInf}), kInf, -kInf));
  CHECK(std::isnan(at(ops::sqrt, {kNan, 1}).real()));
}

TEST_CASE("logarithm, exponential and length at their special points") {
  const double pi = std::acos(-1.0);
  CHECK(same_complex(at(ops::log, {-1, 0.0}), 0, pi));
  CHECK(same_complex(at(ops::log, {-1, -0.0}), 0, -pi));
  CHECK(same_complex(at(ops::log, {0, 0}), -kInf, 0));
  CHECK(same_complex(at(ops::log, {kInf, kInf}), kInf, pi / 4));
  CHECK(at(ops::log, {1, 1e-9}).real() == doctest::Approx(0.5e-18).epsilon(1e-12));
  CHECK(same_complex(at(ops::exp, {kInf, 0}), kInf, 0));
  CHECK(same_complex(at(ops::exp, {-kInf, kInf}), 0, 0));
  CHECK(same_complex(at(ops::exp, {1000, 0}), kInf, 0));
  CHECK(run(ops::abs, {complexes({{kNan, -kInf}})}).get(0) == kInf);
  CHECK(std::isnan(run(ops::abs, {complexes({{kNan, 1}})}).get(0)));
  CHECK(run(ops::abs, {complexes({{0, 0}})}).get(0) == 0);
}

TEST_CASE("division by zero is infinite where C's is, and by infinity zero") {
  CHECK(at(ops::div, {2, 0}, {0, 0}).real() == kInf);
  CHECK(at(ops::div, {-2, 1}, {0, 0}).imag() == kInf);
  CHECK(at(ops::div, {3, 4}, {kInf, 1}) == 0.0);
  CHECK(at(ops::div, {3, 4}, {-kInf, kInf}) == 0.0);
  CHECK(std::isnan(at(ops::div, {0, 0}, {0, 0}).real()));
}

TEST_CASE("a quotient leaves the range only where its value does") {
  const auto in_c64 = [](Complex z, Complex w) {
    Literal x(Type(c64, {})), y(Type(c64, {}));
    x.set_complex(0, z.real(), z.imag());
    y.set_complex(0, w.real(), w.imag());
    return element(run(ops::div, {x, y}), 0);
  };
  CHECK(is_near(in_c64({3e38, 3e38}, {1, 1}), 3e38, 1e-6));
  CHECK(is_near(in_c64({3e38, 3e38}, {-1, 1}), {0, -3e38}, 1e-6));
  CHECK(is_near(in_c64({3e38, 3e38}, {3e38, 3e38}), 1, 1e-6));
  CHECK(is_near(in_c64({3e38, -3e38}, {2e-38, 0}).real(), kInf, 0));
  CHECK(is_near(in_c64({1e-38, 1e-38}, {1e-38, 1e-38}), 1, 1e-6));
  CHECK(is_near(in_c64({0, 4e-38}, {2e-38, 2e-38}), {1, 1}, 1e-6));
  CHECK(is_near(in_c64({1e-38, 1e-38}, {1e-3, 1e-3}), 1e-35, 1e-6));
  CHECK(is_near(in_c64({1, 1}, {3e38, 3e38}), 1 / 3e38, 1e-4));
  CHECK(is_near(at(ops::div, {1.7e308, 1.7e308}, {1, 1}), 1.7e308, 1e-15));
  CHECK(is_near(at(ops::div, {1e-307, 1e-307}, {1e-307, 1e-307}), 1, 1e-15));
}

TEST_CASE("equality compares both parts") {
  const Literal x = complexes({{1, 2}, {1, 3}, {kNan, 0}}), y = complexes({{1, 2}, {1, 2}, {kNan, 0}});
  CHECK(values(run(ops::eq, {x, y})) == std::vector<double>{1, 0, 0});
  CHECK(values(run(ops::ne, {x, y})) == std::vector<double>{0, 1, 1});
}

TEST_CASE("kernels of complex samples give the reference's values") {
  for_each_complex_sample([](const Sample& s) {
    const Literals in = random_inputs(s, 3);
    const Literals want = ir::eval(*s.function, in), got = tests::run(s.function, in, runtime::Tier::interpreted);
    for (std::size_t j = 0; j < want.size(); ++j) check_close(got[j], want[j]);
  });
}

TEST_CASE("tangents of complex programs are those of the real programs they stand for") {
  for_each_complex_sample([](const Sample& s) {
    passes::Mask wrt;
    for (Value p : s.function->params()) wrt.push_back(is_differentiable(p.dtype()));
    Literals in = random_inputs(s, 3), tangents;
    for (std::size_t i = 0; i < wrt.size(); ++i)
      if (wrt[i]) tangents.push_back(random_inputs(s, 8)[i]);
    in.insert(in.end(), tangents.begin(), tangents.end());
    const passes::Jvp on_complex = passes::jvp(s.function, wrt);
    const passes::Jvp on_real = passes::jvp(split_complex(*s.function), wrt);
    if (on_complex.out != on_real.out) return;  // a constant, a comparison
    const Literals got = ir::eval(*on_complex.function, in), want = ir::eval(*on_real.function, as_parts(in));
    for (std::size_t j = 0; j < got.size(); ++j) check_close(got[j].as_parts(), want[j]);
  });
}

TEST_CASE("cotangents are the conjugates of the real program's, for conjugate cotangents") {
  for_each_complex_sample([](const Sample& s) {
    passes::Mask wrt;
    for (Value p : s.function->params()) wrt.push_back(is_differentiable(p.dtype()));
    if (std::count(wrt.begin(), wrt.end(), true) == 0) return;
    const Literals in = random_inputs(s, 3);
    const auto cotangents = [&](const passes::Vjp& v, const Literals& x, bool conjugated) {
      Literals residuals = ir::eval(*v.forward, x);
      const std::size_t results = s.function->results().size();
      Literals seeds;
      for (std::size_t j = 0; j < results; ++j) {
        const Type t = s.function->results()[j].type();
        if (!is_differentiable(t.dtype())) continue;
        Literal ct(t);
        for (std::int64_t i = 0; i < ct.size(); ++i) {
          const double at = static_cast<double>(i);
          if (is_complex(t.dtype())) ct.set_complex(i, std::sin(1.0 + at), std::cos(2.0 * at));
          else ct.set(i, std::sin(1.0 + at));
        }
        seeds.push_back(conjugated ? conjugate(ct).as_parts() : ct);
      }
      residuals.erase(residuals.begin(), residuals.begin() + static_cast<std::ptrdiff_t>(results));
      residuals.insert(residuals.end(), seeds.begin(), seeds.end());
      return ir::eval(*v.backward, residuals);
    };
    const Literals got = cotangents(passes::vjp(s.function, wrt), in, false);
    const Literals want = cotangents(passes::vjp(split_complex(*s.function), wrt), as_parts(in), true);
    for (std::size_t k = 0; k < got.size(); ++k) check_close(conjugate(got[k]).as_parts(), want[k]);
  });
}

TEST_CASE("what has no meaning for complex numbers is refused by dtype") {
  const Type z(c64, {3});
  CHECK(refusal(ops::max, {z, z}) == "operand 0 (c64[3]) must be bool, an integer or floating point");
  CHECK(refusal(ops::lt, {z, z}) == "operand 0 (c64[3]) must be bool, an integer or floating point");
  CHECK(refusal(ops::sign, {z}) == "operand 0 (c64[3]) must be an integer or floating point");
  CHECK(refusal(ops::sort, {z}, with(ops::Sort{.dim = {0}})) ==
        "operand 0 (c64[3]) is complex: complex numbers have no order");
  CHECK(refusal(ops::real, {Type(f32, {3})}) == "takes complex numbers, not f32[3]");
  CHECK(refusal(ops::complex, {Type(f16, {3}), Type(f16, {3})}) ==
        "the real (f16[3]) and imaginary (f16[3]) parts must both be f32 or f64");
}
