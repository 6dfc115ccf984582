// The rows R and X of known cases of partitioners, one test for each: the layouts of an op's operands and of its
// result, and the collectives that takes. Those of dims that do not divide are in uneven_rows_test.cpp.
#include <fmt/format.h>

#include "tests/passes/partitioned.h"
#include "tests/passes/programs.h"

using namespace sheaf;
using namespace sheaf::tests;

namespace {

ir::FunctionRef on_mesh(std::string_view mesh, std::string_view text) {
  return parse_function(fmt::format("mesh @m = [{}]\n{}", mesh, text));
}

std::string listed(const ir::Function& local) { return fmt::format("{}", fmt::join(collectives(local), ", ")); }

/// The collectives of the function, once it was seen to compute what it should.
std::string checked(std::string_view mesh, std::string_view text) {
  const ir::FunctionRef f = on_mesh(mesh, text);
  return listed(*check_partitioned(f, numbers(*f), 1e-5));
}

/// Of one too large to be run.
ir::FunctionRef partitioned(std::string_view mesh, std::string_view text) {
  return passes::partition(on_mesh(mesh, text), {.profile = passes::built_in_profile("flat")});
}

constexpr std::string_view kDot = R"(
func @f(%a: f32[{}], %b: f32[{}]) -> f32[{}] on @m {{
  %c: f32[{}] = dot %a, %b {{lhs=[{}], rhs=[{}]}}
  return %c
}}
)";
std::string dot_of(std::string_view lhs, std::string_view rhs, std::string_view result, int l = 1, int r = 0) {
  return fmt::format(fmt::runtime(kDot), lhs, rhs, result, result, l, r);
}

}  // namespace

TEST_CASE("R1: a contracted dim that is split ends in one sum of the part of the result") {
  CHECK(checked("x=4, y=2", dot_of("8@x, 32@y", "32@y, 16", "8@x, 16")) == "all_reduce y 128");
}

TEST_CASE("R3: where the result wants the axis of the contracted dim, one operand is gathered and nothing is summed") {
  CHECK(checked("x=4, y=2", dot_of("8@x, 32@y", "32, 16@y", "8@x, 16@y")) == "all_gather y 256");
}

TEST_CASE("R5: along a long contracted dim the small operand moves, and the sum lands where the result is wanted") {
  CHECK(checked("x=4, y=2", dot_of("4@x, 1024", "1024@x, 1024", "4@x, 1024")) ==
        "all_to_all x 4096, reduce_scatter x 16384");
}

TEST_CASE("R7: a sum is scattered before the result moves, and a tiny operand is gathered instead") {
  CHECK(checked("x=4, y=2", dot_of("8@x, 32@y", "32@y, 16", "8, 16@x")) ==
        "all_gather y 128, all_to_all x+y 64, reduce_scatter y 128");
  // A short contracted dim: one operand is gathered on x, and the sum is whole for all.
  CHECK(checked("x=4, y=2", dot_of("8@x, 4@y", "4@y, 16", "8, 16@x")) == "all_gather x 64, all_reduce y 128");
}

TEST_CASE(
    "R9: where nothing agrees, the sum is scattered towards where the result is wanted, part of an axis by part") {
  CHECK(checked("x=4, y=2", dot_of("8@x, 32@y", "32@x, 16@y", "8@y, 16@x")) ==
        "all_gather y 256, all_to_all x 256, ppermute x:(1)2+y 64, reduce_scatter x:(1)2 256, reduce_scatter x:(2)2 "
        "128");
}

TEST_CASE("R11: a dim that is joined is exchanged for one that is not, and back") {
  CHECK(checked("x=4, y=2", R"(
func @f(%a: f32[8@x, 32@y, 256], %b: f32[8, 48@y, 256]) -> f32[8@x, 80@y, 256] on @m {
  %c: f32[8@x, 80@y, 256] = concatenate %a, %b {dim=[1]}
  return %c
}
)") == "all_to_all y 32768, all_to_all y 49152, all_to_all y 81920");
}

constexpr std::string_view kRows = R"(
func @f(%x: f32[{}, 4], %i: i32[{}, 1]) -> f32[{}, 4] on @m {{
  %y: f32[{}, 4] = gather %x, %i {{offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1, 4]}}
  return %y
}}
)";
std::string rows_of(std::string_view table, std::string_view indices) {
  return fmt::format(fmt::runtime(kRows), table, indices, indices, indices);
}

TEST_CASE("R13: rows of a split table are masked and summed; where their axis splits the indices, those are gathered") {
  CHECK(checked("x=4, y=2", rows_of("16@y", "8")) == "all_reduce y 128");
  CHECK(checked("x=4, y=2", rows_of("16@y", "8@y")) == "all_gather y 32, reduce_scatter y 128");
}

