// Random programs: the whole compiled as one equals its equations run one by one, to the bit. Fusion, memory reuse and
// schedules may change nothing a user can see.
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
    Builder b("fuzz");
    const std::int64_t m = pick(1, 9), n = pick(1, 70);
    shapes_ = {{m, n}, {n}, {m}, {}, {n, m}, {m, n}};
    for (int k = 0; k < 4; ++k) values_.push_back(b.param(Type(f32, shapes_[k])));
    key_ = b.param(Type(DType::u32, {2}));
    for (int i = 0; i < size; ++i) values_.push_back(step(b));
    Values results{values_.back()};
    for (int i = 0; i < 3; ++i) results.push_back(any());
    return b.finish(std::move(results));
  }

 private:
  Value any() {
    const std::span<const Value> all(values_);
    return one_of(all.last(std::min<std::size_t>(all.size(), 8)));
  }

  Value of_shape(const Shape& s) {
    for (int tries = 0; tries < 20; ++tries)
      if (const Value v = any(); v.dims() == s) return v;
    return Value();
  }

  Value step(Builder& b) {
    const Value x = any();
    switch (pick(0, 10)) {
      case 0: return b.emit(ops::tanh, {x});
      case 1: return b.emit(ops::exp, {b.emit(ops::min, {x, b.constant(f32, 3)})});
      case 2:
      case 3: {
        const Value y = of_shape(x.dims());
        const OpDef* binary[] = {&ops::add, &ops::sub, &ops::mul, &ops::max};
        return b.emit(*binary[pick(0, 3)], {x, y ? y : b.constant(f32, 0.5)});
      }
      case 4: return reduced(b, x);
      case 5: return widened(b, x);
      case 6:
        return x.rank() == 2 ? b.emit(ops::transpose, {x}, ops::Transpose{.perm = {1, 0}}) : b.emit(ops::neg, {x});
      case 7: return sliced(b, x);
      case 8: return padded(b, x);
      case 9: return b.emit(ops::add, {x, random(b, x.dims())});
      default: {
        const Value p = b.emit(ops::lt, {x, b.constant(f32, 0.25)});
        return b.emit(ops::select, {p, x, b.emit(ops::mul, {x, x})});
      }
    }
  }

  // In [0, 4).
  Value random(Builder& b, const Shape& shape) {
    const Value bits = b.emit(ops::random_bits, {key_}, ops::RandomBits{.shape = shape, .dtype = DType::u32});
    const Value shifted = b.emit(ops::shr_logical, {bits, b.constant(DType::u32, 30)});
    return b.emit(ops::convert, {shifted}, ops::Convert{.to = f32});
  }

  Value reduced(Builder& b, Value x) {
    if (x.rank() == 0) return b.emit(ops::abs, {x});
    ops::Reduce r{.kind = pick(0, 1) ? ReduceKind::sum : ReduceKind::max, .dims = {pick(0, x.rank() - 1)}};
    if (pick(0, 3) == 0) {
      r.dims.clear();
      for (int d = 0; d < x.rank(); ++d) r.dims.push_back(d);
    }
    const Value y = b.emit(ops::reduce, {x}, r);
    if (pick(0, 1) || y.dims().size() + 1 != x.dims().size()) return y;
    ops::Broadcast back{.shape = x.dims(), .dims = {}};  // as softmax does
    for (std::int64_t d = 0; d < x.rank(); ++d)
      if (d != r.dims[0]) back.dims.push_back(d);
    return b.emit(ops::sub, {x, b.emit(ops::broadcast, {y}, back)});
  }

  Value widened(Builder& b, Value x) {
    if (x.rank() == 0) return b.emit(ops::broadcast, {x}, ops::Broadcast{.shape = shapes_[0], .dims = {}});
    if (x.rank() == 1 && x.dims() == shapes_[1])
      return b.emit(ops::broadcast, {x}, ops::Broadcast{.shape = shapes_[0], .dims = {1}});
    if (x.rank() == 1 && x.dims() == shapes_[2])
      return b.emit(ops::broadcast, {x}, ops::Broadcast{.shape = shapes_[0], .dims = {0}});
    return b.emit(ops::reshape, {x}, ops::Reshape{.shape = {x.type().num_elements()}});
  }

  Value sliced(Builder& b, Value x) {
    if (x.rank() == 0 || x.dims()[0] < 2) return b.emit(ops::floor, {x});
    ops::Slice s{.start = std::vector<std::int64_t>(x.rank(), 0),
                 .limit = x.dims(),
                 .stride = std::vector<std::int64_t>(x.rank(), 1)};
    s.start[0] = 1;
    s.stride[0] = pick(1, 2);
    return b.emit(ops::slice, {x}, s);
  }

  Value padded(Builder& b, Value x) {
    if (x.rank() == 0 || x.type().num_elements() > 2000) return b.emit(ops::neg, {x});
    if (pick(0, 1)) return b.emit(ops::concatenate, {x, b.emit(ops::neg, {x})}, ops::Concatenate{.dim = {0}});
    const std::vector<std::int64_t> zeros(x.rank(), 0);
    ops::Pad p{.low = zeros, .high = zeros, .interior = zeros};
    p.low[0] = pick(-1, 2);
    p.high[0] = 1;
    return b.emit(ops::pad, {x, b.constant(f32, 1.5)}, p);
  }

  std::vector<Shape> shapes_;
  Value key_;
  Values values_;
};

}  // namespace

TEST_CASE("a program compiled whole gives the bits of its equations one by one") {
  tests::check_programs<Generator>(1, 40, 14);
}

TEST_CASE("two thousand programs compiled whole give the bits of their equations" * doctest::test_suite("soak")) {
  tests::check_programs<Generator>(1000, 2000, 24);
}
