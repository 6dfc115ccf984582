// A value is known by its place: parameters first, then results of equations in their order.
#include "ir/alike.h"

#include <absl/hash/hash.h>

#include <algorithm>

#include "ir/op.h"

namespace sheaf::ir {
namespace {

class Places {
 public:
  explicit Places(const Function& f) : place_(f, -1) {
    for (Value p : f.params()) add(p);
  }
  void add(Value v) { place_[v] = next_++; }
  int operator[](Value v) const { return place_[v]; }

 private:
  ValueTable<int> place_;
  int next_ = 0;
};

bool have_same_attributes(const Eqn& a, const Eqn& b) {
  if (!a.attributes || !b.attributes) return !a.attributes == !b.attributes;
  return a.op->attrs.equal(a.attributes.get(), b.attributes.get());
}

}  // namespace

std::size_t hash_of(const Function& f) {
  Places places(f);
  std::size_t h = f.params().size();
  for (Value p : f.params()) h = absl::HashOf(h, p.type());
  for (const Eqn* e : f.eqns()) {
    h = absl::HashOf(h, e->op, e->attributes ? e->op->attrs.hash(e->attributes.get()) : 0);
    for (Value v : e->operands) h = absl::HashOf(h, places[v]);
    for (const FunctionRef& r : e->regions) h = absl::HashOf(h, hash_of(*r));
    for (Value v : e->outs()) {
      places.add(v);
      h = absl::HashOf(h, v.type());
    }
  }
  for (Value r : f.results()) h = absl::HashOf(h, places[r]);
  return h;
}

bool are_alike(const Function& a, const Function& b) {
  if (&a == &b) return true;
  if (a.eqns().size() != b.eqns().size()) return false;
  Places in_a(a), in_b(b);
  const auto same_values = [&](const Values& x, const Values& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [&](Value v, Value w) { return in_a[v] == in_b[w]; });
  };
  const auto same_types = [](const Values& x, const Values& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](Value v, Value w) { return v.type() == w.type(); });
  };
  if (!same_types(a.params(), b.params())) return false;
  for (std::size_t i = 0; i < a.eqns().size(); ++i) {
    const Eqn &x = *a.eqns()[i], &y = *b.eqns()[i];
    if (x.op != y.op || !same_values(x.operands, y.operands) || !have_same_attributes(x, y)) return false;
    const auto are_same = [](const FunctionRef& f, const FunctionRef& g) { return are_alike(*f, *g); };
    if (!std::equal(x.regions.begin(), x.regions.end(), y.regions.begin(), y.regions.end(), are_same)) return false;
    if (!same_types(x.outs(), y.outs())) return false;
    for (Value v : x.outs()) in_a.add(v);
    for (Value v : y.outs()) in_b.add(v);
  }
  return same_values(a.results(), b.results());
}

}  // namespace sheaf::ir
