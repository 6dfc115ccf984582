// Machine code against the KIR interpreter, to the bit, for every sample of every op and for its derivatives. The
// interpreter itself is held against the reference in tests/codegen/lower_test.cpp.
#include "ir/op.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "passes/transforms.h"
#include "tests/lap.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

void check_tiers_agree(const FunctionRef& f, const Literals& inputs) {
  const Literals compiled = tests::run(f, inputs, runtime::Tier::compiled);
  const Literals interpreted = tests::run(f, inputs, runtime::Tier::interpreted);
  for (std::size_t j = 0; j < compiled.size(); ++j)
    CHECK_MESSAGE(tests::same_bits(compiled[j], interpreted[j]), "result ", j, " of\n", print(f));
}

}  // namespace

TEST_CASE("machine code of every sample gives the interpreter's bits") {
  for (Op op : all_ops()) {
    if (!op->samples) continue;
    for (std::string_view text : op->samples()) {
      INFO("sample: ", std::string(text));
      const auto sample = parse_sample(text);
      REQUIRE(sample.ok());
      check_tiers_agree(sample->function, random_inputs(*sample, 3));
    }
  }
}

TEST_CASE("machine code of every sample's reverse derivative gives the interpreter's bits") {
  for (Op op : all_ops()) {
    if (!op->samples) continue;
    for (std::string_view text : op->samples()) {
      INFO("sample: ", std::string(text));
      const auto sample = parse_sample(text);
      REQUIRE(sample.ok());
      passes::Mask wrt;
      bool any = false;
      for (Value p : sample->function->params()) {
        wrt.push_back(is_differentiable(p.dtype()));
        any |= wrt.back();
      }
      if (!any) continue;
      const passes::Vjp v = passes::vjp(sample->function, wrt);
      const Literals inputs = random_inputs(*sample, 3);
      check_tiers_agree(v.forward, inputs);
      check_tiers_agree(v.backward, random_inputs(*v.backward, 4));
    }
  }
}
