// The work of laying out and partitioning: linear in the program, and the same for any number of devices.
#include <fmt/format.h>

#include "tests/acceptance/rows.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

struct Counts {
  std::int64_t visits, equations, assignments, placements;
};
// The planner moves parts of an axis where there are few: how many it looks at depends on the axes' sizes.
std::string of_any_mesh(const Counts& c) {
  return fmt::format("{} visits, {} equations, {} assignments", c.visits, c.equations, c.assignments);
}
std::string to_string(const Counts& c) { return fmt::format("{}, {} placements", of_any_mesh(c), c.placements); }

// Sizes that 1024 ways divide, so that nothing is left out for many devices.
constexpr Sizes kHuge{.b = 2048, .s = 2048, .h = 2048, .f = 8192, .heads = 64};

Counts counts(const ir::FunctionRef& f, int of_f, int of_t, const std::string& of_layers) {
  const Partitioned p = partitioned(
      f, {.mesh = fmt::format("f={}, t={}", of_f, of_t),
          .params = {{"x", "f,_,_"}, {"g", "f,_,_"}, {"w[0]", of_layers + "f,t"}, {"w[1]", of_layers + "t,f"}}});
  return {p.visits, p.work.equations, p.work.assignments, p.work.placements};
}

}  // namespace

TEST_CASE("the work of FSDP+TP is linear in layers, equal layers are searched once, and devices do not count") {
  for (const Layer& layer : {Layer(mlp_layer), remade(mlp_layer)}) {
    const auto step = [&](int count) { return of_layers(layer, count, false, mlp_shapes(kHuge)).step; };
    std::vector<Counts> of;
    for (const int count : {2, 4, 8, 16}) of.push_back(counts(step(count), 2, 4, ""));
    for (std::size_t i = 2; i < of.size(); ++i) {
      INFO(to_string(of[i - 2]), "; ", to_string(of[i - 1]), "; ", to_string(of[i]));
      CHECK(of[i].visits - of[i - 1].visits == 2 * (of[i - 1].visits - of[i - 2].visits));
      CHECK(of[i].equations - of[i - 1].equations == 2 * (of[i - 1].equations - of[i - 2].equations));
      CHECK(of[i].assignments == of[i - 1].assignments);
      CHECK(of[i].placements == of[i - 1].placements);
    }
    CHECK(of_any_mesh(counts(step(16), 32, 32, "")) == of_any_mesh(of.back()));
    CHECK(counts(step(4), 32, 32, "").placements == counts(step(16), 32, 32, "").placements);
  }
}

TEST_CASE("the work of a loop does not depend on its length, nor on the devices") {
  const auto step = [](int count) { return of_loop(remade(mlp_layer), count, false, mlp_shapes(kHuge)).step; };
  const Counts few = counts(step(2), 2, 4, "_,");
  for (const int count : {4, 8, 16}) CHECK(to_string(counts(step(count), 2, 4, "_,")) == to_string(few));
  CHECK(of_any_mesh(counts(step(2), 32, 32, "_,")) == of_any_mesh(few));
}
