// Functions of the API against jax.numpy and jax.nn at special points.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "tests/jax/calls.h"

using namespace sheaf;
using tests::Arrays;
using tests::first;
using tests::Row;
using tests::second;

namespace {

const std::map<std::string, tests::Function> kFunctions = {
    {"relu", [](const Arrays& x) { return relu(x[0]); }},
    {"leaky_relu", [](const Arrays& x) { return leaky_relu(x[0]); }},
    {"gelu", [](const Arrays& x) { return gelu(x[0]); }},
    {"gelu_tanh", [](const Arrays& x) { return gelu_tanh(x[0]); }},
    {"silu", [](const Arrays& x) { return silu(x[0]); }},
    {"sigmoid", [](const Arrays& x) { return sigmoid(x[0]); }},
    {"softplus", [](const Arrays& x) { return softplus(x[0]); }},
    {"square", [](const Arrays& x) { return square(x[0]); }},
    {"reciprocal", [](const Arrays& x) { return reciprocal(x[0]); }},
    {"isnan", [](const Arrays& x) { return isnan(x[0]); }},
    {"isinf", [](const Arrays& x) { return isinf(x[0]); }},
    {"softmax", [](const Arrays& x) { return softmax(x[0]); }},
    {"log_softmax", [](const Arrays& x) { return log_softmax(x[0]); }},
    {"logsumexp", [](const Arrays& x) { return logsumexp(x[0], {.axes = {-1}}); }},
    {"sum", [](const Arrays& x) { return sum(x[0], {.axes = {-1}}); }},
    {"prod", [](const Arrays& x) { return prod(x[0], {.axes = {-1}}); }},
    {"any", [](const Arrays& x) { return any(x[0], {.axes = {-1}}); }},
    {"all", [](const Arrays& x) { return all(x[0], {.axes = {-1}}); }},
    {"mean", [](const Arrays& x) { return mean(x[0], {.axes = {-1}}); }},
    {"var", [](const Arrays& x) { return var(x[0], {.axes = {-1}}); }},
    {"stddev", [](const Arrays& x) { return stddev(x[0], {.axes = {-1}}); }},
    {"sort", [](const Arrays& x) { return sort(x[0]); }},
    {"argsort", [](const Arrays& x) { return argsort(x[0]); }},
    {"flip", [](const Arrays& x) { return flip(x[0], {-1}); }},
    {"roll", [](const Arrays& x) { return roll(x[0], 1, -1); }},
    {"tril", [](const Arrays& x) { return tril(x[0]); }},
    {"triu", [](const Arrays& x) { return triu(x[0]); }},
    {"repeat", [](const Arrays& x) { return repeat(x[0], 2, -1); }},
    {"tile", [](const Arrays& x) { return tile(x[0], {2, 1}); }},
    {"mod", [](const Arrays& x) { return mod(x[0], x[1]); }},
    {"floor_divide", [](const Arrays& x) { return floor_divide(x[0], x[1]); }},
    {"maximum", [](const Arrays& x) { return maximum(x[0], x[1]); }},
    {"where", [](const Arrays& x) { return where(x[0] > x[1], x[0], x[1]); }},
    {"logical_and", [](const Arrays& x) { return logical_and(x[0], x[1]); }},
    {"logical_xor", [](const Arrays& x) { return logical_xor(x[0], x[1]); }},
};

bool is_integer_by_zero(const Row& r, std::int64_t i) { return is_int(r.operands[0].dtype()) && second(r, i) == 0; }

constexpr tests::CallDifference kDifferences[] = {
    {"relu", "jvp vjp", [](const Row& r, std::int64_t i) { return std::isnan(first(r, i)); },
     "NaN passes its derivative, as it passes itself"},
    {"leaky_relu", "jvp vjp", [](const Row& r, std::int64_t i) { return first(r, i) == 0; },
     "0 belongs to the slope; JAX's has 1 there"},
    {"mod", "value", is_integer_by_zero, "x mod 0 is x among integers; JAX's is 0"},
    {"mod", "jvp vjp", [](const Row& r, std::int64_t i) { return second(r, i) == 0 || std::isinf(first(r, i)); },
     "NaN, as the value; JAX's is infinite"},
    {"floor_divide", "value", is_integer_by_zero, "all bits set, as for /; JAX's is one less"},
    {"maximum", "jvp vjp", [](const Row& r, std::int64_t i) { return std::isnan(first(r, i) + second(r, i)); },
     "a NaN shares the derivative"},
};

}  // namespace

TEST_CASE("functions of the API agree with jax.numpy and jax.nn") {
  const auto find = [](const std::string& name) {
    const auto found = kFunctions.find(name);
    return found == kFunctions.end() ? tests::Function() : found->second;
  };
  tests::check_calls("functions", find, kDifferences);
}
