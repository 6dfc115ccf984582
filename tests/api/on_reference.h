// What a function of arrays gives by the reference: traced, and its program run as written, its shard_maps by all
// devices in lockstep. It says what the API means before anything is compiled.
#pragma once

#include <span>
#include <vector>

#include "ir/text.h"
#include "passes/sharding/profile.h"
#include "passes/sharding/propagate.h"
#include "passes/transforms.h"
#include "sheaf/sheaf.h"
#include "tests/api/arrays.h"
#include "tests/passes/maps.h"
#include "tests/passes/partitioned.h"

namespace sheaf::tests {

template <class F, class... A>
ir::FunctionRef program_of(const F& f, const A&... args) {
  const std::string text = jit(f).trace(args...).text();
  const absl::StatusOr<ir::Module> module = ir::parse(text);
  if (!module.ok()) throw std::runtime_error(std::string(module.status().message()) + "\n" + text);
  return module->functions[0];
}

/// That of its first shard_map.
inline ir::Mesh mesh_of_maps(const ir::Function& f) {
  for (const ir::Eqn* e : f.eqns()) {
    if (e->op == &ir::ops::shard_map) return *ir::Mesh::parse(e->attrs<ir::ops::ShardMap>().mesh);
    for (const ir::FunctionRef& r : e->regions)
      if (const ir::Mesh mesh = mesh_of_maps(*r)) return mesh;
  }
  return {};
}

inline Array array_of(const ir::Literal& x) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < x.type().num_elements(); ++i) values.push_back(x.get(i));
  return convert(reshape(array(values), x.dims()), x.dtype());
}

inline ir::Literal literal_of(const Array& x) {
  ir::Literal out(ir::Type(x.dtype(), x.shape()));
  const std::vector<double> values = convert(x, f64).template to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) out.set(static_cast<std::int64_t>(i), values[i]);
  return out;
}

/// The program of one device of the mesh, which all devices run in lockstep.
inline ir::Literals run_in_lockstep(const ir::FunctionRef& traced, ir::Mesh mesh, const ir::Literals& inputs) {
  const ir::FunctionRef whole = passes::propagate(passes::inline_calls(traced->on_mesh(mesh)));
  const ir::FunctionRef local = passes::partition(whole, {.profile = passes::built_in_profile("flat")});
  CHECK(left_over(*local) == "");
  return run_partitioned(whole, local, inputs);
}

/// All results, of a function whose arguments are Arrays: by the maps themselves, and the same in lockstep.
template <class F, class... A>
std::vector<Array> on_reference(const F& f, const A&... args) {
  const ir::FunctionRef traced = program_of(f, args...);
  const ir::Literals inputs{literal_of(args)...};
  std::vector<Array> out;
  for (const ir::Literal& r : run_maps(*traced, inputs)) out.push_back(array_of(r));
  const ir::Mesh mesh = mesh_of_maps(*traced);
  if (!mesh) return out;
  const ir::Literals again = run_in_lockstep(traced, mesh, inputs);
  for (std::size_t j = 0; j < out.size(); ++j) CHECK(close(out[j], array_of(again[j])));
  return out;
}

/// By the program of one device alone, which all devices of the mesh run in lockstep.
template <class F, class... A>
std::vector<Array> on_devices(const F& f, const A&... args) {
  const ir::FunctionRef traced = program_of(f, args...);
  const ir::Mesh mesh = mesh_of_maps(*traced);
  if (!mesh) return tests::on_reference(f, args...);
  std::vector<Array> out;
  for (const ir::Literal& r : run_in_lockstep(traced, mesh, {literal_of(args)...})) out.push_back(array_of(r));
  return out;
}

/// Also compiled, on the devices of the mesh.
template <class F, class A, class... As>
std::vector<Array> everywhere(const F& f, const A& arg, const As&... args) {
  const std::vector<Array> out = on_reference(f, arg, args...);
  const std::vector<Array> again = tree_leaves(jit(f)(arg, args...));
  REQUIRE(out.size() == again.size());
  for (std::size_t j = 0; j < out.size(); ++j) CHECK(close(out[j], again[j], out[j].dtype() == f32 ? 1e-5 : 1e-9));
  return out;
}

}  // namespace sheaf::tests
