// Every ScalarOp of every dtype, compiled, against ir::eval_op to the bit on special values; any NaN equals any NaN.
#include <algorithm>
#include <cstring>
#include <set>

#include "codegen/kir/build.h"
#include "tests/llvm/compiled.h"

namespace sheaf::codegen {
namespace {

using ir::ScalarOp;
using Bits = std::uint64_t;

const std::vector<DType> kComputed = {bool_, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64};
const std::vector<DType> kStored = {bool_, i8,   i16, i32, i64,           u8,           u16, u32, u64,
                                    f16,   bf16, f32, f64, DType::f8e4m3, DType::f8e5m2};

bool accepts(ScalarOp op, DType t) {
  const bool is_number = t != bool_, is_whole = is_int(t);
  switch (op) {
    case ScalarOp::add:
    case ScalarOp::sub:
    case ScalarOp::mul:
    case ScalarOp::div:
    case ScalarOp::rem:
    case ScalarOp::neg:
    case ScalarOp::abs:
    case ScalarOp::min:
    case ScalarOp::max:
    case ScalarOp::lt:
    case ScalarOp::le:
    case ScalarOp::gt:
    case ScalarOp::ge: return is_number;
    case ScalarOp::fma:
    case ScalarOp::sqrt:
    case ScalarOp::floor:
    case ScalarOp::ceil:
    case ScalarOp::trunc:
    case ScalarOp::round_even: return is_float(t);
    case ScalarOp::eq:
    case ScalarOp::ne:
    case ScalarOp::select: return true;
    case ScalarOp::and_:
    case ScalarOp::or_:
    case ScalarOp::xor_:
    case ScalarOp::not_: return !is_float(t);
    case ScalarOp::shl:
    case ScalarOp::shr_arith:
    case ScalarOp::shr_logical: return is_whole;
    case ScalarOp::clz:
    case ScalarOp::popcount: return is_whole;
    case ScalarOp::mul_hi: return t == u32 || t == u64;
    default: return false;
  }
}

bool is_comparison(ScalarOp op) { return op >= ScalarOp::eq && op <= ScalarOp::ge; }

Bits random_bits(Bits& state) {  // splitmix64
  Bits z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

Bits mask_of(DType t) { return is_bool(t) ? 1 : size_bytes(t) == 8 ? ~Bits{0} : (Bits{1} << 8 * size_bytes(t)) - 1; }

// Numbers at which some operation turns: extremes, ties of rounding, limits of the integers in each float.
std::vector<Bits> special_values(DType t) {
  std::vector<Bits> values;
  if (is_float(t) || t == DType::f8e4m3 || t == DType::f8e5m2) {
    for (double v : {0.0,
                     0.25,
                     0.5,
                     1.0,
                     1.5,
                     2.0,
                     2.5,
                     3.0,
                     7.0,
                     1e-3,
                     127.0,
                     128.0,
                     255.5,
                     256.0,
                     32767.5,
                     65504.0,
                     65519.99,
                     65520.0,
                     1e5,
                     2147483520.0,
                     2147483648.0,
                     4294967296.0,
                     9.2233720368547758e18,
                     1.8446744073709552e19,
                     1e30,
                     3e38,
                     6e-8,
                     5.9604644775390625e-8,
                     2.9802322387695312e-8,
                     3e-8,
                     6.1e-5,
                     1e-38,
                     1e-40,
                     1.4e-45,
                     7e-46,
                     1e300,
                     5e-324,
                     0x1.ffep-1,
                     0x1.ffcp0,
                     0x1.004p0,
                     0x1.006p0,
                     0x1.0101p0,
                     0x1.0100000001p0,
                     0x1.0018p-14,
                     0x1.8p-25,
                     448.0,
                     464.0,
                     464.1,
                     480.0,
                     57344.0,
                     61440.0}) {
      for (double s : {1.0, -1.0}) values.push_back(ir::to_bits(t, s * v));
    }
    values.push_back(ir::to_bits(t, std::numeric_limits<double>::infinity()));
    values.push_back(ir::to_bits(t, -std::numeric_limits<double>::infinity()));
    values.push_back(ir::to_bits(t, std::numeric_limits<double>::quiet_NaN()));
    values.push_back(1);                  // smallest subnormal
    values.push_back(mask_of(t) >> 1);    // a NaN, all ones
  } else {
    const Bits top = Bits{1} << (is_bool(t) ? 0 : 8 * size_bytes(t) - 1);
    for (Bits v : {Bits{0},
                   Bits{1},
                   Bits{2},
                   Bits{3},
                   Bits{7},
                   Bits{8},
                   Bits{31},
                   Bits{32},
                   Bits{33},
                   Bits{63},
                   Bits{64},
                   Bits{100},
                   Bits{255},
                   top - 1,
                   top,
                   top + 1,
                   ~Bits{0},
                   ~Bits{1},
                   ~Bits{6},
                   Bits{0x4000000000400000},
                   Bits{0x4040000000000001},
                   Bits{0x4040000000000000},
                   Bits{0xffffffff},
                   Bits{0x01000001},
                   Bits{0x01000003},
                   Bits{0x20000000000001},
                   Bits{0x20000000000003},
                   Bits{0x7fffff4000000001}}) {
      values.push_back(v & mask_of(t));
    }
  }
  return values;
}

// All pairs of special values, and random bits; `extra` elements more make no whole number of vectors.
std::vector<std::array<Bits, 3>> operands(DType t) {
  std::vector<std::array<Bits, 3>> rows;
  Bits state = static_cast<Bits>(t);
  const std::vector<Bits> special = special_values(t);
  for (Bits a : special) {
    for (Bits b : special) rows.push_back({a, b, special[random_bits(state) % special.size()]});
  }
  for (int i = 0; i < 501; ++i) {
    rows.push_back({random_bits(state) & mask_of(t), random_bits(state) & mask_of(t), random_bits(state) & mask_of(t)});
  }
  return rows;
}

void write(std::vector<std::byte>& buffer, std::size_t i, DType t, Bits bits) {
  std::memcpy(buffer.data() + i * size_bytes(t), &bits, size_bytes(t));
}

Bits read(const std::vector<std::byte>& buffer, std::size_t i, DType t) {
  Bits bits = 0;
  std::memcpy(&bits, buffer.data() + i * size_bytes(t), size_bytes(t));
  return bits;
}

bool is_nan(DType t, Bits bits) {
  return (is_float(t) || t == DType::f8e4m3 || t == DType::f8e5m2) && std::isnan(ir::from_bits(t, bits));
}

struct Case {
  ScalarOp op;
  DType out;
};

// One kernel that applies every case to the three operands (conversions: to the first), each into a buffer of its own.
kir::Kernel kernel_of(DType in, const std::vector<Case>& cases, std::int64_t count, kir::LoopKind kind) {
  kir::Kernel kernel;
  kernel.name = "ops";
  for (int i = 0; i < 3; ++i) kernel.params.push_back({in, count, kir::Param::Access::read});
  kernel.params.push_back({bool_, count, kir::Param::Access::read});
  for (const Case& c : cases) kernel.params.push_back({c.out, count, kir::Param::Access::write});
  kir::PhaseBuilder b(kernel.params, 1);
  const kir::AxisId axis = b.begin_for("i", count, kind);
  const kir::Index at = b.axis(axis);
  kir::ValueId x[3];
  for (int i = 0; i < 3; ++i) x[i] = b.load(i, at);
  const kir::ValueId chosen = b.load(3, at);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const ScalarOp op = cases[i].op;
    kir::ValueId y = -1;
    if (op == ScalarOp::convert) {
      y = b.convert(x[0], cases[i].out);
    } else if (op == ScalarOp::bitcast) {
      y = b.bitcast(x[0], cases[i].out);
    } else if (op == ScalarOp::select) {
      y = b.op(op, chosen, x[0], x[1]);
    } else {
      const int arity = ir::arity(op);
      y = b.op(op, x[0], arity > 1 ? x[1] : -1, arity > 2 ? x[2] : -1);
    }
    b.store(static_cast<int>(4 + i), at, y);
  }
  b.end();
  kernel.phases.push_back(b.finish(1000));
  return kernel;
}

void check_cases(DType in, const std::vector<Case>& cases, const CpuTarget& target, kir::LoopKind kind) {
  const auto rows = operands(in);
  const auto count = static_cast<std::int64_t>(rows.size());
  const kir::Kernel kernel = kernel_of(in, cases, count, kind);
  const Compiled compiled(kernel, target);
  std::vector<std::vector<std::byte>> buffers;
  std::vector<void*> pointers;
  for (const kir::Param& p : kernel.params) buffers.emplace_back(count * size_bytes(p.dtype));
  for (auto& buffer : buffers) pointers.push_back(buffer.data());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (int i = 0; i < 3; ++i) write(buffers[i], row, in, rows[row][i]);
    write(buffers[3], row, bool_, row % 3 == 0);
  }
  compiled.run(pointers);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const auto [op, out] = cases[c];
    int reported = 0;
    for (std::size_t row = 0; row < rows.size() && reported < 3; ++row) {
      std::array<Bits, 3> bits = rows[row];
      if (op == ScalarOp::select) bits = {row % 3 == 0, rows[row][0], rows[row][1]};
      const Bits expected = ir::eval_op(op, in, out, bits.data());
      const Bits actual = read(buffers[4 + c], row, out);
      if (actual == expected || (is_nan(out, actual) && is_nan(out, expected))) continue;
      ++reported;
      FAIL_CHECK(target.cpu << " " << std::string(name(op)) << " " << std::string(name(in)) << " -> "
                            << std::string(name(out)) << std::hex << " of " << bits[0] << " " << bits[1] << " "
                            << bits[2] << ": " << actual << ", expected " << expected);
    }
  }
}

