// One pass over the plan. Invariant: `place_` knows where each value of the plan lives before anything reads it.
#include "codegen/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "codegen/compiler.h"
#include "codegen/contract.h"
#include "codegen/fingerprint.h"
#include "codegen/kir/contract.h"
#include "codegen/kir/print.h"
#include "codegen/kir/templates/template.h"
#include "codegen/kir/verify.h"
#include "ir/check.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"

namespace sheaf::codegen {
namespace {

using ir::Value;
using kir::Group;

constexpr std::int64_t kAlign = 256;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

class Lowering {
 public:
  explicit Lowering(const passes::Plan& plan) : plan_(plan), f_(*plan.function), place_(f_), step_temporaries_(0) {}

  Program run() {
    program_.name = f_.name();
    program_.inputs = f_.param_types();
    program_.outputs = f_.result_types();
    program_.alias = plan_.alias;
    program_.alias.resize(program_.outputs.size(), -1);
    arena_top_ = aligned(plan_.arena_bytes);
    program_.arena_bytes = plan_.arena_bytes;
    for (std::size_t i = 0; i < f_.params().size(); ++i) {
      place_[f_.params()[i]] = {BufferRef::Space::input, static_cast<std::int64_t>(i), f_.params()[i].type().bytes()};
    }
    for (const ir::Eqn* e : f_.eqns()) {
      if (e->op == &ir::ops::constant) {
        add_constant(*e);
      } else {
        SHEAF_CHECK(e->op == &ir::ops::kernel, "a plan holds kernels and constants only");
        add_kernel(*e);
      }
    }
    return std::move(program_);
  }

 private:
  void add_constant(const ir::Eqn& e) {
    const ir::Literal value = ir::literal_of(e);
    place_[e.out()] = {BufferRef::Space::constant, std::ssize(program_.constants), e.out().type().bytes()};
    program_.constants.push_back({e.out().type(), {value.data(), value.data() + value.bytes()}});
  }

  int result_index(Value v) const {
    const auto it = std::find(f_.results().begin(), f_.results().end(), v);
    return it == f_.results().end() ? -1 : static_cast<int>(it - f_.results().begin());
  }

  void add_kernel(const ir::Eqn& e) {
    ir::ops::Kernel plan = e.attrs<ir::ops::Kernel>();
    std::vector<BufferRef> inputs, outputs;
    for (Value v : e.operands) inputs.push_back(place_[v]);
    for (int j = 0; j < e.num_out(); ++j) {
      const std::int64_t bytes = e.out(j).type().bytes();
      const bool is_result = plan.offsets.empty() || plan.offsets[j] < 0;
      outputs.push_back(is_result ? BufferRef{BufferRef::Space::output, result_index(e.out(j)), bytes}
                                  : BufferRef{BufferRef::Space::arena, plan.offsets[j], bytes});
      SHEAF_CHECK(outputs.back().index >= 0, "a kernel's result is neither in the arena nor returned");
      place_[e.out(j)] = outputs.back();
    }
    loc_ = e.loc;
    step_temporaries_ = 0;
    plan.in_place = in_place(e, plan);
    const Group group = kir::group_of(*e.regions[0]);
    if (plan.schedule == ir::Schedule::contract) return add_contract(plan.name, group, inputs, outputs);
    inputs.insert(inputs.end(), outputs.begin(), outputs.end());
    add_step(plan.name, kir::build_kernel(group, plan), std::move(inputs));
  }

  /// Results that share an operand's memory: by the memory plan, or because the operand was donated to the result.
  std::vector<std::int64_t> in_place(const ir::Eqn& e, const ir::ops::Kernel& plan) const {
    std::vector<std::int64_t> shared = plan.in_place;
    shared.resize(static_cast<std::size_t>(e.num_out()), -1);
    for (int j = 0; j < e.num_out(); ++j) {
      const int result = result_index(e.out(j));
      if (result < 0 || program_.alias[result] < 0) continue;
      const auto it = std::find(e.operands.begin(), e.operands.end(), f_.params()[program_.alias[result]]);
      if (it != e.operands.end()) shared[j] = it - e.operands.begin();
    }
    return shared;
  }

