// Every op of the table by its samples, on meshes and layouts drawn at random: what all devices compute together is
// what one computes, to the bit where no reduced dim is split. What is left out is listed, with the reason.
#include <map>
#include <set>

#include "passes/sharding/collectives.h"
#include "passes/sharding/constraints.h"
#include "passes/sharding/propagate.h"
#include "passes/sharding/shifts.h"
#include "tests/passes/draws.h"
#include "tests/passes/samples.h"

using namespace sheaf;
using namespace sheaf::ir;
using namespace sheaf::tests;

namespace {

bool is_split(const Function& f) {
  for (const Value p : f.params())
    if (!std::ranges::all_of(p.type().data().dim_axes, &Axes::empty)) return true;
  for (const Value r : f.results())
    if (!std::ranges::all_of(r.type().data().dim_axes, &Axes::empty)) return true;
  return false;
}

/// f on parts, laid out in so many ways, against f on the whole; in how many of them something was split.
int check_on_parts(const FunctionRef& f, const Literals& in, int draws, Dice& dice) {
  const Literals want = eval(*f, in);
  int splits = 0;
  for (int i = 0; i < draws; ++i) {
    const MeshAtoms mesh(random_mesh(dice, 8));
    std::vector<std::optional<Spec>> wanted;
    for (const Value v : f->results()) {
      const Sharding s = random_sharding(dice, v.dims(), mesh);
      wanted.push_back(dice.below(2) ? std::optional(spec_of(s, mesh)) : std::nullopt);
    }
    const FunctionRef whole = passes::propagate(passes::with_wanted(passes::shifts(laid_out(f, dice, mesh)), wanted));
    splits += is_split(*whole);
    const FunctionRef local = passes::partition(whole, {.profile = passes::built_in_profile("flat")});
    for (const FunctionRef& program : {local, passes::improve_collectives(local, {})}) {
      INFO(to_string(mesh.mesh()), "\n", print(whole), print(program));
      const absl::Status s = verify(*program);
      REQUIRE_MESSAGE(s.ok(), std::string(s.message()));
      REQUIRE(left_over(*program) == "");
      const Literals got = run_partitioned(whole, program, in);
      for (std::size_t j = 0; j < want.size(); ++j) {
        INFO("result ", j);
        CHECK(difference(want[j], got[j]) <= tolerance(*whole, *local));
      }
    }
  }
  return splits;
}

/// Of ops whose programs a line of text cannot hold, none.
std::vector<std::string_view> samples_of(Op op) {
  return op->samples ? op->samples() : std::vector<std::string_view>{};
}

using Reasons = std::map<std::string, std::string>;

const Reasons& without_samples() {
  static const std::string in_regions = "it has regions: partition_test.cpp, regions of the fuzz tests",
                           in_rules = "it is inlined before anything is split", in_maps = "of maps: shard_map_test.cpp",
                           in_plans = "it is of plans, on one device",
                           of_host = "of the host: host_calls_on_mesh_test.cpp";
  static const Reasons all{{"all_gather", in_maps},  {"all_reduce", in_maps},     {"all_to_all", in_maps},
                           {"axis_index", in_maps},  {"call", in_rules},          {"callback", of_host},
                           {"check", of_host},       {"checkpoint", in_rules},    {"cond", in_regions},
                           {"custom_jvp", in_rules}, {"custom_linear", in_rules}, {"custom_linear_solve", in_rules},
                           {"custom_vjp", in_rules}, {"kernel", in_plans},        {"pcast", in_maps},
                           {"ppermute", in_maps},    {"pscatter", in_maps},       {"reduce_scatter", in_maps},
                           {"scan", in_regions},     {"shard_map", in_maps},      {"while", in_regions}};
  return all;
}

/// What is left out is what is listed, no more and no less.
void check_left_out(const std::set<std::string>& left_out, const Reasons& reasons) {
  std::set<std::string> named;
  for (const auto& [name, reason] : reasons) named.insert(name);
  CHECK(fmt::format("{}", fmt::join(left_out, " ")) == fmt::format("{}", fmt::join(named, " ")));
}

}  // namespace

TEST_CASE("every op computes on parts what it computes on the whole, but for those that say why not") {
  Dice dice(7);
  std::set<std::string> without, whole_only;
  for (const Op op : all_ops()) {
    if (samples_of(op).empty()) without.insert(std::string(op->name));
    int splits = 0;
    for (const std::string_view text : samples_of(op)) {
      INFO(text);
      const absl::StatusOr<Sample> sample = parse_sample(text);
      splits += check_on_parts(sample->function, random_inputs(*sample, 3), 6, dice);
    }
    if (splits == 0 && !samples_of(op).empty()) whole_only.insert(std::string(op->name));
  }
  check_left_out(without, without_samples());
  check_left_out(whole_only, {});
}

TEST_CASE("every op computes on parts in dtypes that its samples do not have") {
  Dice dice(13);
  int count = 0;
  for (const Op op : all_ops())
    for (const std::string_view text : samples_of(op))
      for (const std::string& other : in_other_dtypes(text)) {
        INFO(other);
        const absl::StatusOr<Sample> sample = parse_sample(other);
        check_on_parts(sample->function, random_inputs(*sample, 3), 1, dice);
        ++count;
      }
  CHECK(count > 300);
}

TEST_CASE("every op's gradient is on parts what it is on the whole, but for those that say why not") {
  Dice dice(11);
  std::set<std::string> without;
  for (const Op op : all_ops()) {
    if (samples_of(op).empty() || op->no_jvp != Absent::none) continue;
    int count = 0;
    for (const std::string_view text : samples_of(op)) {
      const absl::StatusOr<Sample> sample = parse_sample(text);
      const FunctionRef backward = gradient(*sample);
      if (!backward) continue;
      INFO(text);
      Literals in = random_inputs(*backward, 5);
      std::ranges::copy(random_inputs(*sample, 3), in.begin());
      check_on_parts(backward, in, 3, dice);
      ++count;
    }
    if (count == 0) without.insert(std::string(op->name));
  }
  check_left_out(without, {});
}
