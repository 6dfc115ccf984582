// A row's text is "mod f32[3], f32[3] {result=f32}": what it calls, and the dtype that JAX gives.
#include "tests/jax/calls.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace sheaf::tests {
namespace {

Array array_of(const ir::Literal& x) {
  return detail::from_host(x.data(), x.dtype(), x.dims(), x.dtype(), Loc::current());
}

DType result_of(const Row& row) {
  const std::size_t result = row.text.find("result=") + 7;
  return *parse_dtype(row.text.substr(result, row.text.size() - 1 - result));
}

std::vector<Array> batched(const Function& f, const Row& row, const Quantity& q) {
  std::vector<Axis> in;
  std::vector<Array> x;
  for (std::size_t k = 0; k < row.operands.size(); ++k) {
    const int at = q.numbers[k];
    in.push_back(at < 0 ? Axis(none) : Axis(at));
    x.push_back(array_of(at < 0 ? row.operands[k] : batch_of_two(row.operands[k], at)));
  }
  if (x.size() == 1) return {vmap([&](Array a) { return f({a}); }, {.in = in})(x[0])};
  REQUIRE(x.size() == 2);
  return {vmap([&](Array a, Array b) { return f({a, b}); }, {.in = in})(x[0], x[1])};
}

std::vector<Array> compute(const Function& f, const Row& row, const Quantity& q) {
  if (q.kind == "vmap") return batched(f, row, q);
  Arrays x;
  for (const ir::Literal& operand : row.operands) x.push_back(array_of(operand));
  if (q.kind == "value") return {f(x)};
  if (q.kind == "jvp") {
    const auto along = [&](const Array& changed) {
      Arrays all = x;
      all[q.numbers[0]] = changed;
      return f(all);
    };
    const Array& primal = x[q.numbers[0]];
    const ir::Type type(primal.dtype(), primal.shape());
    return {jvp(along, primal, array_of(direction(type, q.numbers[0]))).second};
  }
  const auto [value, pullback] = vjp([&](const Arrays& all) { return f(all); }, x);
  return std::get<0>(pullback(array_of(direction(ir::Type(value.dtype(), value.shape()), 2))));
}

bool has_word(std::string_view list, std::string_view word) {
  const std::vector<std::string> all = words(std::string(list));
  return std::find(all.begin(), all.end(), word) != all.end();
}

bool is_near(double got, double want, DType t, Accuracy accuracy) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (got == want) return true;
  const double epsilon = t == f64 ? accuracy.f64 : t == f32 ? accuracy.f32 : is_float(t) ? 0x1p-6 : 0;
  return std::isfinite(got) && std::isfinite(want) && std::abs(got - want) <= epsilon * (0.1 + std::abs(want));
}

double element(const Row& row, std::size_t k, std::int64_t i) {
  return k < row.operands.size() && i < row.operands[k].size() ? row.operands[k].get(i) : 0;
}

}  // namespace

double first(const Row& row, std::int64_t i) { return element(row, 0, i); }
double second(const Row& row, std::int64_t i) { return element(row, 1, i); }

void check_calls(const std::string& family, const std::function<Function(const std::string& name)>& find,
                 std::span<const CallDifference> differences, Accuracy accuracy) {
  std::vector<bool> is_used(differences.size());
  for (const Row& row : read_golden(family)) {
    const std::string name = row.text.substr(0, row.text.find(' '));
    const Function f = find(name);
    REQUIRE_MESSAGE(f, name);
    const auto differs_on_purpose = [&](const Quantity& q, std::int64_t i, double got, double want) {
      const auto d = std::find_if(differences.begin(), differences.end(), [&](const CallDifference& difference) {
        return has_word(difference.name, name) && has_word(difference.quantities, q.kind) && difference.at(row, i) &&
               (!difference.says || difference.says(got, want));
      });
      if (d != differences.end()) is_used[d - differences.begin()] = true;
      return d != differences.end();
    };
    for (const Quantity& q : row.quantities) {
      INFO(fmt::format("{} {} {}", row.text, q.kind, fmt::join(q.numbers, " ")));
      const std::vector<Array> got = compute(f, row, q);
      REQUIRE(got.size() == q.results.size());
      for (std::size_t j = 0; j < got.size(); ++j) {
        const bool is_cotangent = q.kind == "vjp";
        CHECK(got[j].dtype() == (is_cotangent ? row.operands[j].dtype() : result_of(row)));
        const auto numbers = convert(ravel(got[j]), f64).to_vector<double>();
        const ir::Literal want = read_elements(ir::Type(got[j].dtype(), got[j].shape()), q.results[j]);
        for (std::int64_t i = 0; i < want.size(); ++i)
          CHECK_MESSAGE((is_near(numbers[i], want.get(i), want.dtype(), accuracy) ||
                         differs_on_purpose(q, i, numbers[i], want.get(i))),
                        "result ", j, ", element ", i, ": ", numbers[i], ", JAX: ", want.get(i));
      }
    }
  }
  // A difference that nothing shows is out of date.
  for (std::size_t d = 0; d < differences.size(); ++d) CHECK_MESSAGE(is_used[d], std::string(differences[d].why));
}

}  // namespace sheaf::tests
