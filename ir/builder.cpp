// Emission: inference, value numbering, and the operators that let derivative rules read as formulas.
#include "ir/builder.h"

#include <absl/hash/hash.h>

#include <algorithm>

#include "ir/manual.h"
#include "ir/ops/attrs.h"
#include "ir/work.h"

namespace sheaf::ir {

Builder::Builder(std::string name) : name_(std::move(name)), arena_(std::make_shared<Arena>()) {
  arena_->builder = this;
}

Builder::~Builder() {
  if (arena_) arena_->builder = nullptr;
}

Value Builder::param(Type type, std::string name) {
  arena_->params.push_back({.type = type,
                            .index = static_cast<int>(params_.size()),
                            .id = arena_->num_values++,
                            .arena = arena_.get(),
                            .name = name.empty() ? nullptr : &arena_->param_names.emplace_back(std::move(name))});
  params_.push_back(Value(&arena_->params.back()));
  return params_.back();
}

const Eqn* Numbering::find(std::size_t hash, absl::FunctionRef<bool(const Eqn&)> is_it) const {
  if (slots_.empty()) return nullptr;
  for (std::size_t i = hash;; ++i) {
    const Slot& slot = slots_[i & (slots_.size() - 1)];
    if (!slot.eqn || (slot.hash == hash && is_it(*slot.eqn))) return slot.eqn;
  }
}

void Numbering::add(std::size_t hash, const Eqn* e) {
  if (slots_.size() < 2 * ++count_) {
    constexpr std::size_t kFirst = 64;
    std::pmr::vector<Slot> before(std::max(kFirst, 2 * slots_.size()), recycling());
    before.swap(slots_);
    for (const Slot& slot : before)
      if (slot.eqn) place(slot);
  }
  place({hash, e});
}

void Numbering::place(Slot slot) {
  std::size_t i = slot.hash & (slots_.size() - 1);
  while (slots_[i].eqn) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = slot;
}

namespace {

std::size_t hash_eqn(Op op, const Values& operands, const void* attrs, const std::vector<FunctionRef>& regions) {
  std::size_t h = absl::HashOf(op, operands, attrs ? op->attrs.hash(attrs) : 0);
  for (const FunctionRef& r : regions) h = absl::HashOf(h, r.get());
  return h;
}

bool same_eqn(const Eqn& e, Op op, const Values& operands, const void* attrs, const std::vector<FunctionRef>& regions) {
  if (e.op != op || e.operands != operands || e.regions != regions) return false;
  return !attrs || op->attrs.equal(e.attributes.get(), attrs);
}

}  // namespace

absl::StatusOr<Values> Builder::try_emit(Op op, Values operands, std::shared_ptr<const void> attrs,
                                         std::vector<FunctionRef> regions) {
  const absl::StatusOr<const Eqn*> e = find_or_append(op, std::move(operands), std::move(attrs), std::move(regions));
  if (!e.ok()) return e.status();
  return (*e)->outs();
}

absl::StatusOr<Value> Builder::try_emit_one(Op op, Values operands) {
  const absl::StatusOr<const Eqn*> e = find_or_append(op, std::move(operands), nullptr, {});
  if (!e.ok()) return e.status();
  return (*e)->out();
}

absl::StatusOr<const Eqn*> Builder::find_or_append(Op op, Values&& operands, std::shared_ptr<const void>&& attrs,
                                                   std::vector<FunctionRef>&& regions) {
  count_work();
  if (!attrs && op->attrs.make) attrs = op->attrs.make();
  lift(op, operands, attrs, regions);
  const std::size_t hash = hash_eqn(op, operands, attrs.get(), regions);
  if (const Eqn* e =
          numbering_.find(hash, [&](const Eqn& other) { return same_eqn(other, op, operands, attrs.get(), regions); }))
    return e;

  Eqn& e = begin(op, std::move(operands), std::move(attrs), std::move(regions));
  const Type alone = infer_alone(e);
  const absl::StatusOr<std::vector<Type>> types = alone ? std::vector<Type>() : infer(e);
  if (!types.ok()) {
    arena_->eqns.pop_back();
    return types.status();
  }
  complete(e, alone ? std::span(&alone, 1) : *types);
  if (e.effects == Effects::none) numbering_.add(hash, &e);
  return &e;
}

// Operands are along manual axes what they are together, and those of a region what its parameters are: the cast is an
// equation, and its transpose is a sum where one is due. Where they cannot come together inference says why.
void Builder::lift(Op op, Values& operands, const std::shared_ptr<const void>& attrs,
                   const std::vector<FunctionRef>& regions) {
  if (op->manual || op->varies_as_operands) return;
  if (regions.empty() ? are_invarying(operands) : !op->feeds) return;
  const Eqn e{.op = op, .operands = operands, .attributes = attrs, .regions = regions};
  if (!regions.empty()) {
    for (int k = 0; k < e.num_in(); ++k) operands[k] = casted(operands[k], op->feeds(e, k));
  } else if (const absl::StatusOr<Meeting> m = meet(e); m.ok()) {
    for (int k = 0; k < e.num_in(); ++k) operands[k] = casted(operands[k], m->operands[k]);
  }
}

absl::StatusOr<Values> Builder::try_emit_typed(Op op, Values operands, std::shared_ptr<const void> attrs,
                                               std::vector<FunctionRef> regions, const std::vector<Type>& types) {
  if (!attrs && op->attrs.make) attrs = op->attrs.make();
  Eqn e{.op = op, .operands = std::move(operands), .attributes = std::move(attrs), .regions = std::move(regions)};
  absl::StatusOr<std::vector<Type>> inferred = infer(e);
  if (!inferred.ok()) return inferred.status();
  if (*inferred == types) return try_emit(op, std::move(e.operands), std::move(e.attributes), std::move(e.regions));
  if (inferred->size() != types.size())
    return absl::InvalidArgumentError("has " + std::to_string(inferred->size()) + " results, not " +
                                      std::to_string(types.size()));
  for (std::size_t j = 0; j < types.size(); ++j)
    if (types[j].dtype() != (*inferred)[j].dtype() || types[j].dims() != (*inferred)[j].dims())
      return absl::InvalidArgumentError("result is " + to_string((*inferred)[j]) + ", not " + to_string(types[j]));
  Eqn& made = begin(op, std::move(e.operands), std::move(e.attributes), std::move(e.regions));
  complete(made, types);
  return made.outs();
}

Eqn& Builder::begin(Op op, Values&& operands, std::shared_ptr<const void>&& attrs, std::vector<FunctionRef>&& regions) {
  for (Value v : operands) SHEAF_CHECK(v && v.node()->arena == arena_.get(), "operand of another function");
  Eqn& e = arena_->eqns.emplace_back();
  e.op = op;
  e.operands = std::move(operands);
  e.attributes = std::move(attrs);
  e.regions = std::move(regions);
  return e;
}

void Builder::complete(Eqn& e, std::span<const Type> types) {
  e.loc = loc_;
  e.how = how_;
  if (e.op->effects) e.effects = e.op->effects(e);
  for (const FunctionRef& r : e.regions) e.effects = e.effects | r->effects();
  const std::span<ValueNode> results = arena_->make_values(types.size());
  for (std::size_t j = 0; j < types.size(); ++j)
    results[j] = {
        .type = types[j], .eqn = &e, .index = static_cast<int>(j), .id = arena_->num_values++, .arena = arena_.get()};
  e.results = results;
}

Values Builder::emit_all(Op op, Values operands, std::shared_ptr<const void> attrs, std::vector<FunctionRef> regions) {
  absl::StatusOr<Values> values = try_emit(op, std::move(operands), std::move(attrs), std::move(regions));
  SHEAF_CHECK(values.ok(), std::string(op->name) + ": " + std::string(values.status().message()));
  return *std::move(values);
}

Values Builder::clone(const Eqn& e, Values operands) {
  return emit_all(e.op, std::move(operands), e.attributes, e.regions);
}

namespace {

std::string hex_of(const void* data, std::size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex(2 * bytes, '0');
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto byte = static_cast<unsigned>(static_cast<const unsigned char*>(data)[i]);
    hex[2 * i] = kDigits[byte >> 4];
    hex[2 * i + 1] = kDigits[byte & 15];
  }
  return hex;
}

}  // namespace

