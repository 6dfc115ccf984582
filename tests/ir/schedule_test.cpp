// A kernel's schedule must fit its body: the parser and the verifier say why one does not, word for word.
#include "ir/schedule.h"

#include <doctest/doctest.h>

#include "ir/text.h"

using namespace sheaf;

namespace {

/// What the parser says of `kernel %x {attributes} (%x: type) { body return %r }`, without place and caret.
std::string refusal(const std::string& attributes, const std::string& type, const std::string& body,
                    const std::string& result) {
  const auto module = ir::parse("func @f(%x: " + type + ") -> " + result + " {\n%r: " + result + " = kernel %x {" +
                                attributes + "} (%x: " + type + ") {\n" + body + "\nreturn %r\n}\nreturn %r\n}\n");
  if (module.ok()) return "fits";
  std::string text(module.status().message());
  text = text.substr(0, text.find('\n'));
  return text.substr(text.find("kernel: ") + 8);
}

}  // namespace

TEST_CASE("a schedule that fits is accepted") {
  CHECK(refusal("schedule=map", "f32[4]", "%r: f32[4] = neg %x", "f32[4]") == "fits");
  CHECK(refusal("schedule=tile_transpose, tile=[0, 1]", "f32[4, 5]", "%r: f32[5, 4] = transpose %x {perm=[1, 0]}",
                "f32[5, 4]") == "fits");
  CHECK(refusal("schedule=row", "f32[4, 50]", "%r: f32[4] = reduce %x {dims=[1]}", "f32[4]") == "fits");
  CHECK(refusal("schedule=reduce", "f32[50, 4]", "%r: f32[4] = reduce %x {dims=[0]}", "f32[4]") == "fits");
  CHECK(refusal("schedule=sort", "f32[4]", "%r: f32[4] = sort %x {dim=[0]}", "f32[4]") == "fits");
}

TEST_CASE("a nest without a place is named") {
  const std::string sum = "%r: f32[4] = reduce %x {dims=[1]}";
  CHECK(refusal("schedule=map", "f32[4, 50]", sum, "f32[4]") == "schedule=map has no place for reduce");
  CHECK(refusal("schedule=map", "f32[4, 16]", sum, "f32[4]") == "fits");
  CHECK(refusal("schedule=sort", "f32[4, 50]", sum, "f32[4]") == "schedule=sort has no place for reduce");
  CHECK(refusal("schedule=scatter", "f32[4]", "%r: f32[4] = neg %x", "f32[4]") ==
        "schedule=scatter finds no nest of its kind");
  CHECK(refusal("schedule=row", "f32[4]", "%r: f32[4] = neg %x", "f32[4]") == "schedule=row finds no nest of its kind");
  CHECK(refusal("schedule=sort", "f32[4, 5]", "%0: f32[4, 5] = sort %x {dim=[1]}\n%r: f32[4, 5] = sort %0 {dim=[0]}",
                "f32[4, 5]") == "schedule=sort takes one nest, not 2");
  CHECK(
      refusal("schedule=spiral", "f32[4]", "%r: f32[4] = neg %x", "f32[4]") ==
      "attribute 'schedule' must be one of none, map, tile_transpose, row, reduce, update, sort, scatter, recurrence, "
      "contract, attention, host, not 'spiral'");
}

