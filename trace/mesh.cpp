// Meshes, specs and where they put each part of an array. Shardings are compared as the passes compute with them, as
// lists of the prime factors of axes, so that names and axes of size 1 make no difference.
#include "trace/mesh.h"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>

#include "runtime/device.h"
#include "sheaf/error.h"
#include "trace/by_path.h"
#include "trace/messages.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

std::string axes_text(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& a : axes) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", a.name, a.size);
  return "[" + text + "]";
}

// Interned: meshes of the same axes and devices are one, and last for ever.
std::shared_ptr<const Mesh::Data> make_data(std::vector<MeshAxis> axes, std::vector<Device> devices, Loc loc) {
  std::vector<ir::MeshAxis> named;
  for (const MeshAxis& a : axes) named.push_back({a.name, a.size});
  const absl::StatusOr<ir::Mesh> mesh = ir::Mesh::make(std::move(named));
  if (!mesh.ok())
    throw ShardingError(loc, fmt::format("Mesh {}: {}", axes_text(axes), std::string(mesh.status().message())));
  std::pair<ir::Mesh, std::vector<int>> key{*mesh, {}};
  for (const Device d : devices) key.second.push_back(d.id);
  static auto& mutex = *new std::mutex;
  static auto& known =
      *new absl::flat_hash_map<std::pair<ir::Mesh, std::vector<int>>, std::shared_ptr<const Mesh::Data>>;
  std::lock_guard lock(mutex);
  std::shared_ptr<const Mesh::Data>& data = known[std::move(key)];
  if (!data)
    data = std::make_shared<const Mesh::Data>(
        Mesh::Data{std::move(axes), std::move(devices), *mesh, ir::MeshAtoms(*mesh)});
  return data;
}

std::int64_t size_of(const std::vector<MeshAxis>& axes) {
  std::int64_t n = 1;
  for (const MeshAxis& a : axes)
    if (a.size < 1 || __builtin_mul_overflow(n, a.size, &n)) return -1;  // make_data says what is wrong
  return n;
}

std::vector<Device> first_devices(const std::vector<MeshAxis>& axes, Loc loc) {
  const absl::StatusOr<std::vector<runtime::Device*>> all = runtime::devices_of(runtime::platform());
  if (!all.ok())
    throw RuntimeError(loc, fmt::format("Mesh {}: {}", axes_text(axes), std::string(all.status().message())));
  const std::int64_t wanted = size_of(axes);
  if (wanted > std::ssize(*all)) {
    const std::string more =
        runtime::platform() == "cpu"
            ? fmt::format("set SHEAF_CPU_DEVICES={} or call ensure_devices({}), or plan", wanted, wanted)
            : "plan";
    throw ShardingError(
        loc, fmt::format("Mesh {}: it takes {} devices, and there {}: {} with Mesh::abstract", axes_text(axes), wanted,
                         all->size() == 1 ? "is 1" : fmt::format("are {}", all->size()), more));
  }
  std::vector<Device> first;
  for (std::int64_t i = 0; i < wanted; ++i) first.push_back({(*all)[i]->id()});
  return first;
}

void check_devices(const std::vector<MeshAxis>& axes, const std::vector<Device>& list, Loc loc) {
  if (const std::int64_t wanted = size_of(axes); wanted >= 0 && wanted != std::ssize(list))
    throw ShardingError(
        loc, fmt::format("Mesh {}: it takes {} devices, and the list has {}", axes_text(axes), wanted, list.size()));
  for (std::size_t i = 0; i < list.size(); ++i) {
    check_is_there("Mesh " + axes_text(axes), list[i], loc);
    for (std::size_t j = 0; j < i; ++j)
      if (list[i] == list[j])
        throw ShardingError(loc, fmt::format("Mesh {}: the list has {} twice", axes_text(axes), to_string(list[i])));
  }
}

bool is_part(std::string_view name) { return name.find(":(") != std::string_view::npos; }

