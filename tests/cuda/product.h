// For tests of contractions as CUDA text: products of matrices that lie in memory in many ways, run on the emulator.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/kir/interp.h"
#include "codegen/kir/verify.h"
#include "ir/literal.h"
#include "tests/emulator/on_engine.h"

namespace sheaf::emulator {

/// out[batch, m, n] = sum over k of lhs[batch, m, k] rhs[batch, k, n].
struct Product {
  std::string name = {};
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  bool lhs_is_transposed = false, rhs_is_transposed = false, out_is_transposed = false;
  DType dtype = DType::bf16, out = DType::f32, accumulate = DType::f32;
  std::int64_t pad = 0;  // elements between rows of the operands
  std::int64_t offset = 0;  // of both operands
  Precision precision = Precision::full;

  std::int64_t count(std::int64_t rows, std::int64_t columns, bool is_transposed) const {
    return offset + batch * (is_transposed ? columns * (rows + pad) : rows * (columns + pad));
  }
  std::int64_t lhs_count() const { return count(m, k, lhs_is_transposed); }
  std::int64_t rhs_count() const { return count(k, n, rhs_is_transposed); }
  std::int64_t out_count() const { return batch * m * n; }

  kir::Kernel kernel() const {
    struct Steps {
      std::int64_t row, column;
    };
    const auto steps = [](std::int64_t rows, std::int64_t columns, bool is_transposed, std::int64_t padding) {
      return is_transposed ? Steps{1, rows + padding} : Steps{columns + padding, 1};
    };
    const Steps l = steps(m, k, lhs_is_transposed, pad), r = steps(k, n, rhs_is_transposed, pad),
                o = steps(m, n, out_is_transposed, 0);
    kir::Contract c;
    c.batch = {{batch}, {(lhs_count() - offset) / batch}, {(rhs_count() - offset) / batch}, {m * n}};
    c.m = {{m}, {l.row}, {0}, {o.row}};
    c.n = {{n}, {0}, {r.column}, {o.column}};
    c.k = {{k}, {l.column}, {r.row}, {0}};
    c.lhs_offset = c.rhs_offset = offset;
    c.lhs = c.rhs = dtype;
    c.out = out;
    c.accumulate = accumulate;
    c.precision = precision;
    using Access = kir::Param::Access;
    return {.name = "dot",
            .params = {{dtype, lhs_count(), Access::read},
                       {dtype, rhs_count(), Access::read},
                       {out, out_count(), Access::write}},
            .phases = {},
            .contract = c};
  }
};

/// What a convolution is: rows in two dims, terms in two dims, and neighbouring rows that read nearly the same.
///   out[image, at, to] = sum over tap, from of x[image, at + 2 tap, from] w[tap, from, to]
inline kir::Kernel convolution(DType dtype, Precision precision = Precision::full) {
  constexpr std::int64_t images = 2, length = 40, taps = 3, from = 24, to = 72, places = length - 2 * (taps - 1);
  kir::Contract c;
  c.batch = {{}, {}, {}, {}};
  c.m = {{images, places}, {length * from, from}, {0, 0}, {places * to, to}};
  c.n = {{to}, {0}, {1}, {1}};
  c.k = {{taps, from}, {2 * from, 1}, {from * to, to}, {0, 0}};
  c.lhs = c.rhs = c.out = dtype;
  c.accumulate = dtype == DType::bf16 ? DType::f32 : dtype;
  c.precision = precision;
  using Access = kir::Param::Access;
  return {.name = "convolution",
          .params = {{dtype, images * length * from, Access::read},
                     {dtype, taps * from * to, Access::read},
                     {dtype, images * places * to, Access::write}},
          .phases = {},
          .contract = c};
}

/// Each of the four layouts of the operands, named for it.
template <class F>
void for_each_layout(Product p, F f) {
  for (int layout = 0; layout < 4; ++layout) {
    p.lhs_is_transposed = layout / 2;
    p.rhs_is_transposed = layout % 2;
    p.name = fmt::format("{}{}", layout / 2 ? "t" : "n", layout % 2 ? "t" : "n");
    f(p);
  }
}

/// A kernel that is a contraction, and its text.
struct Contraction {
  std::string name;
  kir::Kernel kernel;
  std::function<void(const std::string& symbol, codegen::CudaText& out)> emit;
};

using Bytes = std::vector<std::byte>;

/// All kernels in one text, that of contraction i named k<i>.
class Contractions {
 public:
  explicit Contractions(std::vector<Contraction> all) : all_(std::move(all)) {
    std::string functions;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      CHECK(kir::verify(all_[i].kernel).ToString() == "OK");
      emitted_.emplace_back();
      all_[i].emit(fmt::format("k{}", i), emitted_.back());
      functions += emitted_.back().functions;
    }
    text_.emplace(functions);
  }
  std::size_t size() const { return all_.size(); }
  const Contraction& operator[](std::size_t i) const { return all_[i]; }

  /// Small numbers, of many bits, in what is read; zeros elsewhere.
  std::vector<Bytes> inputs(std::size_t i) const {
    std::vector<Bytes> buffers;
    for (const kir::Param& p : all_[i].kernel.params) {
      ir::Literal l(ir::Type(p.dtype, {p.count}));
      const int step = buffers.empty() ? 7 : 11;
      for (std::int64_t e = 0; p.access == kir::Param::Access::read && e < p.count; ++e)
        if (is_float(p.dtype)) l.set(e, std::sin(static_cast<double>(e * step % 1009)));
        else l.set_bits(e, static_cast<std::uint64_t>(e * step % (is_bool(p.dtype) ? 2 : 127)));
      buffers.emplace_back(l.data(), l.data() + l.bytes());
    }
    return buffers;
  }

