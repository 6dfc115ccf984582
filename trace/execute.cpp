// Programs by canonical text, and the one place where a Function goes through passes, code generation and the runtime.
#include "trace/execute.h"

#include <absl/functional/function_ref.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>

#include "codegen/lower.h"
#include "ir/environment.h"
#include "ir/eval.h"
#include "ir/eval_spmd.h"
#include "ir/log.h"
#include "ir/profile.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "passes/transforms.h"
#include "runtime/cache.h"
#include "runtime/device.h"
#include "sheaf/error.h"
#include "trace/inspect.h"
#include "trace/manifest.h"
#include "trace/report/memory_advice.h"

namespace sheaf {
namespace {

// The reference interpreter, for SHEAF_INTERPRET=1: slow, and right.
class Interpreted final : public Compiled {
 public:
  explicit Interpreted(const ir::FunctionRef& f) : f_(passes::expand_ops(f)) {
    inputs = f->param_types();
    outputs = f->result_types();
  }
  // On a mesh, the program of one device.
  explicit Interpreted(const passes::Plan& plan) : f_(plan.optimised) {
    inputs = plan.in_types;
    outputs = plan.out_types;
  }

  runtime::Buffers run(runtime::Device& device, std::span<runtime::Buffer* const> buffers, const std::vector<bool>&,
                       Loc loc) const override {
    return to_device(device, ir::eval(*f_, from_device(buffers, loc)), loc);
  }

  std::vector<runtime::Buffers> run_on(std::span<runtime::Device* const> devices,
                                       std::span<const runtime::Buffers> buffers, const std::vector<bool>&,
                                       Loc loc) const override {
    std::vector<ir::Literals> parts;
    for (const runtime::Buffers& of_device : buffers)
      parts.push_back(from_device(runtime::pointers_to(of_device), loc));
    std::vector<runtime::Buffers> out;
    for (const ir::Literals& results : ir::eval_spmd(f_, parts))
      out.push_back(to_device(*devices[out.size()], results, loc));
    return out;
  }

 private:
  ir::Literals from_device(std::span<runtime::Buffer* const> buffers, Loc loc) const {
    ir::Literals literals;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      literals.emplace_back(f_->params()[i].type());
      check(buffers[i]->to_host(std::span(literals[i].data(), literals[i].bytes())), loc);
    }
    return literals;
  }

  static runtime::Buffers to_device(runtime::Device& device, const ir::Literals& literals, Loc loc) {
    runtime::Buffers out;
    for (const ir::Literal& r : literals) {
      auto buffer = runtime::Buffer::from_host(device, std::span(r.data(), r.bytes()), loc);
      check(buffer.status(), loc);
      out.push_back(*std::move(buffer));
    }
    return out;
  }

  ir::FunctionRef f_;
};

// A loaded executable.
class Native final : public Compiled {
 public:
  explicit Native(runtime::ExecutablePtr e) : executable_(std::move(e)) {}
  runtime::ExecutablePtr executable() const override { return executable_; }

  runtime::Buffers run(runtime::Device& device, std::span<runtime::Buffer* const> buffers,
                       const std::vector<bool>& donated, Loc loc) const override {
    auto out = executable_->run(device, buffers, {.donated = donated, .loc = loc});
    check(out.status(), loc);
    return *std::move(out);
  }

  std::vector<runtime::Buffers> run_on(std::span<runtime::Device* const> devices,
                                       std::span<const runtime::Buffers> buffers, const std::vector<bool>& donated,
                                       Loc loc) const override {
    auto out = executable_->run_spmd(devices, buffers, {.donated = donated, .loc = loc});
    check(out.status(), loc);
    return *std::move(out);
  }

