// Every argument has a cotangent, `none` where it is zero; a backward function that forgets one is refused.
// says: custom rule: backward returns one cotangent .or none. per argument
#include <sheaf/sheaf.h>

using sheaf::Array;

Array product(const Array& x, const Array& y) {
  const auto times = [](Array a, Array b) { return a * b; };
  const auto rule = [](Array a, Array b, Array s, Array t) { return std::pair{a * b, s * b + a * t}; };
  const auto forward = [](Array a, Array b) { return std::pair{a * b, b}; };
  const auto backward = [](Array b, Array ct) { return std::tuple{ct * b}; };
  return sheaf::custom_rule(times, sheaf::Derivatives{.jvp = rule, .forward = forward, .backward = backward})(x, y);
}
