// On which devices a call runs, and the form of its program for them.
#include "trace/runnable.h"

#include <absl/container/flat_hash_set.h>
#include <absl/container/inlined_vector.h>
#include <fmt/format.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/profile.h"
#include "passes/emit.h"
#include "runtime/device.h"
#include "sheaf/error.h"
#include "trace/messages.h"
#include "trace/profile_of_process.h"

namespace sheaf {

namespace {

[[maybe_unused]] const bool is_process_profiled = profile_process();

}  // namespace

struct Runnable::Form {
  Mesh mesh;
  std::vector<runtime::Device*> devices;
  std::vector<const Placement*> given;  // of the inputs; null: of one that nobody put anywhere
  std::vector<const Placement*> in, out;
  CompiledPtr program;
};

namespace {

// The mesh that with_sharding and shard_map in the program are for.
struct NamedMesh {
  std::string text;
  const ir::Eqn* by = nullptr;
  absl::flat_hash_set<const ir::Function*> seen;  // equal calls share their region
};

void find_mesh(const ir::Function& f, NamedMesh& found, const std::string& what) {
  if (!found.seen.insert(&f).second) return;
  for (const ir::Eqn* e : f.eqns()) {
    const bool is_constraint = e->op == &ir::ops::with_sharding;
    if (is_constraint || e->op == &ir::ops::shard_map) {
      const std::string& text =
          is_constraint ? e->attrs<ir::ops::WithSharding>().mesh : e->attrs<ir::ops::ShardMap>().mesh;
      if (found.by && text != found.text)
        throw ShardingError(e->loc, fmt::format("{}: a program runs on one mesh\n  {} at {}: [{}]\n  {} at {}: [{}]",
                                                what, found.by->op->name, to_string(found.by->loc), found.text,
                                                e->op->name, to_string(e->loc), text));
      found.text = text;
      found.by = e;
    }
    for (const ir::FunctionRef& region : e->regions) find_mesh(*region, found, what);
  }
}

// Whether a program for the one mesh can run on the other: what is written for an abstract mesh runs on any of its
// axes.
bool is_for(const Mesh& program, const Mesh& mesh) {
  return program == mesh || (program.is_abstract() && program.axes() == mesh.axes());
}

// The mesh that the program is for: as the user wishes, or as it says itself.
Mesh mesh_for(const ir::Function& f, const Mesh& wished, const std::string& what) {
  NamedMesh found;
  find_mesh(f, found, what);
  if (!found.by) return wished;
  const Mesh named = noted_mesh(*ir::Mesh::parse(found.text));
  if (wished && !is_for(named, wished))
    throw ShardingError(found.by->loc,
                        fmt::format("{}: .mesh is {}, and this {} is for {}", what, text_with_devices(wished),
                                    found.by->op->name, text_with_devices(named)));
  return wished ? wished : named;
}

// Of its devices, which are of one kind; of a mesh without any, that of this process.
const codegen::Target& target_of(const Mesh& mesh) {
  const bool has_devices = mesh && !mesh.devices().empty();
  return runtime::device(has_devices ? mesh.devices()[0].id : 0).backend().target();
}

// "P("x") on [x=4]": how an input lies.
std::string lies_text(const Placement* p) {
  if (!p) return "anywhere";
  if (!p->is_on_mesh()) return to_string(p->mesh.devices()[0]);
  return to_string(spec_of(p->layout, p->atoms())) + " on " + text_with_devices(p->mesh);
}

}  // namespace

Mesh mesh_named_in(const ir::Function& f, const std::string& what) { return mesh_for(f, {}, what); }

std::string input_name(const ir::Function& f, std::size_t i) {
  if (const std::string& name = f.params()[i].name(); !name.empty()) return name;
  return f.params().size() == 2 ? (i == 0 ? "lhs" : "rhs") : fmt::format("operand {}", i);
}

std::string Runnable::input_name(std::size_t i) const {
  return i >= options_.arguments ? "a captured array" : sheaf::input_name(*function_, i);
}

std::string Runnable::result_place(std::size_t j) const {
  return fmt::format("{}: out_shardings of {}", options_.what, options_.wishes.result_names[j]);
}

Runnable::Runnable(ir::FunctionRef f, RunnableOptions options) : function_(std::move(f)), options_(std::move(options)) {
  is_operation_ = options_.what.empty();
  if (is_operation_) options_.what = function_->name();
  own_mesh_ = mesh_for(*function_, options_.wishes.mesh, options_.what);
  needs_mesh_ = own_mesh_ || options_.wishes.has_specs();
}

Runnable::~Runnable() = default;

const Compiled& Runnable::single(const runtime::Device& device, Loc loc) const {
  const codegen::Target& target = device.backend().target();
  std::atomic<const Compiled*>& known = single_[target.is_gpu()];
  if (const Compiled* program = known.load(std::memory_order_acquire)) return *program;
  std::vector<KeyChange> changes = options_.changes;
  {
    std::lock_guard lock(mutex_);
    if (const auto other = single_owner_[!target.is_gpu()])
      changes = {{"the platform that it runs on", target.is_gpu() ? "cpu" : "cuda", target.is_gpu() ? "cuda" : "cpu"}};
    else if (!forms_.empty()) changes = {{"the mesh", text_with_devices(forms_.back()->mesh), "none"}};
    if (changes != options_.changes) note_again(changes, loc);
  }
  CompiledPtr made = compile({.function = function_, .target = target}, options_.donated, asked(changes, loc));
  std::lock_guard lock(mutex_);
  CompiledPtr& owner = single_owner_[target.is_gpu()];
  if (!owner) owner = std::move(made);
  known.store(owner.get(), std::memory_order_release);
  return *owner;
}

std::vector<const Compiled*> Runnable::programs() const {
  std::lock_guard lock(mutex_);
  std::vector<const Compiled*> all;
  for (const CompiledPtr& program : single_owner_)
    if (program) all.push_back(program.get());
  for (const auto& form : forms_) all.push_back(form->program.get());
  return all;
}

void Runnable::run(std::span<const Array* const> inputs, Loc line, Loc loc, detail::Leaves& out) const {
  const ir::Span span(ir::Activity::call, options_.what, loc);
  bool is_placed = needs_mesh_;
  for (const Array* x : inputs) is_placed |= x->has_value() && x->node()->placement;
  if (!is_placed) return run_single(nullptr, inputs, line, loc, out);
  const Mesh mesh = mesh_of(inputs, loc);
  check_has_devices(options_.what, mesh, loc);
  if (mesh.rank() > 0) return run_on(mesh, inputs, line, loc, out);
  run_single(&runtime::device(mesh.devices()[0].id), inputs, line, loc, out);
}

std::vector<Array> Runnable::run(std::span<const Array* const> inputs, Loc line, Loc loc) const {
  detail::Leaves out;
  run(inputs, line, loc, out);
  return {out.span().begin(), out.span().end()};
}

// `device`: that of the inputs which somebody put there; null: nobody did.
void Runnable::run_single(runtime::Device* device, std::span<const Array* const> inputs, Loc line, Loc loc,
                          detail::Leaves& out) const {
  runtime::Device& on = device ? *device : runtime::device(0);
  const Compiled& program = single(on, loc);
  absl::InlinedVector<runtime::Buffer*, 8> buffers;
  absl::InlinedVector<runtime::BufferPtr, 2> made;  // of those that are not an input's own
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ir::Type type = program.inputs[i];
    const ArrayNode* node = inputs[i]->node().get();
    if (!device && node && node->buffer && node->type == type) {
      buffers.push_back(node->buffer.get());
      continue;
    }
    made.push_back(!device ? buffer_of(*inputs[i], type, loc)
                           : moved(*inputs[i], type, placement_on({device->id()}, type.rank()), loc)[0]);
    buffers.push_back(made.back().get());
  }
  const bool is_watched{watched_values()};
  static const std::vector<bool> nothing;  // the inputs have to outlive the run, for another one
  runtime::Buffers results = program.run(on, buffers, is_watched ? nothing : options_.donated, loc);
  if (is_watched) check_results({function_, line}, buffers, results, loc);
  for (std::size_t j = 0; j < results.size(); ++j) {
    const ir::Type type = program.outputs[j];
    const bool is_weak = !options_.weak.empty() && options_.weak[j];
    if (!device) out.push_back(concrete(std::move(results[j]), type, is_weak, loc));
    else out.push_back(placed(placement_on({device->id()}, type.rank()), {std::move(results[j])}, type, is_weak, loc));
  }
}

