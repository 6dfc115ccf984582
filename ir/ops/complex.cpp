// Complex numbers: making and taking them apart, and the real equations that arithmetic on them stands for. Each rule
// is the textbook formula; where it divides or takes a root or logarithm, it leaves the range only where its result
// does, and infinities, zeros and branch cuts are those of C's Annex G. Products, and powers, give NaN beside an
// infinity.
#include "ir/ops/complex.h"

#include <limits>

#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Value call1(const OpDef& op, Value x) { return x.builder().emit(op, {x}); }
Value call2(const OpDef& op, Value x, Value y) { return x.builder().emit(op, {x, y}); }
Value equals(Value x, double v) { return call2(eq, x, number(x, v)); }
Value less(Value x, double v) { return call2(lt, x, number(x, v)); }
Value choose(Value mask, double x, Value y) { return where(mask, number(y, x), y); }

Value is_negative(Value x) {  // -0 is
  const DType bits = x.dtype() == DType::f64 ? DType::i64 : DType::i32;
  return less(x.builder().emit(bitcast, {x}, Bitcast{.to = bits}), 0);
}
/// |x| with y's sign.
Value with_sign(Value x, Value y) { return where(is_negative(y), -call1(abs, x), call1(abs, x)); }

// A number by its larger and smaller magnitude, with the quotient of the two.
struct Magnitudes {
  Value large, small, ratio, is_infinite;
  explicit Magnitudes(const Parts& z) {
    const Value x = call1(abs, z.re), y = call1(abs, z.im);
    large = call2(max, x, y);
    small = call2(min, x, y);
    is_infinite = call2(or_, equals(x, kInfinity), equals(y, kInfinity));
    ratio = small / choose(equals(large, 0), 1, large);
  }
};

Value length(const Parts& z) {
  const Magnitudes m(z);
  return choose(m.is_infinite, kInfinity, m.large * call1(sqrt, 1.0 + m.ratio * m.ratio));
}

Parts product(const Parts& z, const Parts& w) { return {z.re * w.re - z.im * w.im, z.re * w.im + z.im * w.re}; }

// e^x (cos y + i sin y); a real argument has a real result, also where e^x is infinite.
Parts exponential(const Parts& z) {
  const Value size = call1(exp, z.re), is_real = equals(z.im, 0), vanishes = equals(z.re, -kInfinity);
  return {choose(vanishes, 0, size * call1(cos, z.im)),
          where(is_real, z.im, choose(vanishes, 0, size * call1(sin, z.im)))};
}

// log |z| + i arg z. Near the unit circle it is log1p of |z|^2 - 1, which is small beside the roundings of |z|: next to
// 1, -1, i and -i all of its digits are kept, elsewhere the real part is off by a rounding of 1, not of itself.
Parts logarithm(const Parts& z) {
  const Magnitudes m(z);
  const Value is_near = call2(and_, greater(m.large, number(m.large, 0.5)), less(m.large, 2));
  const Value excess = (m.large - 1.0) * (m.large + 1.0) + m.small * m.small;
  const Value squared = where(is_near, excess, m.ratio * m.ratio);
  const Value rest = choose(is_near, 0, call1(log, m.large));
  return {choose(m.is_infinite, kInfinity, rest + 0.5 * call1(log1p, squared)), call2(atan2, z.im, z.re)};
}

// A number at an end of the range, moved inside by a power of two: `down` where it is big, `up` where it is tiny.
struct Ends {
  Value is_big, is_tiny;
  explicit Ends(const Parts& z) {
    const bool is_f64 = z.re.dtype() == DType::f64;
    const Value large = call2(max, call1(abs, z.re), call1(abs, z.im));
    is_big = greater(large, number(large, is_f64 ? 0x1p1000 : 0x1p120));
    is_tiny = less(large, is_f64 ? 0x1p-900 : 0x1p-100);
  }
  Value scale(Value like, double down, double up) const {
    return choose(is_big, down, choose(is_tiny, up, number(like, 1)));
  }
};

