// One pass over the plan, through the regions of loops and branches. Invariant: `Frame::place` knows where each value
// lives before anything reads it; places in a region are the outer ones, but for slots, which move from step to step.
#include "codegen/lower.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "codegen/compiler.h"
#include "codegen/contract.h"
#include "codegen/cuda/around_routines.h"
#include "codegen/cuda/emit.h"
#include "codegen/fingerprint.h"
#include "codegen/kir/attention.h"
#include "codegen/kir/contract.h"
#include "codegen/kir/print.h"
#include "codegen/kir/templates/template.h"
#include "codegen/kir/verify.h"
#include "codegen/product.h"
#include "codegen/together.h"
#include "ir/alike.h"
#include "ir/check.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/sharding.h"
#include "passes/flights.h"

namespace sheaf::codegen {
namespace {

using ir::Value;
using kir::Group;

constexpr std::int64_t kAlign = 256;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

/// One function of the plan being lowered: the program's own, or a region of a host step.
struct Frame {
  const ir::Function& f;
  std::vector<BufferRef> results;   // where they go
  std::int64_t arena = 0;           // where its arena begins in the program's
  ir::ValueTable<BufferRef> place;
  std::vector<Step> steps = {};
};

/// A kernel's body, and what of its plan its loop nest depends on.
struct Body {
  const ir::ops::Kernel* plan;
  const ir::Function* body;
  bool operator==(const Body& other) const {
    return plan->schedule == other.plan->schedule && plan->tile == other.plan->tile &&
           plan->in_place == other.plan->in_place && ir::are_alike(*body, *other.body);
  }
  template <typename H>
  friend H AbslHashValue(H h, const Body& b) {
    return H::combine(std::move(h), b.plan->schedule, b.plan->tile, b.plan->in_place, ir::hash_of(*b.body));
  }
};

/// What a body becomes on a CPU.
struct Lowered {
  static constexpr std::int64_t kGiven = -1;
  int kernel = -1;                         // -1: there is nothing to compute
  std::vector<int> reads = {};             // which of the step's inputs it takes
  std::vector<std::int64_t> temporaries = {};  // by parameter: bytes, 0 where nothing lies, or kGiven
};

class Lowering {
 public:
  Lowering(const passes::Plan& plan, const Target& target) : plan_(plan) { program_.target = target; }

  Program run() {
    const ir::Function& f = *plan_.function;
    program_.name = f.name();
    program_.inputs = f.param_types();
    program_.outputs = f.result_types();
    program_.alias = plan_.alias;
    program_.alias.resize(program_.outputs.size(), -1);
    if (f.mesh()) {
      atoms_.emplace(f.mesh());
      program_.num_devices = static_cast<int>(f.mesh().size());
    }
    arena_top_ = aligned(plan_.arena_bytes);
    program_.arena_bytes = plan_.arena_bytes;
    program_.steps =
        steps_of(f, buffers(BufferRef::Space::input, f.params()), buffers(BufferRef::Space::output, f.results()), 0);
    return std::move(program_);
  }

 private:
  static std::vector<BufferRef> buffers(BufferRef::Space space, const ir::Values& values) {
    std::vector<BufferRef> refs;
    for (Value v : values) refs.push_back({space, std::ssize(refs), v.type().bytes()});
    return refs;
  }

  std::vector<Step> steps_of(const ir::Function& f, const std::vector<BufferRef>& params,
                             std::vector<BufferRef> results, std::int64_t arena) {
    Frame frame{.f = f, .results = std::move(results), .arena = arena, .place = ir::ValueTable<BufferRef>(f)};
    for (std::size_t i = 0; i < params.size(); ++i) frame.place[f.params()[i]] = params[i];
    const std::vector<passes::Flight> flights = passes::flights(f);
    std::vector<std::vector<Step>> awaits(flights.size() + 1);
    const auto add_awaits = [&](std::size_t k) {
      std::move(awaits[k].begin(), awaits[k].end(), std::back_inserter(frame.steps));
    };
    for (std::size_t k = 0; k < flights.size(); ++k) {
      const ir::Eqn* e = f.eqns()[k];
      add_awaits(k);
      if (e->op == &ir::ops::constant) {
        add_constant(frame, *e);
        continue;
      }
      SHEAF_CHECK(e->op == &ir::ops::kernel, "a plan holds kernels and constants only");
      const bool waits = flights[k].done <= static_cast<int>(k) + 1;
      waits_ = waits;
      lane_ = flights[k].lane;
      add_kernel(frame, *e);
      if (!waits) awaits[flights[k].done].push_back(await_step(frame.steps.back()));
    }
    add_awaits(flights.size());
    if (!program_.target.is_gpu()) join_steps(frame.steps, program_.kernels, program_.alias);
    return std::move(frame.steps);
  }