Value Builder::constant(DType dtype, double value) {
  if (is_complex(dtype)) return constant(Literal::scalar(dtype, value));
  const std::uint64_t bits = to_bits(dtype, value);
  Scalar& recent = recent_[absl::HashOf(bits) % recent_.size()];
  if (!recent.value || recent.dtype != dtype || recent.bits != bits)
    recent = {
        dtype, bits,
        emit(ops::constant, {}, ops::Constant{.dtype = dtype, .dims = {}, .hex = hex_of(&bits, size_bytes(dtype))})};
  return recent.value;
}

Value Builder::constant(const Literal& value) {
  return emit(ops::constant, {},
              ops::Constant{.dtype = value.dtype(), .dims = value.dims(), .hex = hex_of(value.data(), value.bytes())});
}

Value Builder::full(const Type& type, double value) {
  Value c = constant(type.dtype(), value);
  if (type.rank() > 0) c = emit(ops::broadcast, {c}, ops::Broadcast{.shape = type.dims(), .dims = {}});
  return casted(c, type.manual());
}

FunctionRef Builder::finish(Values results) {
  for (Value v : results) SHEAF_CHECK(v && v.node()->arena == arena_.get(), "result of another function");
  arena_->builder = nullptr;
  return Function::make(std::move(arena_), std::move(name_), std::move(params_), std::move(results));
}

Value varied(Value x, const Axes& axes) {
  return axes.empty() ? x : casted(x, with_axes(x.type().manual(), axes, Along::varying));
}

Value number(Value like, double v) { return like.builder().constant(like.dtype(), v); }

Value operator+(Value a, Value b) { return a.builder().emit(ops::add, {a, b}); }
Value operator-(Value a, Value b) { return a.builder().emit(ops::sub, {a, b}); }
Value operator*(Value a, Value b) { return a.builder().emit(ops::mul, {a, b}); }
Value operator/(Value a, Value b) { return a.builder().emit(ops::div, {a, b}); }
Value operator-(Value a) { return a.builder().emit(ops::neg, {a}); }
Value operator+(Value a, double b) { return a + number(a, b); }
Value operator+(double a, Value b) { return number(b, a) + b; }
Value operator-(Value a, double b) { return a - number(a, b); }
Value operator-(double a, Value b) { return number(b, a) - b; }
Value operator*(double a, Value b) { return number(b, a) * b; }
Value operator*(Value a, double b) { return a * number(a, b); }
Value operator/(double a, Value b) { return number(b, a) / b; }
Value operator/(Value a, double b) { return a / number(a, b); }

}  // namespace sheaf::ir