TEST_CASE("R15: a reshape moves what cannot be kept") {
  CHECK(checked("x=4, y=2", R"(
func @f(%a: f32[16@x, 2, 4]) -> f32[16, 8@(y, x)] on @m {
  %c: f32[16, 8@(y, x)] = reshape %a {shape=[16, 8]}
  return %c
}
)") == "all_to_all x 64");
  CHECK(checked("x=4, y=2", R"(
func @f(%a: f32[4, 8@x]) -> f32[32@x] on @m {
  %c: f32[32@x] = reshape %a {shape=[32]}
  return %c
}
)") == "all_to_all x 32");
}

TEST_CASE("X1: a copy from rows to columns is one exchange") {
  CHECK(checked("x=2", R"(
func @f(%a: f32[8@x, 2]) -> f32[8, 2@x] on @m {
  %c: f32[8, 2@x] = with_sharding %a {mesh="x=2", spec="_,x"}
  return %c
}
)") == "all_to_all x 32");
}

constexpr std::string_view kConv = R"(
func @f(%x: f32[{0}, {1}@x, {1}, 3], %w: f32[7, 7, 3, {2}]) -> f32[{0}, {3}@x, {3}, {2}] on @m {{
  %y: f32[{0}, {3}@x, {3}, {2}] = conv %x, %w {{lhs_batch=[0], lhs_feature=[3], lhs_spatial=[1, 2], rhs_feature=[2], rhs_spatial=[0, 1], rhs_output=[3], out_batch=[0], out_spatial=[1, 2], out_feature=[3], strides=[2, 2], low=[3, 3], high=[3, 3]}}
  return %y
}}
)";

TEST_CASE("X3: a convolution over split rows takes 3 rows from the left and 2 from the right") {
  const auto text = [](int batch, int size, int features) {
    return fmt::format(fmt::runtime(kConv), batch, size, features, size / 2);
  };
  const auto row = [](std::int64_t batch, std::int64_t size) { return batch * size * 3 * 4; };
  CHECK(checked("x=2", text(1, 16, 2)) == fmt::format("ppermute x {}, ppermute x {}", 2 * row(1, 16), 3 * row(1, 16)));
  const ir::FunctionRef local = partitioned("x=2", text(128, 224, 64));
  CHECK(listed(*local) == fmt::format("ppermute x {}, ppermute x {}", 3 * row(128, 224), 2 * row(128, 224)));
  CHECK(local->results()[0].dims() == Shape{128, 56, 112, 64});
}

TEST_CASE("X5: the derivative of a 1x1 filter over split rows is one sum, and nothing is exchanged") {
  const auto text = [](int batch, int size, int in, int out) {
    return fmt::format(
        R"(
func @f(%x: f32[{0}, {1}@x, {1}, {2}], %g: f32[{0}, {1}@x, {1}, {3}]) -> f32[1, 1, {2}, {3}] on @m {{
  %w: f32[1, 1, {2}, {3}] = conv %x, %g {{lhs_batch=[3], lhs_feature=[0], lhs_spatial=[1, 2], rhs_feature=[0], rhs_spatial=[1, 2], rhs_output=[3], out_batch=[2], out_spatial=[0, 1], out_feature=[3]}}
  return %w
}}
)",
        batch, size, in, out);
  };
  CHECK(checked("x=2", text(2, 4, 3, 5)) == "all_reduce x 60");
  CHECK(listed(*partitioned("x=2", text(128, 56, 64, 256))) == "all_reduce x 65536");
}

TEST_CASE("X7: arrays joined along their split dim are exchanged for the other one, and so is what comes out") {
  CHECK(checked("x=2", R"(
func @f(%a: f32[14, 256@x], %b: f32[14, 116@x]) -> f32[14, 372@x] on @m {
  %c: f32[14, 372@x] = concatenate %a, %b {dim=[1]}
  return %c
}
)") == "all_to_all x 10416, all_to_all x 3248, all_to_all x 7168");
}

TEST_CASE("X9: of two operands split both ways the smaller one is gathered and the sum scattered; short ones, both") {
  CHECK(checked("x=2, y=2", dot_of("48@x, 100@y", "32@x, 100@y", "48@x, 32@y", 1, 1)) ==
        "all_gather x 6400, reduce_scatter y 3072");
  CHECK(checked("x=2, y=2", dot_of("48@x, 12@y", "32@x, 12@y", "48@x, 32@y", 1, 1)) ==
        "all_gather x 768, all_gather y 1152, all_to_all y 768");
}

TEST_CASE("X11: an operand that is split too finely is gathered on one axis, and the sum goes over the other") {
  CHECK(checked("x=16, y=8", dot_of("128@x, 16@y", "128@(x, y), 4", "16@y, 4", 0, 0)) ==
        "all_gather y 128, all_reduce x 32");
  CHECK(listed(*partitioned("x=16, y=8", dot_of("16384@x, 2048@y", "16384@(x, y), 256", "2048@y, 256", 0, 0))) ==
        "all_gather y 1048576, all_reduce x 262144");
}

TEST_CASE(
    "X13: rows are gathered by masks and a sum, scattered by whoever has them, and written by whoever has the place") {
  CHECK(checked("x=2", R"(
func @f(%x: f32[18@x, 9], %i: i32[5, 1]) -> f32[5, 9] on @m {
  %y: f32[5, 9] = gather %x, %i {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1, 9]}
  return %y
}
)") == "all_reduce x 180");
  CHECK(checked("x=2", R"(
func @f(%x: f32[18@x, 9], %i: i32[5, 1], %u: f32[5, 9]) -> f32[18@x, 9] on @m {
  %y: f32[18@x, 9] = scatter %x, %i, %u {update_window_dims=[1], inserted=[0], scatter_dims=[0], index_dim=[1]}
  return %y
}
)") == "");
  CHECK(checked("x=2", R"(
func @f(%x: f32[128, 64@x], %u: f32[128, 2@x], %at: i32[1]) -> f32[128, 64@x] on @m {
  %y: f32[128, 64@x] = dynamic_update_slice %x, %u, %at {dims=[1], index_dim=[0]}
  return %y
}
)") == "all_gather x 1024");
}