// The root with a real part of at least 0: sqrt((|z| + |x|) / 2) is its larger part, |y| divided by twice that the
// smaller one, and the imaginary part has y's sign, so that the cut is continuous with the sign of zero. Numbers at the
// ends of the range are scaled by an even power of two.
Parts square_root(const Parts& z) {
  const Ends ends(z);
  const Value scale = ends.scale(z.re, 0x1p-4, 0x1p64), back = ends.scale(z.re, 0x1p2, 0x1p-32);
  const Value x = z.re * scale, y = z.im * scale;
  const Value major = call1(sqrt, 0.5 * (call1(abs, x) + length({x, y})));
  const Value minor = call1(abs, y) / choose(equals(major, 0), 1, major + major);
  const Value is_left = less(x, 0), is_infinite = equals(call1(abs, z.im), kInfinity);
  return {choose(is_infinite, kInfinity, where(is_left, minor, major) * back),
          where(is_infinite, z.im, with_sign(where(is_left, major, minor) * back, z.im))};
}

// By the conjugate of the divisor, both scaled by its larger part, the dividend also away from the ends of the range.
// An infinite divisor keeps only the direction it has, so that what is finite becomes 0; by zero, C's infinities with
// the signs of the dividend.
Parts quotient(const Parts& z, const Parts& w) {
  const Magnitudes m(w);
  const auto direction = [&](Value part) {
    const Value unit = with_sign(choose(equals(call1(abs, part), kInfinity), 1, number(part, 0)), part);
    return where(m.is_infinite, unit, part / choose(equals(m.large, 0), 1, m.large));
  };
  const Value c = direction(w.re), d = direction(w.im);
  const Value squared = c * c + d * d, is_zero = equals(m.large, 0);
  const Value size = choose(m.is_infinite, kInfinity, choose(is_zero, 1, m.large));
  const Value infinity = with_sign(number(w.re, kInfinity), w.re);
  const Ends ends(z);
  const Value scale = ends.scale(z.re, 0x1p-4, 0x1p64), back = ends.scale(z.re, 0x1p4, 0x1p-64);
  const Value x = z.re * scale, y = z.im * scale;
  return {where(is_zero, z.re * infinity, (x * c + y * d) / squared / size * back),
          where(is_zero, z.im * infinity, (y * c - x * d) / squared / size * back)};
}

Parts power(const Parts& z, const Parts& w) {
  const Parts p = exponential(product(w, logarithm(z)));
  const auto is_zero = [](const Parts& v) { return call2(and_, equals(v.re, 0), equals(v.im, 0)); };
  const Value is_one = is_zero(w);  // z^0, also of 0
  const Value vanishes = call2(and_, is_zero(z), greater(w.re, number(w.re, 0)));
  return {choose(is_one, 1, choose(vanishes, 0, p.re)), choose(call2(or_, is_one, vanishes), 0, p.im)};
}

absl::StatusOr<std::vector<DType>> complex_dtypes(const Eqn& e) {
  const DType re = e.in(0).dtype(), im = e.in(1).dtype();
  if (re != im || size_bytes(re) < 4)
    return absl::InvalidArgumentError(fmt::format("the real ({}) and imaginary ({}) parts must both be f32 or f64",
                                                  to_string(e.in(0).type()), to_string(e.in(1).type())));
  return std::vector<DType>{complex_dtype(re)};
}

absl::StatusOr<std::vector<DType>> part_dtypes(const Eqn& e) {
  if (!is_complex(e.in(0).dtype()))
    return absl::InvalidArgumentError(fmt::format("takes complex numbers, not {}", to_string(e.in(0).type())));
  return std::vector<DType>{part_dtype(e.in(0).dtype())};
}

}  // namespace

PartsList each_part(Builder& b, const Eqn& e, PartsSpan x) {
  Values re, im;
  for (const Parts& v : x) {
    re.push_back(v.re);
    im.push_back(v.im ? v.im : v.re);
  }
  const Values real_parts = b.emit_all(e.op, std::move(re), e.attributes);
  const Values imaginary_parts = b.emit_all(e.op, std::move(im), e.attributes);
  PartsList parts;
  for (std::size_t j = 0; j < real_parts.size(); ++j) parts.push_back({real_parts[j], imaginary_parts[j]});
  return parts;
}

PartsList product_of_parts(Builder& b, const Eqn& e, PartsSpan x, std::shared_ptr<const void> attributes) {
  const auto times = [&](Value v, Value w) { return b.emit_all(e.op, {v, w}, attributes)[0]; };
  const auto& [a, c] = std::pair{x[0], x[1]};
  return {{times(a.re, c.re) - times(a.im, c.im), times(a.re, c.im) + times(a.im, c.re)}};
}

