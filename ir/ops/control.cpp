// Control flow: call (a function of the module), kernel (a step of a plan), cond, scan and while. Regions are functions
// of their own: every capture is an operand, and operands have contiguous roles, so that the region's parameters line
// up with them.
#include "ir/ops/dims.h"
#include "ir/ops/regions.h"

namespace sheaf::ir::ops {
namespace {

absl::StatusOr<std::vector<Type>> infer_from_region(const Eqn& e) {
  if (absl::Status s = region_count(e, 1); !s.ok()) return s;
  if (absl::Status s = takes(*e.regions[0], e.in_types()); !s.ok()) return s;
  return e.regions[0]->result_types();
}

absl::StatusOr<std::vector<Type>> infer_kernel(const Eqn& e) {
  const Kernel& a = e.attrs<Kernel>();
  absl::StatusOr<std::vector<Type>> types = infer_from_region(e);
  if (!types.ok()) return types;
  for (const auto& [field, list] :
       {std::pair("outputs", &a.outputs), std::pair("offsets", &a.offsets), std::pair("in_place", &a.in_place)})
    if (!list->empty() && list->size() != types->size())
      return absl::InvalidArgumentError(
          fmt::format("{}={} must have one entry for each of the {} results", field, to_string(*list), types->size()));
  for (std::int64_t k : a.in_place)
    if (k < -1 || k >= e.num_in())
      return absl::InvalidArgumentError(fmt::format("in_place={} must name operands or -1", to_string(a.in_place)));
  if (absl::Status s = check_schedule(a, *e.regions[0]); !s.ok()) return s;
  return types;
}

void eval_region(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  eval_into(*e.regions[0], in, out);
}

Lowering lower_region(const Eqn&) { return lowering::Region{}; }

// cond: index, operands of every branch.

absl::StatusOr<std::vector<Type>> infer_cond(const Eqn& e) {
  if (e.regions.empty()) return absl::InvalidArgumentError("takes at least 1 region, not 0");
  if (e.operands.empty()) return absl::InvalidArgumentError("takes an index, then the operands of the branches");
  if (e.in(0).dtype() != DType::i32 || e.in(0).rank() != 0)
    return absl::InvalidArgumentError("the index must be i32[], not " + to_string(e.in(0).type()));
  const std::vector<Type> operands = slice_of(e.in_types(), 1, e.operands.size() - 1);
  const std::vector<Type> results = e.regions[0]->result_types();
  for (const FunctionRef& branch : e.regions) {
    if (absl::Status s = takes(*branch, operands); !s.ok()) return s;
    if (absl::Status s = returns(*branch, results); !s.ok()) return s;
  }
  if (absl::Status s = differ_as(e.in(0), "index", "operand", operands); !s.ok()) return s;
  if (absl::Status s = differ_as(e.in(0), "index", "result", results); !s.ok()) return s;
  return results;
}

Manual feeds_branches(const Eqn& e, int k) { return k == 0 ? e.in(0).type().manual() : manual_of_param(e, 0, k - 1); }

void eval_cond(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const std::int64_t last = std::ssize(e.regions) - 1;
  eval_into(*e.regions[std::clamp<std::int64_t>(in[0].get_int(0), 0, last)], in.subspan(1), out);
}

// scan: consts, carry, xs -> carry, ys.

struct ScanParts {
  std::size_t consts, carry, xs, ys;
};

absl::StatusOr<ScanParts> scan_parts(const Eqn& e) {
  const Scan& a = e.attrs<Scan>();
  if (absl::Status s = region_count(e, 1); !s.ok()) return s;
  const std::size_t results = e.regions[0]->results().size();
  if (a.consts < 0 || a.carry < 0 || static_cast<std::size_t>(a.consts + a.carry) > e.operands.size() ||
      static_cast<std::size_t>(a.carry) > results)
    return absl::InvalidArgumentError(fmt::format("consts={} and carry={} do not fit {} operands and {} results",
                                                  a.consts, a.carry, e.num_in(), results));
  if (a.length < 0) return absl::InvalidArgumentError(fmt::format("length={} must not be negative", a.length));
  if (a.unroll < 1) return absl::InvalidArgumentError(fmt::format("unroll={} must be at least 1", a.unroll));
  const std::size_t consts = a.consts, carry = a.carry;
  return ScanParts{consts, carry, e.operands.size() - consts - carry, results - carry};
}

Type row_of(Type t) { return t.with_dims(Shape(t.dims().begin() + 1, t.dims().end())); }
Type stack_of(Type t, std::int64_t length) {
  Shape dims = t.dims();
  dims.insert(dims.begin(), length);
  return t.with_dims(std::move(dims));
}

absl::StatusOr<std::vector<Type>> infer_scan(const Eqn& e) {
  const absl::StatusOr<ScanParts> parts = scan_parts(e);
  if (!parts.ok()) return parts.status();
  const Scan& a = e.attrs<Scan>();
  std::vector<Type> given;
  for (std::size_t k = 0; k < e.operands.size(); ++k) {
    const Type t = e.operands[k].type();
    const bool is_stack = k >= parts->consts + parts->carry;
    if (is_stack && (t.rank() == 0 || t.dims()[0] != a.length))
      return absl::InvalidArgumentError(
          fmt::format("operand {} is {}, not a stack of length {}", k, to_string(t), a.length));
    given.push_back(is_stack ? row_of(t) : t);
  }
  const Function& body = *e.regions[0];
  if (absl::Status s = takes(body, given); !s.ok()) return s;
  std::vector<Type> results = body.result_types();
  for (std::size_t k = 0; k < parts->carry; ++k)
    if (without_sharding(results[k]) != without_sharding(given[parts->consts + k]))
      return absl::InvalidArgumentError(fmt::format("carry {} enters as {} and leaves as {}", k,
                                                    to_string(given[parts->consts + k]), to_string(results[k])));
  for (std::size_t j = parts->carry; j < results.size(); ++j) results[j] = stack_of(results[j], a.length);
  return results;
}

// Row t of a stack; its bytes lie together.
Literal row(const Literal& stack, std::int64_t t) {
  Literal one(row_of(stack.type()));
  if (one.bytes() > 0) std::memcpy(one.data(), stack.data() + t * static_cast<std::int64_t>(one.bytes()), one.bytes());
  return one;
}
void set_row(Literal& stack, std::int64_t t, const Literal& one) {
  if (one.bytes() > 0) std::memcpy(stack.data() + t * static_cast<std::int64_t>(one.bytes()), one.data(), one.bytes());
}

void eval_scan(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const ScanParts parts = *scan_parts(e);
  const Scan& a = e.attrs<Scan>();
  const std::size_t fixed = parts.consts + parts.carry;
  Literals args(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(fixed));
  args.resize(in.size());
  for (std::int64_t i = 0; i < a.length; ++i) {
    const std::int64_t t = a.reverse ? a.length - 1 - i : i;
    if (EvalObserver* o = Observed::current()) o->step(e, t);
    for (std::size_t k = fixed; k < in.size(); ++k) args[k] = row(in[k], t);
    Literals results = eval_real(*e.regions[0], args);
    for (std::size_t k = 0; k < parts.carry; ++k) args[parts.consts + k] = std::move(results[k]);
    for (std::size_t j = parts.carry; j < results.size(); ++j) set_row(out[j], t, results[j]);
  }
  for (std::size_t k = 0; k < parts.carry; ++k) out[k] = std::move(args[parts.consts + k]);
  if (EvalObserver* o = Observed::current(); o && a.length > 0) o->left(e);
}

Lowering lower_scan(const Eqn& e) {
  const Scan& a = e.attrs<Scan>();
  return lowering::Scan{.consts = a.consts, .carry = a.carry, .length = a.length, .reverse = a.reverse};
}

// while: consts of the condition, consts of the body, carry -> carry.

absl::StatusOr<std::vector<Type>> infer_while(const Eqn& e) {
  const While& a = e.attrs<While>();
  if (absl::Status s = region_count(e, 2); !s.ok()) return s;
  if (a.cond_consts < 0 || a.body_consts < 0 || a.cond_consts + a.body_consts > e.num_in())
    return absl::InvalidArgumentError(fmt::format("cond_consts={} and body_consts={} do not fit {} operands",
                                                  a.cond_consts, a.body_consts, e.num_in()));
  if (a.max_trips < -1)
    return absl::InvalidArgumentError(fmt::format("max_trips={} must not be negative", a.max_trips));
  const std::size_t cond_consts = a.cond_consts, body_consts = a.body_consts;
  const std::vector<Type> types = e.in_types();
  const std::vector<Type> carry = slice_of(types, cond_consts + body_consts, types.size() - cond_consts - body_consts);
  const Function &cond = *e.regions[0], &body = *e.regions[1];
  if (absl::Status s = takes(cond, joined(slice_of(types, 0, cond_consts), carry)); !s.ok()) return s;
  const Manual decides = cond.results().empty() ? Manual{} : cond.results()[0].type().manual();
  if (absl::Status s = returns(cond, {Type(DType::bool_, {}).with_manual(decides)}); !s.ok()) return s;
  if (absl::Status s = takes(body, joined(slice_of(types, cond_consts, body_consts), carry)); !s.ok()) return s;
  if (absl::Status s = returns(body, carry); !s.ok()) return s;
  const std::vector<Type> of_body = joined(slice_of(types, cond_consts, body_consts), carry);
  if (absl::Status s = differ_as(cond.results()[0], "condition", "argument", of_body); !s.ok()) return s;
  return carry;
}

// Consts of the condition, consts of the body, carry: both regions take the carry, and as the same.
Manual feeds_loop(const Eqn& e, int k) {
  const While& a = e.attrs<While>();
  if (k < a.cond_consts) return manual_of_param(e, 0, static_cast<int>(k));
  return manual_of_param(e, 1, static_cast<int>(k - a.cond_consts));
}

void eval_while(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const While& a = e.attrs<While>();
  const auto body_at = in.begin() + a.cond_consts, carry_at = body_at + a.body_consts;
  Literals carry(carry_at, in.end());
  for (std::int64_t trip = 0; trip != a.max_trips; ++trip) {
    if (EvalObserver* o = Observed::current()) o->step(e, trip);
    if (!eval_real(*e.regions[0], joined(Literals(in.begin(), body_at), carry))[0].get_int(0)) break;
    carry = eval_real(*e.regions[1], joined(Literals(body_at, carry_at), carry));
  }
  std::move(carry.begin(), carry.end(), out.begin());
  if (EvalObserver* o = Observed::current(); o && a.max_trips != 0) o->left(e);
}

Lowering lower_while(const Eqn& e) {
  const While& a = e.attrs<While>();
  return lowering::While{.cond_consts = a.cond_consts, .body_consts = a.body_consts, .max_trips = a.max_trips};
}

}  // namespace

constinit const OpDef call = {
    .name = "call",
    .doc =
        "Runs a function of the module, `call @f %x, %y`, on the operands. Derivatives and batching are those of the "
        "callee.",
    .num_results = -1,
    .callee_by_name = true,
    .infer = infer_from_region,
    .no_jvp = Absent::by_region,
    .feeds = feeds_params,
    .lower = lower_region,
    .eval = eval_region,
};

constinit const OpDef cond = {
    .name = "cond",
    .doc = "Runs branch `index` (operand 0, clamped to the branches there are) on the other operands.",
    .num_results = -1,
    .infer = infer_cond,
    .no_jvp = Absent::by_region,
    .feeds = feeds_branches,
    .lower = [](const Eqn&) -> Lowering { return lowering::Branch{}; },
    .eval = eval_cond,
};

constinit const OpDef scan = {
    .name = "scan",
    .doc =
        "A loop of `length` steps. Operands: consts, carry, xs (stacked along dim 0). The region maps consts, carry and "
        "row t of xs to the next carry and row t of ys. `reverse` goes from the last row to the first; `unroll` steps "
        "are planned as one.",
    .num_results = -1,
    .attrs = attrs_of<Scan>(),
    .infer = infer_scan,
    .no_jvp = Absent::by_region,
    .feeds = feeds_params,
    .lower = lower_scan,
    .eval = eval_scan,
};

constinit const OpDef while_ = {
    .name = "while",
    .doc =
        "A loop that runs while its condition holds, at most `max_trips` times (-1: without bound). Operands: consts of "
        "the condition, consts of the body, carry. Regions: consts, carry -> bool[]; consts, carry -> carry.",
    .num_results = -1,
    .attrs = attrs_of<While>(),
    .infer = infer_while,
    .no_jvp = Absent::by_region,
    .feeds = feeds_loop,
    .lower = lower_while,
    .eval = eval_while,
};

constinit const OpDef kernel = {
    .name = "kernel",
    .doc =
        "A step of a plan: the region is computed by one kernel of the template `schedule`; `tile` is the pair of "
        "dims that tile_transpose cuts. Result j lies in the buffer of the program's result `outputs[j]` or, where "
        "that is -1, in the arena at `offsets[j]`; `in_place[j]` is the operand whose place it takes, or -1. One that is "
        "`in_order` keeps its place among the others that are.",
    .num_results = -1,
    .attrs = attrs_of<Kernel>(),
    .infer = infer_kernel,
    .effects = [](const Eqn& e) { return e.attrs<Kernel>().in_order ? Effects::ordered : Effects::none; },
    .no_jvp = Absent::plan_only,
    .lower = lower_region,
    .eval = eval_region,
};

}  // namespace sheaf::ir::ops
