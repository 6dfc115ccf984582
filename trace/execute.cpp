// Programs by canonical text, and the one place where a Function goes through passes, code generation and the runtime.
#include "trace/execute.h"

#include <absl/functional/function_ref.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>

#include "codegen/lower.h"
#include "ir/environment.h"
#include "ir/eval.h"
#include "ir/log.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "passes/transforms.h"
#include "runtime/cache.h"
#include "runtime/device.h"

namespace sheaf {
namespace {

// The reference interpreter, for SHEAF_INTERPRET=1: slow, and right.
class Interpreted final : public Compiled {
 public:
  explicit Interpreted(const ir::FunctionRef& f) : f_(passes::expand_ops(f)) {}

  std::vector<runtime::BufferPtr> run(std::span<const runtime::BufferPtr> buffers, const std::vector<bool>&,
                                      Loc loc) const override {
    ir::Literals literals;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      literals.emplace_back(f_->params()[i].type());
      check(buffers[i]->to_host(std::span(literals[i].data(), literals[i].bytes())), loc);
    }
    std::vector<runtime::BufferPtr> out;
    for (const ir::Literal& r : ir::eval(*f_, literals)) {
      auto buffer = runtime::Buffer::from_host(runtime::device(0), std::span(r.data(), r.bytes()), loc);
      check(buffer.status(), loc);
      out.push_back(*std::move(buffer));
    }
    return out;
  }

 private:
  ir::FunctionRef f_;
};

// A loaded executable on the one device there is so far.
class Native final : public Compiled {
 public:
  explicit Native(runtime::ExecutablePtr e) : executable_(std::move(e)) {}
  runtime::ExecutablePtr executable() const override { return executable_; }

  std::vector<runtime::BufferPtr> run(std::span<const runtime::BufferPtr> buffers, const std::vector<bool>& donated,
                                      Loc loc) const override {
    auto out = executable_->run(runtime::device(0), buffers, {.donated = donated, .loc = loc});
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

// Plan -> Program -> Executable.
std::shared_ptr<Compiled> load(const Planned& planned, Loc loc) {
  Dump dump = planned.dump;
  Laps laps(dump, planned.function->name());
  codegen::Program program = codegen::lower(planned.plan);
  laps.done("codegen");
  dump.plan(planned.plan);
  dump.kernels(program);
  laps.restart();
  auto executable = runtime::Executable::load(std::move(program));
  check(executable.status(), loc);
  laps.done("load");
  return std::make_shared<Native>(*std::move(executable));
}

// The program equal to f, made by `make` if there is none yet.
CompiledPtr find_or_make(const ir::FunctionRef& f, const std::vector<bool>& donated, Loc loc, bool* is_new,
                         absl::FunctionRef<std::shared_ptr<Compiled>()> make) {
  std::string key = ir::canonical_text(f);
  key += "donated:";
  for (const bool d : donated) key += d ? '1' : '0';
  const auto program = programs().get_or_make(key, [&]() -> absl::StatusOr<CompiledPtr> {
    std::shared_ptr<Compiled> made = interprets() ? std::make_shared<Interpreted>(f) : make();
    made->inputs = f->param_types();
    made->outputs = f->result_types();
    ++loaded;
    if (is_new) *is_new = true;
    return made;
  });
  check(program.status(), loc);
  return *program;
}

}  // namespace

// Function -> Plan.
Planned plan_program(const ir::FunctionRef& f, const std::vector<bool>& donated) {
  Dump dump(f);
  Laps laps(dump, f->name());
  passes::PipelineOptions options{.donated = donated};
  if (dump.is_on())
    options.observe = [&](int n, std::string_view name, const ir::FunctionRef& g) { dump.pass(n, name, g); };
  passes::Plan plan = passes::run_pipeline(f, options);
  laps.done("passes");
  return {.function = f, .donated = donated, .plan = std::move(plan), .dump = std::move(dump)};
}

CompiledPtr compile(const Planned& planned, Loc loc) {
  return find_or_make(planned.function, planned.donated, loc, nullptr, [&] { return load(planned, loc); });
}

CompiledPtr compile(const ir::FunctionRef& f, const std::vector<bool>& donated, Loc loc, bool* is_new) {
  return find_or_make(f, donated, loc, is_new, [&] { return load(plan_program(f, donated), loc); });
}

void run(const Compiled& f, const Source& source, std::span<const Array* const> inputs,
         const std::vector<bool>& donated, const std::vector<bool>& weak, Loc loc, std::vector<Array>& out) {
  std::vector<runtime::BufferPtr> buffers;
  buffers.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) buffers.push_back(buffer_of(*inputs[i], f.inputs[i], loc));
  const bool is_watched{watched_values()};
  static const std::vector<bool> nothing;  // the inputs have to outlive the run, for another one
  std::vector<runtime::BufferPtr> results = f.run(buffers, is_watched ? nothing : donated, loc);
  if (is_watched) check_results(source, buffers, results, loc);
  out.reserve(out.size() + results.size());
  for (std::size_t j = 0; j < results.size(); ++j)
    out.push_back(concrete(std::move(results[j]), f.outputs[j], !weak.empty() && weak[j], loc));
}

std::int64_t programs_loaded() { return loaded; }

}  // namespace sheaf
