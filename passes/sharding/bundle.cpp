// A member is [rest], or [devices, rest] where each device sends or gets a row of its own; then the dim of the devices
// is taken out of the member's dims, and put back in.
#include "passes/sharding/bundle.h"

#include <fmt/format.h>

#include "ir/op.h"
#include "ir/ops/rules.h"
#include "passes/emit.h"

namespace sheaf::passes {

using namespace ir;

namespace {

/// Where the dim of the devices is among a value's, or, if tiled, what it is the major part of.
struct Row {
  std::int64_t dim = 0, devices = 1;
  bool is_tiled = false;
};

/// A collective whose operand and result are rows.
struct Flat {
  std::shared_ptr<const void> attributes;
  std::optional<Row> in, out;  // none: [rest]
};

template <class A>
std::shared_ptr<const void> shared(A a) {
  return std::make_shared<const A>(std::move(a));
}

Flat flat(const Eqn& e) {
  if (e.op == &ops::all_gather) {
    auto a = e.attrs<ops::AllGather>();
    const Row row{std::exchange(a.dim, 0), a.size, std::exchange(a.tiled, false)};
    return {.attributes = shared(std::move(a)), .in = {}, .out = row};
  }
  if (e.op == &ops::reduce_scatter) {
    auto a = e.attrs<ops::ReduceScatter>();
    const Row row{std::exchange(a.dim, 0), a.size, std::exchange(a.tiled, false)};
    return {.attributes = shared(std::move(a)), .in = row, .out = {}};
  }
  if (e.op == &ops::all_to_all) {
    auto a = e.attrs<ops::AllToAll>();
    const bool is_tiled = std::exchange(a.tiled, false);
    const Row in{std::exchange(a.split, 0), a.size, is_tiled}, out{std::exchange(a.concat, 0), a.size, is_tiled};
    return {.attributes = shared(std::move(a)), .in = in, .out = out};
  }
  return {.attributes = e.attributes, .in = {}, .out = {}};
}

Value as_rows(Builder& b, Value x, const std::optional<Row>& row) {
  if (!row) return ops::reshape_to(x, {x.type().num_elements()});
  if (row->is_tiled) {
    Shape split = x.dims();
    split[row->dim] /= row->devices;
    split.insert(split.begin() + row->dim, row->devices);
    x = ops::reshape_to(x, split);
  }
  x = move_dim(b, x, static_cast<int>(row->dim), 0);
  return ops::reshape_to(x, {row->devices, x.type().num_elements() / row->devices});
}

Value from_rows(Builder& b, Value rows, const Shape& dims, const std::optional<Row>& row) {
  if (!row) return ops::reshape_to(rows, dims);
  Shape apart = dims;  // the devices in front
  if (row->is_tiled) apart[row->dim] /= row->devices;
  else apart.erase(apart.begin() + row->dim);
  apart.insert(apart.begin(), row->devices);
  return ops::reshape_to(move_dim(b, ops::reshape_to(rows, apart), 0, static_cast<int>(row->dim)), dims);
}

}  // namespace

std::optional<CollectiveKind> collective_kind(const Eqn& e) {
  if (!e.op->axes || !e.op->lower || e.operands.empty()) return std::nullopt;
  const Lowering lowering = e.op->lower(e);
  const auto* what = std::get_if<lowering::Collective>(&lowering);
  return what ? std::optional(what->kind) : std::nullopt;
}

std::string bundle_key(const Eqn& e) {
  return fmt::format("{} {} {}", e.op->name, name(e.in(0).dtype()), e.op->attrs.print(flat(e).attributes.get()));
}

Values emit_bundle(Builder& b, const std::vector<const Eqn*>& members, const Values& operands) {
  std::vector<Flat> flats;
  Values rows;
  for (std::size_t i = 0; i < members.size(); ++i) {
    flats.push_back(flat(*members[i]));
    rows.push_back(as_rows(b, operands[i], flats[i].in));
  }
  const Value sent = b.emit(ops::concatenate, rows, ops::Concatenate{.dim = {flats[0].in ? 1 : 0}});
  const Value got = b.emit_all(members[0]->op, {sent}, flats[0].attributes)[0];
  const int along = flats[0].out ? 1 : 0;
  Values results;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Value result = members[i]->out();
    const std::int64_t size = result.type().num_elements() / (flats[i].out ? flats[i].out->devices : 1);
    results.push_back(from_rows(b, ops::slice_dim(got, along, at, at + size), result.dims(), flats[i].out));
    at += size;
  }
  return results;
}

}  // namespace sheaf::passes
