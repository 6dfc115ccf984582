// Steps know the line of their hero; the lines of all that was fused into a kernel are the plan's to tell, which has
// the kernel under the same name and line.
#include "trace/report/steps.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <utility>
#include <variant>

#include "ir/op.h"
#include "ir/ops/attrs.h"

namespace sheaf {
namespace {

using Lines = std::vector<Loc>;

void add_line(Lines& lines, Loc loc) {
  if (loc && std::ranges::find(lines, loc) == lines.end()) lines.push_back(loc);
}

/// By the kernel's name and the line of its hero.
class LinesOfKernels {
 public:
  explicit LinesOfKernels(const ir::Function& plan) { add(plan); }

  Lines of(const std::string& kernel, Loc loc) const {
    // A kernel's name in the program is that in the plan and a hash.
    const auto found = lines_.find({kernel.substr(0, kernel.rfind('_')), to_string(loc)});
    return found == lines_.end() ? Lines(loc ? 1 : 0, loc) : found->second;
  }

 private:
  void add(const ir::Function& f) {
    for (const ir::Eqn* e : f.eqns()) {
      if (e->op == &ir::ops::kernel) {
        Lines& lines = lines_[{e->attrs<ir::ops::Kernel>().name, to_string(e->loc)}];
        add_line(lines, e->loc);
        for (const ir::Eqn* inner : e->regions[0]->eqns()) add_line(lines, inner->loc);
      }
      for (const ir::FunctionRef& region : e->regions) add(*region);
    }
  }
  std::map<std::pair<std::string, std::string>, Lines> lines_;
};

class Summaries {
 public:
  Summaries(const codegen::Program& program, const passes::Plan& plan) : program_(program), lines_(*plan.function) {}

  void add(std::span<const codegen::Step> steps, double times) {
    for (const codegen::Step& step : steps) {
      if (step.control) std::visit([&](const auto& what) { add(what, step, times); }, step.control->what);
      else add(program_.kernels[step.kernel].name, step, times);
    }
  }
  std::vector<StepSummary> take() { return std::move(all_); }

 private:
  void add(const std::string& name, const codegen::Step& step, double times) {
    const auto [at, is_new] = index_.try_emplace(name, all_.size());
    if (is_new) all_.push_back({.name = name, .kernel = step.kernel});
    StepSummary& s = all_[at->second];
    s.times += times;
    s.work.flops += times * step.work.flops;
    s.work.bytes += times * step.work.bytes;
    s.work.transcendentals += times * step.work.transcendentals;
    for (const Loc line : lines_.of(name, step.loc)) add_line(s.lines, line);
  }
  void add(const codegen::Loop& loop, const codegen::Step&, double times) {
    const double trips = loop.length >= 0 ? static_cast<double>(loop.length) : 1;
    add(loop.condition, times * trips);
    add(loop.body, times * trips);
  }
  void add(const codegen::Branch& branch, const codegen::Step&, double times) {
    for (const std::vector<codegen::Step>& steps : branch.branches) add(steps, times);
  }
  void add(const codegen::Check&, const codegen::Step& step, double times) { add("check", step, times); }
  void add(const codegen::Callback& call, const codegen::Step& step, double times) {
    add("callback " + call.name, step, times);
  }
  void add(const codegen::LibraryCall& call, const codegen::Step& step, double times) {
    if (!call.otherwise.empty()) add(call.otherwise, times);
    else add("library", step, times);
  }
  void add(const codegen::Collective& what, const codegen::Step& step, double times) { add(what.name, step, times); }
  void add(const codegen::Await&, const codegen::Step&, double) {}

  const codegen::Program& program_;
  const LinesOfKernels lines_;
  std::map<std::string, std::size_t> index_;
  std::vector<StepSummary> all_;
};

}  // namespace

std::vector<StepSummary> summaries_of(const codegen::Program& program, const passes::Plan& plan) {
  Summaries summaries(program, plan);
  summaries.add(program.steps, 1);
  std::vector<StepSummary> all = summaries.take();
  std::ranges::stable_sort(all, std::greater(), [](const StepSummary& s) { return s.work.bytes; });
  return all;
}

std::string source_line(Loc loc) {
  if (!loc) return "";
  std::ifstream file(loc.file);
  std::string line;
  for (int n = 0; n < loc.line; ++n)
    if (!std::getline(file, line)) return "";
  const std::size_t begin = line.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : line.substr(begin);
}

}  // namespace sheaf
