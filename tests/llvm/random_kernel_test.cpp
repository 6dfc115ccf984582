// Random loop nests, compiled and interpreted, to the bit. The generator knows no template: it mixes loops, masks,
// gathers, locals, lane reductions and scratch as the rules of KIR allow.
#include <algorithm>
#include <random>

#include "codegen/kir/build.h"
#include "codegen/kir/print.h"
#include "codegen/kir/verify.h"
#include "tests/llvm/compiled.h"

namespace sheaf::codegen {
namespace {

using ir::ScalarOp;
using kir::Index;
using kir::ValueId;

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  kir::Kernel kernel() {
    kir::Kernel result;
    result.name = "random";
    for (DType t : {f32, i32, pick(kStored), pick(kStored), pick(kStored)}) {
      result.params.push_back({t, 1 + below(300), kir::Param::Access::read});
    }
    inputs_ = static_cast<int>(result.params.size());
    units_ = 1 + below(3);
    row_ = 1 + below(150);
    const std::int64_t phases = 1 + below(2);  // a scratch buffer's number follows the last parameter's
    for (std::int64_t i = 0; i < 3 * phases; ++i) {
      result.params.push_back({pick(kStored), units_ * row_, kir::Param::Access::write});
    }
    for (std::int64_t phase = 0; phase < phases; ++phase) add_phase(result, inputs_ + 3 * static_cast<int>(phase));
    return result;
  }

  std::vector<std::byte> contents(const kir::Param& p) {
    std::vector<std::byte> data(p.count * size_bytes(p.dtype));
    std::normal_distribution<double> normal(0, 20);
    for (std::int64_t i = 0; i < p.count; ++i) {
      std::uint64_t bits = random_();
      if (is_float(p.dtype) && below(8)) bits = ir::to_bits(p.dtype, normal(random_));
      if (is_bool(p.dtype)) bits &= 1;
      std::memcpy(data.data() + i * size_bytes(p.dtype), &bits, size_bytes(p.dtype));
    }
    return data;
  }

 private:
  static inline const std::vector<DType> kStored = {bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, bf16, f64};
  static inline const std::vector<DType> kComputed = {bool_, i8, i32, i64, u16, u32, u64, f32, f32, f32, f64};

  std::int64_t below(std::int64_t limit) { return static_cast<std::int64_t>(random_() % static_cast<unsigned>(limit)); }
  template <typename T>
  T pick(const std::vector<T>& from) {
    return from[below(std::ssize(from))];
  }

  // Units write rows of `row_` elements of each output, so that they never meet.
  void add_phase(kir::Kernel& kernel, int first_output) {
    outputs_ = {first_output, first_output + 1, first_output + 2};
    kir::PhaseBuilder builder(kernel.params, units_);
    b_ = &builder;
    kernel_ = &kernel;
    axes_ = {0};
    known_.clear();
    const std::int64_t statements = 1 + below(3);
    for (std::int64_t i = 0; i < statements; ++i) statement(2);
    kernel.phases.push_back(builder.finish(1000));
  }

  void statement(int depth) {
    switch (depth > 0 ? below(5) : below(3)) {
      case 0: return map(kir::LoopKind::vector);
      case 1: return below(2) ? map(kir::LoopKind::serial) : through_scratch();
      case 2: return reduction();
      case 3: return nested_loop(depth);
      default: return guarded(depth);
    }
  }

  void nested_loop(int depth) {
    in_scope([&] {
      axes_.push_back(b_->begin_for("s", 1 + below(4), below(2) ? kir::LoopKind::serial : kir::LoopKind::unroll));
      some_values(2);
      statement(depth - 1);
      b_->end();
      axes_.pop_back();
    });
  }

  void guarded(int depth) {
    in_scope([&] {
      b_->begin_if(as(any(), bool_));
      statement(depth - 1);
      b_->end();
    });
  }

  // A loop over the row that stores a permutation of it.
  void map(kir::LoopKind kind) {
    in_scope([&] {
      const int width = below(3) ? 0 : 1 << below(6);
      const std::int64_t block = kind == kir::LoopKind::vector ? row_ / kir::kLanes * kir::kLanes : row_;
      const kir::AxisId axis =
          block > 0 && below(3) == 0
              ? b_->begin_part("i", block, kind, {b_->in_range(b_->unit(), 0, 1 + below(units_)), 1 + below(block)})
              : b_->begin_for("i", row_, kind, width);
      axes_.push_back(axis);
      some_values(2 + static_cast<int>(below(8)));
      store_row(b_->axis(axis));
      b_->end();
      axes_.pop_back();
    });
  }

