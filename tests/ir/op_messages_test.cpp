// What each op says when it refuses its operands or attributes, word for word: which of them, and both sides. The
// texts of elementwise and shape ops are in ops_eval_test.cpp.
#include "tests/ir/one_op.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

const Type kMatrix(f32, {4, 6}), kIndex(i32, {1});

std::string slice_refusal(ops::DynamicSlice attrs, Type starts = kIndex, Type x = kMatrix) {
  return refusal(ops::dynamic_slice, {x, starts}, with(std::move(attrs)));
}

std::string update_refusal(Type update, ops::DynamicUpdateSlice attrs, Type starts = kIndex) {
  return refusal(ops::dynamic_update_slice, {kMatrix, update, starts}, with(std::move(attrs)));
}

// Rows of a matrix.
ops::Gather rows() {
  return {.offset_dims = {1}, .collapsed = {0}, .start_index_map = {0}, .index_dim = {1}, .slice_sizes = {1, 6}};
}

std::string gather_refusal(ops::Gather attrs, Type indices = Type(i32, {5, 1}), Type x = kMatrix) {
  return refusal(ops::gather, {x, indices}, with(std::move(attrs)));
}

}  // namespace

TEST_CASE("dot names the dims that do not pair up, and the dtypes") {
  const Type x(f32, {2, 3}), y(f32, {3, 4});
  const auto dot = [](Type a, Type b, ops::Dot attrs) { return refusal(ops::dot, {a, b}, with(std::move(attrs))); };
  CHECK(dot(x, Type(f64, {3, 4}), {.lhs = {1}, .rhs = {0}}) ==
        "lhs (f32[2, 3]) and rhs (f64[3, 4]) must have the same dtype");
  CHECK(dot(Type(bool_, {2}), Type(bool_, {2}), {.lhs = {0}, .rhs = {0}}) == "takes a number, not bool[2]");
  CHECK(dot(x, y, {.lhs = {1}, .rhs = {0}, .dtype = bf16}) == "dtype bf16 must be f32 or a wider one of its kind");
  CHECK(dot(x, y, {.lhs = {1}, .rhs = {0}, .lhs_batch = {0}}) ==
        "batch dims lhs_batch=[0] and rhs_batch=[] must pair up");
  CHECK(dot(x, y, {.lhs = {1}, .rhs = {0}, .lhs_batch = {1}, .rhs_batch = {1}}) == "lhs dims [1, 1] must not repeat 1");
}

TEST_CASE("a convolution refuses the dtypes that dot does, and complex numbers") {
  const auto conv = [](DType lhs, DType rhs, DType result) {
    const ops::Conv plain{.lhs_batch = {0},
                          .lhs_feature = {1},
                          .rhs_feature = {0},
                          .rhs_output = {1},
                          .out_batch = {0},
                          .out_feature = {1},
                          .dtype = result};
    return refusal(ops::conv, {Type(lhs, {2, 3}), Type(rhs, {3, 4})}, with(plain));
  };
  CHECK(conv(f32, f64, f32) == "lhs (f32[2, 3]) and rhs (f64[3, 4]) must have the same dtype");
  CHECK(conv(c64, c64, c64) == "takes an integer or floating point, not c64[2, 3]");
  CHECK(conv(bool_, bool_, bool_) == "takes an integer or floating point, not bool[2, 3]");
  CHECK(conv(i32, i32, u64) == "dtype u64 must be i32 or a wider one of its kind");
  CHECK(conv(f32, f32, f16) == "dtype f16 must be f32 or a wider one of its kind");
}