// Whether the name is an axis of the mesh or a run of prime factors of one, as the layouts of values in programs may
// say.
bool is_known(std::string_view name, const ir::MeshAtoms& atoms) {
  const std::string_view axis = name.substr(0, name.find(":("));
  if (atoms.mesh().find(axis) < 0) return false;
  if (!is_part(name)) return true;
  const ir::Atoms all = atoms.of(axis);
  for (auto begin = all.begin(); begin != all.end(); ++begin)
    for (auto end = begin + 1; end <= all.end(); ++end)
      if (atoms.names(ir::Atoms(begin, end)) == ir::Axes{std::string(name)}) return true;
  return false;
}

std::string quoted(const std::vector<std::string>& axes) {
  const std::string list = fmt::format("\"{}\"", fmt::join(axes, "\", \""));
  return axes.size() == 1 ? list : "{" + list + "}";
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes, Loc loc) {
  std::vector<Device> devices = first_devices(axes, loc);
  data_ = make_data(std::move(axes), std::move(devices), loc);
}

Mesh::Mesh(std::vector<MeshAxis> axes, std::vector<Device> devices, Loc loc) {
  check_devices(axes, devices, loc);
  data_ = make_data(std::move(axes), std::move(devices), loc);
}

Mesh Mesh::abstract(std::vector<MeshAxis> axes, Loc loc) {
  Mesh mesh;
  mesh.data_ = make_data(std::move(axes), {}, loc);
  return mesh;
}

const std::vector<MeshAxis>& Mesh::axes() const {
  static const std::vector<MeshAxis> empty;
  return data_ ? data_->axes : empty;
}
const std::vector<Device>& Mesh::devices() const {
  static const std::vector<Device> empty;
  return data_ ? data_->devices : empty;
}
std::int64_t Mesh::size() const { return data_ ? data_->mesh.size() : 0; }

std::int64_t Mesh::size(std::string_view axis, Loc loc) const {
  for (const MeshAxis& a : axes())
    if (a.name == axis) return a.size;
  throw ShardingError(loc, fmt::format("the mesh {} has no axis \"{}\"", to_string(*this), axis));
}

std::vector<Device> Mesh::addressable_devices() const {
  std::vector<Device> own;
  for (const Device d : devices())
    if (process_index(d) == process_index()) own.push_back(d);
  return own;
}

bool Mesh::operator==(const Mesh& other) const { return data_ == other.data_; }

std::string to_string(const Mesh& mesh) { return mesh ? axes_text(mesh.axes()) : "no mesh"; }

std::string numbers_text(std::span<const int> devices) {
  std::string text;
  for (std::size_t i = 0; i < devices.size();) {
    std::size_t end = i + 1;
    while (end < devices.size() && devices[end] == devices[end - 1] + 1) ++end;
    const bool is_run = end - i > 2;
    if (!text.empty()) text += ",";
    text += is_run ? fmt::format("{}-{}", devices[i], devices[end - 1]) : fmt::format("{}", devices[i]);
    i = is_run ? end : i + 1;
  }
  return text;
}

std::string text_with_devices(const Mesh& mesh) {
  std::vector<int> ids;
  for (const Device d : mesh.devices()) ids.push_back(d.id);
  return fmt::format("{} of {}", to_string(mesh), ids.empty() ? "no devices" : "cpu:" + numbers_text(ids));
}

std::pair<std::string, std::string> told_apart(const Mesh& a, const Mesh& b) {
  const auto text = [](const Mesh& m) {
    return m && m.rank() == 0 && !m.is_abstract() ? to_string(m.devices()[0]) : to_string(m);
  };
  std::pair texts(text(a), text(b));
  if (texts.first == texts.second && a != b) texts = {text_with_devices(a), text_with_devices(b)};
  return texts;
}

bool are_same_place(const Mesh& a, const Mesh& b) {
  if (a == b) return true;
  const auto same_size = [](const MeshAxis& x, const MeshAxis& y) { return x.size == y.size; };
  return a.devices() == b.devices() && std::ranges::equal(a.axes(), b.axes(), same_size);
}

