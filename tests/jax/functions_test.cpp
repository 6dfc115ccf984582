// Functions of the API against jax.numpy and jax.nn at special points: values, tangents and cotangents through the
// user's own calls, so that promotion, composition and the derivatives of compositions are compared, not single ops.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "sheaf/sheaf.h"
#include "tests/jax/golden.h"

using namespace sheaf;
using tests::Quantity;
using tests::Row;

namespace {

using Arrays = std::vector<Array>;
using Function = Array (*)(const Arrays& x);
const std::map<std::string, Function> kFunctions = {
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

Array array_of(const ir::Literal& x) {
  return detail::from_host(x.data(), x.dtype(), x.dims(), x.dtype(), Loc::current());
}

// What a row calls, and the dtype JAX gives: "mod f32[3], f32[3] {result=f32}".
struct Call {
  Function function;
  DType result;
};
Call call_of(const Row& row) {
  const std::string name = row.text.substr(0, row.text.find(' '));
  const std::size_t result = row.text.find("result=") + 7;
  const auto found = kFunctions.find(name);
  REQUIRE_MESSAGE(found != kFunctions.end(), name);
  return {found->second, *parse_dtype(row.text.substr(result, row.text.size() - 1 - result))};
}

std::vector<Array> compute(Function f, const std::vector<Array>& x, const Quantity& q) {
  if (q.kind == "value") return {f(x)};
  if (q.kind == "jvp") {
    const auto along = [&](const Array& changed) {
      std::vector<Array> all = x;
      all[q.numbers[0]] = changed;
      return f(all);
    };
    const Array& primal = x[q.numbers[0]];
    const ir::Type type(primal.dtype(), primal.shape());
    return {jvp(along, primal, array_of(tests::direction(type, q.numbers[0]))).second};
  }
  const auto [value, pullback] = vjp(f, x);
  return std::get<0>(pullback(array_of(tests::direction(ir::Type(value.dtype(), value.shape()), 2))));
}

// Where Sheaf differs on purpose, by the row's operands at the element.
struct Difference {
  std::string_view name, quantities;
  bool (*at)(double x, double y);
  std::string_view why;
};
constexpr Difference kDifferences[] = {
    {"relu", "jvp vjp", [](double x, double) { return std::isnan(x); },
     "NaN passes its derivative, as it passes itself"},
    {"leaky_relu", "jvp vjp", [](double x, double) { return x == 0; }, "0 belongs to the slope; JAX's has 1 there"},
    {"mod", "value", [](double, double y) { return y == 0; }, "x mod 0 is x among integers; JAX's is 0"},
    {"mod", "jvp vjp", [](double x, double y) { return y == 0 || std::isinf(x); },
     "NaN, as the value; JAX's is infinite"},
    {"floor_divide", "value", [](double, double y) { return y == 0; }, "all bits set, as for /; JAX's is one less"},
    {"maximum", "jvp vjp", [](double x, double y) { return std::isnan(x + y); }, "a NaN shares the derivative"},
};

bool differs_on_purpose(const Row& row, const Quantity& q, std::int64_t i) {
  const std::string name = row.text.substr(0, row.text.find(' '));
  const auto operand = [&](std::size_t k) { return k < row.operands.size() ? row.operands[k].get(i) : 0; };
  for (const Difference& d : kDifferences)
    if (d.name == name && d.quantities.find(q.kind) != std::string_view::npos && d.at(operand(0), operand(1)))
      return true;
  return false;
}

bool is_near(double got, double want, DType t) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (got == want) return true;
  const double epsilon = t == bf16 ? 0x1p-6 : is_float(t) ? 4e-6 : 0;
  return std::isfinite(got) && std::isfinite(want) && std::abs(got - want) <= epsilon * (0.1 + std::abs(want));
}

}  // namespace

TEST_CASE("functions of the API agree with jax.numpy and jax.nn") {
  for (const Row& row : tests::read_golden("functions")) {
    const Call call = call_of(row);
    std::vector<Array> operands;
    for (const ir::Literal& x : row.operands) operands.push_back(array_of(x));
    for (const Quantity& q : row.quantities) {
      INFO(row.text, " ", q.kind);
      const std::vector<Array> got = compute(call.function, operands, q);
      REQUIRE(got.size() == q.results.size());
      for (std::size_t j = 0; j < got.size(); ++j) {
        CHECK(got[j].dtype() == (q.kind == "value" ? call.result : operands[0].dtype()));
        const auto numbers = convert(ravel(got[j]), f64).to_vector<double>();
        const ir::Literal want = tests::read_elements(ir::Type(call.result, got[j].shape()), q.results[j]);
        for (std::int64_t i = 0; i < want.size(); ++i)
          CHECK_MESSAGE((is_near(numbers[i], want.get(i), want.dtype()) || differs_on_purpose(row, q, i)), "result ", j,
                        ", element ", i, ": ", numbers[i], ", JAX: ", want.get(i));
      }
    }
  }
}
