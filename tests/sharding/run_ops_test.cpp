// Ops of the table, compiled and run on devices: a part of their samples, drawn at random, on meshes of some of the
// devices in any order, against the same compiled for one device.
#include <algorithm>

#include "passes/sharding/collectives.h"
#include "passes/sharding/propagate.h"
#include "tests/lap.h"
#include "tests/passes/draws.h"
#include "tests/passes/samples.h"
#include "tests/runtime/spmd.h"

using namespace sheaf;
using namespace sheaf::ir;
using namespace sheaf::tests;

namespace {

std::vector<runtime::Device*> some_devices(Dice& dice, std::int64_t count) {
  std::vector<runtime::Device*> all = first_devices(8), some;
  while (std::ssize(some) < count) {
    const auto at = all.begin() + dice.below(static_cast<int>(all.size()));
    some.push_back(*at);
    all.erase(at);
  }
  return some;
}

std::vector<Literals> run_compiled(const FunctionRef& local, std::span<const Literals> inputs,
                                   const std::vector<runtime::Device*>& devices) {
  const runtime::ExecutablePtr executable = load_local(local, {}, runtime::Tier::compiled);
  auto outputs = executable->run_spmd(devices, to_devices(inputs, devices), {});
  REQUIRE_MESSAGE(outputs.ok(), std::string(outputs.status().message()));
  return to_host(*outputs, *local);
}

void check_compiled(const FunctionRef& f, const Literals& in, Dice& dice) {
  const MeshAtoms mesh(random_mesh(dice, 8));
  const FunctionRef whole = passes::propagate(laid_out(f, dice, mesh));
  const FunctionRef local =
      passes::improve_collectives(passes::partition(whole, {.profile = passes::built_in_profile("flat")}), {});
  INFO(print(whole), print(local));
  const std::vector<runtime::Device*> devices = some_devices(dice, mesh.mesh().size());
  const Literals want = run(f, in, runtime::Tier::compiled);
  const Literals got = run_partitioned(whole, local, in, [&](const FunctionRef& of, std::span<const Literals> x) {
    return run_compiled(of, x, devices);
  });
  for (std::size_t j = 0; j < want.size(); ++j) {
    INFO("result ", j);
    CHECK(difference(want[j], got[j]) <= tolerance(*whole, *local));
  }
}

}  // namespace

TEST_CASE("ops and their gradients, compiled, compute on devices what they compute on one") {
  Dice dice(17);
  int count = 0;
  for (const Op op : all_ops()) {
    if (!op->samples) continue;
    const std::vector<std::string_view> texts = op->samples();
    if (texts.empty() || dice.below(3) != 0) continue;
    const std::string_view text = dice.any(texts);
    INFO(text);
    const absl::StatusOr<Sample> sample = parse_sample(text);
    const Literals in = random_inputs(*sample, 3);
    check_compiled(sample->function, in, dice);
    ++count;
    const FunctionRef backward = op->no_jvp == Absent::none ? gradient(*sample) : nullptr;
    if (!backward) continue;
    Literals all = random_inputs(*backward, 5);
    std::ranges::copy(in, all.begin());
    check_compiled(backward, all, dice);
  }
  CHECK(count > 20);
}
