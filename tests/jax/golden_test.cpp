// Every golden row, by table: the reference interpreter and kernels, forward and reverse derivatives and batching, held
// against what JAX computed. Where Sheaf differs on purpose, `differences` says where and why; nothing else may.
#include "tests/jax/golden.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <set>

#include "ir/eval.h"
#include "ir/op.h"
#include "passes/transforms.h"
#include "tests/jax/differences.h"
#include "tests/lap.h"

using namespace sheaf;
using namespace sheaf::ir;
using tests::Quantity;
using tests::Row;

namespace {

// The program of a quantity and its inputs; its results are the last `count` ones.
struct Program {
  FunctionRef function;
  Literals inputs;
  std::size_t count;
};

Literals with_directions(Literals in, const Values& params, std::size_t first, int shift) {
  for (std::size_t k = first; k < params.size(); ++k)
    in.push_back(tests::direction(params[k].type(), shift + static_cast<int>(k - first)));
  return in;
}

Program reverse_program(const FunctionRef& f, const Row& row) {
  passes::Mask wrt;
  for (Value p : f->params()) wrt.push_back(is_differentiable(p.dtype()));
  const passes::Vjp v = passes::vjp(f, wrt);
  Literals residuals = eval(*v.forward, row.operands);
  residuals.erase(residuals.begin(), residuals.begin() + static_cast<std::ptrdiff_t>(f->results().size()));
  const std::size_t first = residuals.size();
  return {v.backward, with_directions(std::move(residuals), v.backward->params(), first, 2),
          v.backward->results().size()};
}

Program program_of(const FunctionRef& f, const Row& row, const Quantity& q) {
  const std::size_t count = f->results().size();
  if (q.kind == "value") return {f, row.operands, count};
  if (q.kind == "vjp") return reverse_program(f, row);
  if (q.kind == "jvp") {
    passes::Mask along(row.operands.size());
    along[q.numbers[0]] = true;
    const FunctionRef forward = passes::jvp(f, along, passes::Mask(count, true)).function;
    return {forward, with_directions(row.operands, forward->params(), row.operands.size(), q.numbers[0]), count};
  }
  Literals in = row.operands;
  for (std::size_t k = 0; k < in.size(); ++k)
    if (q.numbers[k] >= 0) in[k] = tests::batch_of_two(in[k], q.numbers[k]);
  return {passes::vmap(f, q.numbers, std::vector<int>(count, 0), 2), std::move(in), count};
}

using Run = Literals (*)(const FunctionRef& f, const Literals& inputs);
Literals by_reference(const FunctionRef& f, const Literals& inputs) { return eval(*f, inputs); }
Literals by_kernels(const FunctionRef& f, const Literals& inputs) {
  return tests::run(f, inputs, runtime::Tier::interpreted);
}
Literals by_machine_code(const FunctionRef& f, const Literals& inputs) {
  return tests::run(f, inputs, runtime::Tier::compiled);
}

void check_rows(const std::string& family, std::initializer_list<Run> runs) {
  for (const Row& row : tests::read_golden(family)) {
    const auto sample = parse_sample(row.text);
    REQUIRE_MESSAGE(sample.ok(), std::string(sample.status().message()));
    for (const Quantity& q : row.quantities) {
      INFO(fmt::format("{}: {} {}", row.text, q.kind, fmt::join(q.numbers, " ")));
      const Program p = program_of(sample->function, row, q);
      for (const Run run : runs) {
        Literals got = run(p.function, p.inputs);
        got.erase(got.begin(), got.end() - static_cast<std::ptrdiff_t>(p.count));
        REQUIRE(got.size() == q.results.size());
        for (std::size_t j = 0; j < got.size(); ++j)
          tests::check_agrees(row, q, static_cast<int>(j), got[j], tests::read_elements(got[j].type(), q.results[j]));
      }
    }
  }
}

constexpr const char* kFamilies[] = {"unary",    "binary",   "ternary", "conversions", "shaping",   "reductions",
                                     "products", "indexing", "windows", "attention",   "precision", "top_k"};

// Ops that have no rows: programs rather than functions of arrays, what JAX has no op for, derivatives, which the rows
// of attention hold, and collectives, which linalg_test.cpp compares as functions of a batch.
bool is_without_rows(const OpDef& op) {
  const bool is_derivative = &op == &ops::attention_tangent || &op == &ops::attention_backward;
  return op.infer || op.no_jvp == Absent::plan_only || op.over || op.manual || &op == &ops::constant ||
         &op == &ops::with_sharding || is_derivative;
}

}  // namespace

TEST_CASE("ops agree with JAX, by the reference and by kernels") {
  for (const char* family : kFamilies) check_rows(family, {by_reference, by_kernels});
  // A difference that nothing shows is out of date.
  for (std::size_t k = 0; k < tests::differences().size(); ++k)
    CHECK_MESSAGE(tests::uses_of_differences()[k] > 0, std::string(tests::differences()[k].why));
}

TEST_CASE("machine code agrees with JAX" * doctest::test_suite("full")) {
  for (const char* family : kFamilies) check_rows(family, {by_machine_code});
}

// Ops without rows are named, and no error: making rows takes Python and JAX, which the author of an op may not have.
TEST_CASE("ops that are not compared with JAX are named") {
  std::set<std::string, std::less<>> compared;
  std::vector<std::string> families(std::begin(kFamilies), std::end(kFamilies));
  families.emplace_back("linalg");  // functions of the API, "svd:values" the values of svd
  for (const std::string& family : families)
    for (const Row& row : tests::read_golden(family)) compared.insert(row.text.substr(0, row.text.find_first_of(" :")));
  compared.insert({"complex", "real", "imag"});  // of which the functions in complex_test.cpp are made
  CHECK(compared.size() >= 95);
  for (Op op : all_ops())
    if (!is_without_rows(*op)) WARN_MESSAGE(compared.contains(op->name), std::string(op->name));
}