std::vector<Case> arithmetic_of(DType t) {
  std::vector<Case> cases;
  for (int i = 0; i <= static_cast<int>(ScalarOp::bitcast); ++i) {
    const auto op = static_cast<ScalarOp>(i);
    if (accepts(op, t)) cases.push_back({op, is_comparison(op) ? bool_ : t});
  }
  return cases;
}

std::vector<Case> conversions_of(DType t) {
  std::vector<Case> cases;
  for (DType out : kStored) {
    if (out != t) cases.push_back({ScalarOp::convert, out});
    if (out != t && size_bytes(out) == size_bytes(t) && !is_bool(out) && !is_bool(t)) {
      cases.push_back({ScalarOp::bitcast, out});
    }
  }
  return cases;
}

TEST_CASE("compiled scalar operations equal the definition to the bit, in vectors") {
  for (const CpuTarget& target : runnable_targets()) {
    for (DType t : kComputed) check_cases(t, arithmetic_of(t), target, kir::LoopKind::vector);
  }
}

TEST_CASE("compiled conversions equal the definition to the bit, in vectors") {
  for (const CpuTarget& target : runnable_targets()) {
    for (DType t : kStored) check_cases(t, conversions_of(t), target, kir::LoopKind::vector);
  }
}

TEST_CASE("compiled scalar operations and conversions equal the definition to the bit, one by one") {
  for (const CpuTarget& target : runnable_targets()) {
    for (DType t : kComputed) check_cases(t, arithmetic_of(t), target, kir::LoopKind::serial);
    for (DType t : kStored) check_cases(t, conversions_of(t), target, kir::LoopKind::serial);
  }
}

}  // namespace
}  // namespace sheaf::codegen