  void add_constant(Frame& frame, const ir::Eqn& e) {
    const ir::Literal value = ir::literal_of(e);
    frame.place[e.out()] = {BufferRef::Space::constant, std::ssize(program_.constants), e.out().type().bytes()};
    program_.constants.push_back({e.out().type(), {value.data(), value.data() + value.bytes()}});
  }

  void add_kernel(Frame& frame, const ir::Eqn& e) {
    const auto& plan = e.attrs<ir::ops::Kernel>();
    SHEAF_CHECK(std::ssize(plan.outputs) == e.num_out() && std::ssize(plan.offsets) == e.num_out(),
                plan.name + ": the plan does not say where a result lies");
    std::vector<BufferRef> inputs, outputs;
    for (Value v : e.operands) inputs.push_back(frame.place[v]);
    for (int j = 0; j < e.num_out(); ++j) {
      SHEAF_CHECK(plan.outputs[j] >= 0 || plan.offsets[j] >= 0,
                  plan.name + ": a result is neither returned nor in the arena");
      const BufferRef in_arena{BufferRef::Space::arena, frame.arena + plan.offsets[j], e.out(j).type().bytes()};
      outputs.push_back(plan.outputs[j] < 0 ? in_arena : frame.results[plan.outputs[j]]);
      frame.place[e.out(j)] = outputs.back();
    }
    loc_ = e.loc;
    work_ = {};
    step_temporaries_ = 0;
    if (plan.schedule == ir::Schedule::host) return add_host_step(frame, plan, *e.regions[0], inputs, outputs);
    work_ = ir::work_of(e);
    if (plan.schedule == ir::Schedule::attention) {
      inputs.insert(inputs.end(), outputs.begin(), outputs.end());
      return add_gpu_step(frame, plan.name, kir::attention_kernel(*e.regions[0]), std::move(inputs));
    }
    if (!program_.target.is_gpu()) return add_cpu_step(frame, {&plan, e.regions[0].get()}, inputs, outputs);
    const Group group = kir::group_of(*e.regions[0]);
    if (plan.schedule == ir::Schedule::contract) return add_gpu_contract(frame, plan, group, inputs, outputs);
    inputs.insert(inputs.end(), outputs.begin(), outputs.end());
    add_gpu_step(frame, plan.name, kir::build_kernel(group, plan, kir::kCudaGrain), std::move(inputs));
  }

  // Steps of a CPU. Layers are alike: a body is lowered once.

  void add_cpu_step(Frame& frame, const Body& body, const std::vector<BufferRef>& inputs,
                    const std::vector<BufferRef>& outputs) {
    const auto [it, is_new] = lowered_.try_emplace(body);
    if (is_new) it->second = lower_body(body);
    const Lowered& lowered = it->second;
    if (lowered.kernel < 0) return;
    std::vector<BufferRef> given, all;
    for (int i : lowered.reads) given.push_back(inputs[i]);
    given.insert(given.end(), outputs.begin(), outputs.end());
    auto next = given.begin();
    for (std::int64_t bytes : lowered.temporaries) {
      const BufferRef nothing{BufferRef::Space::arena, 0, 0};
      all.push_back(bytes == Lowered::kGiven ? *next++ : bytes > 0 ? temporary(bytes) : nothing);
    }
    frame.steps.push_back({.kernel = lowered.kernel, .buffers = std::move(all), .loc = loc_, .work = work_});
  }

