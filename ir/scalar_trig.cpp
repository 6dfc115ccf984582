// sin, cos and tan for every argument. |x| = n pi/2 + r with r as an unevaluated sum of two floats, by Cody and Waite's
// method for moderate |x| and Payne and Hanek's for large ("Radian reduction for trigonometric functions", 1983); then
// polynomials on |r| <= pi/4. Invariant: the reduction is good to well past the last bit of r, however close x is to
// a multiple of pi/2, so that the error bounds hold over the whole range.
#include <limits>
#include <vector>

#include "ir/scalar_expr.h"

namespace sheaf::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct QuarterTurns {
  Expr n;  // signed integer of x's width; only its two low bits matter
  Expr r, tail;  // r + tail is the rest, |tail| at most half an ulp of r
};

// pi/2 as a sum of three floats.
struct HalfPi {
  double first, second, third;
};

HalfPi half_pi(Expr x) {
  if (is_f64(x)) return {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
  return {0x1.921fb6p+0, -0x1.777a5cp-25, -0x1.ee59dap-50};
}

// For 0 <= a < 2^17 (f32), 2^30 (f64): beyond, the three parts of pi/2 are too short.
QuarterTurns reduce_moderate(Expr a) {
  const auto [first, second, third] = half_pi(a);
  const double magic = is_f64(a) ? 0x1.8p52 : 0x1.8p23;  // rounds to an integer and leaves it in the low bits
  const Expr shifted = fma(a, 0.63661977236758134308, magic);
  const Expr n = shifted - magic;
  const Expr r = fma(n, -first, a);  // exact: a multiple of ulp(first) below 1
  const Expr product = n * second;
  const Expr product_tail = fma(n, second, -product);
  // r - product with its rounding error, by Knuth's TwoSum: near a multiple of pi/2 either may be the larger.
  const Expr sum = r - product;
  const Expr from_product = sum - r;
  const Expr sum_tail = (r - (sum - from_product)) - (product + from_product);
  const Expr tail = fma(n, -third, sum_tail - product_tail);
  return {to_int_bits(shifted), sum, tail};
}

// The words of 2/pi in binary, after one zero word that stands for the bits left of the point.
std::vector<Expr> two_over_pi(Expr word) {
  static constexpr std::uint64_t kWords[] = {
      0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
      0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41,
      0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7,
      0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08};
  std::vector<Expr> words;
  if (word.dtype() == DType::u64) {
    for (std::uint64_t bits : kWords) words.push_back(word.like_bits(bits));
  } else {
    words.push_back(word.like_bits(0));
    for (int i = 1; i <= 3; ++i) {
      words.push_back(word.like_bits(kWords[i] >> 32));
      words.push_back(word.like_bits(kWords[i] & 0xffffffff));
    }
  }
  return words;
}

// Words `index` .. `index + 3` of `words`, by halving: one select per word that can still matter.
std::vector<Expr> four_words_at(std::vector<Expr> words, Expr index, int index_bits) {
  for (int bit = index_bits - 1; bit >= 0; --bit) {
    const std::size_t step = std::size_t{1} << bit;
    const Expr is_later = (index & index.like(static_cast<double>(step))) != 0.0;
    std::vector<Expr> chosen;
    for (std::size_t i = 0; i < 3 + step; ++i) chosen.push_back(select(is_later, words[i + step], words[i]));
    words = chosen;
  }
  return words;
}

// For a at or above the limit of `reduce_moderate`, in integers: a = M 2^(k - w + 1) with M of exactly w bits (w the
// word width), and a 2/pi mod 4 needs only the 3 w bits of 2/pi from bit k - 1 of `two_over_pi` on; the bits before
// contribute multiples of 4, those after less than the last word kept.
QuarterTurns reduce_large(Expr a) {
  const bool is_wide = is_f64(a);
  const int width = is_wide ? 64 : 32, mantissa_bits = is_wide ? 52 : 23, bias = is_wide ? 1023 : 127;
  const DType word_type = is_wide ? DType::u64 : DType::u32;
  const Expr bits = bitcast(a, word_type);
  const Expr start = shr_logical(bits, mantissa_bits) - bits.like(bias + 1);
  const Expr mantissa = (bits << (width - 1 - mantissa_bits)) | (bits.like(1) << (width - 1));

  const int width_bits = is_wide ? 6 : 5;
  const std::vector<Expr> words = four_words_at(two_over_pi(bits), shr_logical(start, width_bits), is_wide ? 4 : 2);
  const Expr shift = start & start.like(width - 1);
  const Expr unshift = shift.like(width) - shift;
  const auto window = [&](int i) {
    return emit(ScalarOp::shl, words[i], shift) | emit(ScalarOp::shr_logical, words[i + 1], unshift);
  };
  // The upper two words of mantissa * window: quarter turns mod 4 with the point after the top two bits.
  const Expr low_product = mantissa * window(1);
  const Expr low = low_product + emit(ScalarOp::mul_hi, mantissa, window(2));
  const Expr carry = convert(low < low_product, word_type);
  const Expr high = mantissa * window(0) + emit(ScalarOp::mul_hi, mantissa, window(1)) + carry;

  const DType signed_type = is_wide ? DType::i64 : DType::i32;
  const Expr n = shr_logical(high + (high.like(1) << (width - 3)), width - 2);
  const Expr rest = high - (n << (width - 2));  // signed, within half a quarter turn
  // `rest` and the word below it in three pieces that convert exactly; the first is 0 close to a multiple of pi/2.
  const int spare = width - 1 - mantissa_bits, fine_bits = mantissa_bits + 1 - spare;
  const auto mask = [&](int count) { return rest.like_bits((std::uint64_t{1} << count) - 1); };
  const auto to_float = [&](Expr piece) { return convert(bitcast(piece, signed_type), a.dtype()); };
  const Expr coarse = to_float(rest & !mask(spare));
  const Expr fine = to_float(((rest & mask(spare)) << fine_bits) | shr_logical(low, width - fine_bits));
  const Expr finest = to_float(low & mask(width - fine_bits));
  const double fine_unit = is_wide ? 0x1p-42 : 0x1p-16, finest_unit = is_wide ? 0x1p-64 : 0x1p-32;
  const Expr turns = fma(fine, fine_unit, coarse);
  const Expr turns_tail = fma(finest, finest_unit, fma(fine, fine_unit, coarse - turns));

  const auto [first, second, third] = half_pi(a);
  const double unit = is_wide ? 0x1p-62 : 0x1p-30;  // of `turns`, in quarter turns
  const Expr high_part = turns * (first * unit);
  const Expr product_tail = fma(turns, first * unit, -high_part);
  const Expr low_part = fma(turns, second * unit, fma(turns_tail, first * unit, product_tail));
  const Expr r = high_part + low_part;
  return {bitcast(n, signed_type), r, (high_part - r) + low_part};
}

QuarterTurns reduce(Expr magnitude) {
  const QuarterTurns moderate = reduce_moderate(magnitude), large = reduce_large(magnitude);
  const Expr is_moderate = magnitude < (is_f64(magnitude) ? 0x1p30 : 0x1p17);
  return {select(is_moderate, moderate.n, large.n), select(is_moderate, moderate.r, large.r),
          select(is_moderate, moderate.tail, large.tail)};
}

// sin(r + tail) = r + r^3 S(r^2) + tail cos(r)
Expr sin_kernel(Expr r, Expr tail) {
  const Expr z = r * r;
  const Expr series = is_f64(r) ? polynomial(z, {1.5918621892074932e-10, -2.505114247075029e-08, 2.755731618214332e-06,
                                                 -0.00019841269837011374, 0.008333333333331269, -0.16666666666666666})
                                : polynomial(z, {2.9157718e-06, -0.00019860802, 0.008333396, -0.16666667});
  return r + fma(z * r, series, fma(z * -0.5, tail, tail));
}

// cos(r + tail) = 1 - r^2/2 + r^4 C(r^2) - tail r
Expr cos_kernel(Expr r, Expr tail) {
  const Expr z = r * r;
  const Expr series = is_f64(r) ? polynomial(z, {-1.1381174291382957e-11, 2.087612280490804e-09, -2.755731713487205e-07,
                                                 2.4801587298417704e-05, -0.0013888888888887038, 0.041666666666666664})
                                : polynomial(z, {2.4543024e-05, -0.0013888269, 0.041666664});
  const Expr half = 0.5 * z;
  const Expr one_minus_half = 1.0 - half;
  const Expr lost = (1.0 - one_minus_half) - half;
  return one_minus_half + (lost + fma(z * z, series, -(tail * r)));
}

Expr is_odd(Expr n) { return (n & n.like(1)) != 0.0; }

// `value` with its sign flipped where bit 1 of `n` is set.
Expr negate_in_second_half(Expr value, Expr n) {
  const int top = is_f64(value) ? 63 : 31;
  return from_int_bits(to_int_bits(value) ^ ((n & n.like(2)) << (top - 1)));
}

Expr sign_bit_of(Expr x) {
  const Expr bits = to_int_bits(x);
  return bits & (bits.like(1) << (is_f64(x) ? 63 : 31));
}

}  // namespace

