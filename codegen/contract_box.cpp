// A stride in the padded array is so many steps along each of its dims: the digits of a number whose radixes are the
// extents. The box has room for all steps of all dims that a unit walks.
#include "codegen/contract_box.h"

#include <algorithm>

#include "codegen/kir/contract.h"
#include "ir/literal.h"

namespace sheaf::codegen {
namespace {

using Dims = kir::Contract::Dims;
using Padding = kir::Contract::Padding;
using Steps = std::vector<std::int64_t>;

constexpr std::int64_t kMostBoxBytes = 320 << 10;  // a third of L2
constexpr std::int64_t kWantedUnits = 32;
constexpr std::int64_t kFarBytes = 1024;  // that rows so far apart share few sets of L1, when they share any
constexpr std::int64_t kApartBytes = 64;

constexpr std::vector<std::int64_t> Dims::* kLists[] = {&Dims::extents, &Dims::lhs_strides, &Dims::rhs_strides,
                                                        &Dims::out_strides};

std::int64_t product(const Steps& list, std::size_t first) {
  std::int64_t all = 1;
  for (std::size_t d = first; d < list.size(); ++d) all *= list[d];
  return all;
}

std::int64_t stride_in(const ContractBox& box, std::int64_t stride, const Padding& padding) {
  const Steps steps = steps_of(stride, padding);
  std::int64_t in_box = 0;
  for (std::size_t d = 0; d < steps.size(); ++d) in_box += steps[d] * box.strides[d];
  return in_box;
}

// Row-major, but that neighbours along `apart` dims lie a line further apart where they would share sets of the cache.
void lay_out(ContractBox& box, const Padding& padding, int bytes) {
  const std::size_t rank = box.extents.size(), outside = kir::outside_of_rows(padding, box.extents);
  box.strides.assign(rank, 1);
  for (std::size_t d = rank - 1; d-- > 0;) {
    box.strides[d] = box.strides[d + 1] * box.extents[d + 1];
    if (d + 1 == outside && box.strides[d] * bytes % kFarBytes == 0) box.strides[d] += kApartBytes / bytes;
  }
  box.count = box.strides[0] * box.extents[0];
}

// Appends dim i of `from`, or `count` positions of it.
void append(Dims& to, const Dims& from, std::size_t i, std::int64_t count, std::int64_t step = 1) {
  to.extents.push_back(count);
  for (auto strides : {&Dims::lhs_strides, &Dims::rhs_strides, &Dims::out_strides})
    (to.*strides).push_back((from.*strides)[i] * step);
}

// What a unit of `positions` of the second last dim of m meets.
std::optional<ContractBox> box_of(const kir::Contract& c, const Dims& m, std::int64_t positions) {
  const Padding& padding = *c.padding;
  ContractBox box{.extents = Steps(padding.padded.size(), 1), .strides = {}};
  bool is_forward = true;
  const auto walk = [&](std::int64_t extent, std::int64_t stride) {
    is_forward &= stride >= 0;
    const Steps steps = steps_of(stride, padding);
    for (std::size_t d = 0; d < steps.size(); ++d) box.extents[d] += (extent - 1) * steps[d];
  };
  const std::size_t rows = m.extents.size() - 1;
  if (rows > 0) walk(positions, m.lhs_strides[rows - 1]);
  walk(m.extents[rows], m.lhs_strides[rows]);
  for (const Dims* dims : {&c.k, &c.n})
    for (std::size_t i = 0; i < dims->extents.size(); ++i) walk(dims->extents[i], dims->lhs_strides[i]);
  for (std::size_t d = 0; d < box.extents.size(); ++d)
    if (!is_forward || box.extents[d] > padding.padded[d]) return std::nullopt;
  lay_out(box, padding, size_bytes(c.lhs));
  if (box.count * size_bytes(c.lhs) > kMostBoxBytes) return std::nullopt;
  return box;
}

}  // namespace

Steps steps_of(std::int64_t stride, const Padding& padding) {
  Steps steps;
  for (std::size_t d = 0; d < padding.padded.size(); ++d) {
    const std::int64_t below = product(padding.padded, d + 1);
    steps.push_back(below == 0 ? 0 : stride / below);
    if (below != 0) stride %= below;
  }
  return steps;
}

std::int64_t stride_in_memory(std::int64_t stride, const Padding& padding) {
  const Steps steps = steps_of(stride, padding), strides = ir::strides_of(padding.extents);
  std::int64_t in_memory = 0;
  for (std::size_t d = 0; d < steps.size(); ++d) in_memory += steps[d] * strides[d];
  return in_memory;
}

std::vector<std::size_t> padded_dims(const Padding& padding) {
  std::vector<std::size_t> dims;
  for (std::size_t d = 0; d < padding.padded.size(); ++d)
    if (padding.padded[d] != padding.extents[d]) dims.push_back(d);
  return dims;
}

bool keeps_to_dims(const kir::Contract& c) {
  const Padding& padding = *c.padding;
  Steps last = steps_of(c.lhs_offset, padding);
  for (const Dims* dims : {&c.batch, &c.m, &c.k, &c.n})
    for (std::size_t i = 0; i < dims->extents.size(); ++i) {
      if (dims->lhs_strides[i] < 0) return false;
      const Steps steps = steps_of(dims->lhs_strides[i], padding);
      for (std::size_t d = 0; d < last.size(); ++d) last[d] += (dims->extents[i] - 1) * steps[d];
    }
  for (std::size_t d = 0; d < last.size(); ++d)
    if (last[d] >= padding.padded[d]) return false;
  for (const std::size_t d : padded_dims(padding))
    for (const std::int64_t stride : c.n.lhs_strides)
      if (steps_of(stride, padding)[d] != 0) return false;
  return c.lhs_offset >= 0;
}

ContractBox row_box(const Padding& padding) {
  ContractBox box{.extents = padding.padded, .strides = ir::strides_of(padding.padded)};
  const std::size_t outside = kir::outside_of_rows(padding, box.extents);
  for (std::size_t d = 0; d + 1 < outside; ++d) box.extents[d] = 1;
  box.count = product(box.extents, 0);
  return box;
}

std::optional<BoxedContract> boxed(const kir::Contract& c) {
  Dims m = c.m;
  for (std::size_t i = m.extents.size(); i-- > 0 && m.extents.size() > 1;)
    if (m.extents[i] == 1)
      for (auto list : kLists) (m.*list).erase((m.*list).begin() + static_cast<std::ptrdiff_t>(i));
  const std::size_t rows = m.extents.size() - 1;
  const std::int64_t all = rows > 0 ? m.extents[rows - 1] : 1, others = product(m.extents, 0) / all / m.extents[rows];
  // As many positions as fit, but enough units.
  std::optional<ContractBox> box;
  std::int64_t positions = all;
  const auto is_good = [&] {
    if (all % positions != 0) return false;
    if (positions > 1 && kir::size_of(c.batch) * others * (all / positions) < kWantedUnits) return false;
    box = box_of(c, m, positions);
    return box.has_value();
  };
  while (positions > 0 && !is_good()) --positions;
  if (positions == 0) return std::nullopt;

  BoxedContract result{.contract = c, .box = *box};
  kir::Contract& b = result.contract;
  const auto local = [&](Dims& dims) {
    for (std::int64_t& stride : dims.lhs_strides) stride = stride_in(*box, stride, *c.padding);
  };
  for (std::size_t i = 0; i + 1 < rows; ++i) append(b.batch, m, i, m.extents[i]);
  if (rows > 0) append(b.batch, m, rows - 1, all / positions, positions);
  b.batch = kir::merged(b.batch);
  Dims unit;
  if (rows > 0) append(unit, m, rows - 1, positions);
  else unit = {.extents = {1}, .lhs_strides = {0}, .rhs_strides = {0}, .out_strides = {0}};
  b.m = {};
  append(b.m, m, rows, m.extents[rows]);
  for (Dims* dims : {&unit, &b.m, &b.k, &b.n}) local(*dims);
  append(b.batch, unit, 0, positions);
  b.k = kir::merged(b.k);
  b.n = kir::merged(b.n);
  return result;
}

}  // namespace sheaf::codegen