 private:
  runtime::ExecutablePtr executable_;
};

std::atomic<std::int64_t> loaded{0};

auto& programs() {
  static auto& cache = *new runtime::SingleFlightMap<std::string, CompiledPtr>;
  return cache;
}

bool interprets() {
  static const bool on = ir::is_switched_on("SHEAF_INTERPRET");
  return on;
}

// Measures the stages of one program, for its dump and the log.
class Laps {
 public:
  Laps(Dump& dump, const std::string& name) : dump_(dump), name_(name) {}
  void done(std::string_view what) {
    const auto now = Clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - std::exchange(before_, now)).count();
    dump_.time(what, ms);
    ir::log(ir::LogTopic::compile, "{}: {} took {:.3f} ms", name_, what, ms);
  }
  void restart() { before_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  Dump& dump_;
  const std::string& name_;
  Clock::time_point before_ = Clock::now();
};

// Program -> Executable, each as its dump shows it.
absl::StatusOr<runtime::ExecutablePtr> executable_of(const Lowered& lowered) {
  const Planned& planned = lowered.planned;
  Dump dump = planned.dump;
  const std::string& name = planned.program.function->name();
  const ir::Span span(ir::Activity::compile, "loading " + name);
  Laps laps(dump, name);
  dump.plan(planned.plan);
  dump.kernels(lowered.code);
  laps.restart();
  auto executable = runtime::Executable::load(
      lowered.code,
      {.memory_advice = [of = planned.program, donated = planned.donated] { return memory_advice(of, donated); }});
  if (executable.ok()) laps.done("load");
  return executable;
}

std::shared_ptr<Compiled> load(const Lowered& lowered, Loc loc) {
  auto executable = executable_of(lowered);
  check(executable.status(), loc);
  auto made = std::make_shared<Native>(*std::move(executable));
  const Planned& planned = lowered.planned;
  const ir::FunctionRef& f = planned.program.function;
  made->inputs = f->mesh() ? planned.plan.in_types : f->param_types();
  made->outputs = f->mesh() ? planned.plan.out_types : f->result_types();
  return made;
}

std::shared_ptr<Compiled> interpreted(const MeshProgram& program) {
  if (!program.function->mesh()) return std::make_shared<Interpreted>(program.function);
  return std::make_shared<Interpreted>(plan_program(program, {}).plan);
}

// SHEAF_TARGET: what every program is compiled for besides what runs it, so that the disk cache has its kernels.
const std::optional<codegen::Target>& other_target() {
  static const std::optional<codegen::Target> target = []() -> std::optional<codegen::Target> {
    const char* name = std::getenv("SHEAF_TARGET");
    if (!name || !*name) return {};
    const absl::StatusOr<codegen::Target> parsed = codegen::parse_target(name);
    if (parsed.ok()) return *parsed;
    ir::warn(fmt::format("SHEAF_TARGET: {}; ignored", std::string(parsed.status().message())));
    return {};
  }();
  return target;
}

void compile_for_other_target(MeshProgram program, const std::vector<bool>& donated, Loc loc) {
  if (!other_target() || *other_target() == program.target) return;
  program.target = *other_target();
  const absl::Status status = executable_of(lower(plan_program(program, donated))).status();
  if (!status.ok())
    throw RuntimeError(loc,
                       fmt::format("SHEAF_TARGET={}: {}", to_string(program.target), std::string(status.message())));
}

std::atomic<bool> is_warm_required{false};

using Observer = std::function<void(const ProgramSource&)>;
std::atomic<std::shared_ptr<const Observer>>& observer() {
  static auto& one = *new std::atomic<std::shared_ptr<const Observer>>;
  return one;
}

void check_may_compile(const Asked& asked) {
  if (is_warm_required && !asked.is_loaded)
    throw RuntimeError(asked.loc,
                       fmt::format("{}: would be compiled, and require_warm allows that no more: {}{}", asked.what,
                                   why_text(asked),
                                   asked.is_operation ? "; do it in a jitted function, or warm it (docs/warm.md)" : ""));
}

// The program equal to this one, made by `make` if there is none yet.
CompiledPtr find_or_make(const MeshProgram& f, const std::vector<bool>& donated, const Asked& asked,
                         absl::FunctionRef<std::shared_ptr<Compiled>()> make) {
  const Loc loc = asked.loc;
  const auto program = programs().get_or_make(program_key(f, donated), [&]() -> absl::StatusOr<CompiledPtr> {
    check_may_compile(asked);
    record_manifest_if_asked();
    ir::log(ir::LogTopic::compile, "{} at {} is {} for {}: {}", asked.what, to_string(loc),
            asked.is_loaded ? "loaded" : "compiled", to_string(f.target), why_text(asked));
    std::shared_ptr<Compiled> made = interprets() ? interpreted(f) : make();
    made->source = {f, donated, asked.what, loc};
    ++loaded;
    compile_for_other_target(f, donated, loc);
    if (const auto observe = observer().load()) (*observe)(made->source);
    return made;
  });
  check(program.status(), loc);
  return *program;
}

}  // namespace

