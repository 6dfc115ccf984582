// The instructions of tensor cores as their fragments are laid out in PTX: lane = 4 g + t holds rows g and g + 8. Sums
// are exact up to one rounding per instruction; a GPU's are at least as far from the truth.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/emulator/machine.h"

namespace sheaf::emulator {
namespace {

using sf_host::Mma;

double from_half(Mma kind, unsigned bits) {
  if (kind == Mma::bf16) return std::bit_cast<float>(bits << 16);
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 0x3ff);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25));
}

/// Element `i` of a register: a half of two, a byte of four, or the whole.
double element(Mma kind, unsigned bits, int i) {
  switch (kind) {
    case Mma::bf16:
    case Mma::f16: return from_half(kind, bits >> (16 * i) & 0xffff);
    case Mma::tf32: return std::bit_cast<float>(bits & 0xffffe000u);  // the hardware does not look at the rest
    case Mma::s8: return static_cast<std::int8_t>(bits >> (8 * i));
  }
  return 0;
}

/// The operands of an m16n8 product.
struct Layout {
  int per_register;  // elements of one 32-bit register, neighbours in k
  int k;
};
Layout layout_of(Mma kind) {
  return kind == Mma::tf32 ? Layout{1, 8} : kind == Mma::s8 ? Layout{4, 32} : Layout{2, 16};
}

}  // namespace

void Machine::ldmatrix(Fiber& f, unsigned* registers, const void* row, int matrices, bool is_transposed, Place place) {
  constexpr int kRowBytes = 16;
  f.out = registers;
  f.in[0] = row;
  // Lane i gives row i % 8 of matrix i / 8.
  if (f.lane() < 8 * matrices) access(f, row, kRowBytes, sf_host::Access::load, place);
  if (!meet_warp(f, WarpMeeting::Kind::ldmatrix, 0xffffffffu, place)) return;
  const Fiber* lanes = &fibers_[static_cast<std::size_t>(f.warp() * 32)];
  const auto at = [&](int matrix, int r, int c) {
    std::uint16_t bits;
    std::memcpy(&bits, static_cast<const std::byte*>(lanes[matrix * 8 + r].in[0]) + 2 * c, 2);
    return unsigned{bits};
  };
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int m = 0; m < matrices; ++m) {
      const unsigned low = is_transposed ? at(m, 2 * t, g) : at(m, g, 2 * t);
      const unsigned high = is_transposed ? at(m, 2 * t + 1, g) : at(m, g, 2 * t + 1);
      static_cast<unsigned*>(lanes[lane].out)[m] = low | high << 16;
    }
  }
}

void Machine::mma(Fiber& f, Mma kind, void* d, const unsigned* a, const unsigned* b, Place place) {
  f.out = d;
  f.in[0] = a;
  f.in[1] = b;
  if (!meet_warp(f, WarpMeeting::Kind::mma, 0xffffffffu, place)) return;
  const auto [per_register, k_extent] = layout_of(kind);
  const Fiber* lanes = &fibers_[static_cast<std::size_t>(f.warp() * 32)];
  double rows[16][32], columns[8][32];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const auto* in_a = static_cast<const unsigned*>(lanes[lane].in[0]);
    const auto* in_b = static_cast<const unsigned*>(lanes[lane].in[1]);
    for (int e = 0; e < per_register; ++e) {
      const int k = per_register * t + e;
      for (int r = 0; r < 4; ++r) rows[g + r % 2 * 8][k + r / 2 * k_extent / 2] = element(kind, in_a[r], e);
      for (int r = 0; r < 2; ++r) columns[g][k + r * k_extent / 2] = element(kind, in_b[r], e);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) {
      double sum = 0;
      for (int k = 0; k < k_extent; ++k) sum += rows[g + r / 2 * 8][k] * columns[2 * t + r % 2][k];
      if (kind == Mma::s8) {
        auto& out = static_cast<std::uint32_t*>(lanes[lane].out)[r];
        out += static_cast<std::uint32_t>(static_cast<std::int64_t>(sum));
      } else {
        auto& out = static_cast<float*>(lanes[lane].out)[r];
        out = static_cast<float>(out + sum);
      }
    }
  }
}

// ---- wgmma --------------------------------------------------------------------------------------------------------

