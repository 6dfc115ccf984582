// Work by kind of lowering; regions count as often as they run.
#include "ir/cost.h"

#include <algorithm>

#include "ir/builder.h"
#include "ir/complex.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"

namespace sheaf::ir {
namespace {

Work& operator+=(Work& a, const Work& b) {
  a.flops += b.flops, a.bytes += b.bytes, a.transcendentals += b.transcendentals;
  return a;
}
Work operator*(double times, const Work& w) { return {times * w.flops, times * w.bytes, times * w.transcendentals}; }

double elements(Value v) { return static_cast<double>(v.type().num_elements()); }
double bytes(Value v) { return static_cast<double>(v.type().bytes()); }

double bytes_moved(const Eqn& e) {
  double sum = 0;
  for (Value v : e.operands) sum += bytes(v);
  for (Value v : e.outs()) sum += bytes(v);
  return sum;
}

// Operations of one element's DAG; moving bits about is none.
double operations(const ScalarFn& fn) {
  double n = 0;
  for (const ScalarNode& node : fn.nodes) {
    switch (node.op) {
      case ScalarOp::arg:
      case ScalarOp::constant:
      case ScalarOp::convert:
      case ScalarOp::bitcast: break;
      case ScalarOp::fma: n += 2; break;
      default: n += 1;
    }
  }
  return n;
}

// The operand that an update or scatter changes a part of its first operand by; -1 if e is none.
int update_operand(const Eqn& e) {
  const Lowering lowering = e.op->lower(e);
  if (std::holds_alternative<lowering::UpdateSlice>(lowering)) return 1;
  return std::holds_alternative<lowering::Scatter>(lowering) ? 2 : -1;
}

// All the work of the group, but only its operands and results are moved: what is inside stays in registers. Of an
// operand that is overwritten in place only what changes is. A step of the host is what its equation is.
Work work_of_kernel(const Eqn& e) {
  const ops::Kernel& a = e.attrs<ops::Kernel>();
  const Function& body = *e.regions[0];
  Work w = work_of(body);
  if (a.schedule == Schedule::host) return w;
  w.bytes = bytes_moved(e);
  for (std::size_t j = 0; j < a.in_place.size(); ++j) {
    const Eqn* last = body.results()[j].eqn();
    const int update = a.in_place[j] < 0 || !last ? -1 : update_operand(*last);
    if (update >= 0) w.bytes += 2 * (bytes(last->in(update)) - bytes(last->out()));
  }
  return w;
}

struct ByLowering {
  const Eqn& e;

  Work operator()(const lowering::Map& map) const {
    const ScalarFn* named = scalar_function(e.op->name, e.out().dtype());
    const bool is_call = named && *named == map.fn;
    return {.flops = is_call ? 0 : operations(map.fn) * elements(e.out()),
            .bytes = bytes_moved(e),
            .transcendentals = is_call ? elements(e.out()) : 0};
  }
  Work operator()(const lowering::Recurrence& r) const {
    using Kind = lowering::Recurrence::Kind;
    const double n = elements(e.out());
    return {.flops = (r.kind == Kind::affine ? 2 : 1) * n,
            .bytes = bytes_moved(e),
            .transcendentals = r.kind == Kind::logsumexp ? 2 * n : 0};
  }
  Work operator()(const lowering::Scatter& s) const {
    const bool combines = s.combine != lowering::Scatter::Combine::set;
    return {.flops = combines ? elements(e.in(2)) : 0, .bytes = bytes_moved(e)};
  }
  Work operator()(const lowering::Scan& s) const { return static_cast<double>(s.length) * work_of(*e.regions[0]); }
  Work operator()(const lowering::While& w) const {
    Work once = work_of(*e.regions[0]);
    once += work_of(*e.regions[1]);
    return (w.max_trips < 0 ? 1.0 : static_cast<double>(w.max_trips)) * once;
  }
  Work operator()(const lowering::Branch&) const {
    Work dearest;
    const auto size = [](const Work& w) { return w.flops + w.bytes + w.transcendentals; };
    for (const FunctionRef& branch : e.regions)
      if (const Work w = work_of(*branch); size(w) > size(dearest)) dearest = w;
    return dearest;
  }
  Work operator()(const lowering::Region&) const { return work_of(*e.regions[0]); }
  Work operator()(const lowering::Barrier&) const { return {}; }
  // What only moves elements; what computes says so in its data sheet.
  template <class Other>
  Work operator()(const Other&) const {
    return {.bytes = bytes_moved(e)};
  }
};

bool is_of_complex(const Eqn& e) {
  const auto is = [](Value v) { return is_complex(v.dtype()); };
  const Values outs = e.outs();
  return std::any_of(e.operands.begin(), e.operands.end(), is) || std::any_of(outs.begin(), outs.end(), is);
}

// Only real numbers are computed with: the operations are those on the parts, whose copies are none of the program's.
Work work_of_parts(const Eqn& e) {
  Builder b("parts");
  Values operands;
  for (const Value v : e.operands) operands.push_back(b.param(Type(v.dtype(), v.dims())));
  Work w = work_of(*split_complex(*b.finish(b.clone(e, std::move(operands)))));
  w.bytes = bytes_moved(e);
  return w;
}

}  // namespace

Work work_of(const Eqn& e) {
  if (e.op == &ops::kernel) return work_of_kernel(e);
  if (e.op->cost || !e.op->lower) {
    const Cost c = cost_of(e);
    return {.flops = c.flops, .bytes = c.bytes};
  }
  if (e.regions.empty() && is_of_complex(e)) return work_of_parts(e);
  return std::visit(ByLowering{e}, e.op->lower(e));
}

Work work_of(const Function& f) {
  Work sum;
  for (const Eqn* e : f.eqns()) sum += work_of(*e);
  return sum;
}

}  // namespace sheaf::ir
