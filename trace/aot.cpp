// Ahead of time: the same passes, cache and executables as the first call of a jitted function would use, one step at a
// time. A call compares types with those compiled for, leaf by leaf, and goes straight to the executable.
#include "trace/aot.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/compiler.h"
#include "codegen/cuda/emit.h"
#include "codegen/kir/print.h"
#include "ir/cost.h"
#include "ir/text.h"
#include "runtime/cuda_module.h"
#include "runtime/device.h"
#include "sheaf/jit.h"
#include "trace/communication.h"
#include "trace/execute.h"
#include "trace/messages.h"
#include "trace/report/report.h"
#include "trace/text_file.h"

namespace sheaf::aot::detail {

namespace {

std::int64_t bytes_of(const std::vector<ir::Type>& types) {
  std::int64_t bytes = 0;
  for (const ir::Type t : types) bytes += t.bytes();
  return bytes;
}

Cost public_cost(const ir::Work& w) { return {w.flops, w.bytes, w.transcendentals}; }

std::string type_of(const LeafType& t) { return ir::to_string(t.type) + (t.is_weak ? " (a C++ number)" : ""); }

// A C++ number is written out in the dtype that was compiled, if that is the one it would have by itself.
bool fits(const Array& x, const LeafType& given, const LeafType& wanted) {
  return given == wanted || (x.node()->kind == ArrayNode::Kind::number && given.type == wanted.type);
}

// What is not as it was compiled, one line each.
std::string mismatches(const Program& p, const sheaf::detail::FlatCall& call) {
  const std::vector<sheaf::detail::Argument> given = call.arguments();
  std::string text;
  std::size_t leaf = 0;
  for (std::size_t k = 0; k < given.size(); ++k) {
    const sheaf::detail::Argument& wanted = p.arguments[k];
    if (given[k].paths != wanted.paths) {
      text += fmt::format("\n  argument {}: {} leaves were compiled, {} are given", k, wanted.paths.size(),
                          given[k].paths.size());
    } else if (given[k].paths != std::vector<std::string>{""} && given[k].text != wanted.text) {
      text += fmt::format("\n  argument {}: {} was compiled, {} is given", k, wanted.text, given[k].text);
    }
  }
  if (!text.empty()) return text;
  const std::vector<std::string> places = leaf_places(call);
  for (const LeafType& t : leaf_types(call)) {
    if (!fits(*call.leaves()[leaf], t, p.types[leaf]))
      text += fmt::format("\n  {}: {} was compiled, {} is given", places[leaf], type_of(p.types[leaf]), type_of(t));
    ++leaf;
  }
  if (text.empty()) text = "\n  the bytes of static arguments are others";
  return text;
}

void check_arguments(const Program& p, const sheaf::detail::FlatCall& call) {
  bool is_same = call.statics() == p.statics && call.leaves().size() == p.types.size();
  for (std::size_t i = 0; is_same && i < p.types.size(); ++i) {
    const ArrayNode* node = call.leaves()[i]->node().get();
    if (node && node->kind == ArrayNode::Kind::traced)
      throw TypeError(call.loc(), fmt::format("compiled {}: machine code cannot be traced: inside jit, grad, vmap and "
                                              "other transforms call the function it was made from, {}",
                                              p.what, to_string(p.loc)));
    is_same = node && fits(*call.leaves()[i], {node->type, node->is_weak}, p.types[i]);
  }
  if (is_same) return;
  throw TypeError(call.loc(), fmt::format("compiled {}: the arguments are not those it was compiled for{}", p.what,
                                          mismatches(p, call)));
}

// "f32[8@data] on [data=4, model=2]".
std::string lies(ir::Type type, const Placement* p, const Placement* beside) {
  if (!p) return fmt::format("{} on {}", ir::to_string(type), to_string(Device{}));
  return fmt::format("{} on {}", ir::to_string(ir::with_sharding(type, p->atoms(), p->layout)),
                     place_text(*p, beside ? beside->mesh : Mesh()));
}

// The leaves where the program was compiled for: those that nobody put anywhere are moved there.
std::vector<Array> in_place(const Lowering& l, const sheaf::detail::FlatCall& call) {
  const Program& p = *l.program;
  std::vector<Array> leaves;
  for (std::size_t i = 0; i < p.types.size(); ++i) {
    const Array& x = *call.leaves()[i];
    const ir::Type type = p.types[i].type;
    const Placement *given = x.node()->placement, *wanted = l.in[i];
    if (given == wanted) {
      leaves.push_back(x);
      continue;
    }
    if (given)
      throw ShardingError(call.loc(),
                          fmt::format("compiled {}: {}: {} was compiled, {} is given: move it with device_put", p.what,
                                      leaf_places(call)[i], lies(type, wanted, given), lies(type, given, wanted)));
    leaves.push_back(placed(wanted, moved(x, type, wanted, call.loc()), type, x.node()->is_weak, call.loc()));
  }
  return leaves;
}

Kernel shown_for_gpu(const codegen::KernelCode& code, const runtime::Kernel& kernel) {
  Kernel shown{.name = code.name, .loops = kir::to_text(*code.kir), .cuda = codegen::cuda_program(code.functions)};
  const runtime::CompiledKernel* compiled = kernel.compiled();
  for (std::size_t i = 0; i < code.phases.size(); ++i) {
    const codegen::Phase& phase = code.phases[i];
    shown.functions.push_back({.name = phase.entry, .blocks = phase.extent, .threads = phase.threads});
    if (!compiled) continue;
    const codegen::CudaFunction& taken = compiled->cuda->taken()[i];
    Function& f = shown.functions.back();
    f.registers = taken.registers;
    f.shared_bytes = taken.shared_bytes + phase.shared_bytes;
    f.stack_bytes = taken.stack_bytes;
    f.spilled_bytes = taken.spill_bytes;
  }
  if (!compiled) return shown;
  const runtime::CudaModulePtr module = compiled->cuda->module();
  shown.cubin = std::shared_ptr<const std::vector<std::byte>>(module, &module->image());
  return shown;
}

Kernel shown_for_cpu(const codegen::KernelCode& code, Loc loc) {
  const codegen::CompileUnit unit{code.kir.get(), code.name};
  const auto list = [&](codegen::Listing listing) {
    auto text = codegen::list_cpu({&unit, 1}, codegen::host_cpu_target(), listing);
    check(text.status(), loc);
    return *std::move(text);
  };
  return {.name = code.name,
          .loops = kir::to_text(*code.kir),
          .llvm = list(codegen::Listing::llvm_ir),
          .assembly = list(codegen::Listing::assembly)};
}

}  // namespace

// ---- Traced ----

std::string text(const Program& p) { return ir::print(p.traced.function); }
const sheaf::detail::Structure& structure(const Program& p) { return p.traced.structure; }

std::vector<Array> results(const Program& p) {
  std::vector<Array> leaves;
  for (const LeafType& r : p.traced.results) leaves.push_back(abstract(r.type.dims(), r.type.dtype(), p.loc));
  return leaves;
}

// ---- Lowered ----

namespace {

// None: the target is that of the devices it is for.
Ptr<Lowering> lower_for(const Ptr<Program>& p, const std::optional<codegen::Target>& target) {
  std::vector<const Array*> inputs;
  for (const Array& x : p->likes) inputs.push_back(&x);
  for (const Array& x : p->traced.captured) inputs.push_back(&x);
  Runnable::PlannedForm form = p->runnable->plan(inputs, target, p->loc);
  return std::make_shared<const Lowering>(Lowering{p, std::move(form.planned), std::move(form.in)});
}

}  // namespace

Ptr<Lowering> lower(const Ptr<Program>& p) { return lower_for(p, {}); }

std::string text(const Lowering& l) { return ir::print(l.planned.plan.optimised); }
Cost cost(const Lowering& l) { return public_cost(ir::work_of(*l.planned.plan.optimised)); }
CollectiveReport collectives(const Lowering& l) { return collectives_of(l.planned.plan); }

namespace {

std::string result_name(const Program& p, int j) {
  const std::string& path = p.traced.structure.paths[j];
  return path.empty() ? "the result" : "result " + path;
}

std::string told(const passes::NotTaken& x, ir::Type type, const Program& p) {
  using Why = passes::NotTaken::Why;
  switch (x.why) {
    case Why::is_empty: return "it has no elements";
    case Why::no_result_is_as_large: return fmt::format("no result has {} bytes", type.bytes());
    case Why::results_took_others:
      return fmt::format("every result of {} bytes lies in another argument's buffer", type.bytes());
    case Why::is_read_too_late:
      return fmt::format("{} reads it when {} is being written, or later", to_string(x.reader),
                         result_name(p, x.result));
  }
  return "";
}

std::vector<Donation> donations_of(const Lowering& l) {
  const Program& p = *l.program;
  const passes::Plan& plan = l.planned.plan;
  const std::vector<sheaf::detail::Argument>& arguments = p.arguments;
  std::vector<Donation> all;
  int leaf = 0;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    for (const std::string& path : arguments[k].paths) {
      const int i = leaf++;
      if (i >= std::ssize(l.planned.donated) || !l.planned.donated[i]) continue;
      Donation d{.argument = fmt::format("argument {}{}{}", k, path.empty() ? "" : " ", path)};
      if (const auto taker = std::ranges::find(plan.alias, i); taker != plan.alias.end())
        d.result = result_name(p, static_cast<int>(taker - plan.alias.begin()));
      else if (const auto why = std::ranges::find(plan.not_taken, i, &passes::NotTaken::param);
               why != plan.not_taken.end())
        d.otherwise = told(*why, plan.function->params()[i].type(), p);
      all.push_back(std::move(d));
    }
  }
  return all;
}

}  // namespace

