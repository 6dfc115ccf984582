// The exact texts of the API's errors, function by function: one line that fails, one sentence that says why. How the
// line, the operands and their names are told is in messages_test.cpp.
#include <doctest/doctest.h>

#include <complex>
#include <string>
#include <vector>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_here;

namespace {

const std::string kMatrix = "\n  operand: f32[2, 3]   (made at HERE)";

Array matrix() { return zeros({2, 3}); }
HostArray complex_pair() { return {c64, {2}, std::vector<std::byte>(16)}; }

}  // namespace

TEST_CASE("numbers that do not fit the arrays' dtype are refused, whatever the function") {
  CHECK(message_here<TypeError>([] { array({1, 2}, i8) + 1000; }) ==
        "HERE: add: 1000 does not fit in i8\n  lhs: i8[2]   (made at HERE)");
  CHECK(message_here<TypeError>([] { return array({1, 2}, u8) == -1; }) ==
        "HERE: eq: -1 does not fit in u8\n  lhs: u8[2]   (made at HERE)");
  CHECK(message_here<TypeError>([] { array({1, 2}) + 18446744073709551615u; }) ==
        "HERE: add: 18446744073709551615 does not fit in i32\n  lhs: i32[2]   (made at HERE)");
  CHECK(message_here<TypeError>([] { where(true, array({1}, u8), 256); }) ==
        "HERE: where: 256 does not fit in u8\n  lhs: u8[1]   (made at HERE)");
  CHECK(message_here<TypeError>([] { random::randint(random::key(0), {2}, 0, 300, u8); }) ==
        "HERE: randint: [0, 300) does not fit in u8");
  const Array u = array({1, 2}, u8);
  const std::string where = " does not fit in u8\n  lhs: u8[2]   (made at HERE)";
  CHECK(message_here<TypeError>([&] { u.at(0).set(300); }) == "HERE: at.set: 300" + where);
  CHECK(message_here<TypeError>([&] { u.at(0).add(-1); }) == "HERE: at.add: -1" + where);
  CHECK(message_here<TypeError>([&] { pad(u, {{1, 0}}, 300); }) == "HERE: pad: 300" + where);
  CHECK(message_here<TypeError>([&] { full_like(u, 300); }) == "HERE: full: 300 does not fit in u8");
  CHECK(message_here<TypeError>([&] { full({2}, -129, i8); }) == "HERE: full: -129 does not fit in i8");
}

