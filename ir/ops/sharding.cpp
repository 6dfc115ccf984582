// What a program says about its layout on a mesh: with_sharding fixes where a value lies, shard_map runs a function of
// the parts on every device. Both are gone after partitioning, which turns them into the parts themselves.
#include "ir/sharding.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/manual.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/ops/regions.h"
#include "ir/ops/rules.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<Mesh> mesh_of(const std::string& text) { return Mesh::parse(text); }

/// The axes of the spec among those of the mesh, none twice, no more dims than `rank`.
absl::StatusOr<Spec> checked_spec(const std::string& text, Mesh mesh, int rank) {
  absl::StatusOr<Spec> spec = parse_spec(text);
  if (!spec.ok()) return spec;
  if (std::ssize(*spec) > rank)
    return absl::InvalidArgumentError(fmt::format("the spec {} has {} dims, its value {}", text, spec->size(), rank));
  Axes seen;
  for (const DimSpec& dim : *spec)
    for (const std::string& axis : dim.axes) {
      if (mesh.find(axis) < 0)
        return absl::InvalidArgumentError(fmt::format("the mesh [{}] has no axis \"{}\"", to_string(mesh), axis));
      if (std::find(seen.begin(), seen.end(), axis) != seen.end())
        return absl::InvalidArgumentError(fmt::format("the spec {} uses axis \"{}\" twice", text, axis));
      seen.push_back(axis);
    }
  spec->resize(rank);
  return spec;
}

std::int64_t ways(Mesh mesh, const DimSpec& dim) {
  std::int64_t n = 1;
  for (const std::string& axis : dim.axes) n *= mesh.axes()[mesh.find(axis)].size;
  return n;
}

Axes sorted(Axes axes) {
  std::sort(axes.begin(), axes.end());
  return axes;
}

Axes axes_in(const Spec& spec) {
  Axes all;
  for (const DimSpec& dim : spec) all.insert(all.end(), dim.axes.begin(), dim.axes.end());
  return sorted(std::move(all));
}

// with_sharding

absl::StatusOr<Factors> factors_with_sharding(const Eqn& e) {
  const WithSharding& a = e.attrs<WithSharding>();
  absl::StatusOr<Mesh> mesh = mesh_of(a.mesh);
  if (!mesh.ok()) return mesh.status();
  if (absl::StatusOr<Spec> spec = checked_spec(a.spec, *mesh, e.in(0).rank()); !spec.ok()) return spec.status();
  return Factors::pointwise(e.in_types());
}

// The new dim may lie anywhere.
std::vector<Batched> batch_with_sharding(Builder& b, const Eqn& e, std::span<const Batched> in, std::int64_t) {
  WithSharding a = e.attrs<WithSharding>();
  Spec spec = *parse_spec(a.spec);
  spec.resize(e.in(0).rank());
  spec.insert(spec.begin() + in[0].dim, DimSpec{.axes = {}, .open = true});
  a.spec = to_text(spec);
  return {{b.emit(with_sharding, {in[0].value}, std::move(a)), in[0].dim}};
}

// shard_map

Axes own_axes(const Axes& axes, const Axes& manual) { return without(axes, without(axes, manual)); }

