// What reduce, argmax and dot compute on the values that are easy to get wrong: nothing, one element, NaN, ties, zeros,
// overflow; and what they say to bad shapes.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/ir/on_numbers.h"

namespace sheaf::ir {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
Numbers gradient(const Literal& x, ops::Reduce attrs) { return gradients(ops::reduce, {x}, std::move(attrs))[0]; }

ops::Reduce over(ReduceKind kind, std::vector<std::int64_t> dims) { return {.kind = kind, .dims = std::move(dims)}; }

TEST_CASE("reductions over nothing give the identity, but extremes refuse and name the dim") {
  const Literal nothing(f32, {2, 0}, {});
  CHECK(run(ops::reduce, {nothing}, over(ReduceKind::sum, {1})) == Numbers{0, 0});
  CHECK(run(ops::reduce, {nothing}, over(ReduceKind::prod, {1})) == Numbers{1, 1});
  CHECK(run(ops::reduce, {nothing}, over(ReduceKind::sum, {0})).empty());
  const Literal none(bool_, {0}, {});
  CHECK(run(ops::reduce, {none}, over(ReduceKind::and_, {0})) == Numbers{1});
  CHECK(run(ops::reduce, {none}, over(ReduceKind::or_, {0})) == Numbers{0});
  CHECK(error(ops::reduce, {Type(f32, {2, 0})}, over(ReduceKind::max, {1})) ==
        "dim 1 of f32[2, 0] is empty and has no max");
  CHECK(error(ops::argmin, {Type(f32, {0})}, ops::ArgReduce{.dim = {0}}) ==
        "dim 0 of f32[0] is empty and has no argmin");
}

TEST_CASE("NaN wins max and min, and integers wrap in sum and prod") {
  const Literal x(f32, {2, 3}, {1, kNaN, 3, 4, 5, 6});
  CHECK(std::isnan(run(ops::reduce, {x}, over(ReduceKind::max, {1}))[0]));
  CHECK(std::isnan(run(ops::reduce, {x}, over(ReduceKind::min, {1}))[0]));
  CHECK(run(ops::reduce, {x}, over(ReduceKind::max, {1}))[1] == 6);
  CHECK(run(ops::reduce, {Literal(i8, {3}, {100, 100, 100})}, over(ReduceKind::sum, {0})) == Numbers{44});
  CHECK(run(ops::reduce, {Literal(u8, {2}, {16, 17})}, over(ReduceKind::prod, {0})) == Numbers{16});
  CHECK(run(ops::reduce, {Literal(u8, {2}, {200, 100})}, over(ReduceKind::max, {0})) == Numbers{200});
}

TEST_CASE("half-type sums round once") {
  Literal ones(bf16, {1000}, Numbers(1000, 1.0));
  CHECK(run(ops::reduce, {ones}, over(ReduceKind::sum, {0})) == Numbers{1000});  // a running bf16 sum stops at 256
}

TEST_CASE("argmax and argmin: NaN wins, the lowest of equals, along any dim") {
  const Literal x(f32, {2, 4}, {1, 7, 7, 0, 2, kNaN, 9, kNaN});
  CHECK(run(ops::argmax, {x}, ops::ArgReduce{.dim = {1}}) == Numbers{1, 1});
  CHECK(run(ops::argmin, {x}, ops::ArgReduce{.dim = {1}}) == Numbers{3, 1});
  CHECK(run(ops::argmax, {x}, ops::ArgReduce{.dim = {0}}) == Numbers{1, 1, 1, 1});
  CHECK(run(ops::argmax, {Literal(i64, {3}, {-5, -2, -2})}, ops::ArgReduce{.dim = {0}, .dtype = u8}) == Numbers{1});
  CHECK(run(ops::argmax, {Literal(f32, {2}, {-0.0, 0.0})}, ops::ArgReduce{.dim = {0}}) == Numbers{0});
  CHECK(error(ops::argmax, {Type(f32, {300})}, ops::ArgReduce{.dim = {0}, .dtype = i8}) ==
        "i8 does not hold position 299 of dim 0");
}

TEST_CASE("the gradient of prod is the product of the others, zeros included") {
  const ops::Reduce prod = over(ReduceKind::prod, {0});
  CHECK(gradient(Literal(f32, {3}, {0, 2, 3}), prod) == Numbers{6, 0, 0});
  CHECK(gradient(Literal(f32, {3}, {0, 0, 3}), prod) == Numbers{0, 0, 0});
  CHECK(gradient(Literal(f32, {5}, {1, 2, 3, 4, 5}), prod) == Numbers{120, 60, 40, 30, 24});
  CHECK(gradient(Literal(f32, {1}, {7}), prod) == Numbers{1});
  CHECK(gradient(Literal(f32, {0}, {}), prod).empty());
  CHECK(gradient(Literal(f32, {2, 2}, {1, 2, 3, 0}), over(ReduceKind::prod, {1, 0})) == Numbers{0, 0, 0, 6});
}

TEST_CASE("tied extremes share the gradient") {
  CHECK(gradient(Literal(f32, {4}, {1, 5, 5, 2}), over(ReduceKind::max, {0})) == Numbers{0, .5, .5, 0});
  CHECK(gradient(Literal(bf16, {2, 2}, {1, 5, 1, 2}), over(ReduceKind::min, {0, 1})) == Numbers{.5, 0, .5, 0});
}

TEST_CASE("dot: nothing to contract is 0, free and batch dims come out in order") {
  const ops::Dot matmul{.lhs = {1}, .rhs = {0}};
  CHECK(run(ops::dot, {Literal(f32, {2, 0}, {}), Literal(f32, {0, 2}, {})}, matmul) == Numbers{0, 0, 0, 0});
  const Literal a(f32, {2, 2}, {1, 2, 3, 4}), b(f32, {2, 2}, {5, 6, 7, 8});
  CHECK(run(ops::dot, {a, b}, matmul) == Numbers{19, 22, 43, 50});
  CHECK(run(ops::dot, {a, b}, ops::Dot{.lhs = {0}, .rhs = {1}}) == Numbers{23, 31, 34, 46});
  CHECK(run(ops::dot, {a, b}, ops::Dot{.lhs = {1}, .rhs = {1}, .lhs_batch = {0}, .rhs_batch = {0}}) == Numbers{17, 53});
  CHECK(run(ops::dot, {a, b}, ops::Dot{.lhs = {0, 1}, .rhs = {1, 0}}) == Numbers{1 * 5 + 2 * 7 + 3 * 6 + 4 * 8});
  CHECK(run(ops::dot, {Literal(i8, {2}, {100, 100}), Literal(i8, {2}, {2, 2})}, ops::Dot{.lhs = {0}, .rhs = {0}}) ==
        Numbers{-112});
  CHECK(run(ops::dot, {Literal(i8, {2}, {100, 100}), Literal(i8, {2}, {2, 2})},
            ops::Dot{.lhs = {0}, .rhs = {0}, .dtype = i32}) == Numbers{400});
}

TEST_CASE("dot's errors name both sides") {
  const Type lhs(f32, {64, 784}), rhs(f32, {512, 10});
  CHECK(error(ops::dot, {lhs, rhs}, ops::Dot{.lhs = {1}, .rhs = {0}}) ==
        "lhs dim 1 (784) and rhs dim 0 (512) must match");
  CHECK(error(ops::dot, {lhs, rhs}, ops::Dot{.lhs = {1}, .rhs = {}}) ==
        "contracted dims lhs=[1] and rhs=[] must pair up");
  CHECK(error(ops::dot, {lhs, rhs}, ops::Dot{.lhs = {2}, .rhs = {0}}) ==
        "lhs dims [2] must lie in [0, 2), 2 is outside");
  CHECK(error(ops::dot, {lhs, lhs}, ops::Dot{.lhs = {0, 0}, .rhs = {0, 1}}) == "lhs dims [0, 0] must not repeat 0");
  CHECK(error(ops::dot, {lhs, Type(bf16, {784, 3})}, ops::Dot{.lhs = {1}, .rhs = {0}}) ==
        "lhs (f32[64, 784]) and rhs (bf16[784, 3]) must have the same dtype");
  CHECK(error(ops::dot, {lhs, Type(f32, {784, 3})}, ops::Dot{.lhs = {1}, .rhs = {0}, .dtype = bf16}) ==
        "dtype bf16 must be f32 or a wider one of its kind");
}

TEST_CASE("the gradient of a matrix product is two dots and no transpose") {
  const FunctionRef f = function_of(ops::dot, {Type(f32, {2, 3}), Type(f32, {3, 4})}, ops::Dot{.lhs = {1}, .rhs = {0}});
  const passes::Vjp v = passes::vjp(f, {true, true});
  for (const Eqn* e : v.backward->eqns()) CHECK(e->op == &ops::dot);
}

}  // namespace
}  // namespace sheaf::ir