TEST_CASE("making arrays says which shape or range is wrong") {
  CHECK(message_here<ShapeError>([] { zeros({2, -3}); }) == "HERE: zeros: the shape [2, -3] has a negative extent");
  CHECK(message_here<ShapeError>([] { ones({1ll << 40, 1ll << 40}); }) ==
        "HERE: ones: the shape [1099511627776, 1099511627776] has too many elements");
  const auto square = [](Array x) { return broadcast_to(x, {1ll << 30, 1ll << 30}); };
  CHECK(message_here<ShapeError>([&] { eval_shape(square, abstract({1ll << 30})); }) ==
        "HERE: broadcast_to: a result f32[1073741824, 1073741824] has too many elements\n"
        "  operand: f32[1073741824]   (argument 0 of eval_shape, HERE)");
  CHECK(message_here<ShapeError>([] { abstract({-1}); }) == "HERE: abstract: the shape [-1] has a negative extent");
  CHECK(message_here<ShapeError>([] { full({2}, array({1, 2, 3})); }) ==
        "HERE: full: cannot broadcast i32[3] to [2]: dim 0 (3) must be 1 or dim 0 of the result (2)\n"
        "  operand: i32[3]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { arange(0, 5, 0); }) == "HERE: arange: the step is 0");
  CHECK(message_here<ShapeError>([] { arange(1e300); }) == "HERE: arange: the range is not finite");
  CHECK(message_here<ShapeError>([] { linspace(0, 1, -1); }) == "HERE: linspace: -1 values");
  CHECK(message_here<ShapeError>([] { iota({2}, 1); }) == "HERE: iota: axis 1 is out of range for the shape [2]");
  CHECK(message_here<ShapeError>([] { array({{1, 2}, {3}}); }) ==
        "HERE: array: the inner lists must have the same length");
  CHECK(message_here<ShapeError>([] { array(std::vector<float>{1, 2}, Shape{3}); }) ==
        "HERE: array: 2 values do not fill the shape [3]");
}

TEST_CASE("complex arrays are refused where their numbers have no order, or would lose a part") {
  const std::string pair = "\n  operand: c64[2]   (made at HERE)";
  CHECK(message_here<TypeError>([] { max(array(complex_pair())); }) ==
        "HERE: max: takes an integer or floating point, not c64[2]" + pair);
  CHECK(message_here<TypeError>([] { maximum(array(complex_pair()), 1); }) ==
        "HERE: maximum: takes bool, an integer or floating point, not c64\n  lhs: c64[2]   (made at HERE)");
  CHECK(message_here<TypeError>([] { return array(complex_pair()) < 1; }) ==
        "HERE: lt: takes bool, an integer or floating point, not c64\n  lhs: c64[2]   (made at HERE)");
  CHECK(message_here<TypeError>([] { sign(array(complex_pair())); }) ==
        "HERE: sign: takes an integer or floating point, not c64" + pair);
  CHECK(message_here<TypeError>([] { sin(array(complex_pair())); }) ==
        "HERE: sin: takes floating point, not c64" + pair);
  CHECK(message_here<TypeError>([] { sort(array(complex_pair())); }) ==
        "HERE: sort: operand 0 (c64[2]) is complex: complex numbers have no order" + pair);
  CHECK(message_here<TypeError>([] { convert(array(complex_pair()), f32); }) ==
        "HERE: convert: no conversion from c64 to f32: take real(), imag() or abs()" + pair);
  CHECK(message_here<TypeError>([] { array(std::vector<std::complex<float>>(2), {}, f32); }) ==
        "HERE: array: no conversion from c64 to f32: take real(), imag() or abs()");
  CHECK(message_here<TypeError>([] { array(complex_pair()).to_vector<float>(); }) ==
        "HERE: to_vector: the elements of c64[2] are complex, not f32");
  CHECK(message_here<TypeError>([] { ones({1}).item<std::complex<float>>(); }) ==
        "HERE: item: the elements of f32[1] are real, not c64");
  CHECK(message_here<TypeError>([] { grad([](Array z) { return z; })(array(complex_pair())[0]); }) ==
        "HERE: grad: the function must return a float, not c64[]");
}

TEST_CASE("bits and precisions that a dtype does not have are refused") {
  CHECK(message_here<ShapeError>([] { bitcast(ones({3}), i64); }) ==
        "HERE: bitcast: 2 of f32 make one i64: the last dim must be 2\n  operand: f32[3]   (made at HERE)");
  CHECK(message_here<TypeError>([] { bitcast(ones({2}), bool_); }) ==
        "HERE: bitcast: no bits of f32 as bool\n  operand: f32[2]   (made at HERE)");
  CHECK(message_here<TypeError>([] { reduce_precision(ones({2}), 0, 3); }) ==
        "HERE: reduce_precision: needs at least 1 exponent bit and 0 mantissa bits, not 0 and 3\n"
        "  operand: f32[2]   (made at HERE)");
}

TEST_CASE("top_k, gather, scatter and the modes of indexing say what does not fit") {
  CHECK(message_here<TypeError>([] { gather(matrix(), 1, {}, {1, 1}); }) ==
        "HERE: gather: indices must be integers, vectors along the last dim");
  CHECK(message_here<TypeError>([] { scatter(matrix(), ones({1}), 1, {}, Combine::add); }) ==
        "HERE: scatter: indices must be integers, vectors along the last dim\n  indices: f32[1]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { top_k(matrix(), 4); }) ==
        "HERE: top_k: k must lie in [0, 3], the extent of dim 1, not 4" + kMatrix);
  CHECK(message_here<TypeError>([] { top_k(array(complex_pair()), 1); }) ==
        "HERE: top_k: takes bool, an integer or floating point, not c64\n  operand: c64[2]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { gather(matrix(), zeros({1}, i32), {.dropped = {0}, .starts = {0}}, {1, 4}); }) ==
        "HERE: gather: window dims [] must be 1, one for each kept dim of the operand (f32[2, 3])"
        "\n  lhs: f32[2, 3]   (made at HERE)\n  rhs: i32[1]   (made at HERE)");
  CHECK(message_here<TypeError>([] {
          take(array({1, 2}, u8), array({5}), 0, {.mode = OutOfRange::fill, .fill = 300});
        }) == "HERE: take: the fill value 300 does not fit in u8");
}

TEST_CASE("reductions and shape changes name the axis") {
  CHECK(message_here<ShapeError>([] { sum(matrix(), {.axes = {1, -1}}); }) ==
        "HERE: sum: axis -1 is listed twice" + kMatrix);
  CHECK(message_here<ShapeError>([] { max(zeros({2, 0}), {.axes = {1}}); }) ==
        "HERE: max: axis 1 is empty and has no max\n  operand: f32[2, 0]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { argmax(zeros({2, 0}), 1); }) ==
        "HERE: argmax: axis 1 is empty\n  operand: f32[2, 0]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { reshape(matrix(), {-1, -1}); }) ==
        "HERE: reshape: the shape [-1, -1] may have one -1 and no other negative extent" + kMatrix);
  CHECK(message_here<ShapeError>([] { squeeze(matrix(), {0}); }) ==
        "HERE: squeeze: axis 0 has extent 2, not 1" + kMatrix);
  CHECK(message_here<ShapeError>([] { expand_dims(matrix(), {3}); }) ==
        "HERE: expand_dims: axis 3 is out of range for a result of rank 3" + kMatrix);
  CHECK(message_here<ShapeError>([] { expand_dims(matrix(), {0, 0}); }) ==
        "HERE: expand_dims: axis 0 is listed twice" + kMatrix);
  CHECK(message_here<ShapeError>([] { transpose(matrix(), {1}); }) ==
        "HERE: transpose: perm [1] must list all 2 dims" + kMatrix);
  CHECK(message_here<ShapeError>([] { broadcast_to(matrix(), {3, 3}); }) ==
        "HERE: broadcast_to: [2, 3] does not broadcast to [3, 3]" + kMatrix);
  CHECK(message_here<ShapeError>([] { split(matrix(), 2, 1); }) ==
        "HERE: split: axis 1 of extent 3 does not split into 2 equal parts" + kMatrix);
  CHECK(message_here<ShapeError>([] { pad(matrix(), {{1, 1}}); }) ==
        "HERE: pad: 1 pairs of widths for rank 2" + kMatrix);
  CHECK(message_here<ShapeError>([] { pad(matrix(), {{-2, -1}, {0, 0}}); }) ==
        "HERE: pad: axis 0 of extent 2 cannot lose 3" + kMatrix);
  CHECK(message_here<ShapeError>([] { tile(matrix(), {-1}); }) ==
        "HERE: tile: repeats [-1] must not be negative" + kMatrix);
  CHECK(message_here<ShapeError>([] { repeat(matrix(), -1); }) ==
        "HERE: repeat: count -1 must not be negative" + kMatrix);
  CHECK(message_here<ShapeError>([] { tril(ones({2})); }) ==
        "HERE: tril: needs at least two dims\n  operand: f32[2]   (made at HERE)");
}

TEST_CASE("functions of several arrays list them all") {
  CHECK(message_here<ShapeError>([] { concatenate({}); }) == "HERE: concatenate: no arrays");
  CHECK(message_here<ShapeError>([] { concatenate({matrix(), ones({2})}); }) ==
        "HERE: concatenate: the parts must agree in all dims but 0\n"
        "  part 0: f32[2, 3]   (made at HERE)\n  part 1: f32[2]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { stack({}); }) == "HERE: stack: no arrays");
  CHECK(message_here<ShapeError>([] { stack({matrix(), ones({2})}); }) ==
        "HERE: stack: the parts must have the same shape\n"
        "  part 0: f32[2, 3]   (made at HERE)\n  part 1: f32[2]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { sort_together({}); }) == "HERE: sort_together: no arrays");
  CHECK(message_here<ShapeError>([] { sort_together({ones({2})}, 0, 2); }) ==
        "HERE: sort_together: 2 keys of 1 arrays");
  CHECK(message_here<ShapeError>([] { matmul(matrix(), 2.0); }) ==
        "HERE: matmul: a scalar is no matrix: use *\n  lhs: f32[2, 3]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { matmul(ones({2, 2, 3}), ones({3, 3, 2})); }) ==
        "HERE: matmul: leading dims [2] and [3] cannot be broadcast together\n"
        "  lhs: f32[2, 2, 3]   (made at HERE)\n  rhs: f32[3, 3, 2]   (made at HERE)");
}

TEST_CASE("einsum quotes the specification") {
  const Array x = matrix();
  CHECK(message_here<ShapeError>([&] { einsum("i1", x); }) == "HERE: einsum: unexpected '1' in \"i1\"");
  CHECK(message_here<ShapeError>([&] { einsum("ii", x); }) ==
        "HERE: einsum: 'i' is 2 in one place and 3 in another in \"ii\"");
  CHECK(message_here<ShapeError>([&] { einsum("ij,jk", x); }) ==
        "HERE: einsum: 2 operands are named and 1 given in \"ij,jk\"");
  CHECK(message_here<ShapeError>([&] { einsum("i", x); }) == "HERE: einsum: \"i\" names 1 dims of [2, 3] in \"i\"");
  CHECK(message_here<ShapeError>([&] { einsum("ij->k", x); }) ==
        "HERE: einsum: 'k' is not among the operands in \"ij->k\"");
  CHECK(message_here<ShapeError>([&] { einsum("ij->ii", x); }) ==
        "HERE: einsum: 'i' is repeated in the result in \"ij->ii\"");
}

TEST_CASE("indexing says which index is wrong") {
  const Array x = matrix();
  CHECK(message_here<ShapeError>([&] { x(0, 1, 2); }) == "HERE: index: 3 indices for 2 dims" + kMatrix);
  CHECK(message_here<ShapeError>([&] { x(ellipsis, ellipsis); }) ==
        "HERE: index: an index may have one ellipsis" + kMatrix);
  CHECK(message_here<ShapeError>([&] { x[slice(0, 2, 0)]; }) == "HERE: index: a slice with step 0" + kMatrix);
  CHECK(message_here<TypeError>([&] { x[ones({2})]; }) ==
        "HERE: index: an index array must be an integer, not f32\n  index: f32[2]   (made at HERE)");
  CHECK(message_here<TypeError>([&] { x[x[0] > 0]; }) ==
        "HERE: index: an index array must be an integer, not bool. The number of elements a mask selects is not known "
        "to the compiler: use where()\n  index: bool[3]   (made at HERE)");
  CHECK(message_here<ShapeError>([&] { x.at(0).set(ones({2})); }) ==
        "HERE: at.set: a value of shape [2] does not broadcast to the indexed [3]" + kMatrix +
            "\n  value: f32[2]   (made at HERE)");
  CHECK(message_here<TypeError>([&] { take(x, ones({2})); }) ==
        "HERE: take: indices must be integers\n  indices: f32[2]   (made at HERE)");
  CHECK(message_here<ShapeError>([&] { take_along_axis(x, arange(2)); }) ==
        "HERE: take_along_axis: the shapes must agree in all dims but 1" + kMatrix +
            "\n  indices: i32[2]   (made at HERE)");
  CHECK(message_here<ShapeError>([&] { dynamic_slice(x, 1, {1, 1}); }) ==
        "HERE: dynamic_slice: starts must have the shape [2], one integer per dim" + kMatrix);
  CHECK(message_here<ShapeError>([&] { dynamic_slice(x, array({0, 0}), {3, 3}); }) ==
        "HERE: dynamic_slice: a window of [3, 3] does not fit into [2, 3]" + kMatrix);
  CHECK(message_here<ShapeError>([&] { dynamic_update_slice(x, ones({3, 3}), array({0, 0})); }) ==
        "HERE: dynamic_update_slice: an update of [3, 3] does not fit into [2, 3]" + kMatrix +
            "\n  update: f32[3, 3]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { one_hot(1, -1); }) == "HERE: one_hot: -1 classes");
}

TEST_CASE("the library says what it needs") {
  const Array key = random::key(0);
  CHECK(message_here<ShapeError>([] { cross_entropy(ones({2, 3}), ones({2})); }) ==
        "HERE: cross_entropy: labels are integers with the shape of logits without its last dim\n"
        "  logits: f32[2, 3]   (made at HERE)\n  labels: f32[2]   (made at HERE)");
  CHECK(message_here<ShapeError>([] { layer_norm(1.0, 1.0, 0.0); }) ==
        "HERE: layer_norm: a scalar has no dim to normalise over");
  CHECK(message_here<ShapeError>([&] { glorot_uniform(key, {3}); }) ==
        "HERE: glorot_uniform: the shape [3] needs at least two dims");
  CHECK(message_here<TypeError>([] { random::uniform(ones({2}), {3}); }) ==
        "HERE: uniform: a key is u32[2], made by random::key or random::split\n  key: f32[2]   (made at HERE)");
  CHECK(message_here<TypeError>([&] { random::normal(key, {3}, i32); }) ==
        "HERE: normal: the dtype must be a float, not i32");
  CHECK(message_here<TypeError>([&] { random::bits(key, {3}, i32); }) ==
        "HERE: bits: the dtype must be unsigned, not i32");
  CHECK(message_here<TypeError>([&] { random::randint(key, {3}, 0, 2, f32); }) ==
        "HERE: randint: the dtype must be an integer, not f32");
  CHECK(message_here<ShapeError>([&] { random::randint(key, {3}, 2, 2); }) == "HERE: randint: no integers in [2, 2)");
  CHECK(message_here<TypeError>([&] { random::fold_in(key, 0.5); }) == "HERE: fold_in: data is one integer");
  CHECK(message_here<ShapeError>([&] { random::permutation(key, -1); }) == "HERE: permutation: -1 elements");
  CHECK(message_here<ShapeError>([&] { random::shuffle(key, 1.0); }) == "HERE: shuffle: a scalar has no order");
}

TEST_CASE("the loader lists the arrays that differ") {
  CHECK(message_here<ShapeError>([] { Loader({}); }) == "HERE: Loader: no arrays");
  CHECK(message_here<ShapeError>([] { Loader({ones({2})}, {.batch = 0}); }) == "HERE: Loader: a batch of 0");
  CHECK(message_here<ShapeError>([] { Loader({ones({2}), ones({3, 4})}); }) ==
        "HERE: Loader: the arrays must have the same extent of dim 0\n  array 0: f32[2]\n  array 1: f32[3, 4]");
  CHECK(message_here<ShapeError>([] { Loader({ones({4})}, {.batch = 2}).batch(0, 2); }) ==
        "HERE: Loader: batch 2 of 2");
  CHECK(message_here<ShapeError>([] { Loader({ones({4})}, {.batch = 2}).batch(-1, 0); }) == "HERE: Loader: epoch -1");
}

TEST_CASE("trees that do not match are counted") {
  const std::vector<Array> two{ones({2}), ones({2})}, one{ones({2})};
  CHECK(message_here<TypeError>([&] { tree_with_leaves(two, one); }) ==
        "HERE: tree_with_leaves: 1 leaf in the list and 2 in the tree");
  CHECK(message_here<TypeError>([&] { tree_map([](Array a, Array b) { return a + b; }, two, one); }) ==
        "tree_map: 1 leaf in tree 1 and 2 in tree 0");
  CHECK(message_here<TypeError>([&] { Adam{}.step(two, Adam{}.init(two), one, 0.1); }) ==
        "HERE: Adam: 1 leaf in the gradients and 2 in the parameters");
  CHECK(message_here<TypeError>([&] { Momentum{}.step(two, Momentum{}.init(one), two, 0.1); }) ==
        "HERE: Momentum: 1 leaf in the state and 2 in the parameters");
}

TEST_CASE("transforms say what their options and tangents must be") {
  const auto twice = [](Array x) { return x + x; };
  const auto pair = [](Array x) { return std::pair{x, x}; };
  CHECK(message_here<TypeError>([&] { vmap(twice, {.in = {0, 1}})(ones({2})); }) ==
        "HERE: vmap: 2 axes in .in for 1 arguments");
  CHECK(message_here<TypeError>([&] { vmap(twice, {.in = {none}})(ones({2})); }) ==
        "HERE: vmap: no argument is mapped; give .size");
  CHECK(message_here<ShapeError>([&] { vmap(twice, {.in = {none}, .size = -2})(ones({2})); }) ==
        "HERE: vmap: .size must lie in [0, 36028797018963967], not -2");
  CHECK(message_here<TypeError>([&] { vmap(pair, {.out = {0, 0, 0}})(ones({2})); }) ==
        "HERE: vmap: 3 axes in .out for 2 results");
  CHECK(message_here<ShapeError>([&] { vmap(twice, {.out = {1}})(ones({2})); }) ==
        "HERE: vmap: out axis 1 is out of range for a result of rank 1");
  CHECK(message_here<ShapeError>([&] { vmap(twice, {.out = {none}})(ones({2})); }) ==
        "HERE: vmap: result 0 depends on a mapped argument, so its out axis cannot be none");
  CHECK(message_here<ShapeError>([&] { jvp(twice, ones({2}), ones({3})); }) ==
        "HERE: jvp: the tangent of argument 0 must be f32[2], not f32[3]");
  CHECK(message_here<TypeError>([&] { jvp(twice, ones({2}), ones({2}, f64)); }) ==
        "HERE: jvp: the tangent of argument 0 must be f32[2], not f64[2]");
  CHECK(message_here<TypeError>([&] { grad([](Array x) { return sum(x > 0); })(ones({2})); }) ==
        "HERE: grad: the function must return a float, not i32[]");
  CHECK(message_here<TypeError>([&] { jit(twice, {.donate = {1}})(ones({2})); }) ==
        "HERE: jit: donate lists argument 1, and there are 1");
  CHECK(message_here<TypeError>([&] { jit([](Array) { return Array(); })(1.0); }) ==
        "HERE: jit: the result has no value");
}

TEST_CASE("transforms that are called with their arguments name the line of the call") {
  const auto nothing = [](Array) { return Array(); };
  const auto same = [](Array x) { return x; };
  const auto both = [](Array x, Array y) { return x + y; };
  const Array none_yet;
  CHECK(message_here<TypeError>([&] { linearize(nothing, 1.0); }) == "HERE: linearize: the result has no value");
  CHECK(message_here<TypeError>([&] { sheaf::vjp(nothing, 1.0); }) == "HERE: vjp: the result has no value");
  CHECK(message_here<TypeError>([&] { eval_shape(nothing, 1.0); }) == "HERE: eval_shape: the result has no value");
  CHECK(message_here<TypeError>([&] { find_nan(nothing, 1.0); }) == "HERE: find_nan: the result has no value");
  CHECK(message_here<TypeError>([&] { linearize(same, none_yet); }) == "HERE: argument 0 was never given a value");
  CHECK(message_here<TypeError>([&] { sheaf::vjp(both, 1.0, none_yet); }) ==
        "HERE: argument 1 was never given a value");
  CHECK(message_here<TypeError>([&] { eval_shape(both, none_yet, 1.0); }) ==
        "HERE: argument 0 was never given a value");
  CHECK(message_here<TypeError>([&] { find_nan_or_infinity(same, none_yet); }) ==
        "HERE: argument 0 was never given a value");
  CHECK(message_here<TypeError>([&] { jacfwd(same)(arange(2)); }) ==
        "HERE: jacfwd: the argument is i32[2]; only floats have derivatives");
  CHECK(message_here<TypeError>([&] { jacrev([](Array x) { return x > 0; })(ones({2})); }) ==
        "HERE: jacrev: the result is bool[2]; only floats have derivatives");
  CHECK(message_here<TypeError>([&] { hessian(same)(arange(2)); }) ==
        "HERE: jacfwd: the argument is i32[2]; only floats have derivatives");
  CHECK(message_here<ShapeError>([&] { sheaf::vjp(both, ones({2}), ones({3})); }) ==
        "HERE: add: shapes [2] and [3] cannot be broadcast together\n"
        "  lhs: f32[2]   (argument 0 of vjp, HERE)\n  rhs: f32[3]   (argument 1)");
}

TEST_CASE("reading a value needs one") {
  CHECK(message_here<ShapeError>([] { matrix().item<float>(); }) == "HERE: item: f32[2, 3] has 6 elements, not one");
  CHECK(message_here<ShapeError>([] {
          if (matrix() > 0) return;
        }) == "HERE: bool: bool[2, 3] has 6 elements, not one: use all() or any()");
  CHECK(message_here<TypeError>([] { abstract({2}).to_vector<float>(); }) ==
        "HERE: an array made by abstract() has no value: f32[2]");
  CHECK(message_here<ShapeError>([] { matrix().shape(2); }) == "HERE: shape: axis 2 is out of range for f32[2, 3]");
}