Expr sin(Expr x) {
  const Expr magnitude = abs(x);
  const QuarterTurns turns = reduce(magnitude);
  const Expr value = select(is_odd(turns.n), cos_kernel(turns.r, turns.tail), sin_kernel(turns.r, turns.tail));
  const Expr shifted = negate_in_second_half(value, turns.n);
  const Expr signed_value = from_int_bits(to_int_bits(shifted) ^ sign_bit_of(x));
  return select(magnitude < kInf, signed_value, kNaN);
}

Expr cos(Expr x) {
  const Expr magnitude = abs(x);
  const QuarterTurns turns = reduce(magnitude);
  const Expr value = select(is_odd(turns.n), sin_kernel(turns.r, turns.tail), cos_kernel(turns.r, turns.tail));
  return select(magnitude < kInf, negate_in_second_half(value, turns.n + turns.n.like(1)), kNaN);
}

Expr tan(Expr x) {
  const Expr magnitude = abs(x);
  const QuarterTurns turns = reduce(magnitude);
  const Expr s = sin_kernel(turns.r, turns.tail), c = cos_kernel(turns.r, turns.tail);
  const Expr odd = is_odd(turns.n);
  const Expr value = select(odd, -c, s) / select(odd, s, c);
  const Expr signed_value = from_int_bits(to_int_bits(value) ^ sign_bit_of(x));
  return select(magnitude < kInf, signed_value, kNaN);
}

}  // namespace sheaf::ir
