// Meshes and layouts drawn at random, the same for the same seed; and programs laid out so.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "ir/sharding.h"
#include "passes/emit.h"
#include "passes/transforms.h"

namespace sheaf::tests {

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }
  template <class T>
  const T& any(const std::vector<T>& of) {
    return of[below(static_cast<int>(of.size()))];
  }
  ir::Value any(const ir::Values& of) { return of[below(static_cast<int>(of.size()))]; }

 private:
  std::mt19937 engine_;
};

/// Of one to three axes, and of no more devices.
inline ir::Mesh random_mesh(Dice& dice, std::int64_t most) {
  for (;;) {
    std::vector<ir::MeshAxis> axes;
    for (int i = 0; i <= dice.below(3); ++i)
      axes.push_back({std::string(1, static_cast<char>('a' + i)), dice.any<std::int64_t>({1, 2, 2, 3, 4, 5, 6, 8})});
    const ir::Mesh mesh = *ir::Mesh::make(std::move(axes));
    if (mesh.size() <= most) return mesh;
  }
}

/// Each axis goes to one dim that it divides, or nowhere.
inline ir::Sharding random_sharding(Dice& dice, const Shape& dims, const ir::MeshAtoms& atoms) {
  ir::Sharding s = ir::Sharding::replicated(static_cast<int>(dims.size()));
  for (const ir::MeshAxis& axis : atoms.mesh().axes()) {
    if (dims.empty() || dice.below(3) == 0) continue;
    ir::Sharding more = s;
    ir::Atoms& dim = more.dims[dice.below(static_cast<int>(dims.size()))];
    for (const int a : atoms.of(axis.name)) dim.push_back(a);
    if (divides(dims, atoms, more)) s = more;
  }
  return s;
}

/// And now and then it is a sum, or an extreme, that is still to be made over axes that no dim is split over.
inline ir::Sharding random_partial(Dice& dice, ir::Type type, const ir::MeshAtoms& atoms) {
  ir::Sharding s = random_sharding(dice, type.dims(), atoms);
  const DType t = type.dtype();  // f8 only stores
  const bool has_sums = is_float(t) || is_complex(t) || is_int(t) || is_bool(t);
  if (!has_sums || dice.below(4) != 0) return s;
  const ir::Atoms used = s.used();
  for (const ir::MeshAxis& axis : atoms.mesh().axes())
    for (const int a : atoms.of(axis.name))
      if (std::find(used.begin(), used.end(), a) == used.end()) s.unreduced.push_back(a);
  if (s.unreduced.empty()) return s;
  if (is_bool(type.dtype())) s.kind = dice.any<ir::ReduceKind>({ir::ReduceKind::and_, ir::ReduceKind::or_});
  else if (!is_complex(type.dtype()))
    s.kind = dice.any<ir::ReduceKind>({ir::ReduceKind::sum, ir::ReduceKind::sum, ir::ReduceKind::max});
  return s;
}

inline ir::Spec spec_of(const ir::Sharding& s, const ir::MeshAtoms& atoms) {
  ir::Spec spec;
  for (const ir::Atoms& dim : s.dims) spec.push_back({.axes = atoms.names(dim)});
  return spec;
}

/// f with its parameters laid out at random.
inline ir::FunctionRef laid_out(const ir::FunctionRef& f, Dice& dice, const ir::MeshAtoms& atoms) {
  ir::Builder b(f->name());
  ir::Values params;
  for (const ir::Value p : f->params())
    params.push_back(b.param(ir::with_sharding(p.type(), atoms, random_partial(dice, p.type(), atoms)), p.name()));
  return b.finish(passes::inline_into(b, *f, params))->on_mesh(atoms.mesh());
}

}  // namespace sheaf::tests
