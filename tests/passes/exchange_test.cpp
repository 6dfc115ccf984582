// What ops whose dims are split ask of other devices: candidates, totals, one sum, a few rows of neighbours; and what
// they need not ask for, because places count in the whole.
#include "passes/sharding/propagate.h"
#include "passes/sharding/shifts.h"
#include "tests/passes/partitioned.h"
#include "tests/passes/programs.h"

using namespace sheaf;
using namespace sheaf::ir;
using namespace sheaf::tests;

namespace {

/// The collectives of the function over 4 devices, once it was seen to compute what it should.
std::string collectives_of(std::string_view text) {
  const FunctionRef f = parse_function(fmt::format("mesh @m = [a=4]\n{}", text));
  const FunctionRef placed = passes::propagate(passes::shifts(f));
  return fmt::format("{}", fmt::join(collectives(*check_partitioned(placed, numbers(*f), 1e-6)), ", "));
}

}  // namespace

TEST_CASE("a roll by less than a part exchanges that many rows, one way and around the end") {
  CHECK(collectives_of(R"(
func @roll(%x: f32[8@a, 3]) -> f32[8, 3] on @m {
  %head: f32[1, 3] = slice %x {start=[7, 0], limit=[8, 3], stride=[1, 1]}
  %tail: f32[7, 3] = slice %x {start=[0, 0], limit=[7, 3], stride=[1, 1]}
  %y: f32[8, 3] = concatenate %head, %tail {dim=[0]}
  return %y
}
)") == "ppermute a 12, ppermute a 12");
}

TEST_CASE("a roll by more than a part comes from two neighbours, and around the end") {
  CHECK(collectives_of(R"(
func @roll(%x: f32[8@a]) -> f32[8] on @m {
  %head: f32[3] = slice %x {start=[5], limit=[8], stride=[1]}
  %tail: f32[5] = slice %x {start=[0], limit=[5], stride=[1]}
  %y: f32[8] = concatenate %head, %tail {dim=[0]}
  return %y
}
)") == "ppermute a 4, ppermute a 4, ppermute a 4, ppermute a 4");
}

TEST_CASE("of a long row of slices none becomes an array of the size of all") {
  std::string slices, names;
  for (int i = 0; i < 8; ++i) {
    slices +=
        fmt::format("  %{0}: f32[2] = slice %x {{start=[{1}], limit=[{2}], stride=[1]}}\n", i, 14 - 2 * i, 16 - 2 * i);
    names += fmt::format("{}%{}", i ? ", " : "", i);
  }
  const FunctionRef f = parse_function(fmt::format(
      "mesh @m = [a=4]\nfunc @f(%x: f32[16@a]) -> f32[16] on @m {{\n{}  %y: f32[16] = concatenate {} {{dim=[0]}}\n"
      "  return %y\n}}\n",
      slices, names));
  CHECK(passes::shifts(f)->eqns().size() == f->eqns().size());
}

TEST_CASE("a stencil takes one row from each side") {
  CHECK(collectives_of(R"(
func @stencil(%x: f32[8@a]) -> f32[8] on @m {
  %padded: f32[10] = pad %x, 0.0:f32 {low=[1], high=[1], interior=[0]}
  %left: f32[8] = slice %padded {start=[0], limit=[8], stride=[1]}
  %right: f32[8] = slice %padded {start=[2], limit=[10], stride=[1]}
  %y: f32[8] = add %left, %right
  return %y
}
)") == "ppermute a 4, ppermute a 4");
}

TEST_CASE("the adjoint of a roll is a roll") {
  CHECK(collectives_of(R"(
func @adjoint(%ct: f32[8@a]) -> f32[8] on @m {
  %head: f32[1] = slice %ct {start=[0], limit=[1], stride=[1]}
  %tail: f32[7] = slice %ct {start=[1], limit=[8], stride=[1]}
  %a: f32[8] = pad %head, 0.0:f32 {low=[7], high=[0], interior=[0]}
  %b: f32[8] = pad %tail, 0.0:f32 {low=[0], high=[1], interior=[0]}
  %y: f32[8] = add %a, %b
  return %y
}
)") == "ppermute a 4, ppermute a 4");
}

TEST_CASE("what is cut to a size that does not divide is split along another dim, which is exchanged for it") {
  CHECK(collectives_of(R"(
func @cut(%x: f32[8@a, 4]) -> f32[7, 4] on @m {
  %y: f32[7, 4] = slice %x {start=[1, 0], limit=[8, 4], stride=[1, 1]}
  return %y
}
)") == "all_to_all a 32");
  CHECK(collectives_of(R"(
func @squares(%x: f32[8@a, 4]) -> f32[] on @m {
  %next: f32[7, 4] = slice %x {start=[1, 0], limit=[8, 4], stride=[1, 1]}
  %this: f32[7, 4] = slice %x {start=[0, 0], limit=[7, 4], stride=[1, 1]}
  %d: f32[7, 4] = sub %next, %this
  %e: f32[7, 4] = mul %d, %d
  %y: f32[] = reduce %e {dims=[0, 1]}
  return %y
}
)") == "all_reduce a 4, all_to_all a 32");
}

TEST_CASE("where no other dim divides either, what is cut is gathered, and the reason says which size is to blame") {
  const FunctionRef f = parse_function(R"(
mesh @m = [a=4]
func @cut(%x: f32[8@a, 3]) -> f32[7, 3] on @m {
  %y: f32[7, 3] = slice %x {start=[1, 0], limit=[8, 3], stride=[1, 1]}
  return %y
}
)");
  const FunctionRef local = check_partitioned(passes::propagate(f), numbers(*f), 0);
  REQUIRE(collectives(*local) == std::vector<std::string>{"all_gather a 96"});
  for (const Eqn* e : local->eqns())
    if (is_collective(*e))
      CHECK(std::string(e->how) ==
            "partition: operand 0 of slice wanted as [_, _], is [a, _]: its 7 does not divide by 4");
}

TEST_CASE("a pooling window over parts takes the rows it lacks") {
  CHECK(collectives_of(R"(
func @pool(%x: f32[16@a, 3]) -> f32[16, 3] on @m {
  %y: f32[16, 3] = reduce_window %x {kind=max, window=[3, 1], strides=[1, 1], low=[1, 0], high=[1, 0], base_dilation=[1, 1], window_dilation=[1, 1]}
  return %y
}
)") == "ppermute a 12, ppermute a 12");
}

TEST_CASE("an embedding whose rows are split is one sum of what each device has of it") {
  CHECK(collectives_of(R"(
func @embed(%table: f32[64@a, 4], %tokens: i32[8, 1]) -> f32[8, 4] on @m {
  %y: f32[8, 4] = gather %table, %tokens {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], slice_sizes=[1, 4]}
  return %y
}
)") == "all_reduce a 128");
}

TEST_CASE("writing rows into an array whose rows are split asks for nothing") {
  CHECK(collectives_of(R"(
func @add_rows(%x: f32[64@a, 4], %at: i32[8, 1], %rows: f32[8, 4]) -> f32[64@a, 4] on @m {
  %y: f32[64@a, 4] = scatter %x, %at, %rows {update_window_dims=[1], inserted=[0], scatter_dims=[0], index_dim=[1]}
  return %y
}
)") == "");
  CHECK(collectives_of(R"(
func @write(%x: f32[64@a, 4], %block: f32[6, 4], %at: i32[1]) -> f32[64@a, 4] on @m {
  %y: f32[64@a, 4] = dynamic_update_slice %x, %block, %at {dims=[0], index_dim=[0]}
  return %y
}
)") == "");
}

TEST_CASE("random bits and positions are made where they are wanted") {
  CHECK(collectives_of(R"(
func @noise(%key: u32[2], %x: i32[64@a, 4]) -> i32[64@a, 4] on @m {
  %bits: u32[64@a, 4] = random_bits %key {shape=[64, 4]}
  %ints: i32[64@a, 4] = convert %bits {to=i32}
  %place: i32[64@a, 4] = iota {shape=[64, 4], dim=[0]}
  %moved: i32[64@a, 4] = add %x, %ints
  %y: i32[64@a, 4] = add %moved, %place
  return %y
}
)") == "");
}

TEST_CASE("extremes over a split dim send one candidate of each part and its place, the k largest k of each") {
  CHECK(collectives_of(R"(
func @best(%x: f32[8, 4096@a]) -> i32[8] on @m {
  %at: i32[8] = argmax %x {dim=[1]}
  return %at
}
)") == "all_gather a 128, all_gather a 128");
  CHECK(collectives_of(R"(
func @largest(%x: f32[8, 4096@a]) -> f32[8, 2], i32[8, 2] on @m {
  %top: f32[8, 2], %at: i32[8, 2] = top_k %x {dim=[1], k=2}
  return %top, %at
}
)") == "all_gather a 256, all_gather a 256");
}

TEST_CASE("a running sum along a split dim gathers one total of each part") {
  CHECK(collectives_of(R"(
func @sums(%x: f32[4096@a, 2]) -> f32[4096@a, 2] on @m {
  %y: f32[4096@a, 2] = cumulative %x {dim=[0]}
  return %y
}
)") == "all_gather a 32");
}

TEST_CASE("attention over parts of the queries, in a window, asks for nothing") {
  CHECK(collectives_of(R"(
func @causal(%q: f32[64@a, 2, 4], %k: f32[64, 2, 4], %v: f32[64, 2, 4]) -> f32[64@a, 2, 4] on @m {
  %y: f32[64@a, 2, 4], %lse: f32[2, 64@a] = attention %q, %k, %v {after=0}
  return %y
}
)") == "");
}