TEST_CASE("rows run over the same last dims and fit a thread") {
  CHECK(refusal("schedule=row", "f32[5, 40, 4]", "%r: f32[5, 4] = reduce %x {dims=[1]}", "f32[5, 4]") ==
        "schedule=row needs reductions over the last dims, or all before them, not [1] of [5, 40, 4]");
  CHECK(refusal("schedule=row", "f32[50, 50]",
                "%0: f32[50] = reduce %x {dims=[0]}\n%1: f32[50] = reduce %x {dims=[1]}\n%r: f32[50] = add %0, %1",
                "f32[50]") == "schedule=row has no place for what reads a column's total");
  CHECK(refusal("schedule=row", "f32[50, 50, 50]",
                "%0: f32[50] = reduce %x {dims=[1, 2]}\n%1: f32[50, 50, 50] = broadcast %0 {shape=[50, 50, 50], "
                "dims=[0]}\n%r: f32[50, 50] = reduce %1 {dims=[2]}",
                "f32[50, 50]") == "schedule=row needs reductions of equal dims over the same ones");
  CHECK(refusal("schedule=row", "f32[300000]", "%r: f32[] = reduce %x {dims=[0]}", "f32[]") ==
        "schedule=row takes rows of at most 262144 elements, not 300000");
  CHECK(refusal("schedule=row", "f32[4, 50]",
                "%0: f32[4] = reduce %x {dims=[1]}\n%r: f32[4, 7] = broadcast %0 {shape=[4, 7], dims=[0]}",
                "f32[4, 7]") == "schedule=row of 4 rows of 50 elements has no place for a result of 28");
}

TEST_CASE("tiles are two dims of the results, and belong to one schedule") {
  const std::string swap = "%r: f32[5, 4] = transpose %x {perm=[1, 0]}";
  CHECK(refusal("schedule=tile_transpose", "f32[4, 5]", swap, "f32[5, 4]") ==
        "tile=[] must be two dims of [5, 4], the outer one first");
  CHECK(refusal("schedule=tile_transpose, tile=[1, 0]", "f32[4, 5]", swap, "f32[5, 4]") ==
        "tile=[1, 0] must be two dims of [5, 4], the outer one first");
  CHECK(refusal("schedule=tile_transpose, tile=[0, 2]", "f32[4, 5]", swap, "f32[5, 4]") ==
        "tile=[0, 2] must be two dims of [5, 4], the outer one first");
  CHECK(refusal("schedule=map, tile=[0, 1]", "f32[4, 5]", swap, "f32[5, 4]") == "schedule=map takes no tile");
}

TEST_CASE("an update changes a parameter that nothing else reads") {
  const std::string row = "%0: f32[1] = dynamic_slice %x, %at {dims=[0], sizes=[1], index_dim=[0]}\n";
  const std::string start = "%at: i32[1] = broadcast 1:i32 {shape=[1]}\n";
  const std::string two = "%two: f32[1] = broadcast 2.0:f32 {shape=[1]}\n";
  const std::string refused = "schedule=update needs one update of a parameter that nothing else reads";
  CHECK(refusal("schedule=update", "f32[4]",
                start + two + "%r: f32[4] = dynamic_update_slice %x, %two, %at {dims=[0], index_dim=[0]}",
                "f32[4]") == "fits");
  CHECK(refusal("schedule=update", "f32[4]",
                start + row + "%r: f32[4] = dynamic_update_slice %x, %0, %at {dims=[0], index_dim=[0]}",
                "f32[4]") == refused);
  CHECK(refusal("schedule=update", "f32[4]", "%r: f32[4] = neg %x", "f32[4]") == refused);
}

