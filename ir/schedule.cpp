// What fits which template, read off the lowerings of a kernel's body.
#include "ir/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ir/columns.h"
#include "ir/op.h"
#include "ir/ops/attention.h"
#include "ir/ops/attrs.h"

namespace sheaf::ir {
namespace {

using DimList = std::vector<std::int64_t>;

template <class... Args>
absl::Status refused(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}

std::string_view word(Schedule s) { return kScheduleWords[static_cast<std::size_t>(s)]; }

/// Of a Reduce or ArgReduce, ascending; nullopt for anything else.
std::optional<DimList> reduced_dims(const Eqn& e) {
  const Lowering l = e.op->lower(e);
  if (const auto* arg = std::get_if<lowering::ArgReduce>(&l)) return DimList{arg->dim};
  const auto* reduce = std::get_if<lowering::Reduce>(&l);
  if (!reduce) return std::nullopt;
  DimList dims = reduce->dims;
  std::sort(dims.begin(), dims.end());
  return dims;
}

bool is_short(const Eqn& reduce, const DimList& reduced) {
  std::int64_t count = 1;
  for (std::int64_t d : reduced) count *= reduce.in(0).dims()[d];
  return count <= kShortReduction;
}

/// The one kind of nest a schedule is for.
Nest nest_for(Schedule s) {
  switch (s) {
    case Schedule::none:
    case Schedule::map:
    case Schedule::tile_transpose:
    case Schedule::update: return Nest::none;
    case Schedule::row:
    case Schedule::reduce: return Nest::reduction;
    case Schedule::sort: return Nest::sort;
    case Schedule::scatter: return Nest::scatter;
    case Schedule::recurrence: return Nest::recurrence;
    case Schedule::contract: return Nest::contract;
    case Schedule::attention: return Nest::attention;
    case Schedule::host: return Nest::host;
  }
  return Nest::none;
}

absl::Status check_nests(Schedule schedule, const Function& body) {
  const Nest wanted = nest_for(schedule);
  int found = 0;
  for (const Eqn* e : body.eqns()) {
    if (e->op->expand && !e->op->lower)
      return refused("{} stands for other ops, which a kernel has in its place", e->op->name);
    const Nest nest = nest_of(*e);
    if (nest == Nest::none || (schedule == Schedule::contract && nest == Nest::reduction)) continue;
    if (nest != wanted) return refused("schedule={} has no place for {}", word(schedule), e->op->name);
    ++found;
  }
  if (wanted == Nest::none) return absl::OkStatus();
  if (found == 0) return refused("schedule={} finds no nest of its kind", word(schedule));
  if (found > 1 && wanted != Nest::reduction)
    return refused("schedule={} takes one nest, not {}", word(schedule), found);
  return absl::OkStatus();
}

absl::Status check_tile(const ops::Kernel& kernel, const Function& body) {
  if (kernel.schedule != Schedule::tile_transpose)
    return kernel.tile.empty() ? absl::OkStatus() : refused("schedule={} takes no tile", word(kernel.schedule));
  const Shape& dims = body.results()[0].dims();
  for (Value r : body.results())
    if (r.dims() != dims) return refused("schedule=tile_transpose needs results of equal dims");
  const auto rank = static_cast<std::int64_t>(dims.size());
  if (kernel.tile.size() != 2 || kernel.tile[0] < 0 || kernel.tile[0] >= kernel.tile[1] || kernel.tile[1] >= rank)
    return refused("tile={} must be two dims of {}, the outer one first", sheaf::to_string(kernel.tile),
                   sheaf::to_string(dims));
  return absl::OkStatus();
}

bool is_of_columns(const Eqn& e) {
  return nest_of(e) == Nest::reduction && are_leading(*reduced_dims(e), e.in(0).dims().size());
}

absl::Status check_rows(const Function& body) {
  const absl::StatusOr<Rows> rows = rows_of(body);
  if (!rows.ok()) return rows.status();
  for (Value r : body.results()) {
    const std::int64_t n = r.type().num_elements();
    if (r.eqn() && is_of_columns(*r.eqn())) continue;
    if (n != rows->count && n != rows->count * rows->length)
      return refused("schedule=row of {} rows of {} elements has no place for a result of {}", rows->count,
                     rows->length, n);
  }
  return absl::OkStatus();
}

absl::Status check_update(const Function& body) {
  const Eqn* update = body.results()[0].eqn();
  if (body.results().size() != 1 || !update || update->op != &ops::dynamic_update_slice || changed_param(body, 0) < 0)
    return refused("schedule=update needs one update of a parameter that nothing else reads");
  return absl::OkStatus();
}

/// The result as a contraction's, perhaps permuted and then reshaped.
bool is_written(Value result, const Eqn& contract) {
  const Eqn* e = result.eqn();
  for (const OpDef* written : {&ops::reshape, &ops::transpose})
    while (e && e->op == written) e = e->in(0).eqn();
  return e == &contract;
}

/// What an equation of a kernel has to do with its contraction: nothing, an element for each of its result's, or a
/// value for each column, made of totals over all rows.
enum class Follows : char { nothing, elements, columns };

/// What e is that reads values of the kind `of`; nothing: no such thing.
Follows follows_as(const Eqn& e, const Eqn& contract, Follows of) {
  if (!e.op->lower) return Follows::nothing;
  const Lowering l = e.op->lower(e);
  const bool is_map = std::holds_alternative<lowering::Map>(l);
  if (of == Follows::columns)
    return is_map || std::holds_alternative<lowering::Reshape>(l) ? Follows::columns : Follows::nothing;
  if (is_map && e.out().dims() == contract.out().dims()) return Follows::elements;
  const auto c = std::get<lowering::Contract>(contract.op->lower(contract));
  const std::size_t rows = contract.in(0).dims().size() - c.lhs_contract.size();
  const bool is_total = std::holds_alternative<lowering::Reduce>(l) && nest_of(e) == Nest::reduction &&
                        c.lhs_batch.empty() && reduced_dims(e)->size() == rows && is_of_columns(e);
  return is_total ? Follows::columns : Follows::nothing;
}

/// A contraction's operands are made element by element, of anything that is no nest. It is the last that its kernel
/// does, or what follows is elementwise: of its elements, and of others at the same place; of totals of their columns,
/// and of others in the same column.
absl::Status check_contract(const Function& body) {
  const auto is_contract = [](const Eqn* e) { return nest_of(*e) == Nest::contract; };
  const Eqn& contract = **std::find_if(body.eqns().begin(), body.eqns().end(), is_contract);
  const bool adds_up = std::any_of(body.eqns().begin(), body.eqns().end(),
                                   [](const Eqn* e) { return nest_of(*e) == Nest::reduction; });
  if (!adds_up && body.results().size() == 1 && is_written(body.results()[0], contract)) return absl::OkStatus();
  ValueTable<Follows> follows(body, Follows::nothing);
  follows[contract.out()] = Follows::elements;
  for (const Eqn* e : body.eqns()) {
    Follows is = Follows::nothing;
    for (Value v : e->operands) {
      if (follows[v] == Follows::nothing) continue;
      const Follows of_v = follows_as(*e, contract, follows[v]);
      if (of_v == Follows::nothing || (is != Follows::nothing && is != of_v))
        return refused("schedule=contract has no place for {} of its result", e->op->name);
      is = of_v;
    }
    if (is == Follows::nothing && nest_of(*e) == Nest::reduction)
      return refused("schedule=contract has no place for {}", e->op->name);
    for (Value v : e->outs())
      if (e != &contract) follows[v] = is;
  }
  for (Value r : body.results())
    if (follows[r] != Follows::columns && r.dims() != contract.out().dims())
      return refused("schedule=contract needs results of the contraction's dims");
  return absl::OkStatus();
}

/// Reads parameters, and conversions of parameters that it makes itself; and is all its kernel does.
absl::Status check_attention(const Function& body) {
  const Eqn& e = *body.eqns().back();
  if (nest_of(e) != Nest::attention) return refused("schedule=attention ends with {}", e.op->name);
  for (int k = 0; k < e.num_in(); ++k)
    if (!e.in(k).is_param() && !(ops::converts(e, k) && e.in(k).eqn()->in(0).is_param()))
      return refused("schedule=attention reads parameters, not {}", e.in(k).eqn()->op->name);
  return absl::OkStatus();
}

/// A host step is one equation on parameters, and gives all its results.
absl::Status check_host(const Function& body) {
  if (body.eqns().size() != 1) return refused("schedule=host takes one equation, not {}", body.eqns().size());
  const Eqn& step = *body.eqns()[0];
  for (Value v : step.operands)
    if (!v.is_param()) return refused("schedule=host reads parameters only");
  return body.results() == step.outs() ? absl::OkStatus() : refused("schedule=host gives all results of its equation");
}

}  // namespace

Nest nest_of(const Eqn& e) {
  if (e.op == &ops::constant || e.op->is_elementwise || !e.op->lower) return Nest::none;
  const Lowering l = e.op->lower(e);
  if (std::holds_alternative<lowering::ArgReduce>(l)) return Nest::reduction;
  if (const auto* r = std::get_if<lowering::Reduce>(&l)) return is_short(e, r->dims) ? Nest::none : Nest::reduction;
  if (std::holds_alternative<lowering::Sort>(l)) return Nest::sort;
  if (std::holds_alternative<lowering::Scatter>(l)) return Nest::scatter;
  if (std::holds_alternative<lowering::Recurrence>(l)) return Nest::recurrence;
  if (std::holds_alternative<lowering::Contract>(l)) return Nest::contract;
  if (std::holds_alternative<lowering::Attention>(l)) return Nest::attention;
  const bool is_host = std::holds_alternative<lowering::Scan>(l) || std::holds_alternative<lowering::While>(l) ||
                       std::holds_alternative<lowering::Branch>(l) || std::holds_alternative<lowering::Check>(l) ||
                       std::holds_alternative<lowering::Callback>(l) || std::holds_alternative<lowering::Library>(l) ||
                       std::holds_alternative<lowering::Collective>(l);
  return is_host ? Nest::host : Nest::none;
}

const Eqn& host_step(const Function& body) {
  SHEAF_CHECK(body.eqns().size() == 1, "a host step is one equation");
  return *body.eqns()[0];
}

bool is_strided_view(const Eqn& e) {
  if (e.op == &ops::constant || !e.op->lower) return false;
  const Lowering l = e.op->lower(e);
  return std::holds_alternative<lowering::View>(l) || std::holds_alternative<lowering::Windows>(l);
}

bool is_sliding(Value v) {
  while (v.eqn() && is_strided_view(*v.eqn()) && v.eqn()->op != &ops::sliding_windows) v = v.eqn()->in(0);
  return v.eqn() && v.eqn()->op == &ops::sliding_windows;
}

absl::StatusOr<Rows> rows_of(const Function& body) {
  const Eqn* first = nullptr;
  std::size_t kept = 0;
  Rows rows;
  for (const Eqn* e : body.eqns()) {
    for (Value v : e->operands)
      if (v.eqn() && is_of_columns(*v.eqn()))
        return refused("schedule=row has no place for what reads a column's total");
    if (nest_of(*e) != Nest::reduction) continue;
    const DimList over = *reduced_dims(*e);
    const Shape& dims = e->in(0).dims();
    const bool is_column = are_leading(over, dims.size());
    const std::size_t begin = is_column ? over.size() : dims.size() - over.size();
    for (std::size_t i = 0; !is_column && i < over.size(); ++i)
      if (over[i] != static_cast<std::int64_t>(begin + i))
        return refused("schedule=row needs reductions over the last dims, or all before them, not {} of {}",
                       sheaf::to_string(over), sheaf::to_string(dims));
    if (first && (begin != kept || dims != first->in(0).dims()))
      return refused("schedule=row needs reductions of equal dims over the same ones");
    first = e;
    kept = begin;
  }
  if (!first) return refused("schedule=row finds no nest of its kind");
  const Shape& dims = first->in(0).dims();
  for (std::size_t d = 0; d < dims.size(); ++d) (d < kept ? rows.count : rows.length) *= dims[d];
  if (rows.length > kLongestRow)
    return refused("schedule=row takes rows of at most {} elements, not {}", kLongestRow, rows.length);
  return rows;
}

int changed_param(const Function& body, int j) {
  const Eqn* change = body.results()[j].eqn();
  if (!change || (change->op != &ops::dynamic_update_slice && change->op != &ops::scatter)) return -1;
  const Value operand = change->in(0);
  for (const Eqn* e : body.eqns())
    for (int k = 0; k < e->num_in(); ++k)
      if (e->in(k) == operand && (e != change || k > 0)) return -1;
  const auto at = std::find(body.params().begin(), body.params().end(), operand);
  return at == body.params().end() ? -1 : static_cast<int>(at - body.params().begin());
}

absl::Status check_schedule(const ops::Kernel& kernel, const Function& body) {
  if (kernel.schedule == Schedule::none) return check_tile(kernel, body);
  if (absl::Status s = check_nests(kernel.schedule, body); !s.ok()) return s;
  if (absl::Status s = check_tile(kernel, body); !s.ok()) return s;
  if (kernel.schedule == Schedule::row) return check_rows(body);
  if (kernel.schedule == Schedule::update) return check_update(body);
  if (kernel.schedule == Schedule::contract) return check_contract(body);
  if (kernel.schedule == Schedule::attention) return check_attention(body);
  return kernel.schedule == Schedule::host ? check_host(body) : absl::OkStatus();
}

}  // namespace sheaf::ir
