// Interning and text of meshes.
#include "ir/mesh.h"

#include <absl/container/node_hash_set.h>
#include <fmt/format.h>

#include <cctype>
#include <mutex>

#include "ir/words.h"

namespace sheaf::ir {
namespace {

constexpr std::int64_t kMaxDevices = std::int64_t{1} << 31;

struct AxesHash {
  std::size_t operator()(const std::vector<MeshAxis>& axes) const {
    std::size_t h = 0;
    for (const MeshAxis& a : axes) h = absl::HashOf(h, a.name, a.size);
    return h;
  }
};

bool is_name(std::string_view name) {
  const auto is = [](int (*kind)(int), char c) { return kind(static_cast<unsigned char>(c)) != 0; };
  if (name.empty() || is(std::isdigit, name[0])) return false;
  for (const char c : name)
    if (!is(std::isalnum, c) && c != '_') return false;
  return true;
}

}  // namespace

absl::StatusOr<Mesh> Mesh::make(std::vector<MeshAxis> axes) {
  std::int64_t devices = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (!is_name(axes[i].name))
      return absl::InvalidArgumentError(
          fmt::format("axis {} is called \"{}\": a name is letters, digits and _", i, axes[i].name));
    if (axes[i].size < 1)
      return absl::InvalidArgumentError(fmt::format("axis \"{}\" has size {}", axes[i].name, axes[i].size));
    for (std::size_t j = 0; j < i; ++j)
      if (axes[j].name == axes[i].name)
        return absl::InvalidArgumentError(fmt::format("two axes are called \"{}\"", axes[i].name));
    if (__builtin_mul_overflow(devices, axes[i].size, &devices) || devices > kMaxDevices)
      return absl::InvalidArgumentError("it has more than 2^31 devices");
  }
  static auto& mutex = *new std::mutex;
  static auto& known = *new absl::node_hash_set<std::vector<MeshAxis>, AxesHash>;
  std::lock_guard lock(mutex);
  Mesh mesh;
  mesh.axes_ = &*known.insert(std::move(axes)).first;
  return mesh;
}

absl::StatusOr<Mesh> Mesh::parse(std::string_view text) {
  std::vector<MeshAxis> axes;
  for (std::string_view part : split(text, ',')) {
    while (part.starts_with(' ')) part.remove_prefix(1);
    const std::vector<std::string_view> sides = split(part, '=');
    const auto size = sides.size() == 2 ? parse_int(sides[1]) : std::nullopt;
    if (!size) return absl::InvalidArgumentError(fmt::format("\"{}\" is not an axis: write data=4", part));
    axes.push_back({std::string(sides[0]), *size});
  }
  return make(std::move(axes));
}

std::int64_t Mesh::size() const {
  std::int64_t n = 1;
  for (const MeshAxis& a : *axes_) n *= a.size;
  return n;
}

int Mesh::find(std::string_view name) const {
  for (int i = 0; i < rank(); ++i)
    if ((*axes_)[i].name == name) return i;
  return -1;
}

std::string to_string(Mesh mesh) {
  std::string s;
  for (const MeshAxis& a : mesh.axes()) s += fmt::format("{}{}={}", s.empty() ? "" : ", ", a.name, a.size);
  return s;
}

}  // namespace sheaf::ir