TEST_CASE("a contraction reads through anything that is no nest, and only what is elementwise follows it") {
  CHECK(refusal("schedule=contract", "f32[4, 4]", "%r: f32[4, 4] = dot %x, %x {lhs=[1], rhs=[0]}", "f32[4, 4]") ==
        "fits");
  CHECK(refusal("schedule=contract", "f32[4, 4]",
                "%0: f32[4, 4] = transpose %x {perm=[1, 0]}\n%r: f32[4, 4] = dot %x, %0 {lhs=[1], rhs=[0]}",
                "f32[4, 4]") == "fits");
  CHECK(refusal("schedule=contract", "f32[4, 4]",
                "%0: f32[4, 4] = exp %x\n%r: f32[4, 4] = dot %x, %0 {lhs=[1], rhs=[0]}", "f32[4, 4]") == "fits");
  CHECK(refusal("schedule=contract", "f32[4, 4]",
                "%0: f32[4, 4] = dot %x, %x {lhs=[1], rhs=[0]}\n%r: f32[4, 4] = dot %x, %0 {lhs=[1], rhs=[0]}",
                "f32[4, 4]") == "schedule=contract takes one nest, not 2");
  CHECK(refusal("schedule=contract", "f32[4, 4]",
                "%0: f32[4, 4] = dot %x, %x {lhs=[1], rhs=[0]}\n%1: f32[4, 4] = add %0, %x\n%r: f32[4, 4] = neg %1",
                "f32[4, 4]") == "fits");
  CHECK(refusal("schedule=contract", "f32[4, 4]",
                "%0: f32[4, 4] = dot %x, %x {lhs=[1], rhs=[0]}\n%1: f32[4, 4] = neg %0\n%r: f32[4, 4] = transpose %1 "
                "{perm=[1, 0]}",
                "f32[4, 4]") == "schedule=contract has no place for transpose of its result");
  const std::string products = "%0: f32[40, 40] = dot %x, %x {lhs=[1], rhs=[0]}\n";
  CHECK(refusal("schedule=contract", "f32[40, 40]",
                products + "%1: f32[40, 40] = neg %0\n%2: f32[40] = reduce %1 {dims=[0]}\n%r: f32[40] = neg %2",
                "f32[40]") == "fits");
  CHECK(refusal("schedule=contract", "f32[40, 40]", products + "%r: f32[40] = reduce %0 {dims=[1]}", "f32[40]") ==
        "schedule=contract has no place for reduce of its result");
  CHECK(refusal("schedule=contract", "f32[40, 40]",
                products + "%1: f32[40] = reduce %0 {dims=[0]}\n%2: f32[40, 40] = broadcast %1 {shape=[40, 40], "
                           "dims=[1]}\n%r: f32[40, 40] = add %0, %2",
                "f32[40, 40]") == "schedule=contract has no place for broadcast of its result");
  CHECK(refusal("schedule=contract", "f32[40, 40]",
                products + "%1: f32[40] = reduce %x {dims=[0]}\n%2: f32[40, 40] = broadcast %1 {shape=[40, 40], "
                           "dims=[1]}\n%r: f32[40, 40] = add %0, %2",
                "f32[40, 40]") == "schedule=contract has no place for reduce");
  const auto module = ir::parse(
      "func @f(%x: f32[4, 4], %y: f32[2]) -> f32[4, 4], f32[2] {\n%r: f32[4, 4], %s: f32[2] = kernel %x, %y "
      "{schedule=contract} (%x: f32[4, 4], %y: f32[2]) {\n%r: f32[4, 4] = dot %x, %x {lhs=[1], rhs=[0]}\n%s: f32[2] = "
      "neg %y\nreturn %r, %s\n}\nreturn %r, %s\n}\n");
  CHECK(std::string(module.status().message()).find("schedule=contract needs results of the contraction's dims") !=
        std::string::npos);
}

TEST_CASE("an attention ends its kernel, and reads parameters but for a conversion that it makes itself") {
  const std::string type = "f16[4, 1, 8]", attend = ", %lse: f32[1, 4] = attention %x, %x, ";
  CHECK(refusal("schedule=attention", type, "%r: f16[4, 1, 8]" + attend + "%x", type) == "fits");
  CHECK(refusal("schedule=attention", type, "%0: f16[4, 1, 8]" + attend + "%x\n%r: f16[4, 1, 8] = neg %0", type) ==
        "schedule=attention ends with neg");
  CHECK(refusal("schedule=attention", type, "%0: f16[4, 1, 8] = neg %x\n%r: f16[4, 1, 8]" + attend + "%0", type) ==
        "schedule=attention reads parameters, not neg");
  CHECK(refusal("schedule=map", type, "%r: f16[4, 1, 8]" + attend + "%x", type) ==
        "schedule=map has no place for attention");
}