namespace {

auto& noted() {
  thread_local absl::flat_hash_map<ir::Mesh, Mesh> meshes;
  return meshes;
}

}  // namespace

void note_mesh(const Mesh& mesh, const std::string& who, Loc loc) {
  Recorder* program = Recorder::outermost();
  noted()[ir_mesh(mesh)] = program ? program->keep_to_one(mesh, who, loc) : mesh;
}

Mesh noted_mesh(ir::Mesh mesh) {
  if (const auto it = noted().find(mesh); it != noted().end()) return it->second;
  std::vector<MeshAxis> axes;
  for (const ir::MeshAxis& a : mesh.axes()) axes.push_back({a.name, a.size});
  return mesh.size() > std::ssize(devices(Loc{})) ? Mesh::abstract(std::move(axes), {}) : Mesh(std::move(axes), Loc{});
}

int process_index() { return 0; }
int process_count() { return 1; }
int process_index(Device) { return 0; }

std::string to_string(const PartitionSpec& spec) {
  std::string text;
  for (const DimAxes& dim : spec.dims) {
    if (!text.empty()) text += ", ";
    text += dim.is_open ? "unconstrained" : dim.axes.empty() ? "none" : quoted(dim.axes);
  }
  return "P(" + text + ")";
}

std::string to_string(const Specs& specs) {
  if (!specs.is_by_path) return to_string(specs.all);
  std::string text;
  for (const auto& [path, spec] : specs.by_path)
    text += fmt::format("{}{{\"{}\", {}}}", text.empty() ? "" : ", ", path, to_string(spec));
  return "specs({" + text + "})";
}

std::string to_string(const NamedSharding& sharding) {
  return fmt::format("{} on {}", to_string(sharding.spec), to_string(sharding.mesh));
}

// ---- checks ----

void check_spec(const std::string& what, const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                const std::string& subject, Loc loc) {
  const auto fail = [&](const std::string& why) {
    throw ShardingError(loc, fmt::format("{}: {} of {}: {}", what, to_string(spec), subject, why));
  };
  if (!mesh) throw ShardingError(loc, fmt::format("{}: {} has no mesh", what, to_string(spec)));
  if (spec.dims.size() > shape.size())
    fail(fmt::format("the spec has {} dims, the array {}", spec.dims.size(), shape.size()));
  const ir::MeshAtoms& atoms = atoms_of(mesh);
  std::vector<int> dim_of(atoms.count(), -1);
  std::vector<std::pair<std::string_view, std::size_t>> seen;  // axes of size 1 have no atoms
  for (std::size_t d = 0; d < spec.dims.size(); ++d)
    for (const std::string& axis : spec.dims[d].axes) {
      if (!is_known(axis, atoms))
        fail(fmt::format("dim {} is split over \"{}\", and the mesh {} has no such axis", d, axis, to_string(mesh)));
      std::size_t before = seen.size();
      for (std::size_t i = 0; i < seen.size() && before == seen.size(); ++i)
        if (seen[i].first == axis) before = i;
      int twice = before < seen.size() ? static_cast<int>(seen[before].second) : -1;
      for (const int a : atoms.of(axis)) {
        if (dim_of[a] >= 0) twice = dim_of[a];
        dim_of[a] = static_cast<int>(d);
      }
      seen.emplace_back(axis, d);
      if (twice < 0) continue;
      if (twice == static_cast<int>(d)) fail(fmt::format("dim {} is split over axis \"{}\" twice", d, axis));
      fail(fmt::format("dim {} and dim {} are both split over axis \"{}\"", twice, d, axis));
    }
}

