// Random programs that are given the memory of their arguments: the same bits as one operation after the other on
// copies, whatever is donated, passed twice or still read by somebody; and what was not donated stays as it was.
#include <doctest/doctest.h>

#include <random>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

constexpr int kArguments = 3;

struct Step {
  int op, lhs, rhs;
};

/// Of arrays of one shape, which later steps read and results may share.
struct Script {
  std::vector<Step> steps;
  std::vector<int> results;
};

std::vector<Array> run(const Script& script, std::vector<Array> values) {
  for (const auto& [op, lhs, rhs] : script.steps) {
    const Array &x = values[lhs], &y = values[rhs];
    switch (op) {
      case 0: values.push_back(x + y); break;
      case 1: values.push_back(x * 0.5 - y); break;
      case 2: values.push_back(flip(x)); break;
      case 3: values.push_back(maximum(x, y)); break;
      case 4: values.push_back(x.at(slice(1, 3)).set(y[0])); break;
      case 5: values.push_back(cumsum(x) - y); break;
      default: values.push_back(x - sum(y) * 0.25); break;
    }
  }
  std::vector<Array> out;
  for (const int r : script.results) out.push_back(values[r]);
  return out;
}

Script random_script(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Script script;
  const int steps = 1 + below(7);
  for (int i = 0; i < steps; ++i) script.steps.push_back({below(7), below(kArguments + i), below(kArguments + i)});
  for (int i = 0, count = 1 + below(3); i < count; ++i) script.results.push_back(below(kArguments + steps));
  script.results.push_back(kArguments + steps - 1);
  return script;
}

using Values = std::vector<float>;

Values read(const Array& x) { return x.to_vector<float>(); }

bool is_gone(const Array& x) {
  try {
    (void)read(x);
  } catch (const RuntimeError&) { return true; }
  return false;
}

void check_program(std::mt19937& random, int program) {
  const Script script = random_script(random);
  const std::int64_t n = program % 4 == 0 ? 40'000 : 5 + program % 60;  // in a queue, or by the caller
  std::vector<int> donated;
  for (int k = 0; k < kArguments; ++k)
    if (random() % 2) donated.push_back(k);
  INFO("program ", program, ", ", donated.size(), " donated");
  std::vector<Array> arguments, copies;
  for (int k = 0; k < kArguments; ++k) {
    const Array x = random::normal(random::key(program * 8 + k), {n});
    arguments.push_back(x * 1.0);
    copies.push_back(x);
  }
  if (program % 3 == 0) arguments[2] = arguments[0], copies[2] = copies[0];  // passed twice
  std::vector<Values> expected;
  for (const Array& x : run(script, copies)) expected.push_back(read(x));
  const auto f = jit([script](Array a, Array b, Array c) { return run(script, {a, b, c}); }, {.donate = donated});
  const Array reader = program % 5 == 0 ? arguments[1] + 1.0 : Array(0.0);  // may still read when it is taken
  const std::vector<Array> results = f(arguments[0], arguments[1], arguments[2]);
  for (std::size_t j = 0; j < results.size(); ++j) CHECK(read(results[j]) == expected[j]);
  for (int k = 0; k < kArguments; ++k) {
    bool is_donated = false;
    for (const int d : donated) is_donated |= arguments[d].node() == arguments[k].node();
    CHECK(is_gone(arguments[k]) == is_donated);
    if (!is_donated) CHECK(read(arguments[k]) == read(copies[k]));
  }
  if (program % 5 == 0) CHECK(read(reader) == read(copies[1] + 1.0));
}

void check_programs(unsigned seed, int count) {
  std::mt19937 random(seed);
  for (int program = 0; program < count; ++program) check_program(random, program);
}

}  // namespace

TEST_CASE("programs that overwrite their arguments give the bits of those that do not") {
  check_programs(20261130, 60);
}

TEST_CASE("a thousand programs overwrite their arguments and give the bits of those that do not" *
          doctest::test_suite("soak")) {
  check_programs(1, 1000);
}