TEST_CASE("dynamic slices say what is wrong with the starts and with the slice") {
  CHECK(slice_refusal({.dims = {1}, .sizes = {2}, .index_dim = {0}}, Type(f32, {1})) ==
        "starts (f32[1]) must be integers");
  CHECK(slice_refusal({.dims = {2}, .sizes = {2}, .index_dim = {0}}) == "dims [2] must lie in [0, 2), 2 is outside");
  CHECK(slice_refusal({.dims = {1}, .sizes = {2}, .batch = {0}, .index_dim = {0}}) ==
        "batch=[0] and starts_batch=[] must pair up");
  CHECK(slice_refusal({.dims = {1}, .sizes = {2}}) == "index_dim must be one dim, not []");
  CHECK(slice_refusal({.dims = {1, 0}, .sizes = {2, 2}, .index_dim = {0}}) ==
        "starts (i32[1]) must hold 2 along index_dim, one for each of dims [1, 0]");
  CHECK(slice_refusal({.dims = {1}, .sizes = {2}, .batch = {0}, .starts_batch = {0}, .index_dim = {1}},
                      Type(i32, {3, 1})) == "operand dim 0 (4) and starts dim 0 (3) must match");
  CHECK(slice_refusal({.dims = {2}, .sizes = {2}, .batch = {0, 1}, .starts_batch = {1, 0}, .index_dim = {2}},
                      Type(i32, {6, 4, 1}),
                      Type(f32, {4, 6, 5})) == "batch=[0, 1] and starts_batch=[1, 0] must be in the same order");
  CHECK(slice_refusal({.dims = {1}, .index_dim = {0}}) == "sizes=[] must have one entry for each of dims [1]");
  CHECK(slice_refusal({.dims = {1}, .sizes = {7}, .index_dim = {0}}) == "a slice of 7 does not fit dim 1 (6)");
  CHECK(update_refusal(Type(f32, {3, 2}), {.dims = {1}, .index_dim = {0}}) ==
        "update dim 0 (3) and operand dim 0 (4) must match");
  CHECK(update_refusal(Type(f32, {4}), {.dims = {1}, .index_dim = {0}}) ==
        "update (f32[4]) must have the rank of the operand (f32[4, 6])");
  CHECK(update_refusal(Type(f64, {4, 2}), {.dims = {1}, .index_dim = {0}}) ==
        "operand (f32[4, 6]) and update (f64[4, 2]) must have the same dtype");
}

TEST_CASE("gather says which of its dimension numbers does not fit") {
  ops::Gather g = rows();
  g.slice_sizes = {1};
  CHECK(gather_refusal(g) == "slice_sizes=[1] must have one entry for each dim of f32[4, 6]");
  g = rows();
  g.offset_dims = {};
  CHECK(gather_refusal(g) == "window dims [] must be 1, one for each kept dim of the operand (f32[4, 6])");
  g = rows();
  g.offset_dims = {1, 0};
  CHECK(gather_refusal(g) == "window dims [1, 0] must ascend");
  g = rows();
  g.index_dim = {};
  CHECK(gather_refusal(g) == "index_dim must be one dim, not []");
  CHECK(gather_refusal(rows(), Type(i32, {5, 2})) ==
        "indices dim 1 (2) must hold one start for each of the operand's dims [0]");
  g = {.collapsed = {1}, .start_index_map = {1}, .operand_batch = {0}, .index_dim = {1}, .slice_sizes = {1, 1}};
  CHECK(gather_refusal(g) == "operand_batch=[0] and indices_batch=[] must pair up");
  g.indices_batch = {0};
  CHECK(gather_refusal(g) == "operand dim 0 (4) and indices dim 0 (5) must match");
}

TEST_CASE("gather refuses a fill that nothing reads, or that no element has") {
  ops::Gather g = rows();
  g.has_fill = true;
  CHECK(gather_refusal(g) == "has_fill goes with mode=fill alone");
  g.mode = lowering::OutOfBounds::fill;
  CHECK(gather_refusal(g) == "accepted as f32[5, 6]");
  g.fill_bits = std::int64_t{1} << 32;
  CHECK(gather_refusal(g) == "fill_bits=4294967296 are not those of one f32");
  g.fill_bits = -1;
  CHECK(gather_refusal(g, Type(i32, {5, 1}), Type(i64, {4, 6})) == "accepted as i64[5, 6]");
  CHECK(gather_refusal(g, Type(i32, {5, 1}), Type(c64, {4, 6})) == "fill_bits=-1 are not those of one f32");
  g.fill_bits = 2;
  CHECK(gather_refusal(g, Type(i32, {5, 1}), Type(bool_, {4, 6})) == "fill_bits=2 are not those of one bool");
  g.has_fill = false;
  CHECK(gather_refusal(g) == "fill_bits=2 without has_fill");
}

