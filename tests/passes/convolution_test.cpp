// What becomes of convolutions where an expansion could part from the definition: padding beside infinities, and steps
// so large that sizes cannot be counted, which are refused.
#include <doctest/doctest.h>

#include "ir/sample.h"
#include "passes/pipeline.h"
#include "tests/ir/one_op.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

constexpr std::int64_t kStep = std::int64_t{1} << 32, kLargest = std::numeric_limits<std::int64_t>::max();

// Of every dim with every dim of a kernel.
ops::Conv over(ops::Conv attrs, std::vector<std::int64_t> dims) {
  attrs.lhs_spatial = attrs.rhs_spatial = attrs.out_spatial = std::move(dims);
  return attrs;
}

// By the definition and by the equations it expands to.
void check_both(const std::vector<double>& x, const std::vector<double>& kernel, ops::Conv attrs,
                const std::vector<double>& want) {
  const Literals in{vec(f32, x), vec(f32, kernel)};
  const FunctionRef f = one_op(ops::conv, in, with(over(std::move(attrs), {0})));
  check_values(eval(*f, in)[0], want);
  check_values(eval(*passes::expand_ops(f), in)[0], want);
}

std::string refused(const Shape& x, const Shape& kernel, ops::Conv attrs) {
  std::vector<std::int64_t> dims;
  for (std::size_t d = 0; d < x.size(); ++d) dims.push_back(static_cast<std::int64_t>(d));
  return refusal(ops::conv, {Type(f32, x), Type(f32, kernel)}, with(over(std::move(attrs), dims)));
}

}  // namespace

TEST_CASE("zeros of the padding take part in a convolution, also beside an infinite element of the kernel") {
  const std::vector<double> x{1, 2, 3, 4, 5};
  check_both(x, {kInf, 1, 1}, {.low = {1}, .high = {1}}, {kNan, kInf, kInf, kInf, kInf});
  check_both(x, {1, 1, kInf}, {.low = {1}, .high = {1}}, {kInf, kInf, kInf, kInf, kNan});
  check_both(x, {1, kNan}, {.low = {1}, .high = {-4}}, {kNan});
  check_both({}, {1, kInf}, {.low = {1}, .high = {1}}, {kNan});
  check_both(x, {kInf, 1}, {.low = {-1}, .high = {-1}}, {kInf, kInf});
}

TEST_CASE(
    "zeros between the elements of a convolution's operand take no part, nor do those that go on in the padding") {
  check_both({1, 2}, {kInf, 1}, {.low = {1}, .high = {1}, .lhs_dilation = {2}}, {1, kInf, 2, kInf});
  check_both({1, 2}, {kInf, 1}, {.low = {2}, .lhs_dilation = {2}}, {kNan, 1, kInf, 2});
}

TEST_CASE("a convolution or pool whose padded operand is no array is refused") {
  CHECK(refused({2, 2}, {1, 1}, {.strides = {kStep, kStep - 1}, .lhs_dilation = {kStep, kStep}}) ==
        "f32[2, 2] padded to [4294967297, 4294967297] has too many elements");
  CHECK(refused({2}, {1}, {.strides = {kStep}, .lhs_dilation = {kStep}}) == "accepted as f32[2]");
  CHECK(
      refused({3}, {1}, {.lhs_dilation = {kLargest}}) ==
      "padding (low 0, high 0) and dilations (9223372036854775807, 1) of dim 0 give an extent that no array can have");
  CHECK(
      refused({3}, {3}, {.rhs_dilation = {kLargest}}) ==
      "padding (low 0, high 0) and dilations (1, 9223372036854775807) of dim 0 give an extent that no array can have");
  CHECK(refused({3}, {1}, {.low = {kLargest}, .high = {kLargest}}) ==
        "padding (low 9223372036854775807, high 9223372036854775807) and dilations (1, 1) of dim 0 give an extent that "
        "no array can have");
  CHECK(
      refused({3}, {1}, {.low = {-kLargest}, .high = {-kLargest}}) ==
      "padding (low -9223372036854775807, high -9223372036854775807) and dilations (1, 1) of dim 0 give an extent that "
      "no array can have");
  CHECK(refused({1}, {1}, {.strides = {kLargest}, .lhs_dilation = {kLargest}, .rhs_dilation = {kLargest}}) ==
        "accepted as f32[1]");
  const ops::ReduceWindow pool{.kind = ReduceKind::sum,
                               .window = {1, 1},
                               .strides = {kStep, kStep},
                               .low = {0, 0},
                               .high = {0, 0},
                               .base_dilation = {kStep, kStep},
                               .window_dilation = {1, 1}};
  CHECK(refusal(ops::reduce_window, {Type(f32, {2, 2})}, with(pool)) ==
        "f32[2, 2] padded to [4294967297, 4294967297] has too many elements");
}

TEST_CASE("a convolution of so many phases that their number cannot be counted is one product") {
  const ops::Conv attrs = over({.strides = {kStep - 1, kStep - 1}, .lhs_dilation = {kStep, kStep}}, {0, 1});
  const FunctionRef f = one_op(ops::conv, {Literal(f32, {1, 2}, {1, 2}), Literal(f32, {1, 1}, {1})}, with(attrs));
  const FunctionRef expanded = passes::expand_ops(f);
  const auto& eqns = expanded->eqns();
  CHECK(std::count_if(eqns.begin(), eqns.end(), [](const Eqn* e) { return e->op == &ops::dot; }) == 1);
  CHECK(std::count_if(eqns.begin(), eqns.end(), [](const Eqn* e) { return e->op == &ops::conv; }) == 0);
}
