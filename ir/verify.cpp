// Checks after every pass in tests and Debug builds, at the borders otherwise.
#include "ir/verify.h"

#include <absl/container/flat_hash_set.h>
#include <fmt/format.h>

#include "ir/op.h"
#include "ir/sharding.h"
#include "ir/text.h"

namespace sheaf::ir {
namespace {

absl::Status broken(const Function& f, const Eqn& e, const std::string& what) {
  return absl::InternalError(fmt::format("@{}: {}\n  in: {}", f.name(), what, print(e)));
}

absl::Status check_types(const Function& f, const Eqn& e) {
  const auto types = infer(e);
  if (!types.ok()) return broken(f, e, std::string(types.status().message()));
  if (types->size() != e.results.size())
    return broken(f, e, fmt::format("has {} results, not {}", e.num_out(), types->size()));
  for (int j = 0; j < e.num_out(); ++j)
    if (e.out(j).dtype() != (*types)[j].dtype() || e.out(j).dims() != (*types)[j].dims())
      return broken(f, e,
                    fmt::format("result {} is {}, inferred {}", j, to_string(e.out(j).type()), to_string((*types)[j])));
  return absl::OkStatus();
}

}  // namespace

namespace {

// Of a function whose values lie on the mesh, if there is one.
absl::Status verify_on(const Function& f, const MeshAtoms* mesh) {
  absl::flat_hash_set<Value> defined(f.params().begin(), f.params().end());
  if (defined.size() != f.params().size())
    return absl::InternalError(fmt::format("@{}: a parameter appears twice", f.name()));
  for (const Value p : f.params())
    if (absl::Status s = mesh ? check_layout(p.type(), *mesh) : absl::OkStatus(); !s.ok()) return s;
  for (const Eqn* e : f.eqns()) {
    for (Value v : e->operands)
      if (!defined.contains(v)) return broken(f, *e, "an operand is not defined before its use in this function");
    if (absl::Status s = check_types(f, *e); !s.ok()) return s;
    for (const FunctionRef& r : e->regions)
      if (absl::Status s = verify_on(*r, mesh); !s.ok()) return s;
    for (Value v : e->outs()) {
      if (absl::Status s = mesh ? check_layout(v.type(), *mesh) : absl::OkStatus(); !s.ok())
        return broken(f, *e, std::string(s.message()));
      defined.insert(v);
    }
  }
  for (Value v : f.results())
    if (!defined.contains(v)) return absl::InternalError(fmt::format("@{}: a result is not defined in it", f.name()));
  return absl::OkStatus();
}

}  // namespace

absl::Status verify(const Function& f) {
  if (!f.mesh()) return verify_on(f, nullptr);
  const MeshAtoms mesh(f.mesh());
  return verify_on(f, &mesh);
}

}  // namespace sheaf::ir