Mesh mesh_of_inputs(const std::string& what, const Mesh& own, std::span<const Array* const> inputs,
                    absl::FunctionRef<std::string(std::size_t)> name_of, Loc loc) {
  const auto lies = [&](std::size_t i, const Mesh& other) {
    const ArrayNode& node = *inputs[i]->node();
    return fmt::format("\n  {}: {} on {}   (made at {})", name_of(i), type_text(node),
                       place_text(*node.placement, other), to_string(node.made_at));
  };
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ArrayNode& node = node_of(*inputs[i], loc);
    if (!node.placement) continue;
    if (!first) first = i;
    const Mesh &one = inputs[*first]->node()->placement->mesh, &other = node.placement->mesh;
    if (!are_same_place(one, other))
      throw ShardingError(loc, fmt::format("{}: the arrays are on different meshes or devices: move one with "
                                           "device_put{}{}",
                                           what, lies(*first, other), lies(i, one)));
  }
  if (!first) return own;
  const Mesh& theirs = inputs[*first]->node()->placement->mesh;
  if (!own || is_for(own, theirs)) return theirs;
  if (are_same_place(own, theirs)) return own;
  throw ShardingError(loc, fmt::format("{}: the program is for the mesh {}: move the arrays with device_put{}", what,
                                       told_apart(own, theirs).first, lies(*first, own)));
}

