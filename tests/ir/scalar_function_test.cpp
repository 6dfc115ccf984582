// The stated error bounds of the scalar functions, by sweeps of the DAGs against long double libm, and their values at
// the edges: NaN, infinities, signed zeros, subnormals, overflow.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ir/scalar.h"

namespace sheaf::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kUnlike = 1 << 30;  // "ulps" between a number and a NaN, or values of different class

double call(const ScalarFn& fn, DType dtype, double x, double y = 0) {
  const std::uint64_t in[2] = {to_bits(dtype, x), to_bits(dtype, y)};
  return from_bits(dtype, eval(fn, {in, fn.args.size()}));
}

double call(std::string_view name, DType dtype, double x, double y = 0) {
  return call(*scalar_function(name, dtype), dtype, x, y);
}

struct Format {
  int digits, lowest_exponent;
  double largest;
};

Format format(DType t) {
  switch (t) {
    case DType::f16: return {11, -24, 65504};
    case DType::bf16: return {8, -133, 0x1.fep127};
    case DType::f32: return {24, -149, std::numeric_limits<float>::max()};
    default: return {53, -1074, std::numeric_limits<double>::max()};
  }
}

// The error of `got` in ulps of `exact` (of `scale`, if larger). Infinity counts as the next number after the largest.
double error_in_ulps(double got, long double exact, double scale, DType dtype) {
  const Format f = format(dtype);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : kUnlike;
  if (exact == 0) return got == 0 && std::signbit(got) == std::signbit(exact) ? 0 : kUnlike;
  if (std::isnan(got) || (std::isinf(exact) && !std::isinf(got))) return kUnlike;
  const long double limit = std::ldexp(1.0L, std::ilogb(f.largest) + 1);
  const auto finite = [&](long double v) { return std::clamp(v, -limit, limit); };
  int exponent;
  std::frexp(std::max<long double>(std::min<long double>(std::fabs(exact), f.largest), scale), &exponent);
  const long double ulp = std::ldexp(1.0L, std::max(exponent - f.digits, f.lowest_exponent));
  return static_cast<double>(std::fabs(finite(got) - finite(exact)) / ulp);
}

// Arguments that have broken math libraries, before random ones.
std::vector<double> edges(DType dtype) {
  const Format f = format(dtype);
  std::vector<double> values = {
      0, kInf, kNaN, f.largest, std::ldexp(1.0, f.lowest_exponent), std::ldexp(1.0, f.lowest_exponent + f.digits - 1)};
  for (double v : {0.25,   0.5,   0.75,  1.0,   1.5,     2.0,    3.0,
                   4.0,    5.0,   8.0,   1e6,   1e6 + 1, 1e30,   1e-30,
                   88.0,   88.72, 88.73, 89.5,  103.9,   104.1,  709.7,
                   709.8,  710.4, 745.1, 745.2, 1024.0,  1074.0, 1.4616321449683623,
                   0.9277, 6.5}) {
    values.push_back(v);
    values.push_back(std::nextafter(v, 0));
  }
  for (int k = 1; k <= 6; ++k) values.push_back(k * 0.78539816339744830962);
  const std::size_t count = values.size();
  for (std::size_t i = 0; i < count; ++i) values.push_back(-values[i]);
  return values;
}

class Inputs {
 public:
  explicit Inputs(DType dtype) : dtype_(dtype) {}
  // Half over all bit patterns, half of ordinary size.
  double next() {
    if (random_() & 1) return from_bits(dtype_, random_() >> (64 - 8 * size_bytes(dtype_)));
    const double mantissa = 1 + static_cast<double>(random_() >> 11) * 0x1p-53;
    const double value = std::ldexp(mantissa, static_cast<int>(random_() % 22) - 14);
    return from_bits(dtype_, to_bits(dtype_, random_() & 1 ? -value : value));
  }

 private:
  DType dtype_;
  std::mt19937_64 random_{20260};
};

struct Worst {
  double error = 0, x = 0, y = 0;
};

Worst sweep(const ScalarFunctionInfo& info, DType dtype, int count) {
  const ScalarFn& fn = *scalar_function(info.name, dtype);
  Worst worst;
  const auto try_at = [&](double x, double y) {
    x = from_bits(dtype, to_bits(dtype, x));
    if (x < info.lowest) return;
    const double error = error_in_ulps(call(fn, dtype, x, y), info.reference_long(x, y), info.scale, dtype);
    if (error > worst.error) worst = {error, x, y};
  };
  const std::vector<double> special = edges(dtype);
  for (double x : special) {
    if (info.arity == 1) try_at(x, 0);
    for (double y : special) {
      if (info.arity == 2) try_at(x, from_bits(dtype, to_bits(dtype, y)));
    }
  }
  Inputs inputs(dtype);
  for (int i = 0; i < count; ++i) {
    const double x = inputs.next();
    try_at(x, info.arity == 2 ? inputs.next() : 0);
  }
  return worst;
}

void check_bounds(int count) {
  for (const ScalarFunctionInfo& info : scalar_functions()) {
    for (DType dtype : {DType::f32, DType::f64}) {
      const Worst worst = sweep(info, dtype, count);
      CAPTURE(info.name);
      CAPTURE(name(dtype));
      CAPTURE(worst.x);
      CAPTURE(worst.y);
      CHECK(worst.error <= (dtype == DType::f32 ? info.max_ulp_f32 : info.max_ulp_f64));
    }
  }
}

