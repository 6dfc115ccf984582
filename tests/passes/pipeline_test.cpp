// Stages of the pipeline that are more than one rewriting: what they keep, and what they must not give up.
#include <doctest/doctest.h>

#include "ir/text.h"
#include "passes/pass.h"

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
