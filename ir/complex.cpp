// The walk that splits a program: each equation on complex values by its op's `on_parts`, or as the op is linear.
#include "ir/complex.h"

#include <algorithm>
#include <unordered_map>

#include "ir/builder.h"
#include "ir/ops/complex.h"

namespace sheaf::ir {
namespace {

using namespace ops;

bool is_complex_value(Value v) { return is_complex(v.dtype()); }

Value joined(const Parts& z) {
  if (!z.im) return z.re;
  Shape dims = z.re.dims();
  dims.push_back(1);
  return z.re.builder().emit(concatenate, {reshape_to(z.re, dims), reshape_to(z.im, dims)},
                             Concatenate{.dim = {z.re.rank()}});
}

/// The parts of what was a complex value of that type, and is one real array.
Parts parted(Value v, Type type) {
  if (!is_complex(type.dtype())) return {v, Value()};
  const int last = v.rank() - 1;
  return {reshape_to(slice_dim(v, last, 0, 1), type.dims()), reshape_to(slice_dim(v, last, 1, 2), type.dims())};
}

std::vector<Parts> on_parts(Builder& b, const Eqn& e, std::span<const Parts> operands) {
  if (e.op->on_parts) return e.op->on_parts(b, e, operands);
  const Linear how = linear_of(e);
  SHEAF_CHECK(how.kind != Linear::Kind::none, std::string(e.op->name) + " has no rule on complex numbers");
  if (how.kind == Linear::Kind::separately) return product_of_parts(b, e, operands, e.attributes);
  return each_part(b, e, operands);
}

// Asks about each function once, however many equations hold it and however deep.
class Splitter {
 public:
  bool has_complex(const Function& f) {
    const auto known = has_complex_.find(&f);
    if (known != has_complex_.end()) return known->second;
    const bool any =
        std::any_of(f.params().begin(), f.params().end(), is_complex_value) ||
        std::any_of(f.eqns().begin(), f.eqns().end(), [this](const Eqn* e) { return touches_complex(*e); });
    return has_complex_[&f] = any;
  }

  FunctionRef split(const Function& f) {
    Builder b(f.name());
    ValueTable<Parts> parts(f);
    for (const Value p : f.params()) parts[p] = parted(b.param(parts_type(p.type()), p.name()), p.type());
    for (const Eqn* e : f.eqns()) {
      std::vector<Parts> operands;
      for (const Value v : e->operands) operands.push_back(parts[v]);
      b.set_loc(e->loc, e->how);
      const std::vector<Parts> outs = equation(b, *e, operands);
      for (int j = 0; j < e->num_out(); ++j) parts[e->out(j)] = outs[j];
    }
    Values results;
    for (const Value r : f.results()) results.push_back(joined(parts[r]));
    const FunctionRef out = b.finish(std::move(results));
    return f.mesh() ? out->on_mesh(f.mesh()) : out;
  }

 private:
  bool touches_complex(const Eqn& e) {
    const Values outs = e.outs();
    return std::any_of(e.operands.begin(), e.operands.end(), is_complex_value) ||
           std::any_of(outs.begin(), outs.end(), is_complex_value) ||
           std::any_of(e.regions.begin(), e.regions.end(), [this](const FunctionRef& r) { return has_complex(*r); });
  }

  std::vector<Parts> equation(Builder& b, const Eqn& e, std::span<const Parts> operands) {
    if (touches_complex(e)) return e.op->infer ? across(b, e, operands) : on_parts(b, e, operands);
    Values in;
    for (const Parts& z : operands) in.push_back(z.re);
    std::vector<Parts> parts;
    for (const Value v : b.clone(e, std::move(in))) parts.push_back({v, Value()});
    return parts;
  }

  // Ops that infer their own types (with regions, callbacks, barriers): operands and results cross a border.
  std::vector<Parts> across(Builder& b, const Eqn& e, std::span<const Parts> operands) {
    Values in;
    for (const Parts& z : operands) in.push_back(joined(z));
    std::vector<FunctionRef> regions;
    for (const FunctionRef& r : e.regions) regions.push_back(has_complex(*r) ? split(*r) : r);
    const Values outs = b.emit_all(e.op, std::move(in), e.attributes, std::move(regions));
    std::vector<Parts> parts;
    for (int j = 0; j < e.num_out(); ++j) parts.push_back(parted(outs[j], e.out(j).type()));
    return parts;
  }

  std::unordered_map<const Function*, bool> has_complex_;
};

}  // namespace

bool has_complex(const Function& f) { return Splitter().has_complex(f); }

FunctionRef split_complex(const Function& f) { return Splitter().split(f); }

}  // namespace sheaf::ir
