// The table of placements, and how an array moves from one to another: for each device the blocks it lacks are found in
// the grid of parts that the array has now.
#include "trace/placement.h"

#include <absl/container/node_hash_map.h>

#include <algorithm>
#include <mutex>

#include "ir/literal.h"
#include "runtime/device.h"
#include "sheaf/ops.h"

namespace sheaf {
namespace {

struct Key {
  const Mesh::Data* mesh;
  ir::Sharding layout;
  bool operator==(const Key&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Key& k) {
    return H::combine(std::move(h), k.mesh, k.layout);
  }
};

// The parts of an array as a grid of blocks, and which devices hold each.
struct Grid {
  Shape extent, counts;  // of a block; of the blocks per dim
  std::vector<std::vector<int>> holders;

  Grid(const Placement& p, const Shape& shape) {
    const ir::MeshAtoms& atoms = p.atoms();
    std::int64_t blocks = 1;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      counts.push_back(atoms.size(p.layout.dims[d]));
      extent.push_back(shape[d] / counts[d]);
      blocks *= counts[d];
    }
    holders.resize(static_cast<std::size_t>(blocks));
    for (int i = 0; i < std::ssize(p.devices); ++i) {
      std::int64_t block = 0;
      for (std::size_t d = 0; d < shape.size(); ++d) block = block * counts[d] + atoms.coordinate(p.layout.dims[d], i);
      holders[block].push_back(i);
    }
  }
};

// The part [start, start + extent) of an array, read from the parts it has.
class Reader {
 public:
  Reader(const Placement& from, std::span<const runtime::BufferPtr> shards, ir::Type type)
      : from_(from), shards_(shards), type_(type), grid_(from, type.dims()) {}

  runtime::BufferPtr read(runtime::Device& to, const runtime::Region& wanted, const Shape& extent, Loc use) const {
    if (runtime::BufferPtr same = held(to, wanted, extent)) return same;
    std::vector<runtime::Piece> pieces;
    each_block(wanted, extent, [&](const Shape& at, std::int64_t block) {
      pieces.push_back(piece(at, holder(block, to), wanted, extent));
    });
    auto made = runtime::assemble(to, ir::Type(type_.dtype(), extent).bytes(), size_bytes(type_.dtype()),
                                  std::move(pieces), use);
    check(made.status(), use);
    return *std::move(made);
  }

 private:
  // The buffer of `to` that is just what is wanted.
  runtime::BufferPtr held(runtime::Device& to, const runtime::Region& wanted, const Shape& extent) const {
    if (extent != grid_.extent) return nullptr;
    for (std::size_t i = 0; i < shards_.size(); ++i)
      if (from_.devices[i] == &to && from_.block(type_.dims(), static_cast<std::int64_t>(i)).start == wanted.start)
        return shards_[i];
    return nullptr;
  }

  // Of those that hold a block the device itself, else one that differs from reader to reader.
  int holder(std::int64_t block, const runtime::Device& to) const {
    const std::vector<int>& all = grid_.holders[block];
    for (const int i : all)
      if (from_.devices[i] == &to) return i;
    return all[static_cast<std::size_t>(to.id()) % all.size()];
  }

  template <class F>
  void each_block(const runtime::Region& wanted, const Shape& extent, F f) const {
    if (std::find(extent.begin(), extent.end(), 0) != extent.end()) return;
    Shape first, count;
    for (std::size_t d = 0; d < extent.size(); ++d) {
      first.push_back(wanted.start[d] / grid_.extent[d]);
      count.push_back((wanted.start[d] + extent[d] - 1) / grid_.extent[d] + 1 - first[d]);
    }
    std::vector<std::int64_t> index(extent.size(), 0);
    do {
      Shape at = first;
      std::int64_t block = 0;
      for (std::size_t d = 0; d < at.size(); ++d) block = block * grid_.counts[d] + (at[d] += index[d]);
      f(at, block);
    } while (ir::next_index(index, count));
  }

