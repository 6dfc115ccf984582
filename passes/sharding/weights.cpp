// Forward from weights, backward from what becomes a weight's cotangent without being added up; values of regions are
// those they are given from outside and give to it.
#include "passes/sharding/weights.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/sharding.h"
#include "passes/sharding/reasons.h"

namespace sheaf::passes {

using namespace ir;

namespace {

bool marks(const Eqn& e, bool is_cotangent) {
  if (e.op != &ops::with_sharding || is_of_derivative(e.how) != is_cotangent) return false;
  const Spec spec = *parse_spec(e.attrs<ops::WithSharding>().spec);
  return std::any_of(spec.begin(), spec.end(), [](const DimSpec& d) { return d.of_weight; });
}

/// Result k is another form of operand k: transposed, converted, or as it was.
bool is_form(const Eqn& e) {
  if (e.op->varies_as_operands) return true;
  return e.regions.empty() && e.num_in() == 1 && e.num_out() == 1 && linear_of(e).kind != Linear::Kind::none;
}

/// Operand k of e is the parameter k - offset of its regions, and its results are theirs; -1: it is not so.
int offset_of_params(const Eqn& e) {
  if (e.op == &ops::cond) return 1;
  return e.op == &ops::scan || e.op == &ops::shard_map ? 0 : -1;
}

}  // namespace

Weights::Weights(const Function& f) {
  forward(f);
  if (!weights_.empty()) backward(f);
}

void Weights::forward(const Function& f) {
  for (const Eqn* e : f.eqns()) {
    if (marks(*e, false)) weights_.insert(e->out());
    for (int k = 0; is_form(*e) && k < e->num_in(); ++k)
      if (is_weight(e->in(k))) weights_.insert(e->out(k));
    const int offset = offset_of_params(*e);
    for (const FunctionRef& r : e->regions) {
      for (int k = offset; offset >= 0 && k < e->num_in(); ++k)
        if (is_weight(e->in(k))) weights_.insert(r->params()[k - offset]);
      forward(*r);
      for (int j = 0; offset >= 0 && j < e->num_out(); ++j)
        if (is_weight(r->results()[j])) weights_.insert(e->out(j));
    }
  }
}

void Weights::backward(const Function& f) {
  for (std::size_t i = f.eqns().size(); i-- > 0;) {
    const Eqn& e = *f.eqns()[i];
    if (marks(e, true)) gradients_.insert(e.in(0));
    for (int k = 0; is_form(e) && k < e.num_in(); ++k)
      if (is_gradient(e.out(k))) gradients_.insert(e.in(k));
    const int offset = offset_of_params(e);
    for (const FunctionRef& r : e.regions) {
      for (int j = 0; offset >= 0 && j < e.num_out(); ++j)
        if (is_gradient(e.out(j))) gradients_.insert(r->results()[j]);
      backward(*r);
    }
  }
}

}  // namespace sheaf::passes
