// Atoms of meshes, and the two texts of shardings.
#include "ir/sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/check.h"
#include "ir/words.h"

namespace sheaf::ir {

MeshAtoms::MeshAtoms(Mesh mesh) : mesh_(mesh) {
  for (int a = 0; a < mesh.rank(); ++a) {
    std::int64_t before = 1;
    std::int64_t rest = mesh.axes()[a].size;
    for (std::int64_t p = 2; rest > 1; ++p) {
      if (p * p > rest) p = rest;
      for (; rest % p == 0; rest /= p, before *= p) atoms_.push_back({.axis = a, .before = before, .size = p});
    }
  }
}

std::int64_t MeshAtoms::size(const Atoms& atoms) const {
  std::int64_t n = 1;
  for (const int a : atoms) n *= atoms_[a].size;
  return n;
}

std::optional<Atoms> MeshAtoms::find(std::string_view name) const {
  std::int64_t before = 1, size = 0;
  const std::string_view whole = name.substr(0, name.find(":("));
  if (whole.size() < name.size()) {
    const std::size_t open = whole.size() + 2, close = name.find(')', open);
    if (close == std::string_view::npos) return std::nullopt;
    before = parse_int(name.substr(open, close - open)).value_or(0);
    size = parse_int(name.substr(close + 1)).value_or(0);
    if (before < 1 || size < 1) return std::nullopt;
  }
  const int axis = mesh_.find(whole);
  if (axis < 0) return std::nullopt;
  if (size == 0) size = mesh_.axes()[axis].size;
  Atoms atoms;
  std::int64_t covered = 1;
  for (int i = 0; i < count(); ++i) {
    if (atoms_[i].axis != axis || atoms_[i].before < before || atoms_[i].before / before >= size) continue;
    atoms.push_back(i);
    covered *= atoms_[i].size;
  }
  if (covered != size || (!atoms.empty() && atoms_[atoms[0]].before != before)) return std::nullopt;
  return atoms;
}

Atoms MeshAtoms::of(std::string_view name) const {
  std::optional<Atoms> atoms = find(name);
  SHEAF_CHECK(atoms || mesh_.find(name.substr(0, name.find(":("))) < 0, "not a part of an axis: " + std::string(name));
  return atoms ? *std::move(atoms) : Atoms{};
}

Atoms MeshAtoms::of(const Axes& names) const {
  Atoms atoms;
  for (const std::string& name : names)
    for (const int a : of(name)) atoms.push_back(a);
  return atoms;
}

Axes MeshAtoms::names(const Atoms& atoms) const {
  Axes names;
  for (std::size_t i = 0; i < atoms.size();) {
    const Atom& first = atoms_[atoms[i]];
    std::int64_t size = first.size;
    std::size_t end = i + 1;
    while (end < atoms.size() && atoms[end] == atoms[end - 1] + 1 && atoms_[atoms[end]].axis == first.axis)
      size *= atoms_[atoms[end++]].size;
    const MeshAxis& axis = mesh_.axes()[first.axis];
    names.push_back(size == axis.size ? axis.name : fmt::format("{}:({}){}", axis.name, first.before, size));
    i = end;
  }
  return names;
}

std::int64_t MeshAtoms::coordinate(const Atoms& atoms, std::int64_t device) const {
  std::int64_t value = 0;
  for (const int i : atoms) {
    const Atom& a = atoms_[i];
    std::int64_t minor = 1;  // devices that share the atoms up to this one
    for (int axis = a.axis + 1; axis < mesh_.rank(); ++axis) minor *= mesh_.axes()[axis].size;
    minor *= mesh_.axes()[a.axis].size / (a.before * a.size);
    value = value * a.size + device / minor % a.size;
  }
  return value;
}

std::vector<std::vector<int>> MeshAtoms::groups(const Atoms& atoms) const {
  Atoms others;
  for (int i = 0; i < count(); ++i)
    if (std::find(atoms.begin(), atoms.end(), i) == atoms.end()) others.push_back(i);
  std::vector<std::vector<int>> groups(size(others), std::vector<int>(size(atoms)));
  for (std::int64_t d = 0; d < mesh_.size(); ++d)
    groups[coordinate(others, d)][coordinate(atoms, d)] = static_cast<int>(d);
  return groups;
}

bool Sharding::is_replicated() const {
  return unreduced.empty() && std::all_of(dims.begin(), dims.end(), [](const Atoms& a) { return a.empty(); });
}

Atoms Sharding::used() const {
  Atoms all = unreduced;
  for (const Atoms& d : dims) all.insert(all.end(), d.begin(), d.end());
  return all;
}

absl::Status check_layout(Type type, const MeshAtoms& atoms) {
  Axes names = type.data().unreduced;
  for (const Axes& dim : type.data().dim_axes) names.insert(names.end(), dim.begin(), dim.end());
  std::vector<bool> used(atoms.count());
  for (const std::string& name : names) {
    const std::optional<Atoms> found = atoms.find(name);
    if (!found)
      return absl::InvalidArgumentError(
          fmt::format("{}: the mesh [{}] has no axis \"{}\"", to_string(type), to_string(atoms.mesh()), name));
    for (const int a : *found) {
      if (used[a])
        return absl::InvalidArgumentError(fmt::format("{} is split over axis \"{}\" twice", to_string(type), name));
      used[a] = true;
    }
  }
  return absl::OkStatus();
}

Sharding sharding_of(Type type, const MeshAtoms& atoms) {
  const TypeData& data = type.data();
  Sharding s = Sharding::replicated(type.rank());
  for (std::size_t d = 0; d < data.dim_axes.size(); ++d) s.dims[d] = atoms.of(data.dim_axes[d]);
  s.unreduced = atoms.of(data.unreduced);
  std::sort(s.unreduced.begin(), s.unreduced.end());
  s.kind = data.unreduced_kind;
  Atoms used = s.used();
  std::sort(used.begin(), used.end());
  SHEAF_CHECK(std::adjacent_find(used.begin(), used.end()) == used.end(), "an axis is used twice: " + to_string(type));
  return s;
}

Type with_sharding(Type type, const MeshAtoms& atoms, const Sharding& sharding) {
  TypeData data = type.data();
  data.dim_axes.assign(data.dims.size(), {});
  for (std::size_t d = 0; d < data.dims.size(); ++d) data.dim_axes[d] = atoms.names(sharding.dims[d]);
  data.unreduced = atoms.names(sharding.unreduced);
  data.unreduced_kind = sharding.unreduced.empty() ? ReduceKind::sum : sharding.kind;
  return Type(std::move(data));
}

Type without_sharding(Type type) {
  if (type.data().dim_axes.empty() && type.data().unreduced.empty()) return type;
  TypeData data = type.data();
  data.dim_axes.clear();
  data.unreduced.clear();
  data.unreduced_kind = ReduceKind::sum;
  return Type(std::move(data));
}

Type local_type(Type type, const MeshAtoms& atoms, const Sharding& sharding) {
  Shape dims = type.dims();
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const std::int64_t ways = atoms.size(sharding.dims[d]);
    SHEAF_CHECK(dims[d] % ways == 0, to_string(type) + " does not divide as " + to_string(sharding, atoms));
    dims[d] /= ways;
  }
  return type.with_dims(std::move(dims));
}