Mesh Runnable::mesh_of(std::span<const Array* const> inputs, Loc loc) const {
  Mesh mesh = mesh_of_inputs(options_.what, own_mesh_, inputs, [this](std::size_t i) { return input_name(i); }, loc);
  if (mesh.rank() == 0 && !own_mesh_ && options_.wishes.has_specs())
    throw ShardingError(loc, fmt::format("{}: in_shardings and out_shardings are of a mesh: give .mesh, or put an "
                                         "argument on one",
                                         options_.what));
  return mesh;
}

// Where the inputs will be: where they are, else where they are wanted, else whole on every device.
std::vector<const Placement*> Runnable::placements(const Mesh& mesh, std::span<const Array* const> inputs,
                                                   Loc loc) const {
  const std::vector<std::optional<PartitionSpec>>& wanted = options_.wishes.in;
  std::vector<const Placement*> in;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ArrayNode& node = *inputs[i]->node();
    const Placement* given = node.placement;
    if (given && given->mesh != mesh) given = placement_of(mesh, given->layout);  // only the names differ
    const Placement* place = replicated_on(mesh, node.type.rank());
    if (i < wanted.size() && wanted[i]) {
      const std::string name = fmt::format("{}: in_shardings of {}", options_.what, input_name(i));
      place = placement_of(mesh, checked_layout(name, mesh, *wanted[i], node.type.dims(), type_text(node), loc));
    }
    in.push_back(given ? given : place);
  }
  return in;
}