void check_divides(const std::string& what, const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                   const std::string& subject, Loc loc) {
  const ir::MeshAtoms& atoms = atoms_of(mesh);
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    const std::vector<std::string>& axes = spec.dims[d].axes;
    if (shape[d] % atoms.size(atoms.of(axes)) == 0) continue;
    std::string sizes;
    for (const std::string& axis : axes)
      sizes += fmt::format("{}\"{}\" of size {}", sizes.empty() ? "" : " and ", axis, atoms.size(atoms.of(axis)));
    throw ShardingError(
        loc, fmt::format("{}: {} of {}: dim {} of size {} does not divide over {} {}", what, to_string(spec), subject,
                         d, shape[d], axes.size() == 1 ? "axis" : "axes", sizes));
  }
}

void check_wish(const std::string& what, const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                const std::string& subject, Loc loc) {
  check_spec(what, mesh, spec, shape, subject, loc);
  check_divides(what, mesh, spec, shape, subject, loc);
  for (std::size_t d = 0; d < spec.dims.size(); ++d)
    for (const std::string& axis : spec.dims[d].axes)
      if (is_part(axis))
        throw ShardingError(loc, fmt::format("{}: {} of {}: dim {} is to be split over a part of an axis, which only "
                                             "the compiler does",
                                             what, to_string(spec), subject, d));
}

void check_is_closed(const std::string& what, const PartitionSpec& spec, const std::string& subject, Loc loc) {
  for (std::size_t d = 0; d < spec.dims.size(); ++d)
    if (spec.dims[d].is_open)
      throw ShardingError(loc, fmt::format("{}: {} of {}: dim {} is unconstrained, which only with_sharding takes",
                                           what, to_string(spec), subject, d));
}

ir::Sharding checked_layout(const std::string& what, const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                            const std::string& subject, Loc loc) {
  check_spec(what, mesh, spec, shape, subject, loc);
  check_is_closed(what, spec, subject, loc);
  ir::Sharding layout = ir::Sharding::replicated(static_cast<int>(shape.size()));
  for (std::size_t d = 0; d < spec.dims.size(); ++d) layout.dims[d] = atoms_of(mesh).of(spec.dims[d].axes);
  check_divides(what, mesh, spec, shape, subject, loc);
  return layout;
}

void check_is_there(const std::string& what, Device device, Loc loc) {
  const std::vector<runtime::Device*> all = runtime::devices();
  if (device.id >= 0 && device.id < std::ssize(all)) return;
  std::string known;  // "cuda:0 to cuda:7 and cpu:0 to cpu:3"
  for (const std::string platform : {"cuda", "cpu"}) {
    std::vector<std::string> names;
    for (const runtime::Device* d : all)
      if (d->name().starts_with(platform)) names.push_back(d->name());
    if (!names.empty()) known += fmt::format("{}{} to {}", known.empty() ? "" : " and ", names.front(), names.back());
  }
  throw ShardingError(loc, fmt::format("{}: there is no device {}, only {}", what, to_string(device), known));
}

void check_has_devices(const std::string& what, const Mesh& mesh, Loc loc) {
  if (mesh.is_abstract())
    throw ShardingError(loc, fmt::format("{}: the mesh {} is abstract: it has no devices", what, to_string(mesh)));
}

ir::Spec ir_spec(const PartitionSpec& spec, int rank) {
  ir::Spec dims;
  for (const DimAxes& dim : spec.dims) dims.push_back({.axes = dim.axes, .open = dim.is_open});
  dims.resize(rank);
  return dims;
}

PartitionSpec spec_of(const ir::Sharding& layout, const ir::MeshAtoms& atoms) {
  PartitionSpec spec;
  for (const ir::Atoms& dim : layout.dims) spec.dims.emplace_back(atoms.names(dim));
  while (!spec.dims.empty() && spec.dims.back().axes.empty()) spec.dims.pop_back();
  return spec;
}

std::vector<Slice> slices_of(const Shape& shape, const ir::MeshAtoms& atoms, const ir::Sharding& layout,
                             std::int64_t device) {
  std::vector<Slice> index;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t extent = shape[d] / atoms.size(layout.dims[d]);
    const std::int64_t start = extent * atoms.coordinate(layout.dims[d], device);
    index.push_back(slice(start, start + extent));
  }
  return index;
}

