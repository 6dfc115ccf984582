// Fewer collectives: each equation as text, and the values before and after on the devices of a mesh.
#include "passes/sharding/collectives.h"

#include <doctest/doctest.h>

#include "ir/eval_spmd.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/verify.h"

using namespace sheaf;

namespace {

ir::FunctionRef parsed(std::string_view body) {
  const auto module = ir::parse("mesh @m = [x=2, y=3]\nfunc @f" + std::string(body));
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return module->functions.at(0);
}

/// Names of the collectives, in order, those in regions too.
std::string collectives(const ir::Function& f) {
  std::string s;
  for (const ir::Eqn* e : f.eqns()) {
    if (e->op->axes && e->op->name != std::string_view("axis_index"))
      s += (s.empty() ? "" : " ") + std::string(e->op->name);
    for (const ir::FunctionRef& r : e->regions)
      if (const std::string inside = collectives(*r); !inside.empty()) s += (s.empty() ? "{" : " {") + inside + "}";
  }
  return s;
}

std::vector<ir::Literals> inputs_of(const ir::Function& f) {
  std::vector<ir::Literals> all;
  for (int d = 0; d < 6; ++d) {
    ir::Literals of_device;
    for (const ir::Value p : f.params()) {
      of_device.emplace_back(p.type());
      for (std::int64_t i = 0; i < of_device.back().size(); ++i)
        of_device.back().set(i, static_cast<double>((7 * i + 5 * d + p.index()) % 11));
    }
    all.push_back(std::move(of_device));
  }
  return all;
}

/// What the collectives of the program become, having checked that its values stay.
std::string after(std::string_view body, ir::FunctionRef (*pass)(const ir::FunctionRef&)) {
  const ir::FunctionRef f = parsed(body), g = pass(f);
  REQUIRE(ir::verify(*g).ok());
  CHECK(g->mesh() == f->mesh());
  const std::vector<ir::Literals> inputs = inputs_of(*f);
  CHECK(ir::eval_spmd(f, inputs) == ir::eval_spmd(g, inputs));
  return collectives(*g);
}

std::string simplified(std::string_view body) { return after(body, passes::simplify_collectives); }
std::string combined(std::string_view body) {
  return after(
      body, [](const ir::FunctionRef& f) { return passes::combine_collectives(f, *passes::built_in_profile("cpu")); });
}

}  // namespace

TEST_CASE("a sum of which each device takes its own block is scattered") {
  CHECK(simplified(R"((%x: f32[6, 4]) -> f32[2, 4] on @m {
  %0: f32[6, 4] = all_reduce %x {axes=[y]}
  %1: i32[] = axis_index {axes=[y]}
  %2: i32[] = mul %1, 2:i32
  %3: i32[1] = reshape %2 {shape=[1]}
  %4: f32[2, 4] = dynamic_slice %0, %3 {dims=[0], sizes=[2], index_dim=[0]}
  return %4
})") == "reduce_scatter");
  CHECK(simplified(R"((%x: f32[6, 4]) -> f32[2, 4] on @m {
  %0: f32[6, 4] = all_reduce %x {axes=[x, y], kind=max}
  %1: i32[] = axis_index {axes=[y]}
  %2: i32[] = mul 2:i32, %1
  %3: i32[1] = reshape %2 {shape=[1]}
  %4: f32[2, 4] = dynamic_slice %0, %3 {dims=[0], sizes=[2], index_dim=[0]}
  return %4
})") == "reduce_scatter all_reduce");
}

TEST_CASE("a sum that somebody takes whole, or a block along other axes, stays") {
  CHECK(simplified(R"((%x: f32[6, 4]) -> f32[2, 4], f32[6, 4] on @m {
  %0: f32[6, 4] = all_reduce %x {axes=[y]}
  %1: i32[] = axis_index {axes=[y]}
  %2: i32[] = mul %1, 2:i32
  %3: i32[1] = reshape %2 {shape=[1]}
  %4: f32[2, 4] = dynamic_slice %0, %3 {dims=[0], sizes=[2], index_dim=[0]}
  return %4, %0
})") == "all_reduce");
  CHECK(simplified(R"((%x: f32[6, 4]) -> f32[3, 4] on @m {
  %0: f32[6, 4] = all_reduce %x {axes=[y]}
  %1: i32[] = axis_index {axes=[x]}
  %2: i32[] = mul %1, 3:i32
  %3: i32[1] = reshape %2 {shape=[1]}
  %4: f32[3, 4] = dynamic_slice %0, %3 {dims=[0], sizes=[3], index_dim=[0]}
  return %4
})") == "all_reduce");
  CHECK(simplified(R"((%x: f32[6, 4]) -> f32[2, 4] on @m {
  %0: f32[6, 4] = all_reduce %x {axes=[y]}
  %1: i32[] = axis_index {axes=[y]}
  %2: i32[1] = reshape %1 {shape=[1]}
  %3: f32[2, 4] = dynamic_slice %0, %2 {dims=[0], sizes=[2], index_dim=[0]}
  return %3
})") == "all_reduce");
}