Memory memory(const Lowering& l) {
  const passes::Plan& plan = l.planned.plan;
  const std::vector<ir::Type> outputs = plan.function->result_types();
  Memory m{.arguments = bytes_of(plan.function->param_types()),
           .outputs = bytes_of(outputs),
           .temporaries = plan.arena_bytes,
           .donations = donations_of(l)};
  for (std::size_t j = 0; j < plan.alias.size(); ++j)
    if (plan.alias[j] >= 0) m.aliased += outputs[j].bytes();
  return m;
}

// ---- Compiled ----

namespace {

// As a call of the function itself would find it.
void compile_bucket(const Program& p) {
  std::vector<const Array*> inputs;
  for (const Array& x : p.bucket_likes) inputs.push_back(&x);
  const CompiledPtr compiled = sheaf::compile(p.bucket->plan(inputs, {}, p.loc).planned, {p.what, p.loc});
  if (const runtime::ExecutablePtr e = compiled->executable()) check(e->warm(runtime::device(0)), p.loc);
}

}  // namespace

Ptr<Code> compile(const Ptr<Lowering>& l) {
  const Loc loc = l->program->loc;
  if (l->program->bucket) compile_bucket(*l->program);
  const Mesh& mesh = l->planned.program.mesh;
  if (mesh) check_has_devices(l->program->what, mesh, loc);
  CompiledPtr compiled = sheaf::compile(l->planned, {l->program->what, loc});
  const std::vector<Device> devices = mesh ? mesh.devices() : std::vector<Device>{{}};
  if (const runtime::ExecutablePtr e = compiled->executable())
    for (const Device d : devices) check(e->warm(runtime::device(d.id)), loc);
  return std::make_shared<const Code>(Code{l, std::move(compiled)});
}