namespace {

constexpr int kWgmmaRows = 64, kWgmmaK = 16;

/// Byte address of element (row, k) of a matrix whose rows run along k, from its descriptor; or, transposed, of one
/// whose rows of 64 elements run along its rows, 8 terms of them in a group.
std::uint64_t element_address(std::uint64_t descriptor, int row, int k, bool is_transposed) {
  const std::uint64_t begin = (descriptor & 0x3fff) << 4, along_k = (descriptor >> 16 & 0x3fff) << 4;
  const std::uint64_t along_rows = (descriptor >> 32 & 0x3fff) << 4, mode = descriptor >> 62;
  const auto r = static_cast<std::uint64_t>(row), c = static_cast<std::uint64_t>(k);
  if (mode == 0) return begin + r / 8 * along_rows + c / 8 * along_k + r % 8 * 16 + c % 8 * 2;
  const std::uint64_t row_bytes = 256u >> mode;  // 1: 128, 2: 64, 3: 32
  const std::uint64_t address =
      is_transposed ? begin + r * 2 / row_bytes * along_k + r * 2 % row_bytes + c / 8 * along_rows + c % 8 * row_bytes
                    : begin + r / 8 * along_rows + r % 8 * row_bytes + c * 2;
  return address ^ ((address >> 7 & (row_bytes / 16 - 1)) << 4);
}

}  // namespace

void Machine::read_operand(Fiber& f, std::uint64_t descriptor, int rows, bool is_transposed, Place place,
                           std::vector<std::uint16_t>& out) {
  out.resize(static_cast<std::size_t>(rows * kWgmmaK));
  for (int r = 0; r < rows; ++r) {
    for (int k = 0; k < kWgmmaK; ++k) {
      std::byte* p = shared_at(f, element_address(descriptor, r, k, is_transposed), 2, place);
      // Eight neighbours are 16 bytes in one piece.
      if (policy_.is_checked && (is_transposed ? r : k) % 8 == 0)
        touch(f, wgmma_party(f), p, 16, sf_host::Access::load, 0, place);
      std::memcpy(&out[static_cast<std::size_t>(r * kWgmmaK + k)], p, 2);
    }
  }
}

void Machine::wgmma(Fiber& f, const WgmmaOp& op) {
  // The operands must be there when the product is issued, and until it is waited for: looked at both times.
  if (f.index % 128 == 0) {
    std::vector<std::uint16_t> unused;
    read_operand(f, op.a, kWgmmaRows, op.a_is_transposed, op.place, unused);
    read_operand(f, op.b, op.n, op.b_is_transposed, op.place, unused);
  }
  f.open_products.push_back(op);
}

void Machine::wgmma_commit(Fiber& f) {
  f.product_groups.push_back(std::move(f.open_products));
  f.open_products.clear();
}

void Machine::wgmma_wait(Fiber& f, int groups_left, Place place) {
  const int first = f.index / 128 * 128;
  bool is_last = true;
  for (int t = first; t < first + 128; ++t) {
    if (t >= threads_ || fibers_[static_cast<std::size_t>(t)].has_ended) {
      diverged({f.index}, place, fmt::format("thread {} of its warpgroup is not there", t));
    }
    is_last &= t == f.index || fibers_[static_cast<std::size_t>(t)].waiting == Waiting::for_warpgroup;
  }
  if (!is_last) {
    wait(f, Waiting::for_warpgroup, place);
    return;
  }
  while (std::ssize(f.product_groups) > groups_left) {
    const std::vector<WgmmaOp> ops = f.product_groups.front();
    for (std::size_t i = 0; i < ops.size(); ++i) multiply_warpgroup(f, ops, i);
    for (int t = first; t < first + 128; ++t) {
      auto& groups = fibers_[static_cast<std::size_t>(t)].product_groups;
      groups.erase(groups.begin());
    }
  }
  const Clock now = history_.tick();
  for (int t = first; t < first + 128; ++t) {
    history_.learn(t, wgmma_party(f), now);
    fibers_[static_cast<std::size_t>(t)].waiting = Waiting::no;
  }
}

void Machine::multiply_warpgroup(Fiber& last, const std::vector<WgmmaOp>& ops, std::size_t which) {
  const WgmmaOp& op = ops[which];
  std::vector<std::uint16_t> a, b;
  read_operand(last, op.a, kWgmmaRows, op.a_is_transposed, op.place, a);
  read_operand(last, op.b, op.n, op.b_is_transposed, op.place, b);
  const int first = last.index / 128 * 128;
  for (int i = 0; i < 128; ++i) {
    const Fiber& f = fibers_[static_cast<std::size_t>(first + i)];
    const bool is_same =
        !f.product_groups.empty() && which < f.product_groups.front().size() && f.product_groups.front()[which] == op;
    if (!is_same) diverged({last.index}, op.place, fmt::format("thread {} multiplies something else", f.index));
    float* d = f.product_groups.front()[which].d;
    const int row = i / 32 * 16 + i % 32 / 4, column = i % 4 * 2;
    for (int r = 0; r < op.n / 2; ++r) {
      const int m = row + r / 2 % 2 * 8, n = r / 4 * 8 + column + r % 2;
      double sum = 0;
      for (int k = 0; k < kWgmmaK; ++k) {
        sum += from_half(op.kind, a[static_cast<std::size_t>(m * kWgmmaK + k)]) *
               from_half(op.kind, b[static_cast<std::size_t>(n * kWgmmaK + k)]);
      }
      d[r] = static_cast<float>(d[r] + sum);
    }
  }
}

}  // namespace sheaf::emulator
