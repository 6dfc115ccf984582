// Times and bytes of collectives, and profiles as texts.
#include "passes/sharding/cost.h"

#include <doctest/doctest.h>

#include <cstdio>

#include "tests/child.h"

using namespace sheaf;
using passes::CollectiveKind;

namespace {

ir::MeshAtoms mesh(std::string_view text) { return ir::MeshAtoms(*ir::Mesh::parse(text)); }

passes::Profile profile(std::string_view text) {
  const auto p = passes::parse_profile("sheaf profile 1\n" + std::string(text));
  REQUIRE_MESSAGE(p.ok(), std::string(p.status().message()));
  return *p;
}

std::string why_not(std::string_view text) { return std::string(passes::parse_profile(text).status().message()); }

}  // namespace

TEST_CASE("a collective sends what a ring would, in as many rounds as doublings") {
  const ir::MeshAtoms atoms = mesh("data=4, model=2");
  const passes::Profile p = profile("link = 1 10");
  const auto cost = [&](CollectiveKind kind, const char* axis) { return cost_of(kind, 80, atoms, atoms.of(axis), p); };
  CHECK(cost(CollectiveKind::all_gather, "data").bytes == 60);
  CHECK(cost(CollectiveKind::all_gather, "data").seconds == 2 + 6);
  CHECK(cost(CollectiveKind::reduce_scatter, "model").bytes == 40);
  CHECK(cost(CollectiveKind::all_to_all, "data").seconds == 2 + 6);
  CHECK(cost(CollectiveKind::all_reduce, "data").bytes == 120);
  CHECK(cost(CollectiveKind::all_reduce, "data").seconds == 4 + 12);
  CHECK(cost(CollectiveKind::ppermute, "data").bytes == 80);
  CHECK(cost(CollectiveKind::ppermute, "data").seconds == 1 + 8);
  CHECK(cost_of(CollectiveKind::all_reduce, 80, atoms, {}, p).seconds == 0);
}

TEST_CASE("a collective over two networks sends over the slow one only what the fast one cannot") {
  const ir::MeshAtoms atoms = mesh("pod=2, data=4");
  const passes::Profile p = profile("link = 0 100\nlink@pod = 0 1");
  const auto cost = [&](CollectiveKind kind) {
    return cost_of(kind, 800, atoms, atoms.of(ir::Axes{"pod", "data"}), p).seconds;
  };
  CHECK(cost(CollectiveKind::all_reduce) == 2 * 600 / 100. + 200);
  CHECK(cost(CollectiveKind::all_gather) == 600 / 100. + 100);
  CHECK(cost(CollectiveKind::all_to_all) == 600 / 100. + 400);
  CHECK(cost(CollectiveKind::ppermute) == 800);
}

TEST_CASE("the row of a profile that says most is taken") {
  const passes::Profile p = profile("link = 1 1\nall_gather = 2 2\nlink@pod = 3 3\nall_gather@pod = 4 4");
  CHECK(p.link(CollectiveKind::all_reduce, "data").latency == 1);
  CHECK(p.link(CollectiveKind::all_gather, "data").latency == 2);
  CHECK(p.link(CollectiveKind::all_reduce, "pod").latency == 3);
  CHECK(p.link(CollectiveKind::all_gather, "pod").latency == 4);
}

TEST_CASE("local work takes as long as the slower of arithmetic and memory") {
  const passes::Profile p = profile("link = 1 1\nflops = 10\nflops@bf16 = 100\nmemory = 5\nlaunch = 0.5");
  CHECK(seconds_of({.flops = 100, .bytes = 5}, f32, p) == 10.5);
  CHECK(seconds_of({.flops = 100, .bytes = 5}, bf16, p) == 1.5);
  CHECK(seconds_of({.flops = 100, .bytes = 500}, f32, p) == 100.5);
}

TEST_CASE("a profile printed and read back is the same") {
  for (const char* name : {"cpu", "nvlink", "pcie", "ib", "flat"}) {
    CAPTURE(name);
    const passes::Profile* p = passes::built_in_profile(name);
    REQUIRE(p);
    CHECK(*passes::parse_profile(to_text(*p)) == *p);
    CHECK(*passes::load_profile(name) == *p);
  }
  const passes::Profile own = profile("# measured\nname = own\nlink = 1e-05 3e9  # all\nppermute@x = 0 2.5\n");
  CHECK(to_text(own) ==
        "sheaf profile 1\nname = own\nflops = 1\nmemory = 1\nlaunch = 0\nlink = 1e-05 3000000000\nppermute@x = 0 "
        "2.5\n");
}

TEST_CASE("what is no profile is told by its line") {
  CHECK(why_not("") == "no link for all_reduce");
  CHECK(why_not("\nprofile") == "line 2: a profile starts with \"sheaf profile 1\"");
  CHECK(why_not("sheaf profile 1\nlink = 1") == "line 2: \"link = 1\" is no line of a profile");
  CHECK(why_not("sheaf profile 1\nlink = 1 0") == "line 2: \"link = 1 0\" is no line of a profile");
  CHECK(why_not("sheaf profile 1\nflops@f33 = 1") == "line 2: \"flops@f33 = 1\" is no line of a profile");
  CHECK(why_not("sheaf profile 1\naxis_index = 1 1") == "line 2: \"axis_index = 1 1\" is no line of a profile");
  CHECK(why_not("sheaf profile 1\nlink@ = 1 1") == "line 2: \"link@ = 1 1\" is no line of a profile");
  CHECK(why_not("sheaf profile 1\nmemory = nan") == "line 2: \"memory = nan\" is no line of a profile");
  CHECK(why_not("sheaf profile 1\nall_reduce = 1 1") == "no link for all_gather");
  CHECK(passes::load_profile("/nowhere/profile").status().message() ==
        "/nowhere/profile is neither a profile nor a file that can be read");
}

TEST_CASE("[profiles] a program" * doctest::skip()) {
  for (const ir::Target& target : {ir::Target{}, ir::Target{.gpu = "sm_90a"}})
    std::fprintf(stderr, "%s\n", passes::chosen_profile(target).name.c_str());
}

TEST_CASE("links are taken for those of the target's devices, unless SHEAF_MESH_PROFILE names others") {
  const auto said = [](const std::string& wanted) {
    return tests::said_by_child("profiles", {{"SHEAF_MESH_PROFILE", wanted}});
  };
  CHECK(said("") == "cpu\nnvlink\n");
  CHECK(said("pcie") == "pcie\npcie\n");
  CHECK(
      said("/nowhere/racks") ==
      "sheaf warning: SHEAF_MESH_PROFILE: /nowhere/racks is neither a profile nor a file that can be read; using that "
      "of the devices\ncpu\nnvlink\n");
}