TEST_CASE("a block whose start may have wrapped around is no device's own") {
  CHECK(simplified(R"((%x: f32[6, 4]) -> f32[2, 4] on @m {
  %0: f32[6, 4] = all_reduce %x {axes=[y]}
  %1: i32[] = axis_index {axes=[y]}
  %2: i8[] = convert %1 {to=i8}
  %3: i8[] = mul %2, 2:i8
  %4: i8[1] = reshape %3 {shape=[1]}
  %5: f32[2, 4] = dynamic_slice %0, %4 {dims=[0], sizes=[2], index_dim=[0]}
  return %5
})") == "all_reduce");
}

TEST_CASE("what is gathered and cut again is the block itself") {
  CHECK(simplified(R"((%x: f32[2, 4]) -> f32[2, 4] on @m {
  %0: f32[6, 4] = all_gather %x {axes=[y], size=3, dim=0, tiled=true}
  %1: i32[] = axis_index {axes=[y]}
  %2: i32[] = mul %1, 2:i32
  %3: i32[1] = reshape %2 {shape=[1]}
  %4: f32[2, 4] = dynamic_slice %0, %3 {dims=[0], sizes=[2], index_dim=[0]}
  return %4
})")
            .empty());
}

TEST_CASE("what is cut and gathered again is the whole where it is the same on all") {
  CHECK(simplified(R"((%x: f32[6, 4]) -> f32[6, 4] on @m {
  %0: f32[6, 4] = all_reduce %x {axes=[y]}
  %1: f32[6, 4] = tanh %0
  %2: i32[] = axis_index {axes=[y]}
  %3: i32[] = mul %2, 2:i32
  %4: i32[1] = reshape %3 {shape=[1]}
  %5: f32[2, 4] = dynamic_slice %1, %4 {dims=[0], sizes=[2], index_dim=[0]}
  %6: f32[6, 4] = all_gather %5 {axes=[y], size=3, dim=0, tiled=true}
  return %6
})") == "all_reduce");
  CHECK(simplified(R"((%x: f32[6, 4]) -> f32[6, 4] on @m {
  %0: i32[] = axis_index {axes=[y]}
  %1: i32[] = mul %0, 2:i32
  %2: i32[1] = reshape %1 {shape=[1]}
  %3: f32[2, 4] = dynamic_slice %x, %2 {dims=[0], sizes=[2], index_dim=[0]}
  %4: f32[6, 4] = all_gather %3 {axes=[y], size=3, dim=0, tiled=true}
  return %4
})") == "all_gather");
}

TEST_CASE("a loop that adds up sums over devices sums once behind it") {
  CHECK(simplified(R"((%a: f32[4], %b: f32[5, 4]) -> f32[4], f32[5, 4] on @m {
  %0: f32[4] = all_reduce %a {axes=[x]}
  %1: f32[4], %2: f32[5, 4] = scan %0, %b {carry=1, length=5} (%c: f32[4], %v: f32[4]) {
    %3: f32[4] = all_reduce %v {axes=[x]}
    %4: f32[4] = add %c, %3
    return %4, %v
  }
  return %1, %2
})") == "all_reduce all_reduce");
  // Each device starts from something else, which is no term of the sum.
  CHECK(simplified(R"((%a: f32[4], %b: f32[5, 4]) -> f32[4] on @m {
  %0: f32[4] = scan %a, %b {carry=1, length=5} (%c: f32[4], %v: f32[4]) {
    %1: f32[4] = all_reduce %v {axes=[x]}
    %2: f32[4] = add %c, %1
    return %2
  }
  return %0
})") == "all_reduce");
  // What a step reads must be whole at each.
  CHECK(simplified(R"((%a: f32[4], %b: f32[5, 4]) -> f32[4], f32[5, 4] on @m {
  %0: f32[4], %1: f32[5, 4] = scan %a, %b {carry=1, length=5} (%c: f32[4], %v: f32[4]) {
    %2: f32[4] = all_reduce %v {axes=[x]}
    %3: f32[4] = add %2, %c
    return %3, %3
  }
  return %0, %1
})") == "{all_reduce}");
}

TEST_CASE("small sums that do not wait for each other travel together") {
  CHECK(combined(R"((%a: f32[4], %b: f32[2, 3], %c: f32[], %d: f32[2]) -> f32[4], f32[2, 3], f32[], f32[2] on @m {
  %0: f32[4] = all_reduce %a {axes=[x]}
  %1: f32[2, 3] = all_reduce %b {axes=[x]}
  %2: f32[] = all_reduce %c {axes=[y]}
  %3: f32[2] = all_reduce %d {axes=[x], kind=max}
  return %0, %1, %2, %3
})") == "all_reduce all_reduce all_reduce");
  CHECK(combined(R"((%a: f32[4]) -> f32[4], f32[4] on @m {
  %0: f32[4] = all_reduce %a {axes=[x]}
  %1: f32[4] = tanh %0
  %2: f32[4] = all_reduce %1 {axes=[x]}
  return %2, %0
})") == "all_reduce all_reduce");
}

