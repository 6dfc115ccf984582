// Values at the ends of their ranges: wide literals, indices of narrow dtypes, quotients next to a whole number.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

using D = std::vector<double>;
using I = std::vector<std::int64_t>;
D reals(const Array& x) { return x.to_vector<double>(); }
I integers(const Array& x) { return x.to_vector<std::int64_t>(); }

}  // namespace

TEST_CASE("literals that i32 does not hold are i64 or u64") {
  CHECK(array({1, 2}).dtype() == i32);
  CHECK(array({5000000000, std::int64_t{1}}).dtype() == i64);
  CHECK(integers(array({5000000000, std::int64_t{1}})) == I{5000000000, 1});
  CHECK(array({18446744073709551615u}).dtype() == u64);
  CHECK(array({1, 5000000000}).dtype() == i64);  // a list of mixed types
  CHECK(Array(18446744073709551615u).dtype() == u64);
  CHECK(Array(18446744073709551615u).item<std::uint64_t>() == 18446744073709551615u);
  CHECK(Array(18446744073709551615u).item<double>() == 0x1p64);
  CHECK(integers(array({1}, u64) + 18446744073709551615u) == I{0});
  CHECK(integers(array({-128, 127}, i8) + 0) == I{-128, 127});
  CHECK((array({1, 2}, i8) + -128).dtype() == i8);
}

TEST_CASE("floor_divide agrees with mod where the rounded quotient would not") {
  const double inf = std::numeric_limits<double>::infinity();
  const Array x = array({1.0, -1.0, 7.0, 5.0, -5.0, 1.0, -1.0}, f64),
              y = array({0.1, 0.1, -2.0, inf, inf, 0.0, 0.0}, f64);
  CHECK(reals(floor_divide(x, y)) == D{9, -10, -4, 0, -1, inf, -inf});
  CHECK(reals(mod(array({7.0, -7.0}, f64), array({-2.0, 2.0}, f64))) == D{-1, 1});
  CHECK(grad([](Array v) { return sum(floor_divide(v, 0.1)); })(1.0).item<double>() == 0);
}

TEST_CASE("indices of narrow and wide dtypes count from the end, and are clamped as what they are") {
  const Array x = arange(1000);
  CHECK(integers(take(x, array({-1, -2}, i8))) == I{999, 998});
  CHECK(integers(take_along_axis(x, array({-1, -2}, i8))) == I{999, 998});
  CHECK(integers(take_along_axis(x, array({1, 250}, u8))) == I{1, 250});
  CHECK(integers(take(x, array({18446744073709551615u, std::uint64_t{3}}))) == I{999, 3});
  CHECK(reals(one_hot(array({std::int64_t{1} << 32, std::int64_t{1}}), 2)) == D{0, 0, 0, 1});
  CHECK(reals(one_hot(array({255}, u8), 2)) == D{0, 0});
  CHECK(x[slice(0, none, std::numeric_limits<std::int64_t>::max())].shape() == Shape{1});
}

TEST_CASE("logarithms to base 2 of powers of two are exact") {
  CHECK(reals(log2(array({0.0, 0.125, 1.0, 1024.0}))) == D{-std::numeric_limits<double>::infinity(), -3, 0, 10});
  CHECK(grad([](Array x) { return log2(x); })(2.0).item<double>() == doctest::Approx(0.7213475));
}

TEST_CASE("complex arrays come from the host, print, and go back") {
  const double parts[] = {1, 2, -0.5, 0};
  HostArray host{c128, {2}, std::vector<std::byte>(sizeof parts)};
  std::memcpy(host.bytes.data(), parts, sizeof parts);
  const Array x = array(host);
  CHECK(to_string(x) == "[   1+2i -0.5+0i]");
  CHECK(to_host(x).bytes == host.bytes);
}
