// Sealing functions in canonical order, and views of sealed functions.
// Order: post-order from the results, operands first, because g++ and clang evaluate a call's arguments in opposite
// orders and the same source must give the same program. Effectful equations are extra roots, in program order.
#include "ir/graph.h"

#include <absl/container/flat_hash_set.h>

#include <mutex>
#include <set>

#include "ir/op.h"
#include "ir/work.h"

namespace sheaf::ir {

Builder& Value::builder() const {
  SHEAF_CHECK(node_ && node_->arena->builder, "value of a sealed function used as if under construction");
  return *node_->arena->builder;
}

const std::string& Value::name() const {
  static const auto& none = *new std::string;
  return node_->name ? *node_->name : none;
}

Values Eqn::outs() const {
  Values v;
  v.reserve(results.size());
  for (const ValueNode& r : results) v.push_back(Value(&r));
  return v;
}

std::vector<Type> Eqn::in_types() const {
  std::vector<Type> types;
  types.reserve(operands.size());
  for (Value v : operands) types.push_back(v.type());
  return types;
}

void Eqn::check_attrs(const void* tag) const {
  SHEAF_CHECK(op->attrs.tag && op->attrs.tag() == tag && attributes, std::string(op->name) + " has other attributes");
}

namespace {

// Appends the equations `root` needs, operands first. Iterative: programs are thousands of equations deep.
void visit(const Eqn* root, std::vector<bool>& seen, std::vector<const Eqn*>& order) {
  struct Frame {
    const Eqn* eqn;
    std::size_t next;
  };
  std::vector<Frame> stack{{root, 0}};
  const auto mark = [&](const Eqn* e) -> bool {
    const int id = e->results.empty() ? -1 : e->results[0].id;
    if (id < 0) return true;
    if (seen[id]) return false;
    return seen[id] = true;
  };
  if (!mark(root)) return;
  while (!stack.empty()) {
    Frame& top = stack.back();
    if (top.next == top.eqn->operands.size()) {
      count_work();
      order.push_back(top.eqn);
      stack.pop_back();
      continue;
    }
    const Eqn* e = top.eqn->operands[top.next++].eqn();
    if (e && mark(e)) stack.push_back({e, 0});
  }
}

}  // namespace

FunctionRef Function::make(std::shared_ptr<Arena> arena, std::string name, Values params, Values results) {
  auto f = std::make_shared<Function>();
  f->name_ = std::move(name);
  f->params_ = std::move(params);
  f->results_ = std::move(results);
  std::vector<bool> seen(arena->num_values);
  for (const Eqn& e : arena->eqns)
    if (e.effects != Effects::none) visit(&e, seen, f->eqns_);
  for (Value r : f->results_)
    if (r.eqn()) visit(r.eqn(), seen, f->eqns_);
  for (const Eqn* e : f->eqns_) f->effects_ = f->effects_ | e->effects;
  f->arena_ = std::move(arena);
  return f;
}

std::vector<Type> Function::param_types() const {
  std::vector<Type> types;
  for (Value v : params_) types.push_back(v.type());
  return types;
}

std::vector<Type> Function::result_types() const {
  std::vector<Type> types;
  for (Value v : results_) types.push_back(v.type());
  return types;
}

FunctionRef Function::with_params(std::span<const int> order) const {
  Values params;
  for (int i : order) params.push_back(params_[i]);
  return make(arena_, name_, std::move(params), results_);
}

FunctionRef Function::with_results(Values results) const { return make(arena_, name_, params_, std::move(results)); }

FunctionRef Function::on_mesh(Mesh mesh) const {
  auto f = std::make_shared<Function>(*this);
  f->mesh_ = mesh;
  return f;
}

FunctionRef Function::renamed(std::string name) const {
  auto f = std::make_shared<Function>(*this);
  f->name_ = std::move(name);
  return f;
}

const char* extend_how(const char* how, const char* transform) {
  const std::string_view old(how), added(transform);
  if (added.empty() || old.ends_with(added)) return how;  // a chain, not a count
  static auto& mutex = *new std::mutex;
  static auto& table = *new std::set<std::string>;
  std::lock_guard lock(mutex);
  return table.insert(old.empty() ? std::string(added) : std::string(old) + ", " + std::string(added)).first->c_str();
}

}  // namespace sheaf::ir
