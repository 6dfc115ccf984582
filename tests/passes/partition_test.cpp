// Partitioning of functions whose layouts are given: the program of one device, run on all, is the whole program; and
// the collectives it holds are those that are needed.
#include "passes/sharding/partition.h"

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

std::string listed(const Function& f) { return fmt::format("{}", fmt::join(collectives(f), ", ")); }

/// The collectives of the function, once it was seen to compute what it should.
std::string collectives_of(std::string_view mesh, std::string_view text) {
  const FunctionRef f = parse_function(fmt::format("mesh @m = [{}]\n{}", mesh, text));
  return listed(*check_partitioned(f, numbers(*f), 1e-5));
}

}  // namespace

TEST_CASE("what is split alike everywhere needs no communication") {
  CHECK(collectives_of("x=4, y=2", R"(
func @f(%a: f32[8@x, 4@y], %b: f32[8@x, 4@y]) -> f32[8@x, 4@y] on @m {
  %c: f32[8@x, 4@y] = add %a, %b
  %d: f32[8@x, 4@y] = tanh %c
  return %d
}
)") == "");
}

TEST_CASE("a contracted dim that is split ends in one all_reduce of the part of the result") {
  CHECK(collectives_of("x=4, y=2", R"(
func @f(%a: f32[8@x, 32@y], %b: f32[32@y, 16]) -> f32[8@x, 16] on @m {
  %c: f32[8@x, 16] = dot %a, %b {lhs=[1], rhs=[0]}
  return %c
}
)") == "all_reduce y 128");
}

TEST_CASE("shapes in attributes become local") {
  CHECK(collectives_of("x=4, y=2", R"(
func @f(%a: f32[8@x, 6@y]) -> f32[6@y, 5, 8@x], f32[4@x, 2, 6@y] on @m {
  %t: f32[6@y, 8@x] = transpose %a {perm=[1, 0]}
  %b: f32[6@y, 5, 8@x] = broadcast %t {shape=[6, 5, 8], dims=[0, 2]}
  %r: f32[4@x, 2, 6@y] = reshape %a {shape=[4, 2, 6]}
  return %b, %r
}
)") == "");
}

TEST_CASE("sums that are added up are made once") {
  CHECK(collectives_of("t=4", R"(
func @f(%x: f32[8, 16], %a: f32[8, 32@t], %b: f32[32@t, 16], %c: f32[8, 64@t], %d: f32[64@t, 16]) -> f32[8, 16] on @m {
  %p: f32[8, 16] = dot %a, %b {lhs=[1], rhs=[0]}
  %y: f32[8, 16] = add %x, %p
  %q: f32[8, 16] = dot %c, %d {lhs=[1], rhs=[0]}
  %z: f32[8, 16] = add %y, %q
  return %z
}
)") == "all_reduce t 512");
}

TEST_CASE("a sum that is taken by what is not linear is made before it, without masks") {
  const FunctionRef f = parse_function(R"(
mesh @m = [t=4]
func @f(%x: f32[8, 16], %a: f32[8, 32@t], %b: f32[32@t, 16]) -> f32[8, 16] on @m {
  %p: f32[8, 16] = dot %a, %b {lhs=[1], rhs=[0]}
  %y: f32[8, 16] = add %x, %p
  %z: f32[8, 16] = tanh %y
  return %z
}
)");
  const FunctionRef local = check_partitioned(f, numbers(*f), 1e-5);
  CHECK(listed(*local) == "all_reduce t 512");
  for (const Eqn* e : local->eqns()) CHECK(e->op != &ops::select);
}
