// The search watches the interpreter; only what the bad results depend on is run, so that a NaN which a select drops
// elsewhere is not blamed. Lines in the report are the program's own; on a mesh the program is that of each device.
#include "trace/nan_search.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>

#include "ir/environment.h"
#include "ir/eval.h"
#include "ir/eval_spmd.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/transforms.h"
#include "sheaf/debug.h"
#include "trace/array_node.h"
#include "trace/element.h"
#include "trace/mesh.h"

namespace sheaf {
namespace {

// Element i, or the imaginary part of it.
double part_of(const ir::Literal& x, std::int64_t i, bool is_imaginary) {
  if (!is_complex(x.dtype())) return is_imaginary ? 0 : x.get(i);
  return x.get_part(i, is_imaginary);
}

// The first element that is bad or has a bad part, or -1.
std::int64_t first_bad(const ir::Literal& x, BadValues bad) {
  if (!is_differentiable(x.dtype())) return -1;
  for (std::int64_t i = 0; i < x.size(); ++i)
    for (const double v : {part_of(x, i, false), part_of(x, i, true)})
      if ((bad.nans && std::isnan(v)) || (bad.infinities && std::isinf(v))) return i;
  return -1;
}

// "NaN at [3, 0]"; a complex element is NaN if a part is.
std::string place_of(const ir::Literal& x, std::int64_t at) {
  const bool is_nan = std::isnan(part_of(x, at, false)) || std::isnan(part_of(x, at, true));
  return fmt::format("{} at {}", is_nan ? "NaN" : "infinity", index_text(x, at));
}

std::string range_of(const ir::Literal& x) {
  std::string text = ir::to_string(x.type());
  if (is_complex(x.dtype()) || x.size() == 0) return text;
  double low = x.get(0), high = low;
  for (std::int64_t i = 1; i < x.size(); ++i) {
    low = std::min(low, x.get(i));
    high = std::max(high, x.get(i));
  }
  return text + fmt::format(" in [{:g}, {:g}]", low, high);
}

class Search final : public ir::EvalObserver {
 public:
  Search(BadValues bad, const Source& source) : bad_(bad), source_(source) {}
  const std::string& report() const { return report_; }

  void step(const ir::Eqn& loop, std::int64_t t) override {
    if (!loops_.empty() && loops_.back().first == &loop) loops_.back().second = t;
    else loops_.emplace_back(&loop, t);
  }
  void left(const ir::Eqn&) override { loops_.pop_back(); }
  void device(int d) override { device_ = d; }
  void equation(const ir::Eqn& e, std::span<const ir::Literal> in, std::span<const ir::Literal> out) override {
    if (!report_.empty() || !e.regions.empty()) return;
    for (const ir::Literal& x : in)
      if (first_bad(x, bad_) >= 0) return;  // it came from elsewhere
    for (const ir::Literal& x : out)
      if (const std::int64_t at = first_bad(x, bad_); at >= 0) return describe(e, in, x, at);
  }

 private:
  void describe(const ir::Eqn& e, std::span<const ir::Literal> in, const ir::Literal& out, std::int64_t at) {
    report_ = fmt::format("{}: {} gives {}", line_of(e), e.op->name, place_of(out, at));
    if (device_ >= 0) report_ += fmt::format(" of the part on {}", source_.devices[device_]);
    for (const auto& [loop, t] : loops_)
      report_ += fmt::format(" in step {} of the {} at {}", t, loop->op->name, line_of(*loop));
    for (std::size_t k = 0; k < in.size(); ++k) report_ += fmt::format("\n  operand {}: {}", k, range_of(in[k]));
  }

  std::string line_of(const ir::Eqn& e) const { return to_string(source_.line ? source_.line : e.loc); }

