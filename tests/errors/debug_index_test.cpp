// SHEAF_DEBUG_INDEX=1 is read once, so each case is a process of its own, which runs the hidden case at the end and
// whose stderr is compared.
#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sheaf/sheaf.h"
#include "tests/child.h"

using namespace sheaf;

namespace {

const Loc kHere{"program.cpp", 7};

std::string said_by(const std::string& what, bool debug) {
  std::vector<std::pair<std::string, std::string>> variables = {{"INDEX_CASE", what}};
  if (debug) variables.emplace_back("SHEAF_DEBUG_INDEX", "1");
  return tests::said_by_child("debug index", variables);
}

// Every branch runs for every example, and every step for those that are done: only what was chosen may be judged.
void run_branches(const std::function<Array(Array, Array)>& taken) {
  const Array x = arange(5, f32);
  const auto inside = [&](Array i) {
    const auto read = jit([&](Array at) { return taken(x, at); });
    return cond(i < 5, read, [](Array at) { return at * 1.0f; }, i);
  };
  CHECK(jit(vmap(inside))(array({1, 7})).to_vector<float>() == std::vector<float>{1, 7});
}

void run_loops(const std::function<Array(Array, Array)>& taken) {
  const Array x = array({1, 1, 1});
  const auto walk = [&](Array from) {
    return while_loop([](Array at) { return at < 3; }, [&](Array at) { return at + taken(x, at); }, from);
  };
  CHECK(jit(vmap(walk))(array({0, 2})).to_vector<int>() == std::vector<int>{3, 3});
}

// Promises that hold: of different columns, of dropped places, of each example on its own.
void run_promises(const Array& rows) {
  const Indexing both{.unique = true, .sorted = true};
  rows.at(array({0, 0, 1}), array({0, 2, 1})).set(Operand(1.0f, kHere), both);
  rows.at(array({0, -1}), slice(0, 2)).mul(Operand(2.0f, kHere), both);
  rows.at(array({0, 5, 5})).add(Operand(1.0f, kHere), {.mode = OutOfRange::fill, .unique = true, .sorted = true});
  const auto set = [&](Array i) { return rows.at(i).set(Operand(1.0f, kHere), both); };
  jit(vmap(set))(array({{0, 1}, {0, 1}})).wait();
  const WindowDims pairs{.inside = {1}, .starts = {0}};
  scatter(Operand(arange(4), kHere), array({{0}, {2}}), ones({2, 2}, i32), pairs, Combine::add, both);
  const WindowDims lines{.dropped = {1}, .starts = {1}, .batch = {0}, .indices_batch = {0}};
  scatter(Operand(rows, kHere), array({{1}, {0}}), ones({2}), lines, Combine::add, both);
}

void run_promise(const std::string& what) {
  const Array x = arange(5, f32), rows = reshape(arange(6, f32), {2, 3});
  const Operand one(1.0f, kHere);
  const auto set = [&](Array y, Array i) { return y.at(i).set(one, {.unique = true}); };
  if (what == "twice") set(x, array({1, 3, -4}));
  if (what == "twice in jit") jit(set)(x, array({1, 3, -4})).wait();
  if (what == "clipped twice") x.at(array({7, 4})).add(one, {.mode = OutOfRange::clip, .unique = true});
  if (what == "pairs") rows.at(array({1, 0, 1}), array({2, 2, 2})).min(one, {.unique = true});
  if (what == "descends") rows.at(0, array({0, 2, 1})).mul(one, {.sorted = true});
  if (what == "windows")
    scatter(Operand(x, kHere), array({{0}, {1}}), ones({2, 2}), {.inside = {1}, .starts = {0}}, Combine::set,
            {.unique = true});
}

// Each device takes with indices of its own, or all of one array that is spread over them.
void run_on_mesh(const std::string& what) {
  if (what != "shard_map" && what != "mesh") return;
  ensure_devices(4);
  const Mesh mesh({{"x", 4}});
  const Array x = arange(5, f32), at = device_put(array({0, 4, 1, 3, 2, 7, 2, 2}), mesh, P("x"));
  const auto taken = [](Array y, Array i) { return take(Operand(y, kHere), i); };
  if (what == "mesh") jit(taken)(x, at).wait();
  else jit(shard_map(taken, {.mesh = mesh, .in = {P(), P("x")}, .out = {P("x")}}))(x, at).wait();
}

void run_case(const std::string& what) {
  const Array x = arange(5, f32), at = array({1, 5}), rows = reshape(arange(6, f32), {2, 3});
  const auto taken = [](Array y, Array i) { return take(Operand(y, kHere), i); };
  if (what == "eager") taken(x, at);
  if (what == "negative") taken(x, array({-5, -6}));
  if (what == "unsigned") taken(x, array({18446744073709551615u}));
  if (what == "set") rows.at(0, Index(at, kHere)).set(Operand(1.0f, kHere));
  if (what == "along") take_along_axis(Operand(rows, kHere), array({{0}, {3}}), 1);
  if (what == "slice") dynamic_slice(Operand(rows, kHere), array({1, 2}), {1, 2});
  if (what == "jit") jit(taken)(x, at).wait();
  if (what == "vmap") jit(vmap(taken, {.in = {none, 0}}))(x, array({{0, 1}, {2, 7}})).wait();
  if (what == "grad") jit(grad([&](Array y, Array i) { return sum(taken(y, i)); }))(x, at).wait();
  if (what == "asked") take(Operand(x, kHere), at, 0, {.mode = OutOfRange::clip});
  if (what == "inside") jit(taken)(x, array({-5, 4})).wait();
  if (what == "branches") run_branches(taken);
  if (what == "loops") run_loops(taken);
  if (what == "promises") run_promises(rows);
  run_promise(what);
  run_on_mesh(what);
}

}  // namespace

