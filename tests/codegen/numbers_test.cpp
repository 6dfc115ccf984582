// Numbers in kernels: few are part of their text; where there are many different ones, kernels that differ in a number
// alone are one, which reads it from memory.
#include <doctest/doctest.h>

#include <string>

#include "codegen/lower.h"
#include "ir/eval.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "tests/lap.h"

using namespace sheaf;

namespace {

/// As many results, each of them x times a number of its own.
ir::FunctionRef multiples(int count) {
  std::string types, body, results;
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i), comma = i ? ", " : "";
    types += comma + "f32[100]";
    results += comma + "%y" + n;
    body += "  %y" + n + ": f32[100] = mul %x, " + std::to_string(i + 2) + ".5:f32\n";
  }
  const auto module = ir::parse("func @f(%x: f32[100]) -> " + types + " {\n" + body + "  return " + results + "\n}\n");
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return module->functions[0];
}

std::size_t kernels_of(int count) { return codegen::lower(passes::run_pipeline(multiples(count), {})).kernels.size(); }

}  // namespace

TEST_CASE("kernels that differ in a number alone are one where there are many numbers") {
  CHECK(kernels_of(250) == 1);
  CHECK(kernels_of(4) == 4);
}

TEST_CASE("a number that is read from memory gives the bits that it gives in the text") {
  const ir::FunctionRef f = multiples(70);
  const ir::Literals inputs = ir::random_inputs(*f, 1);
  const ir::Literals got = tests::run(f, inputs, runtime::Tier::compiled), want = ir::eval(*f, inputs);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(tests::same_bits(got[i], want[i]));
}
