// Moves as equations on what one device holds: a tiled collective each, and slices and updates at its coordinate.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ir/log.h"
#include "ir/ops/rules.h"
#include "passes/sharding/reasons.h"
#include "passes/sharding/reshard.h"

namespace sheaf::passes {
namespace {

using ir::Atoms;
using ir::Sharding;
using ir::Value;
using Kind = ReshardMove::Kind;
namespace ops = ir::ops;

bool has(const Atoms& list, int atom) { return std::find(list.begin(), list.end(), atom) != list.end(); }

/// How often a device is in a ppermute: its position among those that differ in some atoms, taken apart and put
/// together.
class Coordinates {
 public:
  Coordinates(const ir::MeshAtoms& mesh, const Atoms& axes) : mesh_(mesh), axes_(axes), of_(axes.size()) {}

  void set(std::int64_t position) { write(axes_, position); }
  std::int64_t position() const { return read(axes_); }

  std::int64_t read(const Atoms& atoms) const {
    std::int64_t value = 0;
    for (const int a : atoms) value = value * mesh_[a].size + of_[place(a)];
    return value;
  }
  void write(const Atoms& atoms, std::int64_t value) {
    for (std::size_t i = atoms.size(); i-- > 0; value /= mesh_[atoms[i]].size)
      of_[place(atoms[i])] = value % mesh_[atoms[i]].size;
  }

 private:
  std::size_t place(int atom) const {
    return static_cast<std::size_t>(std::find(axes_.begin(), axes_.end(), atom) - axes_.begin());
  }
  const ir::MeshAtoms& mesh_;
  const Atoms& axes_;
  std::vector<std::int64_t> of_;
};

Atoms only(const Atoms& list, const Atoms& among) {
  Atoms kept;
  for (const int a : list)
    if (has(among, a)) kept.push_back(a);
  return kept;
}

/// The atoms of `axes` that split `s` nowhere, by size.
Atoms idle(const Sharding& s, const Atoms& axes, const ir::MeshAtoms& mesh) {
  const Atoms used = s.used();
  Atoms rest;
  for (const int a : axes)
    if (!has(used, a)) rest.push_back(a);
  std::sort(rest.begin(), rest.end(),
            [&](int a, int b) { return std::pair(mesh[a].size, a) < std::pair(mesh[b].size, b); });
  return rest;
}

class Emitter {
 public:
  Emitter(ir::Builder& b, const ir::MeshAtoms& mesh) : b_(b), mesh_(mesh), is_backward_(is_of_derivative(b.how())) {}

  Value move(Value x, const Sharding& before, const ReshardMove& m) {
    const ir::Axes axes = mesh_.names(m.axes);
    const std::int64_t size = mesh_.size(m.axes);
    switch (m.kind) {
      case Kind::slice: return slice(x, before, m.result);
      case Kind::all_gather:
        return b_.emit(
            ops::all_gather, {x},
            ops::AllGather{.axes = axes, .size = size, .dim = m.dim, .tiled = true, .backward = is_backward_});
      case Kind::all_to_all:
        return b_.emit(ops::all_to_all, {x},
                       ops::AllToAll{.axes = axes, .size = size, .split = m.to_dim, .concat = m.dim, .tiled = true});
      case Kind::ppermute: return permute(x, before, m);
      case Kind::all_reduce: return b_.emit(ops::all_reduce, {x}, ops::AllReduce{.axes = axes, .kind = before.kind});
      case Kind::reduce_scatter:
        return b_.emit(
            ops::reduce_scatter, {x},
            ops::ReduceScatter{.axes = axes, .size = size, .dim = m.dim, .tiled = true, .kind = before.kind});
      case Kind::make_partial: return make_partial(x, m);
      case Kind::pad_partial: return pad_partial(x, m);
    }
    return x;
  }

 private:
  Value index(const Atoms& atoms) { return b_.emit(ops::axis_index, {}, ops::AxisIndex{.axes = mesh_.names(atoms)}); }

  /// Where the part of a coordinate begins, as an index vector of one element.
  Value start(const Atoms& atoms, std::int64_t rows, std::int64_t extent) {
    Value at = index(atoms);
    if (extent > std::numeric_limits<std::int32_t>::max()) at = ops::convert_to(at, DType::i64);
    return ops::reshape_to(at * static_cast<double>(rows), {1});
  }