// The program on the mesh, its parameters laid out as the inputs are, and moved first where they are wanted otherwise.
MeshProgram Runnable::mesh_program(const Mesh& mesh, std::span<const Placement* const> in, Loc loc) const {
  ir::Builder b(function_->name());
  ir::Values params;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const ir::Value p = function_->params()[i];
    params.push_back(b.param(ir::with_sharding(p.type(), in[i]->atoms(), in[i]->layout), p.name()));
  }
  const auto& wanted_in = options_.wishes.in;
  b.set_loc(loc);
  for (std::size_t i = 0; i < std::min(in.size(), wanted_in.size()); ++i) {
    if (!wanted_in[i]) continue;
    const ir::Spec spec = ir_spec(*wanted_in[i], params[i].rank());
    bool is_there = true;
    for (std::size_t d = 0; d < spec.size(); ++d) is_there &= atoms_of(mesh).of(spec[d].axes) == in[i]->layout.dims[d];
    if (is_there) continue;
    params[i] = b.emit(ir::ops::with_sharding, {params[i]},
                       ir::ops::WithSharding{.mesh = ir::to_string(ir_mesh(mesh)), .spec = ir::to_text(spec)});
  }
  MeshProgram program{.mesh = mesh, .function = nullptr, .target = target_of(mesh)};
  program.function = b.finish(passes::inline_into(b, *function_, params))->on_mesh(ir_mesh(mesh));
  const auto& wanted = options_.wishes.out;
  for (std::size_t j = 0; j < wanted.size(); ++j) {
    const ir::Type type = function_->results()[j].type();
    if (wanted[j]) check_wish(result_place(j), mesh, *wanted[j], type.dims(), ir::to_string(type), loc);
    program.results.push_back(wanted[j] ? std::optional(ir_spec(*wanted[j], type.rank())) : std::nullopt);
  }
  return program;
}

void Runnable::constrain_inputs(std::vector<Array>& inputs, Loc loc) const {
  const auto& wanted = options_.wishes.in;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i])
      inputs[i] = constrained(fmt::format("{}: in_shardings of {}", options_.what, input_name(i)), inputs[i], own_mesh_,
                              *wanted[i], loc);
}

void Runnable::constrain_results(std::vector<Array>& results, Loc loc) const {
  const auto& wanted = options_.wishes.out;
  for (std::size_t j = 0; j < wanted.size(); ++j)
    if (wanted[j]) results[j] = constrained(result_place(j), results[j], own_mesh_, *wanted[j], loc);
}

void Runnable::check_can_be_part(const TraceInfo& of, Loc loc) const {
  if (has_limits(options_.wishes.limits))
    throw TypeError(loc, fmt::format("{}: .limits are of a whole program, and this call is part of that of {}: give "
                                     "them to the jit around it",
                                     options_.what, trace_text(of)));
  if (options_.wishes.has_specs() && !own_mesh_)
    throw ShardingError(loc,
                        fmt::format("{}: in_shardings and out_shardings are of a mesh: give .mesh, as this call is "
                                    "part of the program of {}",
                                    options_.what, trace_text(of)));
}

Planned Runnable::planned_within(const MeshProgram& program, Loc loc) const {
  Planned planned = plan_program(program, options_.donated);
  check_within(options_.wishes.limits, planned.plan, options_.what, loc);
  return planned;
}

CompiledPtr Runnable::compile_within(const MeshProgram& program, const Asked& asked) const {
  if (!has_limits(options_.wishes.limits)) return compile(program, options_.donated, asked);
  return compile(planned_within(program, asked.loc), asked);
}

Asked Runnable::asked(std::vector<KeyChange> changes, Loc loc) const {
  return {.what = options_.what, .loc = loc, .changes = std::move(changes), .is_operation = is_operation_};
}

void Runnable::note_again(const std::vector<KeyChange>& changes, Loc loc) const {
  if (!options_.again) return;
  note_compile(options_.what, options_.site, changes);
  options_.again->add({.called_at = loc, .is_traced = false, .changes = changes});
}

std::vector<KeyChange> Runnable::layout_changes(const Mesh& mesh, std::span<const Array* const> inputs) const {
  const auto mesh_text = [](const Mesh& m) { return text_with_devices(m); };
  std::vector<KeyChange> nearest;
  for (const auto& form : forms_) {
    std::vector<KeyChange> changes;
    if (form->mesh != mesh) changes.push_back({"the mesh", mesh_text(form->mesh), mesh_text(mesh)});
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Placement *was = form->given[i], *is = inputs[i]->node()->placement;
      if (was == is || lies_text(was) == lies_text(is)) continue;
      const std::string name = i < options_.places.size() ? options_.places[i] : input_name(i);
      changes.push_back({name + ": sharding", lies_text(was), lies_text(is)});
    }
    if (nearest.empty() || changes.size() <= nearest.size()) nearest = std::move(changes);
  }
  if (forms_.empty() && (single_owner_[0] || single_owner_[1])) nearest = {{"the mesh", "none", mesh_text(mesh)}};
  return nearest;
}

