// The table of contents of the compiler: a traced Function goes in at the top, a Plan comes out at the bottom. Each
// stage says why it stands where it does; the lines between say what holds from there on.
#include "passes/pipeline.h"

#include "ir/check.h"
#include "ir/complex.h"
#include "ir/environment.h"
#include "ir/log.h"
#include "ir/profile.h"
#include "ir/verify.h"
#include "passes/emit.h"
#include "passes/fuse.h"
#include "passes/loops.h"
#include "passes/memory.h"
#include "passes/overlap.h"
#include "passes/pass.h"
#include "passes/schedule.h"
#include "passes/sharding/collectives.h"
#include "passes/sharding/constraints.h"
#include "passes/sharding/partition.h"
#include "passes/sharding/propagate.h"
#include "passes/sharding/shifts.h"
#include "passes/simplify.h"
#include "passes/transforms.h"

namespace sheaf::passes {

using namespace ir;

namespace {

// Unread parameters stay, because a caller passes every one.
FunctionRef drop_dead(const FunctionRef& f) {
  const Dce d = dce(f, Mask(f->results().size(), true));
  if (count(d.kept) == static_cast<int>(d.kept.size())) return d.function;
  Builder b(f->name());
  const Values params = clone_params(b, *f, Mask(f->params().size(), true));
  return b.finish(inline_into(b, *d.function, where(params, d.kept)));
}

FunctionRef on_real_numbers(const FunctionRef& f) { return has_complex(*f) ? split_complex(*f) : f; }

FunctionRef partition_on_mesh(const FunctionRef& f, const Target& target) {
  return f->mesh() ? partition(f, {.profile = &chosen_profile(target)}) : f;
}

constexpr Pass kStages[] = {
    // Differentiation and batching are done: the tracer applied them as it met them. Calls, which let them transform
    // equal layers once, have served their purpose.
    {"inline", "calls and custom rules become what they stand for: everything below sees one flat program",
     inline_calls},

    // Layouts are settled on the program as the user wrote it, because an op's own rule splits better than what it
    // stands for. A program that is on no mesh passes through.

    {"shifts", "what is cut off and put on again becomes moves of arrays that a mesh divides", shifts},
    {"propagate", "where every value lies on the mesh, from where parameters and constraints do", propagate},
    {"partition", "the program of one device: values become its parts of them, and collectives appear",
     partition_on_mesh, Takes::equations, true},

    {"collectives", "sums that are cut are scattered, those of loops are made behind them, small ones travel together",
     improve_collectives},

    // Beyond this point all types are plain, and the program is that of every device.

    {"expand", "composite ops become the equations they stand for, unless the target has a kernel for them",
     expand_ops_for},

    {"complex", "complex numbers become pairs of real ones: nothing below needs to know of them", on_real_numbers},

    // Beyond this point there are no calls and no complex values, and every op has a lowering.

    {"fold", "elementwise work on constants is done now; it feeds the rules of simplify", fold},
    {"loops", "work that does not change from step to step leaves its loop, and known branches are taken", loops},
    {"simplify", "local equations: fewer and simpler operations, shape changes merged", simplify},
    {"cse", "what simplify made equal becomes one", cse},
    {"dce", "what nobody reads any more goes", drop_dead},

    // Beyond this point the program is minimal; no later stage removes or rewrites arithmetic.

    {"fuse", "equations into groups, one kernel each; order of kernels is the order of the program", fuse,
     Takes::equations, false, true},

    // Beyond this point every equation is a kernel or a dense constant, and is never regrouped.

    {"schedule", "the template that builds each kernel, and its parameters, by what the group holds", schedule,
     Takes::kernels},

    // Beyond this point how each kernel is built is settled; code generation obeys or refuses.

    {"overlap", "the order of the kernels, such that others run while collectives are under way", overlap,
     Takes::scheduled_kernels},

    // Beyond this point the order of the kernels is settled.
};

bool verifies() {
#ifdef NDEBUG
  constexpr bool kByDefault = false;
#else
  constexpr bool kByDefault = true;
#endif
  static const bool on = is_switched_on("SHEAF_VERIFY", kByDefault);
  return on;
}

void check(const FunctionRef& f, std::string_view stage) {
  const absl::Status s = verify(*f);
  SHEAF_CHECK(s.ok(), "after " + std::string(stage) + ": " + std::string(s.message()));
}

}  // namespace

std::span<const Pass> pipeline_passes() { return kStages; }

Plan run_pipeline(const FunctionRef& traced, const PipelineOptions& options) {
  int number = 0;
  std::int64_t before = profile_clock_ns();
  const auto done = [&](std::string_view name, const FunctionRef& f) {
    constexpr double kMsPerNs = 1e-6;
    const std::int64_t now = profile_clock_ns();
    log(LogTopic::passes, "{}: {} equations after {}, {:.3f} ms", traced->name(), f->eqns().size(), name,
        static_cast<double>(now - before) * kMsPerNs);
    if (is_profiled())
      add_span({.activity = Activity::pass,
                .row = thread_row(),
                .name = profile_name(name),
                .begin_ns = before,
                .end_ns = now,
                .call = current_call()});
    if (verifies()) check(f, name);
    if (options.observe) options.observe(number, name, f);
    ++number;
    before = profile_clock_ns();
  };
  FunctionRef f = with_wanted(traced, options.results), optimised;
  std::vector<Type> in_types, out_types;
  done("traced", f);
  for (const Pass& stage : kStages) {
    if (stage.makes_kernels) optimised = f;
    if (stage.makes_local && f->mesh()) {
      in_types = f->param_types();
      out_types = f->result_types();
    }
    f = stage.run(f, options.target);
    if (f->mesh() != traced->mesh()) f = f->on_mesh(traced->mesh());
    done(stage.name, f);
  }
  // Buffers come last: which of two values can share one depends on the order of the kernels alone.
  Memory memory = assign_memory(f, options.donated);
  if (traced->mesh()) memory.function = memory.function->on_mesh(traced->mesh());
  done("memory", memory.function);
  if (!verifies()) check(memory.function, "memory");  // the border to codegen is always checked
  return {.target = options.target,
          .function = std::move(memory.function),
          .optimised = std::move(optimised),
          .arena_bytes = memory.arena_bytes,
          .in_types = std::move(in_types),
          .out_types = std::move(out_types),
          .alias = std::move(memory.alias),
          .not_taken = std::move(memory.not_taken)};
}

}  // namespace sheaf::passes
