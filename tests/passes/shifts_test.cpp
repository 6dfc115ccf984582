// Shifts of arrays that a mesh divides, written as cutting and joining of parts that it does not: neighbours exchange a
// few rows, and nothing is gathered.
#include "passes/sharding/shifts.h"

#include "passes/sharding/propagate.h"
#include "tests/passes/partitioned.h"
#include "tests/passes/programs.h"

using namespace sheaf;
using namespace sheaf::ir;
using namespace sheaf::tests;

namespace {

Literals numbers(const Function& f) {
  Literals in;
  for (const Value p : f.params()) {
    Literal x{without_sharding(p.type())};
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, std::sin(1.7 * static_cast<double>(i) + 0.3 * p.index()));
    in.push_back(std::move(x));
  }
  return in;
}

/// The collectives of the function over 4 devices, once it was seen to compute what it should.
std::string collectives_of(std::string_view text) {
  const FunctionRef f = parse_function(fmt::format("mesh @m = [a=4]\n{}", text));
  const FunctionRef placed = passes::propagate(passes::shifts(f));
  return fmt::format("{}", fmt::join(collectives(*check_partitioned(placed, numbers(*f), 0)), ", "));
}

}  // namespace

TEST_CASE("a roll by less than a part exchanges that many rows, one way and around the end") {
  CHECK(collectives_of(R"(
func @roll(%x: f32[8@a, 3]) -> f32[8, 3] on @m {
  %head: f32[1, 3] = slice %x {start=[7, 0], limit=[8, 3], stride=[1, 1]}
  %tail: f32[7, 3] = slice %x {start=[0, 0], limit=[7, 3], stride=[1, 1]}
  %y: f32[8, 3] = concatenate %head, %tail {dim=[0]}
  return %y
}
)") == "ppermute a 12, ppermute a 12");
}

TEST_CASE("a roll by more than a part comes from two neighbours, and around the end") {
  CHECK(collectives_of(R"(
func @roll(%x: f32[8@a]) -> f32[8] on @m {
  %head: f32[3] = slice %x {start=[5], limit=[8], stride=[1]}
  %tail: f32[5] = slice %x {start=[0], limit=[5], stride=[1]}
  %y: f32[8] = concatenate %head, %tail {dim=[0]}
  return %y
}
)") == "ppermute a 4, ppermute a 4, ppermute a 4, ppermute a 4");
}

TEST_CASE("a stencil takes one row from each side") {
  CHECK(collectives_of(R"(
func @stencil(%x: f32[8@a]) -> f32[8] on @m {
  %padded: f32[10] = pad %x, 0.0:f32 {low=[1], high=[1], interior=[0]}
  %left: f32[8] = slice %padded {start=[0], limit=[8], stride=[1]}
  %right: f32[8] = slice %padded {start=[2], limit=[10], stride=[1]}
  %y: f32[8] = add %left, %right
  return %y
}
)") == "ppermute a 4, ppermute a 4");
}

TEST_CASE("the adjoint of a roll is a roll") {
  CHECK(collectives_of(R"(
func @adjoint(%ct: f32[8@a]) -> f32[8] on @m {
  %head: f32[1] = slice %ct {start=[0], limit=[1], stride=[1]}
  %tail: f32[7] = slice %ct {start=[1], limit=[8], stride=[1]}
  %a: f32[8] = pad %head, 0.0:f32 {low=[7], high=[0], interior=[0]}
  %b: f32[8] = pad %tail, 0.0:f32 {low=[0], high=[1], interior=[0]}
  %y: f32[8] = add %a, %b
  return %y
}
)") == "ppermute a 4, ppermute a 4");
}

TEST_CASE("a pooling window over parts takes the rows it lacks") {
  CHECK(collectives_of(R"(
func @pool(%x: f32[16@a, 3]) -> f32[16, 3] on @m {
  %y: f32[16, 3] = reduce_window %x {kind=max, window=[3, 1], strides=[1, 1], low=[1, 0], high=[1, 0], base_dilation=[1, 1], window_dilation=[1, 1]}
  return %y
}
)") == "ppermute a 12, ppermute a 12");
}