Ptr<Code> compile_for(const Ptr<Lowering>& l, std::string_view target, Loc loc) {
  const absl::StatusOr<codegen::Target> parsed = codegen::parse_target(target);
  if (!parsed.ok()) throw RuntimeError(loc, fmt::format("compile_for: {}", std::string(parsed.status().message())));
  const Ptr<Lowering> own = l->planned.program.target == *parsed ? l : lower_for(l->program, *parsed);
  return std::make_shared<const Code>(Code{own, sheaf::compile(own->planned, {l->program->what, loc})});
}

std::string text(const Code& c) {
  std::string donations;
  for (const Donation& d : donations_of(*c.lowering))
    donations += d.result.empty() ? fmt::format("// the buffer of {} is not taken: {}\n", d.argument, d.otherwise)
                                  : fmt::format("// {} lies in the buffer of {}\n", d.result, d.argument);
  return donations + ir::print(c.lowering->planned.plan.function);
}
Cost cost(const Code& c) { return public_cost(ir::work_of(*c.lowering->planned.plan.function)); }

std::string target(const Code& c) { return to_string(c.lowering->planned.program.target); }

std::vector<Kernel> kernels(const Code& c) {
  const runtime::ExecutablePtr e = c.compiled->executable();
  return e ? shown_kernels(*e, c.lowering->program->loc) : std::vector<Kernel>();
}

Memory memory(const Code& c) {
  Memory m = memory(*c.lowering);
  const runtime::ExecutablePtr e = c.compiled->executable();
  if (!e) return m;
  for (const codegen::Constant& constant : e->program().constants) m.constants += constant.type.bytes();
  m.code = e->code_bytes();
  return m;
}

std::string report(const Code& c) {
  const Lowering& l = *c.lowering;
  return report_html({.what = l.program->what,
                      .loc = l.program->loc,
                      .planned = l.planned,
                      .executable = c.compiled->executable(),
                      .cost = cost(c),
                      .memory = memory(c),
                      .collectives = collectives(l)});
}

void write_report(const Code& c, const std::string& path, Loc loc) {
  if (const std::string why = why_not_written(path, report(c)); !why.empty()) throw RuntimeError(loc, "report: " + why);
}

const sheaf::detail::Structure& call(const Code& c, const sheaf::detail::FlatCall& arguments,
                                     sheaf::detail::Leaves& out) {
  const Program& p = *c.lowering->program;
  check_arguments(p, arguments);
  const std::vector<Array> leaves = in_place(*c.lowering, arguments);
  std::vector<const Array*> inputs;
  for (const Array& x : leaves) inputs.push_back(&x);
  for (const Array& x : p.traced.captured) inputs.push_back(&x);
  p.runnable->run(inputs, {}, arguments.loc(), out);
  return p.traced.structure;
}

}  // namespace sheaf::aot::detail

namespace sheaf {

std::vector<aot::Kernel> shown_kernels(const runtime::Executable& e, Loc loc) {
  std::vector<aot::Kernel> all;
  const std::vector<codegen::KernelCode>& codes = e.program().kernels;
  for (std::size_t i = 0; i < codes.size(); ++i)
    all.push_back(codes[i].target.is_gpu() ? aot::detail::shown_for_gpu(codes[i], *e.kernels()[i])
                                           : aot::detail::shown_for_cpu(codes[i], loc));
  return all;
}

}  // namespace sheaf