  Lowered lower_body(const Body& body) {
    const Group group = kir::group_of(*body.body);
    Lowered lowered;
    kir::Kernel kernel;
    const kir::Param* own_sums = nullptr;  // a contraction does not store what its epilogue alone reads
    if (body.plan->schedule == ir::Schedule::contract) {
      kir::ContractKernel made = contraction(*body.plan, group);
      kernel = std::move(made.kernel);
      lowered.reads = std::move(made.inputs);
      const ContractPlan plan = plan_contract(kernel, host_cpu_target());
      for (const auto& packing : plan.shared)
        kernel.params.push_back({DType::u8, packing.bytes, kir::Param::Access::temporary});
      if (plan.epilogue == EpilogueOf::sums)
        own_sums = &kernel.params[static_cast<std::size_t>(kernel.contract->result)];
    } else {
      kernel = kir::build_kernel(group, *body.plan, kir::kCpuGrain);
      lowered.reads.resize(static_cast<std::size_t>(group.num_inputs));
      std::iota(lowered.reads.begin(), lowered.reads.end(), 0);
    }
    if (is_empty(kernel)) return {};
    for (const kir::Param& p : kernel.params) {
      const bool is_temporary = p.access == kir::Param::Access::temporary;
      lowered.temporaries.push_back(!is_temporary    ? Lowered::kGiven
                                    : &p == own_sums ? 0
                                                     : p.count * size_bytes(p.dtype));
    }
    lowered.kernel = cpu_kernel(body.plan->name, checked(std::move(kernel)));
    return lowered;
  }

  /// Nothing but empty results.
  static bool is_empty(const kir::Kernel& kernel) {
    return kernel.phases.empty() && !kernel.contract && !kernel.attention;
  }

  static kir::Kernel checked(kir::Kernel kernel) {
    const absl::Status status = kir::verify(kernel);
    SHEAF_CHECK(status.ok(), std::string(status.message()));
    return kernel;
  }

  // Host steps.

  void add_host_step(Frame& frame, const ir::ops::Kernel& plan, const ir::Function& body,
                     const std::vector<BufferRef>& inputs, const std::vector<BufferRef>& outputs) {
    const ir::Eqn& e = ir::host_step(body);
    const Loc loc = loc_;
    ir::Work work;
    std::vector<BufferRef> operands;
    for (Value v : e.operands) operands.push_back(inputs[v.index()]);
    const std::int64_t arena = frame.arena + plan.frame;
    auto control = std::make_shared<Control>();
    const ir::Lowering lowering = e.op->lower(e);
    if (const auto* scan = std::get_if<ir::lowering::Scan>(&lowering)) {
      control->what = loop_of(*scan, e, operands, outputs, plan, frame.arena, arena);
    } else if (const auto* until = std::get_if<ir::lowering::While>(&lowering)) {
      control->what = loop_of(*until, e, operands, outputs, plan, frame.arena, arena);
    } else if (const auto* check = std::get_if<ir::lowering::Check>(&lowering)) {
      control->what = Check{.holds = operands[0], .message = check->message};
    } else if (const auto* callback = std::get_if<ir::lowering::Callback>(&lowering)) {
      Callback call{.name = callback->name,
                    .slot = callback->slot,
                    .lanes = callback->lanes,
                    .operands = operands,
                    .results = {},
                    .operand_types = e.in_types(),
                    .result_types = {}};
      if (callback->has_results) {
        call.results = outputs;
        call.result_types = body.result_types();
      }
      control->what = std::move(call);
    } else if (const auto* library = std::get_if<ir::lowering::Library>(&lowering)) {
      control->what = library_call(*library, e, operands, outputs);
      work = ir::work_of(e);
    } else if (const auto* together = std::get_if<ir::lowering::Collective>(&lowering)) {
      control->what = collective(*together, e, operands, outputs);
      work = ir::work_of(e);
    } else {
      SHEAF_CHECK(std::holds_alternative<ir::lowering::Branch>(lowering), plan.name + ": no host step");
      Branch branch{.index = operands[0], .branches = {}};
      operands.erase(operands.begin());
      for (const ir::FunctionRef& f : e.regions) branch.branches.push_back(steps_of(*f, operands, outputs, arena));
      control->what = std::move(branch);
    }
    frame.steps.push_back({.kernel = -1, .buffers = {}, .loc = loc, .control = std::move(control), .work = work});
  }

