// SHEAF_DEBUG_INDEX=1 is read once, so each case is a process of its own, which runs the hidden case at the end and
// whose stderr is compared.
#include <doctest/doctest.h>

#include <cstdlib>
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

TEST_CASE("what is in range, was asked for, or runs without the variable says nothing") {
  CHECK(said_by("inside", true).empty());
  CHECK(said_by("asked", true).empty());
  CHECK(said_by("eager", false).empty());
  CHECK(said_by("jit", false).empty());
}

TEST_CASE("[debug index] a program" * doctest::skip()) {
  try {
    run_case(std::getenv("INDEX_CASE"));
  } catch (const RuntimeError& error) { std::fprintf(stderr, "%s\n", error.what()); }
}
