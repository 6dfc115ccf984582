// The stack of traces of a thread, and closure conversion between them.
#include "trace/recorder.h"

#include <fmt/format.h>

#include <cstring>

#include "ir/manual.h"
#include "ir/ops/attrs.h"
#include "ir/ops/rules.h"
#include "passes/emit.h"
#include "trace/apply.h"
#include "trace/axes.h"
#include "trace/mesh.h"
#include "trace/messages.h"
#include "trace/runnable.h"

namespace sheaf {
namespace {

thread_local Recorder* innermost = nullptr;
thread_local Loc user_line;

}  // namespace

Recorder::Recorder(std::string what, Loc loc, std::string function_name)
    : info_(std::make_shared<TraceInfo>()), builder_(std::move(function_name)), outer_(innermost) {
  info_->what = std::move(what);
  info_->loc = loc;
  innermost = this;
}

Recorder::~Recorder() {
  info_->is_live = false;
  innermost = outer_;
}

Recorder* Recorder::current() { return innermost; }
Recorder* Recorder::outermost() {
  Recorder* r = innermost;
  while (r && r->outer_) r = r->outer_;
  return r;
}

Mesh Recorder::keep_to_one(const Mesh& mesh, const std::string& who, Loc loc) {
  Mesh one = mesh;
  for (const NamedMesh& other : meshes_) {
    if (other.mesh == mesh || ir_mesh(other.mesh) != ir_mesh(mesh)) continue;
    if (mesh.is_abstract()) one = other.mesh;
    if (other.mesh.is_abstract() || mesh.is_abstract()) continue;
    const auto [there, here] = told_apart(other.mesh, mesh);
    throw ShardingError(loc, fmt::format("{}: a program runs on one mesh\n  {} at {}: {}\n  {} at {}: {}", info_->what,
                                         other.who, to_string(other.loc), there, who, to_string(loc), here));
  }
  meshes_.push_back({mesh, who, loc});
  return one;
}

Array Recorder::param(ir::Type type, bool is_weak, const ParamName& name, bool precise) {
  const bool as_f64 = precise && is_weak && type.dtype() == f32;
  const ir::Value v = builder_.param(as_f64 ? type.with_dtype(f64) : type, name.in_text);
  info_->param_names.push_back(name.shown);
  info_->param_places.push_back(name.place);
  auto node = ir::make_recycled<ArrayNode>();
  node->kind = ArrayNode::Kind::traced;
  node->is_weak = is_weak;
  node->type = type;
  node->made_at = info_->loc;
  node->value = v;
  node->trace = info_;
  return Array(std::move(node));
}

Array Recorder::wrap(ir::Value value, bool is_weak, Loc made_at) const {
  auto node = ir::make_recycled<ArrayNode>();
  node->kind = ArrayNode::Kind::traced;
  node->is_weak = is_weak;
  node->type = value.type();
  node->made_at = made_at;
  node->value = value;
  node->trace = info_;
  return Array(std::move(node));
}

ir::Value Recorder::number(Number v, DType dtype) {
  if (v.kind() != Number::Kind::floating) return constant(builder_, v, dtype);
  const double x = v.as_double();
  const bool is_latest = latest_.value && latest_.dtype == dtype && std::memcmp(&latest_.number, &x, sizeof x) == 0;
  if (!is_latest) latest_ = {dtype, x, constant(builder_, v, dtype)};
  return latest_.value;
}

const void* capture_key(const ArrayNode& node) {
  if (node.kind != ArrayNode::Kind::concrete) return node.value.node();
  return node.placement ? static_cast<const void*>(&node) : node.buffer.get();
}

ir::Value Recorder::capture(const Array& x, const ArrayNode& node, Loc use) {
  const bool is_concrete = node.kind == ArrayNode::Kind::concrete;
  ir::Value& value = captures_[capture_key(node)];
  if (!value) {
    const ir::Type type = is_concrete ? node.type : node.value.type();
    check_none_is_unreduced(type, use);
    value = builder_.param(type.with_varying(ir::joined(type.varying(), chosen_axes())));
    captured_.push_back(x);
  }
  return value;
}

ir::Value Recorder::lift(const Array& x, Loc use, std::optional<DType> as) {
  const ArrayNode& node = node_of(x, use);
  const DType wanted = as.value_or(node.type.dtype());
  switch (node.kind) {
    case ArrayNode::Kind::number: return number(node.number, wanted);
    case ArrayNode::Kind::concrete: return ir::ops::convert_to(capture(x, node, use), wanted);
    case ArrayNode::Kind::abstract:
      throw TypeError(
          use, "an array made by abstract() has no value: " + type_text(node) + " made at " + to_string(node.made_at));
    case ArrayNode::Kind::traced: break;
  }
  if (node.trace == info_) return ir::ops::convert_to(node.value, wanted);
  const Recorder* owner = outer_;
  while (owner && owner->info_ != node.trace) owner = owner->outer_;
  if (!owner) throw_leaked(node, use);
  return ir::ops::convert_to(capture(x, node, use), wanted);
}

ir::FunctionRef Recorder::finish(std::span<const Array> results, Loc loc) {
  ir::Values values;
  for (const Array& r : results) values.push_back(lift(r, loc));
  info_->is_live = false;
  innermost = outer_;
  return builder_.finish(std::move(values));
}

UserLine::UserLine(Loc loc) : before_(user_line) {
  if (!user_line) user_line = loc;
}
UserLine::~UserLine() { user_line = before_; }
Loc UserLine::or_own(Loc own) { return user_line ? user_line : own; }

std::vector<Array> apply_function(const ir::FunctionRef& f, std::span<const Array> inputs, Loc loc,
                                  const std::vector<bool>& weak, const std::vector<bool>& donated) {
  Recorder* r = Recorder::current();
  if (!r) {
    std::vector<const Array*> pointers;
    for (const Array& x : inputs) pointers.push_back(&x);
    return Runnable(f, {.donated = donated, .weak = weak}).run(pointers, {}, loc);
  }
  std::vector<Array> out;
  ir::Values args;
  r->builder().set_loc(loc);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ir::Type type = f->params()[i].type();
    args.push_back(ir::casted(r->lift(inputs[i], loc, type.dtype()), type.manual()));
  }
  const ir::Values results = passes::inline_into(r->builder(), *f, args);
  for (std::size_t j = 0; j < results.size(); ++j) out.push_back(r->wrap(results[j], !weak.empty() && weak[j], loc));
  r->builder().set_loc(loc);
  return out;
}

}  // namespace sheaf