  static Step await_step(const Step& begun) {
    auto control = std::make_shared<Control>();
    control->what = Await{.groups = std::get<Collective>(begun.control->what).groups};
    return {.kernel = -1, .buffers = {}, .loc = begun.loc, .control = std::move(control)};
  }

  LibraryCall library_call(const ir::lowering::Library& what, const ir::Eqn& e, std::vector<BufferRef> operands,
                           std::vector<BufferRef> results) {
    constexpr double kFlopPs = 1000;  // of small matrices, where the library is slowest
    const double matrix_ps =
        ir::cost_of(e).flops * kFlopPs / static_cast<double>(std::max<std::int64_t>(what.batch, 1));
    return {.what = what,
            .dtype = e.in(0).dtype(),
            .operands = std::move(operands),
            .results = std::move(results),
            .matrix_ps = static_cast<std::int64_t>(std::min(matrix_ps, 1e18)) + 1,
            .kernel = program_.target.is_gpu() ? kernel_around(e.in(0).dtype()) : -1,
            .otherwise = {}};
  }

  int kernel_around(DType dtype) {
    KernelCode code = around_routines(dtype, program_.target);
    const auto [it, is_new] = kernel_ids_.try_emplace(code.key, static_cast<int>(program_.kernels.size()));
    if (is_new) program_.kernels.push_back(std::move(code));
    return it->second;
  }

  Collective collective(const ir::lowering::Collective& what, const ir::Eqn& e, std::span<const BufferRef> operands,
                        std::span<const BufferRef> results) {
    SHEAF_CHECK(atoms_, std::string(e.op->name) + " in a program without a mesh");
    const ir::Type result = e.out().type(), operand = e.num_in() > 0 ? e.in(0).type() : result;
    Collective c{.kind = what.kind,
                 .name = fmt::format("{} over {}", e.op->name, fmt::join(what.axes, ", ")),
                 .groups = groups_over(what.axes, lane_),
                 .operand = operands.empty() ? BufferRef{} : operands[0],
                 .result = results[0],
                 .dtype = operand.dtype(),
                 .reduce = what.reduce,
                 .from = {},
                 .to = {},
                 .source = {},
                 .waits = waits_};
    const auto n = static_cast<int>(program_.groups[c.groups][0].size());
    using Kind = ir::lowering::Collective::Kind;
    switch (what.kind) {
      case Kind::all_reduce:
      case Kind::axis_index: break;
      case Kind::all_gather: c.to = blocks_along(result, what.dim, n); break;
      case Kind::reduce_scatter: c.from = blocks_along(operand, what.dim, n); break;
      case Kind::all_to_all:
        c.from = blocks_along(operand, what.split, n);
        c.to = blocks_along(result, what.concat, n);
        break;
      case Kind::ppermute:
        c.source.assign(n, -1);
        for (std::size_t k = 0; k < what.targets.size(); ++k)
          c.source[what.targets[k]] = static_cast<int>(what.sources[k]);
        break;
    }
    SHEAF_CHECK(!program_.target.is_gpu() || (c.from.outer <= 1 && c.to.outer <= 1),
                c.name + ": between GPUs each block is in one piece");
    return c;
  }

  int groups_over(const ir::Axes& axes, int lane) {
    Groups groups = atoms_->groups(atoms_->of(axes));
    for (std::size_t g = 0; g < lanes_.size(); ++g)
      if (lanes_[g] == lane && program_.groups[g] == groups) return static_cast<int>(g);
    program_.groups.push_back(std::move(groups));
    lanes_.push_back(lane);
    return static_cast<int>(lanes_.size()) - 1;
  }

