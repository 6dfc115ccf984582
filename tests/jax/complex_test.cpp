// Complex numbers against JAX, as functions of real and imaginary parts that give both: no convention of what a complex
// derivative is matters to these.
#include <doctest/doctest.h>

#include <map>

#include "tests/jax/calls.h"

using namespace sheaf;
using tests::Arrays;

namespace {

tests::Function of_one(Array (*f)(const Array& z)) {
  return [=](const Arrays& x) {
    const Array w = f(complex(x[0], x[1]));
    return stack({real(w), imag(w)});
  };
}

tests::Function of_two(Array (*f)(const Array& z, const Array& w)) {
  return [=](const Arrays& x) {
    const Array v = f(complex(x[0], x[1]), complex(x[2], x[3]));
    return stack({real(v), imag(v)});
  };
}

const std::map<std::string, tests::Function> kFunctions = {
    {"complex:neg", of_one([](const Array& z) { return -z; })},
    {"complex:conj", of_one([](const Array& z) { return conj(z); })},
    {"complex:abs", of_one([](const Array& z) { return abs(z); })},
    {"complex:angle", of_one([](const Array& z) { return angle(z); })},
    {"complex:exp", of_one([](const Array& z) { return exp(z); })},
    {"complex:log", of_one([](const Array& z) { return log(z); })},
    {"complex:sqrt", of_one([](const Array& z) { return sqrt(z); })},
    {"complex:reciprocal", of_one([](const Array& z) { return 1.0 / z; })},
    {"complex:square", of_one([](const Array& z) { return z * z; })},
    {"complex:sum", of_one([](const Array& z) { return sum(z); })},
    {"complex:add", of_two([](const Array& z, const Array& w) { return z + w; })},
    {"complex:sub", of_two([](const Array& z, const Array& w) { return z - w; })},
    {"complex:mul", of_two([](const Array& z, const Array& w) { return z * w; })},
    {"complex:div", of_two([](const Array& z, const Array& w) { return z / w; })},
    {"complex:pow", of_two([](const Array& z, const Array& w) { return pow(z, w); })},
    {"complex:dot", of_two([](const Array& z, const Array& w) { return dot(z, w); })},
    {"complex:outer", of_two([](const Array& z, const Array& w) { return outer(z, w); })},
};

}  // namespace

TEST_CASE("complex functions agree with JAX in both parts, and in the derivatives of both in both") {
  const auto find = [](const std::string& name) {
    const auto found = kFunctions.find(name);
    return found == kFunctions.end() ? tests::Function() : found->second;
  };
  tests::check_calls("complex_numbers", find, {});
}