bool divides(const Shape& dims, const MeshAtoms& atoms, const Sharding& sharding) {
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (dims[d] % atoms.size(sharding.dims[d]) != 0) return false;
  return true;
}

std::string to_string(const Sharding& sharding, const MeshAtoms& atoms) {
  const auto list = [&](const Atoms& of) {
    const Axes names = atoms.names(of);
    if (names.empty()) return std::string("_");
    return names.size() == 1 ? names[0] : fmt::format("({})", fmt::join(names, ", "));
  };
  std::string s = "[";
  for (std::size_t d = 0; d < sharding.dims.size(); ++d) s += (d ? ", " : "") + list(sharding.dims[d]);
  s += "]";
  static constexpr std::string_view kKinds[] = {"sum", "prod", "max", "min", "and", "or"};
  if (!sharding.unreduced.empty())
    s += fmt::format("{{{}@{}}}", kKinds[static_cast<int>(sharding.kind)], list(sharding.unreduced));
  return s;
}

std::string to_text(const Spec& spec) {
  std::string s;
  for (std::size_t d = 0; d < spec.size(); ++d) {
    const std::string axes = fmt::format("{}", fmt::join(spec[d].axes, "+"));
    s += (d ? "," : "") + (axes.empty() && !spec[d].open ? std::string("_") : axes);
    s += std::string(spec[d].of_weight ? "*" : "") + (spec[d].open ? "?" : "");
    if (spec[d].priority != 0) s += fmt::format(":p{}", spec[d].priority);
  }
  return s;
}

absl::StatusOr<Spec> parse_spec(std::string_view text) {
  Spec spec;
  if (text.empty()) return spec;
  for (std::string_view word : split(text, ',')) {
    DimSpec dim;
    if (const std::size_t at = word.rfind(":p"); at != std::string_view::npos) {
      const auto priority = parse_int(word.substr(at + 2));
      if (!priority || *priority < 0 || *priority > kMaxPriority)
        return absl::InvalidArgumentError(
            fmt::format("\"{}\" is not a priority from 0 to {}", word.substr(at + 1), kMaxPriority));
      dim.priority = static_cast<int>(*priority);
      word.remove_suffix(word.size() - at);
    }
    if (!word.empty() && word.back() == '?') {
      dim.open = true;
      word.remove_suffix(1);
    }
    if (!word.empty() && word.back() == '*') {
      dim.of_weight = true;
      word.remove_suffix(1);
    }
    if (word.empty() && !dim.open) return absl::InvalidArgumentError(fmt::format("\"{}\" is not a spec", text));
    if (word != "_")
      for (const std::string_view axis : split(word, '+')) dim.axes.emplace_back(axis);
    spec.push_back(std::move(dim));
  }
  return spec;
}

}  // namespace sheaf::ir