TEST_CASE("an index out of range ends the run, and names function, index, axis and line") {
  CHECK(said_by("eager", true) == "program.cpp:7: take: index 5 is out of range for axis 0 of extent 5\n");
  CHECK(said_by("negative", true) == "program.cpp:7: take: index -6 is out of range for axis 0 of extent 5\n");
  CHECK(said_by("unsigned", true) ==
        "program.cpp:7: take: index 18446744073709551615 is out of range for axis 0 of extent 5\n");
  CHECK(said_by("set", true) == "program.cpp:7: at.set: index 5 is out of range for axis 1 of extent 3\n");
  CHECK(said_by("along", true) == "program.cpp:7: take_along_axis: index 3 is out of range for axis 1 of extent 3\n");
  CHECK(said_by("slice", true) ==
        "program.cpp:7: dynamic_slice: index 2 is out of range for axis 1 of extent 3 for a window of 2\n");
}

TEST_CASE("a compiled program names the line of the index too, also under vmap and grad") {
  const std::string text = "program.cpp:7: take: index 5 is out of range for axis 0 of extent 5\n";
  CHECK(said_by("jit", true).ends_with(text));
  CHECK(said_by("grad", true).ends_with(text));
  CHECK(said_by("vmap", true).ends_with("program.cpp:7: take: index 7 is out of range for axis 0 of extent 5\n"));
}

TEST_CASE("on a mesh the device is named too") {
  const std::string text = "program.cpp:7: take: index 7 is out of range for axis 0 of extent 5\n";
  CHECK(said_by("shard_map", true).ends_with(": cpu:2 failed: " + text));
  CHECK(said_by("mesh", true).ends_with(": cpu:0 failed: " + text));  // which looks at all indices
}

TEST_CASE("what is in range, was asked for, or runs without the variable says nothing") {
  CHECK(said_by("inside", true).empty());
  CHECK(said_by("asked", true).empty());
  CHECK(said_by("eager", false).empty());
  CHECK(said_by("jit", false).empty());
}

TEST_CASE("the check changes no answer where a batch runs more than each example chose") {
  CHECK(said_by("branches", true).empty());
  CHECK(said_by("loops", true).empty());
}

TEST_CASE("a promise about places that does not hold ends the run, and names the place") {
  CHECK(said_by("promises", true).empty());
  const std::string twice =
      "program.cpp:7: at.set: position [1] along axes [0] is written twice, and unique was promised\n";
  CHECK(said_by("twice", true) == twice);
  CHECK(said_by("twice", false).empty());
  CHECK(said_by("twice in jit", true).ends_with(twice));
  CHECK(said_by("clipped twice", true) ==
        "program.cpp:7: at.add: position [4] along axes [0] is written twice, and unique was promised\n");
  CHECK(said_by("pairs", true) ==
        "program.cpp:7: at.min: position [1, 2] along axes [0, 1] is written twice, and unique was promised\n");
  CHECK(said_by("descends", true) ==
        "program.cpp:7: at.mul: position [0, 1] along axes [0, 1] comes after [0, 2], and sorted was promised\n");
  CHECK(said_by("windows", true) ==
        "program.cpp:7: scatter: position [1] along axes [0] is written twice, and unique was promised\n");
}

TEST_CASE("[debug index] a program" * doctest::skip()) {
  try {
    run_case(std::getenv("INDEX_CASE"));
  } catch (const RuntimeError& error) { std::fprintf(stderr, "%s\n", error.what()); }
}