  std::vector<Bytes> interpreted(std::size_t i, std::vector<Bytes> buffers) const {
    std::vector<void*> pointers;
    for (Bytes& b : buffers) pointers.push_back(b.data());
    kir::Interpreter(all_[i].kernel).run(pointers.data());
    return buffers;
  }

  std::vector<Bytes> run_on_engine(std::size_t i, std::vector<Bytes> buffers, const Policy& policy,
                                   Counters& sum) const {
    const absl::Status status = try_on_engine(i, buffers, policy, sum);
    REQUIRE_MESSAGE(status.ok(), all_[i].name, ": ", status.ToString());
    return buffers;
  }

  /// What is not read begins as memory that nothing has written, and temporaries are not there at all.
  absl::Status try_on_engine(std::size_t i, std::vector<Bytes>& buffers, const Policy& policy, Counters& sum) const {
    Buffers b;
    std::vector<std::byte*> at;
    for (std::size_t p = 0; p < buffers.size(); ++p) {
      using Access = kir::Param::Access;
      const Access access = all_[i].kernel.params[p].access;
      const std::string name = fmt::format("p{}", p);
      at.push_back(access == Access::temporary ? nullptr
                   : access == Access::read    ? b.add(name, buffers[p])
                                               : b.add_unwritten<std::byte>(name, std::ssize(buffers[p])));
    }
    if (emitted_[i].scratch_bytes > 0) b.add_unwritten<std::byte>("scratch", emitted_[i].scratch_bytes);
    for (const codegen::CudaLaunch& l : emitted_[i].launches) {
      std::vector<void*> params = b.params();
      std::vector<sf_host::TensorMap> maps;
      for (const codegen::TensorMap& m : l.maps) maps.push_back(encoded(m, at[static_cast<std::size_t>(m.buffer)]));
      for (sf_host::TensorMap& m : maps) params.push_back(&m);
      const auto ran = run(text_->kernel(l.entry),
                           {.grid = {static_cast<unsigned>(l.blocks)},
                            .block = {static_cast<unsigned>(l.threads)},
                            .dynamic_shared_bytes = l.dynamic_shared_bytes},
                           params.data(), b.allocations, policy);
      if (!ran.ok()) return ran.status();
      sum.sectors_read += ran->sectors_read, sum.ideal_sectors_read += ran->ideal_sectors_read;
      sum.sectors_written += ran->sectors_written, sum.ideal_sectors_written += ran->ideal_sectors_written;
      sum.shared_wavefronts += ran->shared_wavefronts;
      sum.ideal_shared_wavefronts += ran->ideal_shared_wavefronts;
    }
    for (std::size_t p = 0; p < buffers.size(); ++p)
      if (at[p]) std::memcpy(buffers[p].data(), at[p], buffers[p].size());
    return absl::OkStatus();
  }

 private:
  static sf_host::TensorMap encoded(const codegen::TensorMap& m, const std::byte* buffer) {
    const auto bytes = static_cast<unsigned>(size_bytes(m.dtype));
    return {.base = buffer + m.offset * bytes,
            .dims = {static_cast<std::uint64_t>(m.columns), static_cast<std::uint64_t>(m.rows)},
            .row_bytes = static_cast<std::uint64_t>(m.pitch) * bytes,
            .box = {static_cast<unsigned>(m.box_columns), static_cast<unsigned>(m.box_rows)},
            .element_bytes = bytes,
            .swizzle_bytes = 128,
            .unused = {}};
  }

  std::vector<Contraction> all_;
  std::vector<codegen::CudaText> emitted_;
  std::optional<Text> text_;
};

/// Elements of parameter p that are not the same bits, or for a `tolerance` (of 1 + the magnitude) not close.
inline int wrong_elements(const kir::Param& p, const Bytes& got, const Bytes& want, double tolerance = 0) {
  int wrong = 0;
  const auto size = static_cast<std::size_t>(size_bytes(p.dtype));
  for (std::size_t e = 0; e < static_cast<std::size_t>(p.count); ++e) {
    std::uint64_t g = 0, w = 0;
    std::memcpy(&g, got.data() + e * size, size);
    std::memcpy(&w, want.data() + e * size, size);
    if (g == w) continue;
    const double x = ir::from_bits(p.dtype, g), y = ir::from_bits(p.dtype, w);
    wrong += !(tolerance > 0 && std::abs(x - y) <= tolerance * (1 + std::abs(y)));
  }
  return wrong;
}

inline void check_ideal(const Counters& c) {
  CHECK(c.shared_wavefronts == c.ideal_shared_wavefronts);
  CHECK(c.sectors_read == c.ideal_sectors_read);
  CHECK(c.sectors_written == c.ideal_sectors_written);
}

/// Orders of threads and blocks, with copies as late and as early as can be.
inline const Policy kOrders[] = {{.order = Order::forward, .late_copies = true},
                                 {.order = Order::reverse, .late_copies = false},
                                 {.order = Order::random, .late_copies = true, .seed = 5}};

}  // namespace sheaf::emulator
