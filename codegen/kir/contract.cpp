// The obvious triple loop. It defines what a contraction's emitter must compute, term by term and in this order.
#include "codegen/kir/contract.h"

#include <functional>
#include <numeric>
#include <utility>

#include "codegen/kir/interp.h"
#include "codegen/kir/lane_ops.h"

namespace sheaf::kir {
namespace {

using ir::ScalarOp;

/// The element offset of position `flat` (row-major over `extents`).
std::int64_t offset_of(std::int64_t flat, const std::vector<std::int64_t>& extents,
                       const std::vector<std::int64_t>& strides) {
  std::int64_t offset = 0;
  for (std::size_t i = extents.size(); i-- > 0;) {
    offset += flat % extents[i] * strides[i];
    flat /= extents[i];
  }
  return offset;
}

std::uint64_t converted(std::uint64_t bits, DType from, DType to) {
  const std::uint64_t in[3] = {bits, 0, 0};
  return from == to ? bits : ir::eval_op(ScalarOp::convert, from, to, in);
}

std::uint64_t accumulate(DType t, std::uint64_t a, std::uint64_t b, std::uint64_t sum) {
  const std::uint64_t terms[3] = {a, b, sum};
  if (is_float(t)) return ir::eval_op(ScalarOp::fma, t, t, terms);
  const std::uint64_t product[3] = {ir::eval_op(is_bool(t) ? ScalarOp::and_ : ScalarOp::mul, t, t, terms), sum, 0};
  return ir::eval_op(is_bool(t) ? ScalarOp::or_ : ScalarOp::add, t, t, product);
}

}  // namespace

std::int64_t size_of(const Contract::Dims& dims) {
  return std::accumulate(dims.extents.begin(), dims.extents.end(), std::int64_t{1}, std::multiplies<>());
}

Contract::Dims merged(const Contract::Dims& dims) {
  Contract::Dims result;
  auto push = [&](std::int64_t extent, std::int64_t lhs, std::int64_t rhs, std::int64_t out) {
    result.extents.push_back(extent);
    result.lhs_strides.push_back(lhs);
    result.rhs_strides.push_back(rhs);
    result.out_strides.push_back(out);
  };
  for (std::size_t i = 0; i < dims.extents.size(); ++i) {
    const std::int64_t extent = dims.extents[i];
    if (extent == 1) continue;
    const bool merges = !result.extents.empty() && result.lhs_strides.back() == extent * dims.lhs_strides[i] &&
                        result.rhs_strides.back() == extent * dims.rhs_strides[i] &&
                        result.out_strides.back() == extent * dims.out_strides[i];
    if (!merges) {
      push(extent, dims.lhs_strides[i], dims.rhs_strides[i], dims.out_strides[i]);
      continue;
    }
    result.extents.back() *= extent;
    result.lhs_strides.back() = dims.lhs_strides[i];
    result.rhs_strides.back() = dims.rhs_strides[i];
    result.out_strides.back() = dims.out_strides[i];
  }
  if (result.extents.empty()) push(1, 0, 0, 0);
  return result;
}

const Phase* prologue_of(const Kernel& kernel, int operand) {
  const auto is_made = [&](int k) {
    return kernel.params[static_cast<std::size_t>(k)].access == Param::Access::temporary;
  };
  if (!is_made(operand)) return nullptr;
  return &kernel.phases[operand == 1 && is_made(0) ? 1 : 0];
}

namespace {

/// Phase i of those that come after the contraction.
const Phase* phase_after(const Kernel& kernel, std::size_t i) {
  for (const int operand : {0, 1}) i += prologue_of(kernel, operand) != nullptr;
  return kernel.phases.size() > i ? &kernel.phases[i] : nullptr;
}

}  // namespace

const Phase* epilogue_of(const Kernel& kernel) { return phase_after(kernel, 0); }
const Phase* columns_of(const Kernel& kernel) { return phase_after(kernel, 1); }

Contract swapped(const Contract& c) {
  auto exchange = [](Contract::Dims dims) {
    std::swap(dims.lhs_strides, dims.rhs_strides);
    return dims;
  };
  Contract result = c;
  result.batch = exchange(c.batch);
  result.m = exchange(c.n);
  result.n = exchange(c.m);
  result.k = exchange(c.k);
  std::swap(result.lhs, result.rhs);
  std::swap(result.lhs_offset, result.rhs_offset);
  return result;
}

std::int64_t place_of(const Contract::Padding& padding, std::int64_t i) {
  std::int64_t place = 0, step = 1;
  for (std::size_t d = padding.padded.size(); d-- > 0; step *= padding.extents[d]) {
    const std::int64_t at = i % padding.padded[d] - padding.low[d];
    if (at < 0 || at >= padding.extents[d]) return -1;
    place += at * step;
    i /= padding.padded[d];
  }
  return place;
}

std::size_t outside_of_rows(const Contract::Padding& padding, const std::vector<std::int64_t>& extents) {
  std::size_t d = extents.size();
  while (d > 0 && padding.padded[d - 1] == padding.extents[d - 1] && extents[d - 1] == padding.extents[d - 1]) --d;
  return d;
}

void run_contract(const Contract& c, void* const* buffers) {
  const auto* lhs = static_cast<const std::byte*>(buffers[0]);
  const auto* rhs = static_cast<const std::byte*>(buffers[1]);
  auto* out = static_cast<std::byte*>(buffers[c.result]);
  const int lhs_size = size_bytes(c.lhs), rhs_size = size_bytes(c.rhs), out_size = size_bytes(c.out);
  const std::int64_t batches = size_of(c.batch), rows = size_of(c.m), columns = size_of(c.n), terms = size_of(c.k);
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t m = 0; m < rows; ++m) {
      for (std::int64_t n = 0; n < columns; ++n) {
        const auto base = [&](std::int64_t start, std::vector<std::int64_t> Contract::Dims::* s) {
          return start + offset_of(b, c.batch.extents, c.batch.*s) + offset_of(m, c.m.extents, c.m.*s) +
                 offset_of(n, c.n.extents, c.n.*s);
        };
        const std::int64_t left = base(c.lhs_offset, &Contract::Dims::lhs_strides);
        const std::int64_t right = base(c.rhs_offset, &Contract::Dims::rhs_strides);
        std::uint64_t sum = 0;
        for (std::int64_t k = 0; k < terms; ++k) {
          const std::int64_t there = left + offset_of(k, c.k.extents, c.k.lhs_strides);
          const std::int64_t i = c.padding ? place_of(*c.padding, there) : there;
          const std::int64_t j = right + offset_of(k, c.k.extents, c.k.rhs_strides);
          const std::uint64_t a = i < 0 ? 0 : read_element(lhs + i * lhs_size, lhs_size);
          sum = accumulate(c.accumulate, converted(a, c.lhs, c.accumulate),
                           converted(read_element(rhs + j * rhs_size, rhs_size), c.rhs, c.accumulate), sum);
        }
        const std::int64_t at = base(c.out_offset, &Contract::Dims::out_strides);
        write_element(out + at * out_size, out_size, converted(sum, c.accumulate, c.out));
      }
    }
  }
}

}  // namespace sheaf::kir
