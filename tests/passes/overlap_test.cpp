// The order of a plan's steps: what is hidden, that memory stays within what a device has, and that orders are the
// same whenever they are made. Texts of small ones are in tests/golden/overlap.
#include "passes/overlap.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ir/text.h"
#include "passes/flights.h"
#include "passes/memory.h"
#include "passes/pass.h"
#include "tests/passes/partitioned.h"

using namespace sheaf;
using namespace sheaf::tests;
using ir::FunctionRef;

namespace {

/// `layers` layers whose weights are spread over the devices, and are gathered before each.
FunctionRef layers(int count) {
  std::string body, params;
  for (int i = 0; i < count; ++i) {
    params += fmt::format(", %w{}: f32[32, 128]", i);
    body += fmt::format("  %g{0}: f32[128, 128] = all_gather %w{0} {{axes=[x], size=4, tiled=true}}\n", i);
    body += fmt::format("  %d{0}: f32[64, 128] = dot %h{0}, %g{0} {{lhs=[1], rhs=[0]}}\n", i);
    body += fmt::format("  %h{}: f32[64, 128] = tanh %d{}\n", i + 1, i);
  }
  const auto module = ir::parse(
      fmt::format("mesh @m = [x=4]\nfunc @f(%h0: f32[64, 128]{}) -> f32[64, 128] on @m {{\n{}  return %h{}\n}}\n",
                  params, body, count));
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return module->functions[0];
}

FunctionRef kernels_of(FunctionRef f) {
  for (const char* pass : {"fuse", "schedule"}) f = passes::find_pass(pass)->run(f, {});
  return f;
}

int hidden(const ir::Function& plan) {
  int count = 0;
  const std::vector<passes::Flight> all = passes::flights(plan);
  for (int k = 0; k < std::ssize(all); ++k) count += all[k].done > k + 1;
  return count;
}

std::int64_t arena_of(const FunctionRef& plan) { return passes::assign_memory(plan, {}).arena_bytes; }

/// A machine whose devices have `bytes` for the arena of f.
passes::Profile with_arena(const ir::Function& f, std::int64_t bytes) {
  passes::Profile profile = *passes::built_in_profile("cpu");
  double others = 0;
  for (const ir::Value v : f.params()) others += static_cast<double>(v.type().bytes());
  for (const ir::Value v : f.results()) others += static_cast<double>(v.type().bytes());
  profile.capacity = (static_cast<double>(bytes) + 1 + others) / 0.95;
  return profile;
}

}  // namespace

TEST_CASE("the weights of each layer are gathered while the one before is computed") {
  const FunctionRef plan = kernels_of(layers(6));
  CHECK(hidden(*plan) == 0);
  const FunctionRef made = passes::overlap(plan, *passes::built_in_profile("cpu"));
  CHECK(hidden(*made) == 5);  // there is nothing to do while the first ones are
  CHECK(ir::print(passes::overlap(kernels_of(layers(6)), *passes::built_in_profile("cpu"))) == ir::print(made));
  CHECK(passes::overlap(made, *passes::built_in_profile("cpu")) == made);
}

TEST_CASE("the arena never grows past what devices have, and is that of the program's order where nothing else fits") {
  const FunctionRef plan = kernels_of(layers(6));
  const std::int64_t least = arena_of(plan);
  const std::int64_t most = arena_of(passes::overlap(plan, *passes::built_in_profile("cpu")));
  REQUIRE(least < most);
  int last = 0;
  for (std::int64_t bytes = least - 1024; bytes <= most + 1024; bytes += 1024) {
    const FunctionRef made = passes::overlap(plan, with_arena(*plan, bytes));
    INFO(bytes, " of ", least, " to ", most);
    CHECK(arena_of(made) <= std::max(bytes, least));
    CHECK(hidden(*made) >= last);
    last = hidden(*made);
  }
  CHECK(last == 5);
  CHECK(passes::overlap(plan, with_arena(*plan, least - 1024)) == plan);
}

TEST_CASE("an order changes no value") {
  const FunctionRef plan = kernels_of(layers(3));
  const FunctionRef made = passes::overlap(plan, *passes::built_in_profile("cpu"));
  std::vector<ir::Literals> inputs;
  for (int d = 0; d < 4; ++d) {
    inputs.push_back(numbers(*plan));
    for (ir::Literal& x : inputs[d]) x.set(0, d);
  }
  const std::vector<ir::Literals> before = ir::eval_spmd(plan, inputs), after = ir::eval_spmd(made, inputs);
  for (int d = 0; d < 4; ++d) CHECK(before[d] == after[d]);
}

TEST_CASE("without a mesh, and without collectives, a plan is left alone") {
  const FunctionRef plan = kernels_of(layers(0)->on_mesh({}));
  CHECK(passes::overlap(plan, ir::Target{}) == plan);
  const FunctionRef on_mesh = kernels_of(layers(0));
  CHECK(ir::print(passes::overlap(on_mesh, ir::Target{})) == ir::print(on_mesh));
}
