// Functions made again without what only watches. What is left computes the same.
#include "passes/regions/guard.h"

#include "ir/callbacks.h"

namespace sheaf::passes {

using namespace ir;

FunctionRef without_watchers(const FunctionRef& f) {
  if (f->effects() == Effects::none) return f;
  return remade(*f, [](Builder& b, const Eqn& e, Values operands) {
    if (e.op == &ops::callback && is_watcher(e.attrs<ops::CallbackAttrs>().slot)) return Values(e.num_out());
    if (e.regions.empty()) return b.clone(e, std::move(operands));
    return b.emit_all(e.op, std::move(operands), e.attributes, in_regions(e, without_watchers));
  });
}

}  // namespace sheaf::passes