  BufferRef temporary(std::int64_t bytes) {
    const BufferRef ref{BufferRef::Space::arena, arena_top_ + step_temporaries_, bytes};
    step_temporaries_ += aligned(std::max<std::int64_t>(bytes, 1));
    program_.arena_bytes = std::max(program_.arena_bytes, arena_top_ + step_temporaries_);
    return ref;
  }

  /// Reads its operands where they lie, through strides.
  void add_contract(const std::string& name, const Group& group, const std::vector<BufferRef>& inputs,
                    const std::vector<BufferRef>& outputs) {
    const int node = group.results[0];
    SHEAF_CHECK(group.results.size() == 1 && group.as<ir::lowering::Contract>(node),
                name + ": a contraction is the only result of its kernel");
    kir::StridedOperand operands[2];
    std::vector<BufferRef> buffers;
    for (int k = 0; k < 2; ++k) {
      const auto operand = kir::strided_operand(group, group.nodes[node].operands[k]);
      SHEAF_CHECK(operand, name + ": a contraction's operand does not lie in memory by strides");
      operands[k] = *operand;
      buffers.push_back(inputs[operand->node]);
    }
    buffers.push_back(outputs[0]);
    kir::Kernel kernel = kir::contract_kernel(group, node, operands[0], operands[1]);
    if (const std::int64_t bytes = plan_contract(*kernel.contract, host_cpu_target()).shared_bytes) {
      kernel.params.push_back({DType::u8, bytes, kir::Param::Access::temporary});
    }
    add_step(name, std::move(kernel), std::move(buffers));
  }

  void add_step(const std::string& name, kir::Kernel kernel, std::vector<BufferRef> buffers) {
    for (std::size_t i = buffers.size(); i < kernel.params.size(); ++i) {
      buffers.push_back(temporary(kernel.params[i].count * size_bytes(kernel.params[i].dtype)));
    }
    if (kernel.phases.empty() && !kernel.contract) return;  // nothing but empty results
    program_.steps.push_back({kernel_index(name, std::move(kernel)), std::move(buffers), loc_});
  }

  /// Equal kernels are one.
  int kernel_index(const std::string& name, kir::Kernel kernel) {
    const absl::Status status = kir::verify(kernel);
    SHEAF_CHECK(status.ok(), std::string(status.message()));
    const std::string key = fingerprint(kir::to_text(kernel));
    const auto [it, is_new] = kernel_ids_.try_emplace(key, static_cast<int>(program_.kernels.size()));
    if (!is_new) return it->second;
    KernelCode code{.name = fmt::format("{}_{}", name, key.substr(0, 8)), .key = key, .kir = nullptr, .phases = {}};
    kernel.name = code.name;
    for (int i = 0; i < std::ssize(kernel.phases); ++i) {
      const kir::Phase& phase = kernel.phases[i];
      code.phases.push_back({phase_symbol("sheaf_" + key, i), phase.axes[0].extent, phase.unit_ps, kir::scratch_bytes(phase)});
    }
    if (kernel.contract) {
      const ContractPlan how = plan_contract(*kernel.contract, host_cpu_target());
      for (int i = 0; i < std::ssize(how.phases); ++i) {
        const ContractPlan::Phase& phase = how.phases[i];
        code.phases.push_back({phase_symbol("sheaf_" + key, i), phase.units, phase.unit_ps, phase.scratch_bytes});
      }
    }
    code.kir = std::make_shared<const kir::Kernel>(std::move(kernel));
    program_.kernels.push_back(std::move(code));
    return it->second;
  }

  const passes::Plan& plan_;
  const ir::Function& f_;
  Program program_;
  ir::ValueTable<BufferRef> place_;
  std::int64_t arena_top_ = 0, step_temporaries_;  // temporaries live above the plan's arena, for one step
  Loc loc_;
  absl::flat_hash_map<std::string, int> kernel_ids_;
};

}  // namespace

Program lower(const passes::Plan& plan) { return Lowering(plan).run(); }

}  // namespace sheaf::codegen
