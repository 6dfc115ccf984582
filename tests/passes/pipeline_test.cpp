// Stages of the pipeline that are more than one rewriting: what they keep, and what they must not give up.
#include "passes/pipeline.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "codegen/kir/kir.h"
#include "codegen/lower.h"
#include "ir/builder.h"
#include "ir/eval.h"
#include "ir/ops/attrs.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "passes/pass.h"
#include "passes/transforms.h"

using namespace sheaf;
using namespace sheaf::ir;

TEST_CASE("dce shrinks a loop beside a parameter that nobody reads, which stays") {
  const auto module = parse(R"(func @f(%x: f32[2], %unread: f32[3]) -> f32[2] {
  %0: f32[2], %1: f32[4, 2] = scan %x {carry=1, length=4} (%c: f32[2]) {
    %0: f32[2] = sin %c
    %1: f32[2] = exp %c
    return %0, %1
  }
  return %0
}
)");
  REQUIRE(module.ok());
  CHECK(print(passes::find_pass("dce")->run(module->functions[0], {})) ==
        R"(func @f(%x: f32[2], %unread: f32[3]) -> f32[2] {
  %0: f32[2] = scan %x {carry=1, length=4} (%c: f32[2]) {
    %0: f32[2] = sin %c
    return %0
  }
  return %0
}
)");
}

TEST_CASE("many arrays are put together in runs, of which each kernel has few parameters") {
  Builder b("many");
  Values parts;
  for (int i = 0; i < 200; ++i) parts.push_back(b.param(Type(f32, {3})));
  const FunctionRef f = b.finish({b.emit(ops::concatenate, parts, ops::Concatenate{.dim = {0}})});
  for (const std::string gpu : {"", "sm_90a"}) {
    const Target target{gpu};
    std::size_t most = 0;
    for (const auto& kernel : codegen::lower(passes::run_pipeline(f, {.target = target}), target).kernels)
      most = std::max(most, kernel.kir->params.size());
    CHECK(most == 65);
    const Literals in = random_inputs(*f, 1);
    CHECK(ir::eval(*passes::expand_ops_for(f, target), in)[0] == ir::eval(*f, in)[0]);
  }
}