TEST_CASE("scatter refuses updates of another dtype or rank, and logic") {
  const Type indices(i32, {5, 1});
  const ops::Scatter s{.update_window_dims = {1}, .inserted = {0}, .scatter_dims = {0}, .index_dim = {1}};
  CHECK(refusal(ops::scatter, {kMatrix, indices, Type(f64, {5, 6})}, with(s)) ==
        "operand (f32[4, 6]) and updates (f64[5, 6]) must have the same dtype");
  CHECK(refusal(ops::scatter, {kMatrix, indices, Type(f32, {5})}, with(s)) ==
        "updates (f32[5]) must have rank 2: 1 window dims and those of the indices (i32[5, 1])");
  CHECK(refusal(ops::scatter, {Type(bool_, {4, 6}), indices, Type(bool_, {5, 6})}, with(s)) ==
        "add takes integers or floats, not bool[4, 6]");
}

TEST_CASE("reductions and sorts refuse what has no order, and dims that are not one") {
  CHECK(refusal(ops::reduce, {Type(bool_, {3})}, with(ops::Reduce{.dims = {0}})) == "takes a number, not bool[3]");
  CHECK(refusal(ops::reduce, {Type(c64, {3})}, with(ops::Reduce{.kind = ReduceKind::max, .dims = {0}})) ==
        "takes an integer or floating point, not c64[3]");
  CHECK(refusal(ops::cumulative, {Type(bool_, {3})}, with(ops::Cumulative{.dim = {0}})) ==
        "cumulative sum takes a number, not bool[3]");
  CHECK(refusal(ops::cumulative, {Type(i32, {3})},
                with(ops::Cumulative{.kind = lowering::Recurrence::Kind::logsumexp, .dim = {0}})) ==
        "cumulative logsumexp takes floating point, not i32[3]");
  CHECK(refusal(ops::reduce, {Type(i32, {3})}, with(ops::Reduce{.kind = ReduceKind::and_, .dims = {0}})) ==
        "takes bool, not i32[3]");
  CHECK(refusal(ops::argmax, {Type(c64, {3})}, with(ops::ArgReduce{.dim = {0}})) ==
        "takes integers, floats or bool, not c64[3]");
  CHECK(refusal(ops::argmax, {kMatrix}, with(ops::ArgReduce{.dim = {0, 1}})) == "dim must be one dim, not [0, 1]");
  CHECK(refusal(ops::argmin, {kMatrix}, with(ops::ArgReduce{.dim = {0}, .dtype = f32})) ==
        "dtype must be an integer, not f32");
  CHECK(refusal(ops::argmin, {Type(f32, {300})}, with(ops::ArgReduce{.dim = {0}, .dtype = u8})) ==
        "u8 does not hold position 299 of dim 0");
  CHECK(refusal(ops::sort, {kMatrix}, with(ops::Sort{.dim = {1}, .num_keys = 2})) ==
        "num_keys must lie in [1, 1], not 2");
  CHECK(refusal(ops::sort, {}, with(ops::Sort{.dim = {1}})) == "needs at least one operand");
  CHECK(refusal(ops::sort, {Type(c64, {3})}, with(ops::Sort{.dim = {0}})) ==
        "operand 0 (c64[3]) is complex: complex numbers have no order");
  CHECK(refusal(ops::sort, {kMatrix, Type(f32, {4})}, with(ops::Sort{.dim = {0}})) ==
        "operands 0 (f32[4, 6]) and 1 (f32[4]) must have the same shape");
  CHECK(refusal(ops::sort, {kMatrix}, with(ops::Sort{})) == "dim must be one dim, not []");
  CHECK(refusal(ops::concatenate, {kMatrix}, with(ops::Concatenate{})) == "dim must be one dim, not []");
  CHECK(refusal(ops::iota, {}, with(ops::Iota{.shape = {2}})) == "dim must be one dim, not []");
}

TEST_CASE("random bits and constants say what their attributes must be") {
  const Type keys(u32, {3, 2});
  CHECK(refusal(ops::random_bits, {keys}, with(ops::RandomBits{.shape = {3, 4}})) ==
        "key_batch=[] and result_batch=[] must pair up all but the last dim of u32[3, 2]");
  CHECK(refusal(ops::random_bits, {keys}, with(ops::RandomBits{.shape = {4}, .key_batch = {0}, .result_batch = {0}})) ==
        "key dim 0 (3) and result dim 0 (4) must match");
  CHECK(refusal(ops::random_bits, {Type(u32, {2})}, with(ops::RandomBits{.shape = {-4}})) ==
        "shape [-4] must not be negative");
  CHECK(refusal(ops::constant, {}, with(ops::Constant{.dtype = u8, .hex = "FF"})) ==
        "hex must be lower-case hexadecimal");
}