  BadValues bad_;
  const Source& source_;
  int device_ = -1;
  std::vector<std::pair<const ir::Eqn*, std::int64_t>> loops_;
  std::string report_;
};

ir::Literals literals_of(std::span<runtime::Buffer* const> buffers, const std::vector<ir::Type>& types, Loc loc) {
  ir::Literals all;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    ir::Literal& x = all.emplace_back(ir::without_sharding(types[i]));
    check(buffers[i]->to_host(std::span(x.data(), x.bytes())), loc);
  }
  return all;
}

// The program of one device, as fusion will find it, and where its parameters lie.
struct OfOneDevice {
  ir::FunctionRef function;
  std::vector<ir::Type> in_types;
};

OfOneDevice of_one_device(const ir::FunctionRef& f) {
  OfOneDevice one;
  passes::PipelineOptions options;
  options.observe = [&](int, std::string_view name, const ir::FunctionRef& g) {
    if (name == "expand") one.function = g;
  };
  one.in_types = passes::run_pipeline(f, options).in_types;
  return one;
}

void run_on_mesh(const ir::FunctionRef& f, std::span<const ir::Literal> inputs) {
  const OfOneDevice one = of_one_device(f);
  const ir::MeshAtoms atoms(f->mesh());
  std::vector<ir::Literals> parts(f->mesh().size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ir::Literals of_input = ir::shard(inputs[i], atoms, ir::sharding_of(one.in_types[i], atoms));
    for (std::size_t d = 0; d < parts.size(); ++d) parts[d].push_back(of_input[d]);
  }
  (void)ir::eval_spmd(one.function, parts);
}

// Where the bad values of these results come from.
std::string origin(const Source& source, std::span<const ir::Literal> inputs, BadValues bad) {
  if (std::string report = first_bad_equation(source, inputs, bad); !report.empty()) return report;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (const std::int64_t at = first_bad(inputs[i], bad); at >= 0) {
      const std::string& name = source.function->params()[i].name();
      return fmt::format("it was given: {} is {}", name.empty() ? fmt::format("input {}", i) : name,
                         place_of(inputs[i], at));
    }
  }
  return "run equation by equation, the program gives none";
}

struct Watched {
  std::atomic<bool> nans{ir::is_switched_on("SHEAF_DEBUG_NANS")}, infinities{ir::is_switched_on("SHEAF_DEBUG_INFS")};
};
Watched& watched() {
  static Watched w;
  return w;
}

}  // namespace

BadValues watched_values() {
  const Watched& w = watched();
  return {.nans = w.nans.load(std::memory_order_relaxed), .infinities = w.infinities.load(std::memory_order_relaxed)};
}

Source source_on(const Mesh& mesh, const ir::FunctionRef& f, Loc line) {
  Source source{.function = f->on_mesh(ir_mesh(mesh)), .line = line};
  for (std::int64_t d = 0; d < mesh.size(); ++d)
    source.devices.push_back(mesh.is_abstract() ? fmt::format("device {}", d) : to_string(mesh.devices()[d]));
  return source;
}

std::string first_bad_equation(const Source& source, std::span<const ir::Literal> inputs, BadValues bad) {
  Search search(bad, source);
  const ir::Observed observed(search);
  if (source.function->mesh()) run_on_mesh(source.function, inputs);
  else ir::eval(*passes::expand_ops(source.function), inputs);
  return search.report();
}

void check_results(const Source& source, std::span<runtime::Buffer* const> inputs,
                   std::span<const runtime::BufferPtr> results, Loc loc) {
  const BadValues bad = watched_values();
  const ir::FunctionRef& f = source.function;
  const ir::Literals values = literals_of(runtime::pointers_to(results), f->result_types(), loc);
  ir::Values wanted;
  std::string text;
  for (std::size_t j = 0; j < values.size(); ++j) {
    const std::int64_t at = first_bad(values[j], bad);
    if (at < 0) continue;
    wanted.push_back(f->results()[j]);
    if (text.empty()) text = fmt::format("{}: result {} is {}", f->name(), j, place_of(values[j], at));
  }
  if (wanted.empty()) return;
  const ir::Literals given = literals_of(inputs, f->param_types(), loc);
  const ir::FunctionRef needed = f->with_results(std::move(wanted))->on_mesh(f->mesh());
  throw RuntimeError(loc, text + "\n  " + origin({needed, source.line, source.devices}, given, bad));
}

void set_debug_nans(bool on) { watched().nans = on; }
void set_debug_infs(bool on) { watched().infinities = on; }

}  // namespace sheaf
