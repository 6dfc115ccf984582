// Derivatives and batching through regions, on programs in IR text: reverse mode against finite differences and against
// forward mode, batching against a loop, and what of a program is kept, hoisted, dropped or computed twice.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "ir/callbacks.h"
#include "ir/eval.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/loops.h"
#include "passes/pass.h"
#include "passes/transforms.h"
#include "sheaf/error.h"
#include "tests/lap.h"
#include "tests/passes/programs.h"

using namespace sheaf;
using namespace sheaf::ir;
using namespace sheaf::passes;
using sheaf::tests::check_derivatives;
using sheaf::tests::check_vmap;
using sheaf::tests::field64;
using sheaf::tests::parse_function;
using sheaf::tests::value_of;
using sheaf::tests::vec64;

namespace {

constexpr const char* kScan = R"(
func @f(%w: f64[3], %k: f64[3], %x: f64[4, 3]) -> f64[] {
  %c: f64[3], %y: f64[4, 3] = scan %w, %k, %x {consts=1, carry=1, length=4} (%w1: f64[3], %k1: f64[3], %x1: f64[3]) {
    %s: f64[3] = sin %w1
    %a: f64[3] = mul %s, %k1
    %b: f64[3] = add %a, %x1
    %t: f64[3] = tanh %b
    %o: f64[3] = mul %t, %x1
    return %t, %o
  }
  %p: f64[3] = reduce %y {kind=sum, dims=[0]}
  %q: f64[3] = add %p, %c
  %r: f64[] = reduce %q {kind=sum, dims=[0]}
  return %r
}
)";

constexpr const char* kCond = R"(
func @f(%i: i32[], %x: f64[3], %y: f64[3]) -> f64[] {
  %z: f64[3] = cond %i, %x, %y (%a: f64[3], %b: f64[3]) {
    %s: f64[3] = sin %a
    %m: f64[3] = mul %s, %b
    return %m
  } (%a: f64[3], %b: f64[3]) {
    %e: f64[3] = exp %b
    return %e
  } (%a: f64[3], %b: f64[3]) {
    return %a
  }
  %r: f64[] = reduce %z {kind=sum, dims=[0]}
  return %r
}
)";

constexpr const char* kBoundedWhile = R"(
func @f(%n: i32[], %w: f64[3], %k: f64[3]) -> f64[] {
  %i: i32[], %c: f64[3] = while %n, %w, 0:i32, %k {cond_consts=1, body_consts=1, max_trips=6}
      (%n1: i32[], %i1: i32[], %k1: f64[3]) {
    %l: bool[] = lt %i1, %n1
    return %l
  } (%w1: f64[3], %i1: i32[], %k1: f64[3]) {
    %j: i32[] = add %i1, 1:i32
    %a: f64[3] = mul %w1, %k1
    %b: f64[3] = sin %a
    return %j, %b
  }
  %r: f64[] = reduce %c {kind=sum, dims=[0]}
  return %r
}
)";

}  // namespace

TEST_CASE("a scan differentiates to third order, forward and reverse") {
  check_derivatives(parse_function(kScan), {vec64({0.3, -0.7, 1.1}), vec64({0.2, 0.5, -0.4}), field64({4, 3})},
                    {0, 1, 2}, 3);
}

TEST_CASE("a cond differentiates to third order on every branch, and clamps its index") {
  for (double index : {-1, 0, 1, 2, 5})
    check_derivatives(parse_function(kCond),
                      {Literal::scalar(i32, index), vec64({0.3, -0.7, 1.1}), vec64({0.2, 0.5, -0.4})}, {1, 2}, 3);
}

TEST_CASE("a bounded while differentiates backwards, stops at its bound, and may run no step") {
  for (double trips : {0, 1, 4, 6, 9})
    check_derivatives(parse_function(kBoundedWhile),
                      {Literal::scalar(i32, trips), vec64({0.3, -0.7, 1.1}), vec64({0.2, 0.5, -0.4})}, {1, 2}, 2);
}

TEST_CASE("scan, cond and while under vmap equal a loop, whichever operands are mapped") {
  check_vmap(parse_function(kScan), {vec64({0.3, -0.7, 1.1}), vec64({0.2, 0.5, -0.4}), field64({4, 3})});
  check_vmap(parse_function(kCond), {Literal::scalar(i32, 1), vec64({0.3, -0.7, 1.1}), vec64({0.2, 0.5, -0.4})});
  check_vmap(parse_function(kBoundedWhile),
             {Literal::scalar(i32, 3), vec64({0.3, -0.7, 1.1}), vec64({0.2, 0.5, -0.4})});
}

TEST_CASE("loops and branches run as planned give the interpreter's bits, and so do their gradients") {
  const auto check = [](const FunctionRef& f, const Literals& in) {
    const FunctionRef gradient = value_and_grad(f, [&] {
      Mask m;
      for (Value p : f->params()) m.push_back(is_differentiable(p.dtype()));
      return m;
    }());
    for (const FunctionRef& g : {f, gradient})
      for (const runtime::Tier tier : {runtime::Tier::interpreted, runtime::Tier::compiled}) {
        const Literals got = tests::run(g, in, tier), want = sheaf::tests::value_of(g, in);
        for (std::size_t j = 0; j < want.size(); ++j)
          for (std::int64_t i = 0; i < want[j].size(); ++i)
            CHECK(got[j].get(i) == doctest::Approx(want[j].get(i)).epsilon(1e-12));
      }
  };
  check(parse_function(kScan), {vec64({0.3, -0.7, 1.1}), vec64({0.2, 0.5, -0.4}), field64({4, 3})});
  for (double index : {-1, 0, 1, 2})
    check(parse_function(kCond), {Literal::scalar(i32, index), vec64({0.3, -0.7, 1.1}), vec64({0.2, 0.5, -0.4})});
  for (double trips : {0, 1, 4, 6, 9})
    check(parse_function(kBoundedWhile),
          {Literal::scalar(i32, trips), vec64({0.3, -0.7, 1.1}), vec64({0.2, 0.5, -0.4})});
}

