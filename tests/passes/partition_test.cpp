// Partitioning of functions whose layouts are given: the program of one device, run on all, is the whole program; and
// the collectives it holds are those that are needed.
#include "passes/sharding/partition.h"

#include "ir/callbacks.h"
#include "tests/passes/partitioned.h"
#include "tests/passes/programs.h"

using namespace sheaf;
using namespace sheaf::ir;
using namespace sheaf::tests;

namespace {

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

TEST_CASE("a dim that must be whole lends its axes to one that is not") {
  CHECK(collectives_of("x=4", R"(
func @f(%a: f32[8, 32@x]) -> f32[8, 32@x] on @m {
  %c: f32[8, 32@x] = sort %a {dim=[1]}
  return %c
}
)") == "all_to_all x 256, all_to_all x 256");
}

TEST_CASE("a result that is wanted whole is scattered and gathered rather than summed at each device") {
  CHECK(collectives_of("x=4, y=2", R"(
func @f(%a: f32[8@x, 32@y], %b: f32[32@y, 16@x]) -> f32[8, 16] on @m {
  %c: f32[8, 16] = dot %a, %b {lhs=[1], rhs=[0]}
  return %c
}
)") == "all_gather x 512, all_gather x+y 512, reduce_scatter y 128");
}

TEST_CASE("a sum that several take is made once") {
  CHECK(collectives_of("t=4", R"(
func @f(%a: f32[8, 32@t], %b: f32[32@t, 16]) -> f32[8, 16], f32[8, 16], f32[8@t, 16] on @m {
  %p: f32[8, 16] = dot %a, %b {lhs=[1], rhs=[0]}
  %y: f32[8, 16] = tanh %p
  %z: f32[8, 16] = exp %p
  %s: f32[8@t, 16] = with_sharding %p {mesh="t=4", spec="t,_"}
  return %y, %z, %s
}
)") == "all_reduce t 512");
}

TEST_CASE("gathers of the forward pass are not kept for the backward pass") {
  const FunctionRef f = parse_function(R"(
mesh @m = [f=4]
func @f(%x: f32[64@f, 16], %w: f32[16@f, 8]) -> f32[64@f, 8], f32[64@f, 8] on @m {
  %y: f32[64@f, 8] = dot %x, %w {lhs=[1], rhs=[0]}
  %z: f32[64@f, 8] = tanh %y
  %v: f32[64@f, 8] = dot %x, %w {lhs=[1], rhs=[0]}
  return %z, %v
}
)");
  CHECK(listed(*check_partitioned(f, numbers(*f), 1e-5)) == "all_gather f 512");
}

TEST_CASE("a loop's carry keeps its layout, and stacks lie as their rows") {
  CHECK(collectives_of("d=2, t=2", R"(
func @f(%w: f32[3, 8, 8@t], %v: f32[3, 8@t, 8], %x: f32[4@d, 8]) -> f32[4@d, 8], f32[3, 4@d, 8] on @m {
  %y: f32[4@d, 8], %ys: f32[3, 4@d, 8] = scan %x, %w, %v {carry=1, length=3} (%c: f32[4@d, 8], %w1: f32[8, 8@t], %v1: f32[8@t, 8]) {
    %a: f32[4@d, 8@t] = dot %c, %w1 {lhs=[1], rhs=[0]}
    %h: f32[4@d, 8@t] = tanh %a
    %o: f32[4@d, 8] = dot %h, %v1 {lhs=[1], rhs=[0]}
    %n: f32[4@d, 8] = tanh %o
    return %n, %c
  }
  return %y, %ys
}
)") == "all_reduce t 64");
}

TEST_CASE("a carry of sums is summed once, after the loop") {
  const FunctionRef f = parse_function(R"(
mesh @m = [d=4]
func @f(%g: f32[8, 8], %x: f32[3, 8@d, 8], %y: f32[3, 8@d, 8]) -> f32[8, 8] on @m {
  %s: f32[8, 8] = scan %g, %x, %y {carry=1, length=3} (%c: f32[8, 8], %x1: f32[8@d, 8], %y1: f32[8@d, 8]) {
    %p: f32[8, 8] = dot %x1, %y1 {lhs=[0], rhs=[0]}
    %n: f32[8, 8] = add %c, %p
    return %n
  }
  return %s
}
)");
  const FunctionRef local = check_partitioned(f, numbers(*f), 1e-5);
  CHECK(listed(*local) == "all_reduce d 256");
  for (const Eqn* e : local->eqns())
    if (e->op == &ops::scan) CHECK(listed(*e->regions[0]) == "");
}

TEST_CASE("conditions are the same on all devices") {
  CHECK(collectives_of("d=2, t=2", R"(
func @f(%i: i32[], %x: f32[4@d, 8@t]) -> f32[4@d, 8@t] on @m {
  %y: f32[4@d, 8@t] = cond %i, %x (%a: f32[4@d, 8@t]) {
    %s: f32[4@d] = reduce %a {kind=sum, dims=[1]}
    %b: f32[4@d, 8@t] = broadcast %s {shape=[4, 8], dims=[0]}
    return %b
  } (%a: f32[4@d, 8@t]) {
    return %a
  }
  return %y
}
)") == "all_reduce t 8");
  CHECK(collectives_of("d=2", R"(
func @f(%x: f32[64@d]) -> f32[64@d] on @m {
  %y: f32[64@d] = while %x {max_trips=20} (%c: f32[64@d]) {
    %s: f32[] = reduce %c {kind=sum, dims=[0]}
    %p: bool[] = lt %s, 40.0:f32
    return %p
  } (%c: f32[64@d]) {
    %n: f32[64@d] = add %c, 1.5:f32
    return %n
  }
  return %y
}
)") == "all_reduce d 4");
}

TEST_CASE("a callback is called on the first device alone, and all get what it gives, bit by bit") {
  static int calls = 0;
  calls = 0;
  const int slot = add_callback([](std::span<const Literal> in, std::span<Literal> out) {
    ++calls;
    for (std::int64_t i = 0; i < in[0].size(); ++i) out[0].set(i, i == 0 ? -0.0 : in[0].get(i) + 1);
    return absl::OkStatus();
  });
  const FunctionRef f = parse_function(fmt::format(R"(
mesh @m = [d=4]
func @f(%x: f32[4@d]) -> f32[4@d] on @m {{
  %y: f32[4@d] = callback %x {{name="f", slot={}, dtypes=["f32"], ranks=[1], shapes=[4]}}
  return %y
}}
)",
                                                   slot));
  const FunctionRef local = passes::partition(f, {.profile = passes::built_in_profile("flat")});
  const Literal got = run_partitioned(f, local, numbers(*f))[0];
  CHECK(calls == 1);
  CHECK(std::signbit(got.get(0)));
  CHECK(got.get(1) == doctest::Approx(numbers(*f)[0].get(1) + 1));
  CHECK(listed(*local) == "all_gather d 16, all_reduce d 16");
}

TEST_CASE("what a collective is for is told on the line of the equation that needs it") {
  const FunctionRef f = parse_function(R"(
mesh @m = [x=4, y=2]
func @f(%a: f32[8@x, 32@y], %b: f32[32@y, 16], %s: f32[8, 16@x]) -> f32[8@x, 16] on @m {
  %c: f32[8@x, 16] = dot %a, %b {lhs=[1], rhs=[0]}
  %d: f32[8@x, 16] = mul %c, %s
  return %d
}
)");
  const FunctionRef local = check_partitioned(f, numbers(*f), 1e-5);
  std::string reasons;
  for (const Eqn* e : local->eqns())
    if (is_collective(*e)) reasons += fmt::format("{}: {}\n", e->op->name, e->how);
  CHECK(
      reasons ==
      "all_reduce: partition: dot reduces a dim split on y\nall_to_all: partition: operand 1 of mul wanted as [x, _], is [_, x]\n");
}

TEST_CASE("the work of partitioning is linear in the program, and does not depend on the number of devices") {
  const auto work = [](int layers, std::string_view mesh) {
    std::string text = fmt::format("mesh @m = [{}]\nfunc @f(%x0: f32[4096@d, 1024]", mesh);
    for (int i = 0; i < layers; ++i) text += fmt::format(", %w{}: f32[1024, 4096@t], %v{}: f32[4096@t, 1024]", i, i);
    text += ") -> f32[4096@d, 1024] on @m {\n";
    for (int i = 0; i < layers; ++i)
      text += fmt::format(R"(  %a{0}: f32[4096@d, 4096@t] = dot %x{0}, %w{0} {{lhs=[1], rhs=[0]}}
  %h{0}: f32[4096@d, 4096@t] = tanh %a{0}
  %x{1}: f32[4096@d, 1024] = dot %h{0}, %v{0} {{lhs=[1], rhs=[0]}}
)",
                          i, i + 1);
    passes::PartitionWork done;
    const FunctionRef f = parse_function(text + fmt::format("  return %x{}\n}}\n", layers));
    passes::partition(f, {.profile = passes::built_in_profile("flat"), .work = &done});
    return done;
  };
  const passes::PartitionWork few = work(2, "d=4, t=2"), many = work(20, "d=4, t=2"), large = work(2, "d=32, t=32");
  CHECK(few.equations == 6);
  CHECK(many.equations == 60);
  CHECK(many.assignments == few.assignments);  // equal layers are looked at once
  CHECK(large.assignments == few.assignments);
}