  /// The n parts of dim `dim`.
  static Blocks blocks_along(ir::Type type, int dim, int n) {
    Blocks blocks;
    for (int d = 0; d < dim; ++d) blocks.outer *= type.dim(d);
    const std::int64_t count = blocks.outer * n;
    blocks.inner = count == 0 ? 0 : type.bytes() / count;
    return blocks;
  }

  BufferRef slot(std::int64_t bytes, int alignment) {
    slot_alignments_.push_back(alignment);
    return {BufferRef::Space::slot, program_.num_slots++, bytes};
  }

  /// What the address is a multiple of, a power of two.
  int alignment_of(const BufferRef& ref) const {
    return ref.space == BufferRef::Space::slot ? slot_alignments_[static_cast<std::size_t>(ref.index)]
                                               : kir::Param{}.alignment;
  }

  /// Carries of a loop, with the places its body finds them at appended to `params` and `results`.
  std::vector<Loop::Carry> carries_of(std::span<const BufferRef> starts, std::span<const BufferRef> ends,
                                      const ir::ops::Kernel& plan, std::int64_t arena, std::vector<BufferRef>& params,
                                      std::vector<BufferRef>& results) {
    std::vector<Loop::Carry> carries;
    for (std::size_t k = 0; k < starts.size(); ++k) {
      const bool in_place = plan.spares[k] < 0;
      const int alignment = std::min(alignment_of(starts[k]), alignment_of(ends[k]));
      params.push_back(slot(starts[k].bytes, alignment));
      results.push_back(in_place ? params.back() : slot(starts[k].bytes, alignment));
      carries.push_back({.from = static_cast<int>(params.back().index),
                         .to = static_cast<int>(results.back().index),
                         .start = starts[k],
                         .result = ends[k],
                         .spare = {BufferRef::Space::arena, in_place ? 0 : arena + plan.spares[k], starts[k].bytes}});
    }
    return carries;
  }

  Loop loop_of(const ir::lowering::Scan& scan, const ir::Eqn& e, std::span<const BufferRef> operands,
               std::span<const BufferRef> outputs, const ir::ops::Kernel& plan, std::int64_t outer,
               std::int64_t arena) {
    const auto consts = static_cast<std::size_t>(scan.consts), carry = static_cast<std::size_t>(scan.carry);
    std::vector<BufferRef> params(operands.begin(), operands.begin() + scan.consts), results;
    Loop loop{.length = scan.length, .reverse = scan.reverse, .carries = {}, .rows = {}, .body = {}};
    loop.carries = carries_of(operands.subspan(consts, carry), outputs.first(carry), plan, outer, params, results);
    const auto add_rows = [&](std::span<const BufferRef> stacks, std::vector<BufferRef>& places) {
      for (const BufferRef& stack : stacks) {
        const std::int64_t bytes = scan.length == 0 ? 0 : stack.bytes / scan.length;
        const auto of_rows = static_cast<int>(std::min<std::int64_t>(bytes & -bytes, kir::Param{}.alignment));
        places.push_back(slot(bytes, bytes == 0 ? alignment_of(stack) : std::min(alignment_of(stack), of_rows)));
        loop.rows.push_back({static_cast<int>(places.back().index), stack, bytes});
      }
    };
    add_rows(operands.subspan(consts + carry), params);
    add_rows(outputs.subspan(carry), results);
    loop.body = steps_of(*e.regions[0], params, std::move(results), arena);
    return loop;
  }

  Loop loop_of(const ir::lowering::While& until, const ir::Eqn& e, std::span<const BufferRef> operands,
               std::span<const BufferRef> outputs, const ir::ops::Kernel& plan, std::int64_t outer,
               std::int64_t arena) {
    const auto cond_consts = static_cast<std::size_t>(until.cond_consts),
               body_consts = static_cast<std::size_t>(until.body_consts);
    std::vector<BufferRef> carry_params, results;
    Loop loop{.reverse = false, .carries = {}, .rows = {}, .body = {}, .max_trips = until.max_trips};
    loop.carries = carries_of(operands.subspan(cond_consts + body_consts), outputs, plan, outer, carry_params, results);
    const auto params = [&](std::size_t from, std::size_t count) {
      std::vector<BufferRef> all(operands.begin() + static_cast<std::ptrdiff_t>(from),
                                 operands.begin() + static_cast<std::ptrdiff_t>(from + count));
      all.insert(all.end(), carry_params.begin(), carry_params.end());
      return all;
    };
    loop.holds = {BufferRef::Space::arena, outer + plan.spares.back(), 1};
    loop.condition = steps_of(*e.regions[0], params(0, cond_consts), {loop.holds}, arena);
    loop.body = steps_of(*e.regions[1], params(cond_consts, body_consts), std::move(results), arena);
    return loop;
  }

