// Every unary and binary op on integers and bools at the extremes of every dtype, by the reference and by kernels,
// against 128-bit arithmetic and the conventions of docs/numerics.md.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ir/op.h"
#include "tests/ir/one_op.h"
#include "tests/lap.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

__extension__ using Wide = __int128;  // holds every element, product and quotient

// What an op gives before it wraps into the result's dtype; `width` is the operands' bits.
struct Truth {
  const OpDef* op;
  Wide (*value)(Wide x, Wide y, int width);
};

Wide ones(int width) { return (Wide(1) << width) - 1; }
// The bits of x, read as unsigned: also how a shift's amount is read.
Wide bits(Wide x, int width) { return x & ones(width); }
bool is_too_far(Wide amount, int width) { return bits(amount, width) >= width; }

const Truth kUnary[] = {
    {&ops::neg, [](Wide x, Wide, int) { return -x; }},
    {&ops::abs, [](Wide x, Wide, int) { return x < 0 ? -x : x; }},
    {&ops::sign, [](Wide x, Wide, int) -> Wide { return x > 0   ? 1
                                                        : x < 0 ? -1
                                                                : 0; }},
    {&ops::not_, [](Wide x, Wide, int) { return ~x; }},
    {&ops::popcount,
     [](Wide x, Wide, int width) -> Wide { return std::popcount(static_cast<std::uint64_t>(bits(x, width))); }},
    {&ops::clz,
     [](Wide x, Wide, int width) -> Wide {
       return std::countl_zero(static_cast<std::uint64_t>(bits(x, width))) - (64 - width);
     }},
};

const Truth kBinary[] = {
    {&ops::add, [](Wide x, Wide y, int) { return x + y; }},
    {&ops::sub, [](Wide x, Wide y, int) { return x - y; }},
    {&ops::mul,
     [](Wide x, Wide y, int) -> Wide { return static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y); }},
    {&ops::div, [](Wide x, Wide y, int) { return y == 0 ? -1 : x / y; }},
    {&ops::rem, [](Wide x, Wide y, int) { return y == 0 ? x : x % y; }},
    {&ops::max, [](Wide x, Wide y, int) { return std::max(x, y); }},
    {&ops::min, [](Wide x, Wide y, int) { return std::min(x, y); }},
    {&ops::and_, [](Wide x, Wide y, int) { return x & y; }},
    {&ops::or_, [](Wide x, Wide y, int) { return x | y; }},
    {&ops::xor_, [](Wide x, Wide y, int) { return x ^ y; }},
    {&ops::shl,
     [](Wide x, Wide y, int width) { return is_too_far(y, width) ? 0 : bits(x, width) << static_cast<int>(y); }},
    {&ops::shr_arith,
     [](Wide x, Wide y, int width) {
       const Wide is_signed = bits(x, width) >> (width - 1), copies = is_signed ? ~ones(width) : 0;
       return (bits(x, width) | copies) >> (is_too_far(y, width) ? width - 1 : static_cast<int>(y));
     }},
    {&ops::shr_logical,
     [](Wide x, Wide y, int width) { return is_too_far(y, width) ? 0 : bits(x, width) >> static_cast<int>(y); }},
    {&ops::eq, [](Wide x, Wide y, int) -> Wide { return x == y; }},
    {&ops::ne, [](Wide x, Wide y, int) -> Wide { return x != y; }},
    {&ops::lt, [](Wide x, Wide y, int) -> Wide { return x < y; }},
    {&ops::le, [](Wide x, Wide y, int) -> Wide { return x <= y; }},
    {&ops::gt, [](Wide x, Wide y, int) -> Wide { return x > y; }},
    {&ops::ge, [](Wide x, Wide y, int) -> Wide { return x >= y; }},
};

int width_of(DType t) { return is_bool(t) ? 1 : 8 * size_bytes(t); }

Wide element(const Literal& x, std::int64_t i) {
  if (is_signed_int(x.dtype())) return x.get_int(i);
  return static_cast<Wide>(x.bits(i));
}

// The extremes, small numbers, and the widths that shifts turn at.
std::vector<std::int64_t> points(DType t) {
  if (is_bool(t)) return {0, 1};
  const int width = width_of(t);
  const auto highest = static_cast<std::int64_t>(ones(width - 1));
  std::vector<std::int64_t> p = {0, 1, 2, 3, 7, width - 1, width, width + 1, 100, highest - 1, highest};
  for (std::int64_t x :
       {-highest - 1, -highest, std::int64_t{-100}, std::int64_t{-7}, std::int64_t{-2}, std::int64_t{-1}})
    p.push_back(x);  // of an unsigned dtype: the upper half of its range
  return p;
}

Literal of(DType t, const std::vector<std::int64_t>& values) {
  Literal x(Type(t, {static_cast<std::int64_t>(values.size())}));
  for (std::size_t i = 0; i < values.size(); ++i) x.set_int(static_cast<std::int64_t>(i), values[i]);
  return x;
}

Literals grid(DType t) {
  std::vector<std::int64_t> x, y;
  for (std::int64_t a : points(t))
    for (std::int64_t b : points(t)) x.push_back(a), y.push_back(b);
  return {of(t, x), of(t, y)};
}

void check(const Truth& s, const Literals& in) {
  if (!contains(s.op->types, in[0].dtype())) return;
  const FunctionRef f = one_op(*s.op, in);
  const int width = width_of(in[0].dtype());
  for (const Literal& got : {eval(*f, in)[0], tests::run(f, in, runtime::Tier::interpreted)[0]}) {
    for (std::int64_t i = 0; i < got.size(); ++i) {
      const Wide x = element(in[0], i), y = in.size() > 1 ? element(in[1], i) : 0;
      const auto want = static_cast<std::uint64_t>(bits(s.value(x, y, width), width_of(got.dtype())));
      CHECK_MESSAGE(got.bits(i) == want,
                    fmt::format("{} {}({}, {}): {:x} for {:x}", s.op->name, name(in[0].dtype()),
                                static_cast<std::int64_t>(x), static_cast<std::int64_t>(y), got.bits(i), want));
    }
  }
}

constexpr DType kDtypes[] = {bool_, i8, i16, i32, i64, u8, u16, u32, u64};

}  // namespace

TEST_CASE("every unary op is right at the extremes of every integer dtype") {
  for (const Truth& s : kUnary)
    for (DType t : kDtypes) check(s, {of(t, points(t))});
}

TEST_CASE("every binary op is right at all pairs of extremes of every integer dtype") {
  for (const Truth& s : kBinary)
    for (DType t : kDtypes) check(s, grid(t));
}

TEST_CASE("no integer unary or binary op is without a row in this matrix") {
  for (Op op : all_ops()) {
    if (!op->is_elementwise || op->arity > 2 || !contains(op->types, i32) || op->attrs.make) continue;
    const auto names_it = [&](const Truth& s) { return s.op == op; };
    CHECK_MESSAGE((std::any_of(std::begin(kUnary), std::end(kUnary), names_it) ||
                   std::any_of(std::begin(kBinary), std::end(kBinary), names_it) || op == &ops::stop_gradient),
                  std::string(op->name));
  }
}