TEST_CASE("every scalar function keeps its stated error bound, in f32 and f64") { check_bounds(4000); }

TEST_CASE("every scalar function keeps its stated error bound on a million arguments" * doctest::skip()) {
  check_bounds(1000000);
}

TEST_CASE("scalar functions of half types are one rounding away from f32") {
  for (DType dtype : {DType::f16, DType::bf16}) {
    for (const ScalarFunctionInfo& info : scalar_functions()) {
      const ScalarFn& fn = *scalar_function(info.name, dtype);
      const ScalarFn& wide = *scalar_function(info.name, DType::f32);
      int mismatches = 0;
      for (std::uint64_t bits = 0; bits < 0x10000; bits += 97) {
        const double x = from_bits(dtype, bits), y = from_bits(dtype, (bits * 40503) & 0xffff);
        const double got = call(fn, dtype, x, y);
        const double want = from_bits(dtype, to_bits(dtype, call(wide, DType::f32, x, y)));
        if (!(got == want || (std::isnan(got) && std::isnan(want)))) ++mismatches;
      }
      CAPTURE(info.name);
      CHECK(mismatches == 0);
    }
  }
}

TEST_CASE("sin and cos are right beside multiples of pi/2 and at the largest floats") {
  // The arguments of f32 and f64 that lie closest to a multiple of pi/2 (J.-M. Muller, "Elementary Functions").
  for (double x : {16367173.0 * 0x1p72, 11.0, 16367173.0, 8388607.0 * 0x1p104, 13137.0}) {
    for (const char* fn : {"sin", "cos", "tan"}) {
      CAPTURE(x);
      CAPTURE(fn);
      const double in = from_bits(DType::f32, to_bits(DType::f32, x));
      const long double exact = fn[0] == 's'   ? std::sin(static_cast<long double>(in))
                                : fn[0] == 'c' ? std::cos(static_cast<long double>(in))
                                               : std::tan(static_cast<long double>(in));
      CHECK(error_in_ulps(call(fn, DType::f32, in), exact, 0, DType::f32) <= 2.5);
    }
  }
  CHECK(call("cos", DType::f64, 6381956970095103.0 * 0x1p797) ==
        doctest::Approx(-4.6871659242546277e-19).epsilon(1e-15));
  CHECK(call("sin", DType::f64, std::numeric_limits<double>::max()) ==
        doctest::Approx(0.00496195478918406).epsilon(1e-14));
}

TEST_CASE("exp reaches the subnormals and overflows where it should") {
  CHECK(call("exp", DType::f32, -103.9) == 0x1p-149);
  CHECK(call("exp", DType::f32, -104) == 0);
  CHECK(call("exp", DType::f32, 88.722832) < kInf);
  CHECK(call("exp", DType::f32, 88.722847) == kInf);
  CHECK(call("exp", DType::f64, -745.13) == 0x1p-1074);
  CHECK(call("exp", DType::f64, -746) == 0);
  CHECK(call("exp2", DType::f32, -149) == 0x1p-149);
  CHECK(call("exp2", DType::f64, 1023) == 0x1p1023);
  CHECK(call("logistic", DType::f32, -100) > 0);
}

TEST_CASE("pow has the special values of the C standard") {
  for (DType t : {DType::f32, DType::f64}) {
    const auto pow = [&](double x, double y) { return call("pow", t, x, y); };
    CHECK(pow(kNaN, 0) == 1);
    CHECK(pow(1, kNaN) == 1);
    CHECK(pow(-1, kInf) == 1);
    CHECK(pow(-2, 3) == -8);
    CHECK(std::isnan(pow(-2, 0.5)));
    CHECK(pow(-kInf, 3) == -kInf);
    CHECK(pow(-kInf, -3) == 0);
    CHECK(std::signbit(pow(-kInf, -3)));
    CHECK(pow(-0.0, -1) == -kInf);
    CHECK(pow(0, -kInf) == kInf);
    CHECK(pow(0.5, kInf) == 0);
    CHECK(std::isnan(pow(kNaN, 1)));
    CHECK(pow(10, 2) == 100);
    CHECK(pow(2, -149) == 0x1p-149);
  }
}

TEST_CASE("lgamma and digamma stay close on the negative axis and have their poles") {
  for (const char* fn : {"lgamma", "digamma"}) {
    const auto& infos = scalar_functions();
    const auto info = std::find_if(infos.begin(), infos.end(), [&](const auto& i) { return i.name == fn; });
    for (double x = -40.37; x < 0; x += 0.0917) {
      CAPTURE(fn);
      CAPTURE(x);
      CHECK(call(fn, DType::f64, x) == doctest::Approx(info->reference(x, 0)).epsilon(1e-12));
    }
  }
  for (double n : {-1.0, -2.0, -1e15, -1e300}) {
    CHECK(call("lgamma", DType::f64, n) == kInf);
    CHECK(std::isnan(call("digamma", DType::f64, n)));
  }
  CHECK(call("lgamma", DType::f64, -kInf) == kInf);
  CHECK(call("digamma", DType::f64, 0.0) == -kInf);
  CHECK(call("digamma", DType::f64, -0.0) == kInf);
  CHECK(call("digamma", DType::f64, 1) == doctest::Approx(-0.57721566490153286).epsilon(1e-15));
}

}  // namespace
}  // namespace sheaf::ir