const Runnable::Form& Runnable::form_for(const Mesh& mesh, std::span<const Array* const> inputs, Loc loc) const {
  const auto fits = [&](const Form& form) {
    if (form.mesh != mesh) return false;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i]->node()->placement != form.given[i]) return false;
    return true;
  };
  if (const Form* last = last_.load(std::memory_order_acquire); last && fits(*last)) return *last;
  std::lock_guard lock(mutex_);
  const Form* found = nullptr;
  for (const auto& form : forms_)
    if (fits(*form)) found = form.get();
  if (!found) {
    auto made = std::make_unique<Form>();
    made->mesh = mesh;
    made->devices = replicated_on(mesh, 0)->devices;
    for (const Array* x : inputs) made->given.push_back(x->node()->placement);
    made->in = placements(mesh, inputs, loc);
    const std::vector<KeyChange> changes = layout_changes(mesh, inputs);
    if (!changes.empty()) note_again(changes, loc);
    made->program = compile_within(mesh_program(mesh, made->in, loc),
                                   asked(changes.empty() ? options_.changes : changes, loc));
    for (const ir::Type t : made->program->outputs)
      made->out.push_back(placement_of(mesh, ir::sharding_of(t, atoms_of(mesh))));
    forms_.push_back(std::move(made));
    found = forms_.back().get();
  }
  last_.store(found, std::memory_order_release);
  return *found;
}

void Runnable::run_on(const Mesh& mesh, std::span<const Array* const> inputs, Loc line, Loc loc,
                      detail::Leaves& out) const {
  const Form& form = form_for(mesh, inputs, loc);
  const std::vector<runtime::Device*>& devices = form.devices;
  std::vector<runtime::Buffers> parts(devices.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ir::Type type = function_->params()[i].type();
    std::vector<runtime::BufferPtr> shards = moved(*inputs[i], type, form.in[i], loc);
    for (std::size_t d = 0; d < devices.size(); ++d) parts[d].push_back(std::move(shards[d]));
  }
  const bool is_watched{watched_values()};
  static const std::vector<bool> nothing;
  std::vector<runtime::Buffers> results =
      form.program->run_on(devices, parts, is_watched ? nothing : options_.donated, loc);
  const std::size_t first = out.size();
  for (std::size_t j = 0; j < form.out.size(); ++j) {
    std::vector<runtime::BufferPtr> shards;
    for (runtime::Buffers& r : results) shards.push_back(std::move(r[j]));
    const bool is_weak = !options_.weak.empty() && options_.weak[j];
    out.push_back(placed(form.out[j], std::move(shards), function_->results()[j].type(), is_weak, loc));
  }
  if (!is_watched) return;
  std::vector<runtime::BufferPtr> whole_inputs, whole_results;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    whole_inputs.push_back(buffer_of(*inputs[i], function_->params()[i].type(), loc));
  for (const Array& x : out.span().subspan(first)) whole_results.push_back(gathered(*x.node(), loc));
  check_results(source_on(mesh, mesh_program(mesh, form.in, loc).function, line), runtime::pointers_to(whole_inputs),
                whole_results, loc);
}

Runnable::PlannedForm Runnable::plan(std::span<const Array* const> inputs, const std::optional<codegen::Target>& target,
                                     Loc loc) const {
  bool is_placed = needs_mesh_;
  for (const Array* x : inputs) is_placed |= x->has_value() && x->node()->placement;
  const Mesh mesh = is_placed ? mesh_of(inputs, loc) : Mesh();
  std::vector<const Placement*> in(inputs.size());
  if (is_placed) in = placements(mesh, inputs, loc);
  MeshProgram program =
      mesh.rank() > 0 ? mesh_program(mesh, in, loc) : MeshProgram{.mesh = mesh, .function = function_};
  program.target = target ? *target : target_of(mesh);
  Planned planned = mesh.rank() > 0 ? planned_within(program, loc) : plan_program(program, options_.donated);
  return {std::move(planned), std::move(in)};
}

}  // namespace sheaf