  BufferRef temporary(std::int64_t bytes) {
    const BufferRef ref{BufferRef::Space::arena, arena_top_ + step_temporaries_, bytes};
    step_temporaries_ += aligned(std::max<std::int64_t>(bytes, 1));
    program_.arena_bytes = std::max(program_.arena_bytes, arena_top_ + step_temporaries_);
    return ref;
  }

  /// Reads its operands where they lie, through strides, where they do; else makes them.
  kir::ContractKernel contraction(const ir::ops::Kernel& plan, const Group& group) const {
    const int node = kir::contraction_of(group);
    SHEAF_CHECK(node >= 0, plan.name + ": no contraction in its kernel");
    const std::vector<int>& operands = group.nodes[node].operands;
    std::optional<kir::StridedOperand> lhs = kir::strided_operand(group, operands[0]);
    if (!lhs && !program_.target.is_gpu()) lhs = kir::padded_operand(group, operands[0]);
    kir::ContractKernel made =
        kir::contract_kernel(group, lhs, kir::strided_operand(group, operands[1]), plan.in_place);
    if (!program_.target.is_gpu()) made.kernel.contract->precision = Precision::full;  // it rounds no operand
    return made;
  }

  void add_gpu_contract(Frame& frame, const ir::ops::Kernel& plan, const Group& group,
                        const std::vector<BufferRef>& inputs, const std::vector<BufferRef>& outputs) {
    auto [kernel, reads] = contraction(plan, group);
    std::vector<BufferRef> buffers;
    for (int i : reads) buffers.push_back(inputs[i]);
    buffers.insert(buffers.end(), outputs.begin(), outputs.end());
    const std::optional<Product> product = kernel.phases.empty() ? library_product(*kernel.contract) : std::nullopt;
    add_gpu_step(frame, plan.name, std::move(kernel), buffers);
    if (!product) return;
    take_by_library(frame.steps, *product, buffers);
    program_.has_products = true;
  }

  /// The last step stays as what stands in for the library.
  static void take_by_library(std::vector<Step>& steps, const Product& product, const std::vector<BufferRef>& buffers) {
    auto control = std::make_shared<Control>();
    const Loc loc = steps.back().loc;
    const ir::Work work = steps.back().work;
    LibraryCall call{.what = product,
                     .dtype = product.a.dtype,
                     .operands = {buffers[product.is_exchanged], buffers[!product.is_exchanged]},
                     .results = {buffers[2]},
                     .otherwise = {}};
    call.otherwise.push_back(std::move(steps.back()));
    control->what = std::move(call);
    steps.back() = {.kernel = -1, .buffers = {}, .loc = loc, .control = std::move(control), .work = work};
  }

  void add_gpu_step(Frame& frame, const std::string& name, kir::Kernel kernel, const std::vector<BufferRef>& given) {
    if (is_empty(kernel)) return;
    std::vector<BufferRef> buffers;  // that its functions take, in their order
    auto next = given.begin();
    for (kir::Param& p : kernel.params) {
      if (p.access != kir::Param::Access::temporary) {
        p.alignment = alignment_of(*next);
        buffers.push_back(*next++);
      } else if (!kernel.contract) {  // one does not store what its prologues make, nor what its epilogue alone reads
        buffers.push_back(temporary(p.count * size_bytes(p.dtype)));
      }
    }
    const int index = gpu_kernel(name, checked(std::move(kernel)), buffers);
    frame.steps.push_back({.kernel = index, .buffers = std::move(buffers), .loc = loc_, .work = work_});
  }

