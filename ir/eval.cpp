// The interpreter's loop; what each op computes is in its data sheet.
#include "ir/eval.h"

#include <fmt/format.h>

#include "ir/complex.h"
#include "ir/op.h"

namespace sheaf::ir {

namespace {

thread_local EvalObserver* observer = nullptr;

}  // namespace

Observed::Observed(EvalObserver& o) : outer_(observer) { observer = &o; }
Observed::~Observed() { observer = outer_; }
EvalObserver* Observed::current() { return observer; }

Literals eval(const Eqn& e, std::span<const Literal> inputs) {
  SHEAF_CHECK(e.op->eval, std::string(e.op->name) + " has no reference");
  Literals out;
  for (Value v : e.outs()) out.emplace_back(v.type());
  e.op->eval(e, inputs, out);
  if (observer) observer->equation(e, inputs, out);
  return out;
}

// Complex programs are split here, regions and all. The bytes stay: only the types at the border differ.
Literals eval(const Function& f, std::span<const Literal> inputs) {
  if (!has_complex(f)) return eval_real(f, inputs);
  Literals parts;
  for (const Literal& x : inputs) parts.push_back(x.as_parts());
  Literals results = eval_real(*split_complex(f), parts);
  for (std::size_t j = 0; j < results.size(); ++j) results[j] = results[j].as(f.results()[j].type());
  return results;
}

Literals eval_real(const Function& f, std::span<const Literal> inputs) {
  SHEAF_CHECK(inputs.size() == f.params().size(), "one literal per parameter");
  ValueTable<Literal> values(f);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Type t = f.params()[i].type();
    SHEAF_CHECK(inputs[i].dtype() == t.dtype() && inputs[i].dims() == t.dims(),
                fmt::format("input {} is {}, not {}", i, to_string(inputs[i].type()), to_string(t)));
    values[f.params()[i]] = inputs[i];
  }
  for (const Eqn* e : f.eqns()) {
    Literals in;
    for (Value v : e->operands) in.push_back(values[v]);
    Literals out = eval(*e, in);
    for (int j = 0; j < e->num_out(); ++j) values[e->out(j)] = std::move(out[j]);
  }
  Literals results;
  for (Value r : f.results()) results.push_back(values[r]);
  return results;
}

}  // namespace sheaf::ir