  Value slice(Value x, const Sharding& before, const Sharding& after) {
    for (int d = 0; d < x.rank(); ++d) {
      const Atoms& had = before.dims[d];
      const Atoms added(after.dims[d].begin() + std::ssize(had), after.dims[d].end());
      if (added.empty()) continue;
      const std::int64_t extent = x.dims()[d], rows = extent / mesh_.size(added);
      x = b_.emit(ops::dynamic_slice, {x, start(added, rows, extent)},
                  ops::DynamicSlice{.dims = {d}, .sizes = {rows}, .index_dim = {0}});
    }
    return x;
  }

  // Device t of a group is to hold what the device holds that had the same part of every dim; copies go to where the
  // atoms that have become idle say.
  Value permute(Value x, const Sharding& before, const ReshardMove& m) {
    const Atoms idle_before = idle(before, m.axes, mesh_), idle_after = idle(m.result, m.axes, mesh_);
    ops::Ppermute a{.axes = mesh_.names(m.axes)};
    Coordinates target(mesh_, m.axes), source(mesh_, m.axes);
    for (std::int64_t t = 0; t < mesh_.size(m.axes); ++t) {
      target.set(t);
      for (std::size_t d = 0; d < before.dims.size(); ++d)
        source.write(only(before.dims[d], m.axes), target.read(only(m.result.dims[d], m.axes)));
      source.write(idle_before, target.read(idle_after));
      a.sources.push_back(source.position());
      a.targets.push_back(t);
    }
    return b_.emit(ops::ppermute, {x}, std::move(a));
  }

  Value is_first(const Atoms& atoms, Value like) {
    const Value at = index(atoms);
    const Value first = b_.emit(ops::eq, {at, ir::number(at, 0)});
    return ops::broadcast_to(first, like.dims(), {});
  }

  /// What changes no sum: -0.0 + x is x for every float, 0.0 too.
  Value neutral(ir::Type type, ir::ReduceKind kind) {
    if (kind == ir::ReduceKind::prod) return b_.full(type, 1);
    return b_.full(type, is_float(type.dtype()) ? -0.0 : 0.0);
  }

  /// The larger of a value and itself is itself: only sums and products need to be counted once.
  Value make_partial(Value x, const ReshardMove& m) {
    const ir::ReduceKind kind = m.result.kind;
    if (kind != ir::ReduceKind::sum && kind != ir::ReduceKind::prod) return x;
    return ops::where(is_first(m.axes, x), x, neutral(x.type(), kind));
  }

  Value pad_partial(Value x, const ReshardMove& m) {
    Shape dims = x.dims();
    const std::int64_t rows = dims[m.dim];
    dims[m.dim] *= mesh_.size(m.axes);
    const Value whole = neutral(x.type().with_dims(dims), m.result.kind);
    return b_.emit(ops::dynamic_update_slice, {whole, x, start(m.axes, rows, dims[m.dim])},
                   ops::DynamicUpdateSlice{.dims = {m.dim}, .index_dim = {0}});
  }

  ir::Builder& b_;
  const ir::MeshAtoms& mesh_;
  const bool is_backward_;
};

}  // namespace

Value emit_reshard(ir::Builder& b, Value local, const ReshardPlan& plan, const ir::MeshAtoms& atoms) {
  const char* const how = b.how();
  const auto add_to_reason = [&](std::string_view what) {
    b.set_loc(b.loc(), ir::extend_how(b.how(), std::string(what).c_str()));
  };
  if (plan.gathers_all) {
    ir::warn(fmt::format("{}: {} {} is {}, as {}", to_string(b.loc()), to_string(local.type()),
                         to_string(plan.from, atoms), kGathersAll, to_string(plan.moves.back().result, atoms)));
    add_to_reason(kGathersAll);
  }
  if (plan.is_greedy) {
    ir::log(ir::LogTopic::passes, "{}: {} {} is moved step by step to {}: {}", to_string(b.loc()),
            to_string(local.type()), to_string(plan.from, atoms), to_string(plan.moves.back().result, atoms),
            kNotSearched);
    add_to_reason(kNotSearched);
  }
  Emitter emitter(b, atoms);
  const Sharding* before = &plan.from;
  for (const ReshardMove& m : plan.moves) {
    local = emitter.move(local, *before, m);
    before = &m.result;
  }
  b.set_loc(b.loc(), how);
  return local;
}

}  // namespace sheaf::passes