TEST_CASE("gathers but the first, scattered sums, exchanges and permutations travel together too") {
  CHECK(
      combined(
          R"((%a: f32[4, 2], %b: f32[2, 3], %c: f32[5], %d: f32[3]) -> f32[8, 2], f32[2, 6], f32[2, 5], f32[3, 2] on @m {
  %0: f32[8, 2] = all_gather %a {axes=[x], size=2, dim=0, tiled=true}
  %1: f32[2, 6] = all_gather %b {axes=[x], size=2, dim=1, tiled=true}
  %2: f32[2, 5] = all_gather %c {axes=[x], size=2}
  %3: f32[3, 2] = all_gather %d {axes=[x], size=2, dim=1}
  return %0, %1, %2, %3
})") == "all_gather all_gather");
  CHECK(combined(R"((%a: f32[6, 2], %b: f32[2, 9], %c: f32[3, 4]) -> f32[2, 2], f32[2, 3], f32[4] on @m {
  %0: f32[2, 2] = reduce_scatter %a {axes=[y], size=3, tiled=true}
  %1: f32[2, 3] = reduce_scatter %b {axes=[y], size=3, dim=1, tiled=true}
  %2: f32[4] = reduce_scatter %c {axes=[y], size=3}
  return %0, %1, %2
})") == "reduce_scatter");
  CHECK(combined(R"((%a: f32[6, 2], %b: f32[3, 2, 5], %c: f32[4, 3]) -> f32[2, 6], f32[2, 5, 3], f32[3, 4] on @m {
  %0: f32[2, 6] = all_to_all %a {axes=[y], size=3, split=0, concat=1, tiled=true}
  %1: f32[2, 5, 3] = all_to_all %b {axes=[y], size=3, split=0, concat=2}
  %2: f32[3, 4] = all_to_all %c {axes=[y], size=3, split=1, concat=0}
  return %0, %1, %2
})") == "all_to_all");
  CHECK(combined(R"((%a: f32[4], %b: f32[2, 3], %c: f32[5]) -> f32[4], f32[2, 3], f32[5] on @m {
  %0: f32[4] = ppermute %a {axes=[y], sources=[0, 1], targets=[1, 2]}
  %1: f32[2, 3] = ppermute %b {axes=[y], sources=[0, 1], targets=[1, 2]}
  %2: f32[5] = ppermute %c {axes=[y], sources=[0, 1], targets=[2, 1]}
  return %0, %1, %2
})") == "ppermute ppermute");
}

TEST_CASE("gathers of the backward pass are not combined with those of the forward pass") {
  CHECK(combined(R"((%a: f32[4], %b: f32[3], %c: f32[2], %d: f32[5]) -> f32[8], f32[6], f32[4], f32[10] on @m {
  %0: f32[8] = all_gather %a {axes=[x], size=2, tiled=true}
  %1: f32[6] = all_gather %b {axes=[x], size=2, tiled=true}
  %2: f32[4] = all_gather %c {axes=[x], size=2, tiled=true, backward=true}
  %3: f32[10] = all_gather %d {axes=[x], size=2, tiled=true, backward=true}
  return %0, %1, %2, %3
})") == "all_gather all_gather all_gather");
}

TEST_CASE("groups of sums never wait for each other in a circle") {
  CHECK(combined(R"((%a: f32[4], %b: f32[4]) -> f32[4], f32[4] on @m {
  %0: f32[4] = all_reduce %a {axes=[x]}
  %1: f32[4] = all_reduce %0 {axes=[y]}
  %2: f32[4] = all_reduce %b {axes=[y]}
  %3: f32[4] = all_reduce %2 {axes=[x]}
  return %1, %3
})") == "all_reduce all_reduce all_reduce");
}

TEST_CASE("large sums are left alone, and sums in loops are combined within a step") {
  CHECK(combined(R"((%a: f32[1000, 1000], %b: f32[1000, 1000]) -> f32[1000, 1000], f32[1000, 1000] on @m {
  %0: f32[1000, 1000] = all_reduce %a {axes=[x]}
  %1: f32[1000, 1000] = all_reduce %b {axes=[x]}
  return %0, %1
})") == "all_reduce all_reduce");
  CHECK(combined(R"((%a: f32[5, 4], %b: f32[5, 3]) -> f32[5, 4], f32[5, 3] on @m {
  %0: f32[5, 4], %1: f32[5, 3] = scan %a, %b {length=5} (%v: f32[4], %w: f32[3]) {
    %2: f32[4] = all_reduce %v {axes=[x]}
    %3: f32[3] = all_reduce %w {axes=[x]}
    return %2, %3
  }
  return %0, %1
})") == "{all_reduce}");
}