  void store_row(Index i) {
    kir::IndexPool& pool = b_->indices();
    const int out = pick(outputs_);
    if (below(3) == 0) i = pool.sub(pool.constant(row_ - 1), i);
    if (const std::int64_t inner = 1 + below(8); row_ % inner == 0 && below(2)) {
      i = pool.add(pool.scale(pool.mod(i, inner), row_ / inner), pool.floor_div(i, inner));
    }
    const Index at = pool.add(pool.scale(b_->unit(), row_), i);
    b_->store(out, at, as(any(), kernel_->params[out].dtype), below(3) ? -1 : as(any(), bool_));
  }

  void through_scratch() {
    const DType t = pick(kStored);
    const kir::BufferId scratch = b_->scratch(t, row_);
    in_scope([&] {
      const kir::AxisId axis = b_->begin_for("i", row_, kir::LoopKind::vector);
      axes_.push_back(axis);
      some_values(3);
      b_->store(scratch, b_->axis(axis), as(any(), t));
      b_->end();
      axes_.pop_back();
    });
    in_scope([&] {
      kir::IndexPool& pool = b_->indices();
      const kir::AxisId axis = b_->begin_for("i", row_, kir::LoopKind::vector);
      axes_.push_back(axis);
      known_.push_back(b_->load(scratch, pool.mod(pool.add(b_->axis(axis), below(5)), row_)));
      some_values(2);
      store_row(b_->axis(axis));
      b_->end();
      axes_.pop_back();
    });
  }

  // Lanes filled, combined with a chunk or two, reduced, and the total stored at one place of the row.
  void reduction() {
    const DType t = pick(std::vector<DType>{f32, f32, i32, u64, f64});
    const kir::LocalId lanes = b_->local(t, kir::kLanes), counter = b_->local(i32);
    ValueId total = -1;
    in_scope([&] {
      b_->begin_for("l", kir::kLanes, kir::LoopKind::vector, kir::kLanes);
      b_->assign(lanes, b_->constant_value(t, 1));
      b_->end();
    });
    b_->assign(counter, b_->constant_value(i32, 0));
    in_scope([&] {
      axes_.push_back(b_->begin_for("chunk", 1 + below(3), kir::LoopKind::serial));
      const ValueId count = b_->op(ScalarOp::add, b_->get(counter), b_->constant_value(i32, 3));
      b_->assign(counter, count);
      known_.push_back(count);
      const std::int64_t extent = below(2) ? kir::kLanes : 1 + below(kir::kLanes);
      axes_.push_back(b_->begin_for("l", extent, kir::LoopKind::vector, kir::kLanes));
      some_values(3);
      b_->assign(lanes,
                 b_->op(pick(std::vector<ScalarOp>{ScalarOp::add, ScalarOp::max}), b_->get(lanes), as(any(), t)));
      b_->end();
      axes_.pop_back();
      b_->end();
      axes_.pop_back();
    });
    total = b_->lane_reduce({lanes},
                            {ir::scalar_primitive(pick(std::vector<ScalarOp>{ScalarOp::add, ScalarOp::min}), t)})[0];
    known_.push_back(total);
    known_.push_back(b_->get(counter));
    const int out = pick(outputs_);
    const Index at = b_->indices().add(b_->indices().scale(b_->unit(), row_), below(row_));
    b_->store(out, at, as(total, kernel_->params[out].dtype));
  }

  void some_values(int count) {
    for (int i = 0; i < count; ++i) known_.push_back(below(3) ? computed() : loaded());
  }

  ValueId loaded() {
    const int buffer = static_cast<int>(below(inputs_));
    const std::int64_t count = kernel_->params[buffer].count;
    const ValueId mask = below(3) ? -1 : as(any(), bool_);
    const ValueId other = below(2) ? -1 : as(any(), kernel_->params[buffer].dtype);
    return b_->load(buffer, position(count), mask, mask < 0 ? -1 : other);
  }

