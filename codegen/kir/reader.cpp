// Elementwise, view and reduction producers. A false mask means "never loaded": it travels down to the loads, so that
// padding and concatenation read nothing outside their operands.
#include "codegen/kir/reader.h"

#include <algorithm>

#include "codegen/kir/reduction.h"
#include "ir/check.h"
#include "ir/schedule.h"

namespace sheaf::kir {
namespace {

namespace low = ir::lowering;

std::vector<int> key_of(int node, ValueId mask, const Position& position) {
  std::vector<int> key{node, mask};
  for (Index i : position) key.push_back(i.node);
  return key;
}

}  // namespace

Index flatten(IndexPool& pool, const Position& position, const Shape& dims) {
  Index flat = pool.constant(0);
  std::int64_t stride = 1;
  for (std::size_t d = dims.size(); d-- > 0; stride *= dims[d]) {
    flat = pool.add(flat, pool.scale(position[d], stride));
  }
  return flat;
}

Position unflatten(IndexPool& pool, Index flat, const Shape& dims) {
  Position position(dims.size());
  // The first that counts takes all there is: a position is the same with dims of one element before it and without.
  const auto is_many = [](std::int64_t extent) { return extent > 1; };
  const auto first = static_cast<std::size_t>(std::ranges::find_if(dims, is_many) - dims.begin());
  std::int64_t stride = 1;
  for (std::size_t d = dims.size(); d-- > 0;) {
    const std::int64_t extent = std::max<std::int64_t>(dims[d], 1);
    const Index above = pool.floor_div(flat, stride);
    position[d] = d < first && first < dims.size() ? pool.constant(0) : d <= first ? above : pool.mod(above, extent);
    stride *= extent;
  }
  return position;
}

bool is_inlinable(const Group& group, int node) {
  const GroupNode& n = group.nodes[node];
  if (!n.lowering) return true;
  if (const auto* reduce = std::get_if<low::Reduce>(&*n.lowering)) {
    return reduced_count(group.dims(n.operands[0]), reduce->dims) <= ir::kShortReduction;
  }
  return !std::holds_alternative<low::ArgReduce>(*n.lowering) && !std::holds_alternative<low::Contract>(*n.lowering) &&
         !std::holds_alternative<low::Sort>(*n.lowering) && !std::holds_alternative<low::Scatter>(*n.lowering) &&
         !std::holds_alternative<low::Recurrence>(*n.lowering) && !std::holds_alternative<low::Region>(*n.lowering);
}

ValueId Reader::fail() {
  ok_ = false;
  return -1;
}

void Reader::bind(int node, const Position& position, ValueId value) { bound_[key_of(node, 0, position)] = value; }

ValueId Reader::read(int node, const Position& position, ValueId mask) {
  if (!ok_) return -1;
  if (auto it = bound_.find(key_of(node, 0, position)); it != bound_.end()) return it->second;
  if (b_.is_true(mask)) mask = -1;
  const Key key = key_of(node, mask, position);
  if (auto it = known_.find(key); it != known_.end()) return it->second;
  const ValueId value = buffers_[node] >= 0 ? load(node, position, mask) : compute(node, position, mask);
  known_[key] = value;
  return value;
}

ValueId Reader::load(int node, const Position& position, ValueId mask) {
  const Index index = flatten(b_.indices(), position, group_.dims(node));
  if (const ValueId known = loads_ ? loads_(buffers_[node], index, mask) : -1; known >= 0) return known;
  return b_.load(buffers_[node], index, mask);
}

ValueId Reader::compute(int node, const Position& i, ValueId mask) {
  const GroupNode& n = group_.nodes[node];
  if (!n.lowering) return fail();
  const ValueId value = std::visit([&](const auto& l) { return lower(node, l, i, mask); }, *n.lowering);
  SHEAF_CHECK(!ok_ || b_.dtype(value) == n.type.dtype(), "a lowering yields another dtype than its equation");
  return value;
}

ValueId Reader::lower(int node, const low::Map& m, const Position& i, ValueId mask) {
  std::vector<ValueId> args;
  for (int operand : group_.nodes[node].operands) {
    args.push_back(read(operand, group_.dims(operand).empty() ? Position{} : i, mask));
    if (!ok_) return -1;
  }
  return b_.call(m.fn, args);
}

ValueId Reader::lower(int node, const low::View& v, const Position& i, ValueId mask) {
  IndexPool& pool = b_.indices();
  Position j(v.source.size());
  for (std::size_t d = 0; d < j.size(); ++d) {
    j[d] =
        v.source[d] < 0 ? pool.constant(v.offset[d]) : pool.add(pool.scale(i[v.source[d]], v.stride[d]), v.offset[d]);
  }
  return read(operand(node, 0), j, mask);
}

ValueId Reader::lower(int node, const low::Windows& w, const Position& i, ValueId mask) {
  IndexPool& pool = b_.indices();
  const std::size_t rank = i.size() - w.dims.size();
  Position j(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(rank));
  for (std::size_t m = 0; m < w.dims.size(); ++m) {
    Index& along = j[w.dims[m]];
    along = pool.add(pool.scale(along, w.strides[m]), pool.scale(i[rank + m], w.dilations[m]));
  }
  return read(operand(node, 0), j, mask);
}

ValueId Reader::lower(int node, const low::Reshape&, const Position& i, ValueId mask) {
  IndexPool& pool = b_.indices();
  const int from = operand(node, 0);
  return read(from, unflatten(pool, flatten(pool, i, group_.dims(node)), group_.dims(from)), mask);
}

ValueId Reader::lower(int node, const low::Pad& p, const Position& i, ValueId mask) {
  IndexPool& pool = b_.indices();
  const int from = operand(node, 0);
  Position j(i.size());
  ValueId inside = -1;
  for (std::size_t d = 0; d < i.size(); ++d) {
    const std::int64_t step = p.interior[d] + 1;
    const Index shifted = pool.add(i[d], -p.low[d]);
    j[d] = pool.floor_div(shifted, step);
    inside = b_.both(inside, b_.in_range(j[d], 0, group_.dims(from)[d]));
    inside = b_.both(inside, b_.in_range(pool.mod(shifted, step), 0, 1));
  }
  if (b_.is_true(inside)) return read(from, j, mask);
  const ValueId fill = read(operand(node, 1), {}, mask);
  if (b_.constant_bits(inside) == std::uint64_t{0}) return fill;
  const ValueId value = read(from, j, b_.both(mask, inside));
  return ok_ ? b_.op(ir::ScalarOp::select, inside, value, fill) : -1;
}

ValueId Reader::lower(int node, const low::Concatenate& c, const Position& i, ValueId mask) {
  IndexPool& pool = b_.indices();
  ValueId result = -1;
  std::int64_t begin = 0;
  for (int part : group_.nodes[node].operands) {
    const std::int64_t extent = group_.dims(part)[c.dim];
    const ValueId inside = b_.in_range(i[c.dim], begin, begin + extent);
    Position j = i;
    j[c.dim] = pool.add(i[c.dim], -begin);
    begin += extent;
    if (extent == 0 || b_.constant_bits(inside) == std::uint64_t{0}) continue;
    if (b_.is_true(inside)) return read(part, j, mask);
    const ValueId value = read(part, j, b_.both(mask, inside));
    if (!ok_) return -1;
    result = result < 0 ? value : b_.op(ir::ScalarOp::select, inside, value, result);
  }
  return result;
}

ValueId Reader::lower(int node, const low::Iota& t, const Position& i, ValueId) {
  return b_.index_value(i[t.dim], group_.dtype(node));
}

// The same tree as a reduction nest, lane l holding element l alone: combining with a lane that still holds the
// identity changes nothing, so those steps are left out.
ValueId Reader::lower(int node, const low::Reduce& r, const Position& i, ValueId mask) {
  const int from = operand(node, 0);
  const Reduction reduction = make_reduction(r.kind, group_.dtype(from));
  const ReducedDims dims(group_.dims(from), r.dims);
  if (dims.reduced_count > ir::kShortReduction) return fail();
  std::vector<State> lanes;
  for (std::int64_t k = 0; k < dims.reduced_count; ++k) {
    const Position at = dims.position(i, unflatten(b_.indices(), b_.indices().constant(k), dims.reduced));
    const ValueId value = read(from, at, mask);
    if (!ok_) return -1;
    lanes.push_back(reduction.combine(b_, reduction.identity(b_), {b_.convert(value, reduction.parts[0])}));
  }
  if (lanes.empty()) lanes.push_back(reduction.identity(b_));
  for (std::size_t half = kLanes / 2; half >= 1; half /= 2) {
    for (std::size_t l = 0; l < half && l + half < lanes.size(); ++l) {
      lanes[l] = reduction.combine(b_, lanes[l], lanes[l + half]);
    }
  }
  return b_.convert(lanes[0][0], group_.dtype(node));
}

}  // namespace sheaf::kir
