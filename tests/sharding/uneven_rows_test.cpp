// The rows X of known cases of partitioners whose dims do not divide: each is refused where the array is laid out,
// naming the dim, its size and the axis. Their even forms are in op_rows_test.cpp.
#include <doctest/doctest.h>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;

namespace {

std::string refusal(const Shape& shape, const PartitionSpec& spec) {
  const Mesh mesh = Mesh::abstract({{"x", 2}});
  return tests::message_here<ShardingError>([&] { abstract(shape, f32, {mesh, spec}); });
}

}  // namespace

TEST_CASE("X1, uneven: dims that do not divide are refused where an array is laid out") {
  CHECK(
      refusal({7, 31, 128}, P(none, "x")) ==
      "HERE: abstract: P(none, \"x\") of f32[7, 31, 128]: dim 1 of size 31 does not divide over axis \"x\" of size 2");
  CHECK(refusal({7, 31, 128}, P("x")) ==
        "HERE: abstract: P(\"x\") of f32[7, 31, 128]: dim 0 of size 7 does not divide over axis \"x\" of size 2");
}

TEST_CASE("X7, uneven: a part of 257 columns is refused where the array is laid out") {
  CHECK(refusal({14, 257}, P(none, "x")) ==
        "HERE: abstract: P(none, \"x\") of f32[14, 257]: dim 1 of size 257 does not divide over axis \"x\" of size 2");
}

TEST_CASE("X13, uneven: a table of 17 rows is refused where it is laid out") {
  CHECK(refusal({17, 9}, P("x")) ==
        "HERE: abstract: P(\"x\") of f32[17, 9]: dim 0 of size 17 does not divide over axis \"x\" of size 2");
}