PartsList constant_on_parts(Builder& b, const Eqn& e, PartsSpan) {
  const Literal value = literal_of(e);
  const Type part = value.type().with_dtype(part_dtype(value.dtype()));
  Literal re(part), im(part);
  for (std::int64_t i = 0; i < value.size(); ++i) {
    re.set(i, value.get_part(i, 0));
    im.set(i, value.get_part(i, 1));
  }
  return {{b.constant(re), b.constant(im)}};
}

PartsList convert_on_parts(Builder& b, const Eqn& e, PartsSpan x) {
  const DType to = e.attrs<Convert>().to;
  const auto& [re, im] = x[0];
  if (is_bool(to)) return {{call2(or_, convert_to(re, to), convert_to(im, to)), Value()}};
  const Value converted = convert_to(re, part_dtype(to));
  return {{converted, im ? convert_to(im, part_dtype(to)) : b.zeros(converted.type())}};
}

PartsList div_on_parts(Builder&, const Eqn&, PartsSpan x) { return {quotient(x[0], x[1])}; }
PartsList abs_on_parts(Builder&, const Eqn&, PartsSpan x) { return {{length(x[0]), Value()}}; }
PartsList exp_on_parts(Builder&, const Eqn&, PartsSpan x) { return {exponential(x[0])}; }
PartsList log_on_parts(Builder&, const Eqn&, PartsSpan x) { return {logarithm(x[0])}; }
PartsList sqrt_on_parts(Builder&, const Eqn&, PartsSpan x) { return {square_root(x[0])}; }
PartsList pow_on_parts(Builder&, const Eqn&, PartsSpan x) { return {power(x[0], x[1])}; }
PartsList eq_on_parts(Builder&, const Eqn&, PartsSpan x) {
  return {{call2(and_, call2(eq, x[0].re, x[1].re), call2(eq, x[0].im, x[1].im)), Value()}};
}
PartsList ne_on_parts(Builder&, const Eqn&, PartsSpan x) {
  return {{call2(or_, call2(ne, x[0].re, x[1].re), call2(ne, x[0].im, x[1].im)), Value()}};
}

constinit const OpDef complex = binary({
    .name = "complex",
    .doc = "x + i y. Transposes without conjugation: the cotangents are the real part and minus the imaginary one.",
    .types = Dtypes::floating,
    .dtypes = complex_dtypes,
    .linear = jointly(3),
    .transpose = [](Builder&, const Eqn& e, const Values& x, const Values& ct) -> Values {
      Values in(2);
      if (!x[0]) in[0] = unbroadcast(call1(real, ct[0]), e.in(0).type());
      if (!x[1]) in[1] = unbroadcast(-call1(imag, ct[0]), e.in(1).type());
      return in;
    },
    .on_parts = [](Builder&, const Eqn& e, PartsSpan x) -> PartsList {
      const auto full = [&](Value v) { return v.rank() == e.out().rank() ? v : broadcast_to(v, e.out().dims(), {}); };
      return {{full(x[0].re), full(x[1].re)}};
    },
    .samples =
        [] {
          return Samples{"complex f32[2, 3], f32[2, 3]", "complex f64[3], f64[]", "complex f64[], f64[2]",
                         "complex f64[], f64[]", "complex f32[0], f32[0]"};
        },
});

constinit const OpDef real = unary({
    .name = "real",
    .doc = "The real part.",
    .types = Dtypes::differentiable,
    .dtypes = part_dtypes,
    .linear = jointly(1),
    .transpose = [](Builder& b, const Eqn&, const Values&, const Values& ct) -> Values {
      return {b.emit(complex, {ct[0], b.zeros(ct[0].type())})};
    },
    .on_parts = [](Builder&, const Eqn&, PartsSpan x) -> PartsList { return {{x[0].re, Value()}}; },
    .samples = [] { return Samples{"real c64[2, 3]", "real c128[3]", "real c128[]", "real c64[0]"}; },
});

constinit const OpDef imag = unary({
    .name = "imag",
    .doc = "The imaginary part. Its transpose is minus i times the cotangent.",
    .types = Dtypes::differentiable,
    .dtypes = part_dtypes,
    .linear = jointly(1),
    .transpose = [](Builder& b, const Eqn&, const Values&, const Values& ct) -> Values {
      return {b.emit(complex, {b.zeros(ct[0].type()), -ct[0]})};
    },
    .on_parts = [](Builder&, const Eqn&, PartsSpan x) -> PartsList { return {{x[0].im, Value()}}; },
    .samples = [] { return Samples{"imag c64[2, 3]", "imag c128[3]", "imag c128[]", "imag c64[0]"}; },
});

}  // namespace sheaf::ir::ops
