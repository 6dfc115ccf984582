// Machine code of the process's first device against the KIR interpreter on the CPU, to the bit, for every sample of
// every op and for its derivatives. The interpreter itself is held against the reference in
// tests/codegen/lower_test.cpp.
#include "ir/builder.h"
#include "ir/op.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "passes/emit.h"
#include "passes/transforms.h"
#include "tests/lap.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

struct Run {
  FunctionRef f;
  Literals inputs;
};

bool is_half(DType t) { return t == f16 || t == bf16; }

bool is_rounded(const Eqn& product, Precision precision) {
  return is_half(product.in(0).dtype()) || precision != Precision::full;
}

/// A GPU leaves these to tensor cores or to a library, which add up in an order of their own; tests of their own hold
/// them to a tolerance.
bool has_another_order_on_a_gpu(const Function& f) {
  for (const Eqn* e : f.eqns()) {
    if (e->op->name.starts_with("attention")) return true;
    if (e->op == &ops::conv && is_rounded(*e, e->attrs<ops::Conv>().precision)) return true;
    for (const FunctionRef& r : e->regions)
      if (has_another_order_on_a_gpu(*r)) return true;
    // Complex numbers are pairs of real ones from a later pass on.
    const std::vector<Type> types = e->in_types();
    if (std::any_of(types.begin(), types.end(), [](Type t) { return is_complex(t.dtype()); })) continue;
    if (!e->op->lower || e->op == &ops::constant || is_complex(e->out().dtype())) continue;
    const Lowering l = e->op->lower(*e);
    if (std::holds_alternative<lowering::Library>(l)) return true;
    if (const auto* c = std::get_if<lowering::Contract>(&l); c && is_rounded(*e, c->precision)) return true;
  }
  return false;
}

/// Many functions in one program: a GPU's compiler takes them together.
void check_together(const std::vector<Run>& runs) {
  Builder b("all");
  Literals inputs;
  Values results;
  for (const Run& run : runs) {
    Values args;
    for (Value p : run.f->params()) args.push_back(b.param(p.type()));
    for (Value r : passes::inline_into(b, *run.f, args)) results.push_back(r);
    inputs.insert(inputs.end(), run.inputs.begin(), run.inputs.end());
  }
  const Literals compiled = tests::run(b.finish(std::move(results)), inputs, runtime::Tier::compiled);
  runtime::Device& cpu = **runtime::devices_of("cpu")->begin();
  std::size_t next = 0;
  for (const Run& run : runs) {
    const Literals interpreted = tests::run(run.f, run.inputs, runtime::Tier::interpreted, cpu);
    for (std::size_t j = 0; j < interpreted.size(); ++j, ++next)
      CHECK_MESSAGE(tests::same_bits(compiled[next], interpreted[j]), "result ", j, " of\n", print(run.f));
  }
}

class Together {
 public:
  void add(Run run) {
    if (runtime::platform() == "cuda" && has_another_order_on_a_gpu(*run.f)) return;
    runs_.push_back(std::move(run));
    if (runs_.size() >= kMost) finish();
  }
  void finish() {
    check_together(runs_);
    runs_.clear();
  }

 private:
  static constexpr std::size_t kMost = 48;
  std::vector<Run> runs_;
};

}  // namespace

TEST_CASE("machine code of every sample gives the interpreter's bits") {
  Together together;
  for (Op op : all_ops()) {
    if (!op->samples) continue;
    for (std::string_view text : op->samples()) {
      const auto sample = parse_sample(text);
      REQUIRE(sample.ok());
      together.add({sample->function, random_inputs(*sample, 3)});
    }
  }
  together.finish();
}

TEST_CASE("machine code of every sample's reverse derivative gives the interpreter's bits") {
  Together together;
  for (Op op : all_ops()) {
    if (!op->samples) continue;
    for (std::string_view text : op->samples()) {
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
      together.add({v.forward, random_inputs(*sample, 3)});
      together.add({v.backward, random_inputs(*v.backward, 4)});
    }
  }
  together.finish();
}