namespace {

int count_ops(const Function& f, const OpDef& op) {
  int n = 0;
  for (const Eqn* e : f.eqns()) {
    n += e->op == &op;
    for (const FunctionRef& r : e->regions) n += count_ops(*r, op);
  }
  return n;
}

void check_same_bits(const FunctionRef& a, const FunctionRef& b, const Literals& in) {
  CHECK(verify(*b).ok());
  const Literals want = ir::eval(*a, in), got = ir::eval(*b, in);
  for (std::size_t j = 0; j < want.size(); ++j) CHECK(tests::same_bits(want[j], got[j]));
}

}  // namespace

TEST_CASE("work on consts leaves its loop, and a carry passed on becomes a const") {
  const Literals in = {vec64({0.3, -0.7, 1.1}), vec64({0.2, 0.5, -0.4}), field64({4, 3})};
  const FunctionRef f = parse_function(kScan), better = loops(f);
  check_same_bits(f, better, in);
  for (const Eqn* e : better->eqns())
    if (e->op == &ops::scan) CHECK(count_ops(*e->regions[0], ops::sin) == 0);
  CHECK(count_ops(*better, ops::sin) == 1);

  const FunctionRef passes_on = parse_function(R"(
func @f(%a: f64[3], %b: f64[3]) -> f64[3], f64[3] {
  %c: f64[3], %d: f64[3] = scan %a, %b {carry=2, length=5} (%a1: f64[3], %b1: f64[3]) {
    %e: f64[3] = mul %a1, %b1
    return %a1, %e
  }
  return %c, %d
}
)");
  const FunctionRef shorter = loops(passes_on);
  check_same_bits(passes_on, shorter, {in[0], in[1]});
  for (const Eqn* e : shorter->eqns())
    if (e->op == &ops::scan) CHECK(e->attrs<ops::Scan>().carry == 1);
}

TEST_CASE("an unrolled scan gives the same bits, forwards and backwards, whatever is left over") {
  for (bool reverse : {false, true})
    for (int length : {0, 1, 2, 5, 6})
      for (int by : {1, 2, 3, 7}) {
        INFO("reverse ", reverse, ", length ", length, ", unroll ", by);
        const FunctionRef f = parse_function(fmt::format(R"(
func @f(%w: f64[2], %k: f64[2], %x: f64[{0}, 2]) -> f64[2], f64[{0}, 2] {{
  %c: f64[2], %y: f64[{0}, 2] = scan %w, %k, %x {{consts=1, carry=1, length={0}, reverse={1}, unroll={2}}}
      (%w1: f64[2], %k1: f64[2], %x1: f64[2]) {{
    %a: f64[2] = mul %w1, %k1
    %b: f64[2] = add %a, %x1
    %o: f64[2] = sin %b
    return %b, %o
  }}
  return %c, %y
}}
)",
                                                         length, reverse, by));
        const Literals in = {vec64({0.3, -0.7}), vec64({0.2, 0.5}), field64({length, 2})};
        check_same_bits(f, loops(f), in);
        const Literals compiled = tests::run(f, in, runtime::Tier::interpreted), want = ir::eval(*f, in);
        for (std::size_t j = 0; j < want.size(); ++j)
          for (std::int64_t i = 0; i < want[j].size(); ++i)
            CHECK(compiled[j].get(i) == doctest::Approx(want[j].get(i)).epsilon(1e-14));
      }
}

TEST_CASE("a cond on a constant is its branch") {
  const FunctionRef f = parse_function(R"(
func @f(%x: f64[3]) -> f64[3] {
  %y: f64[3] = cond 7:i32, %x (%a: f64[3]) {
    %s: f64[3] = sin %a
    return %s
  } (%a: f64[3]) {
    %e: f64[3] = exp %a
    return %e
  }
  return %y
}
)");
  const FunctionRef better = loops(f);
  check_same_bits(f, better, {vec64({0.3, -0.7, 1.1})});
  CHECK(count_ops(*better, ops::cond) == 0);
  CHECK(count_ops(*better, ops::sin) == 0);
}

TEST_CASE("a callback runs once per step of a scan, in order, and once per example under vmap") {
  std::vector<double> seen;
  const int slot = add_callback([&](std::span<const Literal> in, std::span<Literal>) {
    seen.push_back(in[0].get(0));
    return absl::OkStatus();
  });
  const FunctionRef f = parse_function(fmt::format(R"(
func @f(%k: f64[], %x: f64[3]) -> f64[] {{
  %c: f64[] = scan %k, %x {{carry=1, length=3}} (%k1: f64[], %x1: f64[]) {{
    %a: f64[] = add %k1, %x1
    %t: token[] = callback %a {{name="print", slot={}}}
    return %a
  }}
  return %c
}}
)",
                                                   slot));
  const Literals in = {Literal::scalar(f64, 1), vec64({10, 20, 30})};
  tests::run(f, in, runtime::Tier::compiled);
  CHECK(seen == std::vector<double>{11, 31, 61});
  seen.clear();
  value_of(value_and_grad(f, {true, true}), in);
  CHECK(seen == std::vector<double>{11, 31, 61});
  seen.clear();
  tests::run(vmap(f, {0, -1}, {0}, 2), {vec64({1, 2}), in[1]}, runtime::Tier::compiled);
  CHECK(seen == std::vector<double>{11, 12, 31, 32, 61, 62});
}