absl::StatusOr<std::vector<Type>> infer_shard_map(const Eqn& e) {
  const ShardMap& a = e.attrs<ShardMap>();
  if (absl::Status s = region_count(e, 1); !s.ok()) return s;
  absl::StatusOr<Mesh> mesh = mesh_of(a.mesh);
  if (!mesh.ok()) return mesh.status();
  const Function& f = *e.regions[0];
  if (a.in.size() != e.operands.size() || a.out.size() != f.results().size())
    return absl::InvalidArgumentError(fmt::format("has {} specs for {} operands and {} for {} results", a.in.size(),
                                                  e.num_in(), a.out.size(), f.results().size()));
  const Axes manual = sorted(a.manual);
  for (const std::string& axis : manual)
    if (mesh->find(axis) < 0)
      return absl::InvalidArgumentError(fmt::format("the mesh [{}] has no axis \"{}\"", to_string(*mesh), axis));
  std::vector<Type> locals, results;
  for (int k = 0; k < e.num_in(); ++k) {
    absl::StatusOr<Spec> spec = checked_spec(a.in[k], *mesh, e.in(k).rank());
    if (!spec.ok()) return spec.status();
    Shape dims = e.in(k).dims();
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const std::int64_t n = ways(*mesh, (*spec)[d]);
      if (dims[d] % n != 0)
        return absl::InvalidArgumentError(
            fmt::format("dim {} of operand {} ({}) does not divide by {}", d, k, to_string(e.in(k).type()), n));
      dims[d] /= n;
    }
    if (const Axes automatic = without(axes_in(*spec), manual); !automatic.empty())
      return absl::InvalidArgumentError(
          fmt::format("the spec {} names \"{}\", along which the region is not written", a.in[k], automatic[0]));
    const Type outer = e.in(k).type();
    for (const std::string& axis : manual)
      if (along(outer.manual(), axis) != Along::invarying)
        return absl::InvalidArgumentError(
            fmt::format("operand {} ({}) is a part along \"{}\" already", k, to_string(outer), axis));
    locals.push_back(
        outer.with_dims(std::move(dims)).with_manual(with_axes(outer.manual(), axes_in(*spec), Along::varying)));
  }
  if (absl::Status s = takes(f, locals); !s.ok()) return s;
  for (std::size_t j = 0; j < f.results().size(); ++j) {
    const Type local = f.results()[j].type();
    absl::StatusOr<Spec> spec = checked_spec(a.out[j], *mesh, local.rank());
    if (!spec.ok()) return spec.status();
    const Axes named = axes_in(*spec);
    if (const Axes automatic = without(named, manual); !automatic.empty())
      return absl::InvalidArgumentError(
          fmt::format("the spec {} names \"{}\", along which the region is not written", a.out[j], automatic[0]));
    const Axes own = own_axes(local.varying(), manual), sums = own_axes(local.manual().unreduced, manual);
    if (const Axes lost = without(own, named); !lost.empty() && !a.unchecked)
      return absl::InvalidArgumentError(
          fmt::format("result {} ({}) differs along \"{}\", which its spec {} does not name", j, to_string(local),
                      lost[0], a.out[j].empty() ? "_" : a.out[j]));
    if (const Axes lost = without(sums, named); !lost.empty())
      return absl::InvalidArgumentError(
          fmt::format("result {} ({}) is yet to be summed along \"{}\", which its spec {} does not name", j,
                      to_string(local), lost[0], a.out[j].empty() ? "_" : a.out[j]));
    Shape dims = local.dims();
    for (std::size_t d = 0; d < dims.size(); ++d) dims[d] *= ways(*mesh, (*spec)[d]);
    results.push_back(
        local.with_dims(std::move(dims)).with_manual(with_axes(local.manual(), manual, Along::invarying)));
  }
  return results;
}

// A part differs along the axes its spec names; along others it is what it is a part of.
Manual feeds_parts(const Eqn& e, int k) {
  return with_axes(feeds_params(e, k), e.attrs<ShardMap>().manual, Along::invarying);
}

void eval_unpartitioned(const Eqn&, std::span<const Literal>, std::span<Literal>) {
  SHEAF_CHECK(false, "shard_map in a program that was not partitioned");
}

}  // namespace

constinit const OpDef with_sharding = {
    .name = "with_sharding",
    .doc = "The operand, which lies on the mesh as the spec says.",
    .arity = 1,
    .attrs = attrs_of<WithSharding>(),
    .factors = factors_with_sharding,
    .linear = jointly(1),
    .transpose = [](Builder& b, const Eqn& e, const Values&, const Values& cts) -> Values {
      return {b.emit(with_sharding, {cts[0]}, e.attrs<WithSharding>())};
    },
    .batch = batch_with_sharding,
    .lower = [](const Eqn&) -> Lowering { return lowering::Reshape{}; },
    .eval = [](const Eqn&, std::span<const Literal> in, std::span<Literal> out) { out[0] = in[0]; },
    .samples =
        [] {
          return Samples{R"(with_sharding f32[4, 6] {mesh="data=2, model=3", spec="data,model"})",
                         R"(with_sharding f16[4] {mesh="data=2", spec="data?"})",
                         R"(with_sharding bf16[2, 4] {mesh="data=2, model=2", spec="_,data+model"})"};
        },
};

constinit const OpDef shard_map = {
    .name = "shard_map",
    .doc =
        "The region on every device of the mesh: it takes the parts of the operands and returns those of the results.",
    .num_results = -1,
    .attrs = attrs_of<ShardMap>(),
    .infer = infer_shard_map,
    .no_jvp = Absent::by_region,
    .feeds = feeds_parts,
    .lower = [](const Eqn&) -> Lowering { return lowering::Region{}; },
    .eval = eval_unpartitioned,
    .samples = [] { return Samples{}; },
};

}  // namespace sheaf::ir::ops