// Function -> Plan.
Planned plan_program(const MeshProgram& program, const std::vector<bool>& donated) {
  const ir::FunctionRef& f = program.function;
  const ir::Span span(ir::Activity::compile, "passes of " + f->name());
  Dump dump(f);
  Laps laps(dump, f->name());
  passes::PipelineOptions options{.target = program.target, .donated = donated, .results = program.results};
  options.observe = [&](int n, std::string_view name, const ir::FunctionRef& g) {
    if (dump.is_on()) dump.pass(n, name, g);
    if (name == "propagate") report_shardings(*g, program.mesh);
  };
  passes::Plan plan = passes::run_pipeline(f, options);
  laps.done("passes");
  return {.program = program, .donated = donated, .plan = std::move(plan), .dump = std::move(dump)};
}

Lowered lower(Planned planned) {
  const std::string& name = planned.program.function->name();
  const ir::Span span(ir::Activity::compile, "kernels of " + name);
  Laps laps(planned.dump, name);
  codegen::Program code = codegen::lower(planned.plan, planned.program.target);
  laps.done("codegen");
  return {std::move(planned), std::move(code)};
}

CompiledPtr compile(const Planned& planned, const Asked& asked) {
  return find_or_make(planned.program, planned.donated, asked, [&] { return load(lower(planned), asked.loc); });
}

CompiledPtr compile(const MeshProgram& program, const std::vector<bool>& donated, const Asked& asked) {
  return find_or_make(program, donated, asked, [&] { return load(lower(plan_program(program, donated)), asked.loc); });
}

CompiledPtr compile(const Lowered& lowered, const Asked& asked) {
  const Planned& planned = lowered.planned;
  return find_or_make(planned.program, planned.donated, asked, [&] { return load(lowered, asked.loc); });
}

std::string program_key(const MeshProgram& program, const std::vector<bool>& donated) {
  std::string key = ir::canonical_text(program.function) + "target:" + to_string(program.target);
  if (const ir::Mesh mesh = program.function->mesh()) key += "mesh:" + ir::to_string(mesh);
  for (const auto& spec : program.results) key += spec ? " result:" + ir::to_text(*spec) : " result";
  key += "donated:";
  for (const bool d : donated) key += d ? '1' : '0';
  return key;
}

std::vector<CompiledPtr> compiled_programs() { return programs().values(); }
CompiledPtr find_program(const std::string& program_key) { return programs().find(program_key).value_or(nullptr); }

void observe_compilations(std::function<void(const ProgramSource&)> f) {
  observer() = f ? std::make_shared<const Observer>(std::move(f)) : nullptr;
}

void require_warm(bool on, Loc loc) {
  if (on)
    for (const CompiledPtr& program : compiled_programs())
      if (const runtime::ExecutablePtr e = program->executable()) check(e->compile_rest(), loc);
  is_warm_required = on;
}

std::int64_t programs_loaded() { return loaded; }

}  // namespace sheaf
