// A program compiled whole against its equations one by one, each a program of its own that is interpreted: to the bit.
#pragma once

#include <doctest/doctest.h>

#include <random>
#include <span>

#include "ir/builder.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "tests/lap.h"

namespace sheaf::tests {

/// What a seed chooses.
class Choices {
 public:
  explicit Choices(std::uint32_t seed) : random_(seed) {}
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint32_t>(high - low + 1));
  }
  template <class T>
  const T& one_of(std::span<const T> all) {
    return all[static_cast<std::size_t>(pick(0, std::ssize(all) - 1))];
  }

 private:
  std::mt19937 random_;
};

inline ir::Literals one_by_one(const ir::Function& f, const ir::Literals& inputs) {
  using namespace ir;
  ValueTable<Literal> value(f);
  for (std::size_t i = 0; i < inputs.size(); ++i) value[f.params()[i]] = inputs[i];
  for (const Eqn* e : f.eqns()) {
    Builder b("one");
    Values params;
    Literals in;
    for (Value v : e->operands) {
      params.push_back(b.param(v.type()));
      in.push_back(value[v]);
    }
    const FunctionRef one = b.finish(b.clone(*e, params));
    const Literals out = tests::run(one, in, runtime::Tier::interpreted);
    for (int j = 0; j < e->num_out(); ++j) value[e->out(j)] = out[j];
  }
  Literals results;
  for (Value r : f.results()) results.push_back(value[r]);
  return results;
}

inline void check_one_by_one(const ir::FunctionRef& f, std::uint32_t seed) {
  INFO("seed ", seed);
  const ir::Literals inputs = ir::random_inputs(*f, seed);
  const ir::Literals want = one_by_one(*f, inputs), got = run(f, inputs, runtime::Tier::compiled);
  for (std::size_t j = 0; j < got.size(); ++j)
    CHECK_MESSAGE(same_bits(got[j], want[j]), "result ", j, " of\n", ir::print(f), "\nplanned as\n",
                  ir::print(passes::run_pipeline(f).function));
}

/// Of programs that Generator(seed).program(size) gives.
template <class Generator>
void check_programs(std::uint32_t from, std::uint32_t count, int size) {
  for (std::uint32_t seed = from; seed < from + count; ++seed) check_one_by_one(Generator(seed).program(size), seed);
}

}  // namespace sheaf::tests
