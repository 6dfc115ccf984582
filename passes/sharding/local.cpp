// Attributes of local shapes follow from the kinds of their fields: an entry per dim that names the dim's whole size
// names the local size. Everything else an op's own rule does (ir/shard.h).
#include "passes/sharding/local.h"

#include "ir/ops/attrs.h"
#include "ir/shard.h"

namespace sheaf::passes {

using namespace ir;

namespace {

const TensorFactors& tensor_of(const Factors& f, int of) { return of >= 0 ? f.in[of] : f.out[-1 - of]; }

std::shared_ptr<const void> local_attributes(const Shard& s) {
  const AttrsDef& def = s.whole.op->attrs;
  if (!s.whole.attributes || !def.clone) return s.whole.attributes;
  std::shared_ptr<void> local = def.clone(s.whole.attributes.get());
  def.visit(local.get(), [&](const Field& field) {
    if (field.kind != FieldKind::per_dim || field.neutral != Neutral::size || !field.values) return;
    const TensorFactors& tensor = tensor_of(s.factors, field.of);
    const Shape whole = s.factors.dims(tensor), part = s.local_dims(tensor);
    for (std::size_t d = 0; d < field.values->size() && d < tensor.size(); ++d)
      if ((*field.values)[d] == whole[d]) (*field.values)[d] = part[d];
  });
  return local;
}

bool needs_rule(const Shard& s) {
  for (std::size_t i = 0; i < s.atoms.size(); ++i) {
    const Factor& f = s.factors.factors[i];
    if (s.is_split(static_cast<int>(i)) && (f.absolute || f.cls == FactorClass::M || f.combine == Combine::custom))
      return true;
  }
  return false;
}

// What enters the result once must not enter it on every device.
void keep_additive_once(Shard& s) {
  Atoms reduced;
  for (std::size_t i = 0; i < s.atoms.size(); ++i)
    if (s.factors.factors[i].cls == FactorClass::R) reduced.insert(reduced.end(), s.atoms[i].begin(), s.atoms[i].end());
  if (reduced.empty()) return;
  for (std::size_t k = 0; k < s.operands.size(); ++k)
    if (s.factors.additive >> k & 1) s.operands[k] = on_first(s.b, s.operands[k], reduced, s.mesh);
}

}  // namespace

Value is_first(Builder& b, const Atoms& atoms, const MeshAtoms& mesh) {
  const Value part = b.emit(ops::axis_index, {}, ops::AxisIndex{.axes = mesh.names(atoms)});
  return b.emit(ops::eq, {part, b.constant(DType::i32, 0)});
}

Value on_first(Builder& b, Value x, const Atoms& atoms, const MeshAtoms& mesh) {
  if (atoms.empty()) return x;
  return b.emit(ops::select, {is_first(b, atoms, mesh), x, b.zeros(x.type())});
}

Values emit_local(Builder& b, const Eqn& e, const Factors& f, const Choice& choice, const MeshAtoms& mesh,
                  Values operands) {
  Shard s{.b = b,
          .whole = e,
          .factors = f,
          .mesh = mesh,
          .atoms = choice.factors,
          .operands = std::move(operands),
          .attributes = nullptr};
  s.attributes = local_attributes(s);
  keep_additive_once(s);
  Values results = needs_rule(s) ? e.op->localize(s) : s.emit();
  for (int j = 0; j < e.num_out(); ++j)
    SHEAF_CHECK(e.op->infer || results[j].dims() == s.local_dims(f.out[j]),
                std::string(e.op->name) + " on parts gives " + to_string(results[j].type()));
  return results;
}

}  // namespace sheaf::passes