std::vector<PartitionSpec> leaf_specs(const std::string& who, const Specs& specs, std::span<const std::string> paths,
                                      const std::string& what, Loc loc) {
  if (!specs.is_by_path) return std::vector(paths.size(), specs.all);
  std::vector<std::string> listed;
  for (const auto& [path, spec] : specs.by_path) listed.push_back(path);
  std::vector<PartitionSpec> out;
  for (const int i : choose_paths(listed, paths, {.who = who, .what = what, .one = "a spec", .several = "specs"}, loc))
    out.push_back(specs.by_path[i].second);
  return out;
}

// ---- NamedSharding ----

namespace {

// The spec's atoms without a shape; names that are none of the mesh's are left out, as they fit no array.
std::vector<ir::Atoms> atoms_by_dim(const NamedSharding& s) {
  std::vector<ir::Atoms> dims;
  for (const DimAxes& dim : s.spec.dims) dims.push_back(atoms_of(s.mesh).of(dim.axes));
  while (!dims.empty() && dims.back().empty()) dims.pop_back();
  return dims;
}

// How many devices lie between neighbours along an atom, and how many neighbours there are: what is left of it when
// names are forgotten.
struct Stride {
  std::int64_t step, size;
  bool operator==(const Stride&) const = default;
};
std::vector<std::vector<Stride>> strides(const NamedSharding& s) {
  const ir::MeshAtoms& atoms = atoms_of(s.mesh);
  std::vector<Stride> of(atoms.count());
  std::int64_t step = 1;
  for (int a = atoms.count(); a-- > 0; step *= atoms[a].size) of[a] = {step, atoms[a].size};
  std::vector<std::vector<Stride>> dims;
  for (const ir::Atoms& dim : atoms_by_dim(s)) {
    dims.emplace_back();
    for (const int a : dim) {
      if (!dims.back().empty() && dims.back().back().step == of[a].step * of[a].size)
        dims.back().back() = {of[a].step, dims.back().back().size * of[a].size};
      else dims.back().push_back(of[a]);
    }
  }
  return dims;
}

}  // namespace

Shape NamedSharding::shard_shape(const Shape& shape, Loc loc) const {
  const ir::Sharding layout = checked_layout("shard_shape", mesh, spec, shape, to_string(shape), loc);
  return ir::local_type(ir::Type(f32, shape), atoms_of(mesh), layout).dims();
}

std::vector<DeviceSlices> NamedSharding::devices_indices(const Shape& shape, Loc loc) const {
  const ir::Sharding layout = checked_layout("devices_indices", mesh, spec, shape, to_string(shape), loc);
  check_has_devices("devices_indices", mesh, loc);
  std::vector<DeviceSlices> all;
  for (std::size_t i = 0; i < mesh.devices().size(); ++i)
    all.push_back({mesh.devices()[i], slices_of(shape, atoms_of(mesh), layout, static_cast<std::int64_t>(i))});
  return all;
}

std::vector<DeviceSlices> NamedSharding::addressable_devices_indices(const Shape& shape, Loc loc) const {
  std::vector<DeviceSlices> own;
  for (DeviceSlices& d : devices_indices(shape, loc))
    if (process_index(d.device) == process_index()) own.push_back(std::move(d));
  return own;
}

bool NamedSharding::is_fully_replicated() const { return !mesh || atoms_by_dim(*this).empty(); }

bool NamedSharding::is_fully_addressable() const { return mesh.addressable_devices().size() == mesh.devices().size(); }

bool NamedSharding::operator==(const NamedSharding& other) const {
  if (!mesh || !other.mesh) return !mesh && !other.mesh;
  return mesh.size() == other.mesh.size() && mesh.devices() == other.mesh.devices() && strides(*this) == strides(other);
}

}  // namespace sheaf
