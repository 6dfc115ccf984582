// Random programs of products and elementwise work around them: whatever of it is done to a product's sums, or taken
// into its kernel from before or behind it, the results have the bits of the equations one by one.
#include "ir/builder.h"
#include "ir/ops/attrs.h"
#include "tests/fuzz/one_by_one.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

class Generator : tests::Choices {
 public:
  using Choices::Choices;

  FunctionRef program(int size) {
    m_ = pick(1, 40), n_ = pick(1, 70), k_ = pick(1, 30);
    if (pick(0, 2) == 0) m_ = 64 * pick(4, 7), n_ = pick(2, 20), k_ = pick(1, 6);  // columns are added up on the way
    const DType t = pick(0, 3) ? f32 : bf16;
    x_ = b_.param(Type(t, {m_, k_}));
    w_ = b_.param(Type(t, {k_, n_}));
    bias_ = b_.param(Type(t, {n_}));
    square_ = b_.param(Type(t, {n_, n_}));
    values_ = {b_.param(Type(t, {m_, n_})), product(x_, w_)};
    for (int i = 0; i < size; ++i) values_.push_back(step());
    Values results{values_.back(), b_.emit(ops::reduce, {any()}, ops::Reduce{.dims = {pick(0, 1)}})};
    for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::max})
      results.push_back(
          b_.emit(ops::add, {b_.emit(ops::reduce, {any()}, ops::Reduce{.kind = kind, .dims = {0}}), bias_}));
    if (pick(0, 1)) results.push_back(any());
    return b_.finish(std::move(results));
  }

 private:
  Value any() { return one_of<Value>(values_); }
  Value product(Value a, Value b) { return b_.emit(ops::dot, {a, b}, ops::Dot{.lhs = {1}, .rhs = {0}}); }

  // All but the operands of products are [m, n].
  Value step() {
    switch (pick(0, 6)) {
      case 0: return product(x_, w_);
      case 1: return product(any(), square_);
      case 2: {
        const ops::Broadcast over_rows{.shape = {m_, n_}, .dims = {1}};
        return b_.emit(ops::add, {any(), b_.emit(ops::broadcast, {bias_}, over_rows)});
      }
      case 3: return b_.emit(ops::tanh, {any()});
      case 4: {
        const Value v = any();
        return b_.emit(ops::select, {b_.emit(ops::lt, {v, any()}), v, any()});
      }
      default: {
        const OpDef* binary[] = {&ops::add, &ops::sub, &ops::mul, &ops::max};
        return b_.emit(*binary[pick(0, 3)], {any(), any()});
      }
    }
  }

  Builder b_{"fuzz"};
  std::int64_t m_ = 0, n_ = 0, k_ = 0;
  Value x_, w_, bias_, square_;
  Values values_;
};

}  // namespace

TEST_CASE("a program of products compiled whole gives the bits of its equations one by one") {
  tests::check_programs<Generator>(1, 25, 9);
}

TEST_CASE("five hundred programs of products give the bits of their equations" * doctest::test_suite("soak")) {
  tests::check_programs<Generator>(1000, 500, 20);
}