  // Some index in [0, count).
  Index position(std::int64_t count) {
    kir::IndexPool& pool = b_->indices();
    const Index axis = b_->axis(axes_[below(2) ? axes_.size() - 1 : below(std::ssize(axes_))]);
    const kir::Range range = pool.range(axis);
    Index i = axis;
    switch (below(6)) {
      case 0: return pool.mod(pool.add(pool.scale(axis, below(9) - 4), below(50)), count);
      case 1: return pool.floor_div(axis, (range.hi / count) + 1);
      case 2:
        i = b_->index_of(as(b_->op(ScalarOp::and_, as(any(), i32), b_->constant_value(i32, 0x3ff)), i64), {0, 0x3ff});
        break;
      case 3: i = pool.sub(pool.constant(range.hi), axis); break;
      case 4: i = pool.add(axis, b_->axis(axes_[0])); break;
      default: break;
    }
    return pool.range(i).hi < count ? i : pool.mod(i, count);
  }

  // 0 or 1, of what fits no 32 bits.
  Index quotient() {
    constexpr std::int64_t kDivisor = std::int64_t{1} << 32;
    return b_->indices().floor_div(b_->indices().add(position(1000), kDivisor - below(500)), kDivisor);
  }

  ValueId computed() {
    const DType t = pick(kComputed);
    if (below(10) == 0) return b_->index_value(below(3) ? position(1000) : quotient(), below(2) ? i64 : i32);
    if (below(10) == 0) return b_->in_range(position(1000), below(5), 3 + below(60));
    static const std::vector<ScalarOp> kFloat = {ScalarOp::add,  ScalarOp::sub, ScalarOp::mul,   ScalarOp::div,
                                                 ScalarOp::fma,  ScalarOp::min, ScalarOp::max,   ScalarOp::floor,
                                                 ScalarOp::sqrt, ScalarOp::lt,  ScalarOp::select};
    static const std::vector<ScalarOp> kInt = {ScalarOp::add,  ScalarOp::mul,      ScalarOp::div,       ScalarOp::rem,
                                               ScalarOp::xor_, ScalarOp::shl,      ScalarOp::shr_arith, ScalarOp::min,
                                               ScalarOp::ge,   ScalarOp::popcount, ScalarOp::select};
    static const std::vector<ScalarOp> kBool = {ScalarOp::and_, ScalarOp::or_, ScalarOp::not_, ScalarOp::select};
    const ScalarOp op = pick(is_float(t) ? kFloat : is_bool(t) ? kBool : kInt);
    if (op == ScalarOp::select) return b_->op(op, as(any(), bool_), as(any(), t), as(any(), t));
    const int arity = ir::arity(op);
    return b_->op(op, as(any(), t), arity > 1 ? as(any(), t) : -1, arity > 2 ? as(any(), t) : -1);
  }

  ValueId any() {
    return known_.empty() || below(8) == 0 ? b_->constant_value(f32, static_cast<double>(below(7)) - 3) : pick(known_);
  }
  ValueId as(ValueId v, DType t) { return b_->convert(v, t); }

  template <typename F>
  void in_scope(F&& f) {
    const std::size_t size = known_.size();
    f();
    known_.resize(size);
  }

  std::mt19937 random_;
  kir::PhaseBuilder* b_ = nullptr;
  kir::Kernel* kernel_ = nullptr;
  std::int64_t units_ = 1, row_ = 1;
  int inputs_ = 0;
  std::vector<int> outputs_;
  std::vector<kir::AxisId> axes_;     // open, outermost first
  std::vector<ValueId> known_;        // values in scope
};

void check_seeds(unsigned first, unsigned end) {
  for (unsigned seed = first; seed < end; ++seed) {
    CAPTURE(seed);
    Generator generator(seed);
    const kir::Kernel kernel = generator.kernel();
    CAPTURE(kir::to_text(kernel));
    REQUIRE(kir::verify(kernel).ToString() == "OK");
    std::vector<std::vector<std::byte>> data;
    std::vector<void*> buffers;
    for (const kir::Param& p : kernel.params) data.push_back(generator.contents(p));
    for (auto& buffer : data) buffers.push_back(buffer.data());
    check_compiled_equals_interpreted(kernel, buffers, runnable_targets());
  }
}

TEST_CASE("random kernels give the same bits compiled and interpreted") { check_seeds(0, 15); }

TEST_CASE("many random kernels give the same bits compiled and interpreted" * doctest::test_suite("soak")) {
  check_seeds(15, 400);
}

}  // namespace
}  // namespace sheaf::codegen