  /// The kernel under this name and text, which `complete` fills in if it is new. The name has the hash of the loop
  /// nest alone, which is the same on every machine.
  template <class Complete>
  int kernel_index(const std::string& name, kir::Kernel kernel, const std::string& nest, const std::string& text,
                   Complete&& complete) {
    const std::string key = fingerprint(fmt::format("{}\n{}", key_of(program_.target), text));
    const auto [it, is_new] = kernel_ids_.try_emplace(key, static_cast<int>(program_.kernels.size()));
    if (!is_new) return it->second;
    KernelCode code{.name = fmt::format("{}_{}", name, fingerprint(nest).substr(0, 8)),
                    .key = key,
                    .target = program_.target,
                    .kir = nullptr,
                    .phases = {},
                    .loc = loc_};
    kernel.name = code.name;
    complete(code, kernel);
    code.kir = std::make_shared<const kir::Kernel>(std::move(kernel));
    program_.kernels.push_back(std::move(code));
    return it->second;
  }

  int cpu_kernel(const std::string& name, kir::Kernel kernel) {
    const std::string nest = kir::to_text(kernel);
    return kernel_index(name, std::move(kernel), nest, nest, [](KernelCode& code, const kir::Kernel& k) {
      const auto add = [&](std::int64_t units, std::int64_t unit_ps, std::int64_t scratch) {
        const auto symbol = phase_symbol("sheaf_" + code.key, static_cast<int>(code.phases.size()));
        code.phases.push_back({.entry = symbol, .extent = units, .unit_ps = unit_ps, .scratch_bytes = scratch});
      };
      const auto add_contraction = [&] {  // true if it has its epilogue in it
        const ContractPlan plan = plan_contract(k, host_cpu_target());
        for (const auto& p : plan.phases) add(p.units, p.unit_ps, p.scratch_bytes);
        return plan.epilogue != EpilogueOf::none;
      };
      const kir::Phase* epilogue = k.contract ? kir::epilogue_of(k) : nullptr;
      for (const kir::Phase& p : k.phases) {
        if (&p == epilogue && add_contraction()) continue;
        add(p.axes[0].extent, p.unit_ps, kir::scratch_bytes(p));
      }
      if (k.contract && !epilogue) add_contraction();
    });
  }

  /// Adds to its buffers those that only its functions know of.
  int gpu_kernel(const std::string& name, kir::Kernel kernel, std::vector<BufferRef>& buffers) {
    const std::string nest = kir::to_text(kernel);
    CudaText text = emit_cuda(kernel, "sheaf_" + fingerprint(nest), program_.target);
    for (const std::int64_t bytes : {text.scratch_bytes, text.table_bytes})
      if (bytes > 0) buffers.push_back(temporary(bytes));
    const std::string program = cuda_program(text.functions);
    return kernel_index(name, std::move(kernel), nest, program, [&](KernelCode& code, const kir::Kernel&) {
      code.functions = std::move(text.functions);
      for (CudaLaunch& launch : text.launches)
        code.phases.push_back({.entry = launch.entry,
                               .extent = launch.blocks,
                               .threads = launch.threads,
                               .shared_bytes = launch.dynamic_shared_bytes,
                               .maps = std::move(launch.maps),
                               .parameters = std::move(launch.parameters)});
    });
  }

  const passes::Plan& plan_;
  Program program_;
  std::optional<ir::MeshAtoms> atoms_;  // of the plan's mesh
  std::int64_t arena_top_ = 0, step_temporaries_ = 0;  // temporaries live above the plan's arena, for one step
  bool waits_ = true;  // the collective that is being lowered, until it is done
  int lane_ = 0;  // of that collective
  std::vector<int> lanes_;  // of each of the program's groups
  std::vector<int> slot_alignments_;
  Loc loc_;
  ir::Work work_;
  absl::flat_hash_map<std::string, int> kernel_ids_;
  absl::flat_hash_map<Body, Lowered> lowered_;  // on a CPU
};

}  // namespace

Program lower(const passes::Plan& plan, const Target& target) { return Lowering(plan, target).run(); }

}  // namespace sheaf::codegen