  runtime::Piece piece(const Shape& at, int device, const runtime::Region& wanted, const Shape& extent) const {
    runtime::Piece p{.from = shards_[device], .in = {grid_.extent, {}}, .out = {extent, {}}, .extent = {}};
    for (std::size_t d = 0; d < at.size(); ++d) {
      const std::int64_t begin = std::max(at[d] * grid_.extent[d], wanted.start[d]);
      const std::int64_t end = std::min((at[d] + 1) * grid_.extent[d], wanted.start[d] + extent[d]);
      p.in.start.push_back(begin - at[d] * grid_.extent[d]);
      p.out.start.push_back(begin - wanted.start[d]);
      p.extent.push_back(end - begin);
    }
    return p;
  }

  const Placement& from_;
  std::span<const runtime::BufferPtr> shards_;
  ir::Type type_;
  Grid grid_;
};

}  // namespace

runtime::Region Placement::block(const Shape& shape, std::int64_t device) const {
  runtime::Region b{.dims = shape, .start = {}};
  for (std::size_t d = 0; d < shape.size(); ++d)
    b.start.push_back(shape[d] / atoms().size(layout.dims[d]) * atoms().coordinate(layout.dims[d], device));
  return b;
}

const Placement* placement_of(const Mesh& mesh, const ir::Sharding& layout) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new absl::node_hash_map<Key, Placement>;
  std::lock_guard lock(mutex);
  Placement& p = known[Key{&mesh.data(), layout}];
  if (p.mesh) return &p;
  p.mesh = mesh;
  p.layout = layout;
  for (const Device d : mesh.devices()) p.devices.push_back(&runtime::device(d.id));
  return &p;
}

const Placement* placement_on(Device device, int rank) {
  return placement_of(Mesh({}, std::vector<Device>{device}), ir::Sharding::replicated(rank));
}

const Placement* replicated_on(const Mesh& mesh, int rank) {
  return placement_of(mesh, ir::Sharding::replicated(rank));
}

std::string place_text(const Placement& p, const Mesh& beside) {
  if (!p.is_on_mesh()) return to_string(p.mesh.devices().at(0));
  const bool is_alike = beside && p.mesh != beside && p.mesh.axes() == beside.axes();
  return is_alike ? text_with_devices(p.mesh) : to_string(p.mesh);
}

Array placed(const Placement* placement, std::vector<runtime::BufferPtr> shards, ir::Type type, bool is_weak,
             Loc made_at) {
  auto node = ir::make_recycled<ArrayNode>();
  node->kind = ArrayNode::Kind::concrete;
  node->is_weak = is_weak;
  node->type = type;
  node->made_at = made_at;
  node->placement = placement;
  node->shards = std::move(shards);
  return Array(std::move(node));
}

std::vector<runtime::BufferPtr> moved(const Array& x, ir::Type type, const Placement* to, Loc use) {
  const ArrayNode& node = node_with_value(x, "elements to read", use);
  if (node.placement && node.type != type) return moved(convert(x, type.dtype()), type, to, use);  // a weak result
  if (node.placement == to) return node.shards;
  std::vector<runtime::BufferPtr> one;
  if (node.kind == ArrayNode::Kind::number) {  // written out where it goes, so that no other device is needed
    for (runtime::Device* d : to->devices) one.push_back(number_buffer(node.number, type.dtype(), *d, node.made_at));
    return one;
  }
  if (!node.placement) one.push_back(buffer_of(x, type, use));
  const Placement* from = node.placement ? node.placement : placement_on({}, type.rank());
  const Reader reader(*from, node.placement ? std::span(node.shards) : std::span(one), type);
  const Shape extent = to->local(type).dims();
  std::vector<runtime::BufferPtr> shards;
  for (std::size_t i = 0; i < to->devices.size(); ++i)
    shards.push_back(reader.read(*to->devices[i], to->block(type.dims(), static_cast<std::int64_t>(i)), extent, use));
  return shards;
}

runtime::BufferPtr gathered(const ArrayNode& node, Loc use) {
  const Placement& p = *node.placement;
  if (p.layout.is_replicated()) return node.shards[0];
  const Shape& shape = node.type.dims();
  return Reader(p, node.shards, node.type)
      .read(*p.devices[0], {shape, std::vector<std::int64_t>(shape.size(), 0)}, shape, use);
}

}  // namespace sheaf
