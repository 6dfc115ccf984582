// One row per op, one word per cell; the words of what is missing on purpose are explained above the table. Dtypes and
// kernels are found by trying: a sample is accepted or not, and its plan has these kernels.
#include "tools/ops_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "ir/complex.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/sample.h"
#include "passes/pipeline.h"
#include "passes/regions.h"

namespace sheaf {
namespace {

using ir::Absent;
using ir::Op;
using Words = std::vector<std::string>;

void add(Words& words, const std::string& word) {
  if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

std::vector<std::string_view> samples_of(Op op) {
  return op->samples ? op->samples() : std::vector<std::string_view>();
}

// Dtypes.

/// The dtype that most operands of a sample have, the first of equally many; of its attribute where there is no
/// operand.
DType main_dtype(const ir::Sample& s) {
  const ir::Function& f = *s.function;
  if (f.params().empty()) return f.results()[0].dtype();
  const auto how_many = [&](ir::Value v) {
    return std::count_if(f.params().begin(), f.params().end(), [&](ir::Value w) { return w.dtype() == v.dtype(); });
  };
  return std::max_element(f.params().begin(), f.params().end(),
                          [&](ir::Value a, ir::Value b) { return how_many(a) < how_many(b); })
      ->dtype();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// Whether a sample of the op is accepted with `t` in place of its main dtype.
bool accepts(Op op, DType t) {
  for (std::string_view text : samples_of(op)) {
    const auto sample = ir::parse_sample(text);
    if (!sample.ok()) continue;
    const std::string from(name(main_dtype(*sample))), to(name(t));
    std::string other = replaced(" " + std::string(text), " " + from + "[", " " + to + "[");
    if (sample->function->params().empty()) other = replaced(other, "dtype=" + from, "dtype=" + to);
    if (ir::parse_sample(other.substr(1)).ok()) return true;
  }
  return false;
}

std::string dtypes(Op op) {
  if (samples_of(op).empty()) return op->types == ir::Dtypes::any ? "any" : std::string(name(op->types));
  const std::pair<const char*, std::vector<DType>> kinds[] = {
      {"bool", {bool_}},
      {"integers", {i8, i16, i32, i64, u8, u16, u32, u64}},
      {"floats", {f16, bf16, f32, f64}},
      {"complex", {c64, c128}},
  };
  Words words;
  for (const auto& [kind, members] : kinds) {
    Words accepted;
    for (DType t : members)
      if (accepts(op, t)) accepted.emplace_back(name(t));
    if (accepted.size() == members.size()) words.emplace_back(kind);
    else words.insert(words.end(), accepted.begin(), accepted.end());
  }
  return words.size() == std::size(kinds) ? "all" : fmt::format("{}", fmt::join(words, ", "));
}

// Transforms.

std::string hole(Absent why) {
  switch (why) {
    case Absent::none: return "";
    case Absent::integer_result: return "*no tangent*";
    case Absent::piecewise_constant: return "*zero*";
    case Absent::by_definition: return "*stopped*";
    case Absent::no_operands: return "*no operands*";
    case Absent::plan_only: return "*plan only*";
    case Absent::by_region: return "regions";
  }
  return "";
}

std::string jvp(Op op) {
  if (op->linear_when && op->no_jvp != Absent::none) return "linear, " + hole(op->no_jvp);
  if (op->no_jvp != Absent::none) return hole(op->no_jvp);
  if (op->linear_when) return op->jvp ? "rule, linear" : "linear";
  if (op->jvp) return "rule";
  return op->linear.kind == ir::Linear::Kind::separately ? "linear in each" : "linear";
}

std::string transpose(Op op) {
  if (op->transpose) return "rule";
  return op->no_jvp != Absent::none ? hole(op->no_jvp) : "*by jvp*";
}

std::string batch(Op op) {
  if (op->no_jvp == Absent::by_region || op->no_jvp == Absent::plan_only) return hole(op->no_jvp);
  std::string how = op->batch ? "rule" : op->factors ? "derived" : op->over ? "" : "*none*";
  if (op->over) how += how.empty() ? "axis" : ", axis";
  return how;
}

// Devices.

/// What a factor of size > 1 takes to be split, by its class.
std::string share(Op op, const ir::Factor& f) {
  if (f.cls == ir::FactorClass::N || (!op->localize && (f.absolute || f.cls == ir::FactorClass::M))) return "whole";
  if (f.cls == ir::FactorClass::M) return "moved";
  if (f.combine == ir::Combine::custom) return "merged";
  return (f.absolute ? "placed" : "parts") + std::string(f.cls == ir::FactorClass::R ? ", reduced" : "");
}

std::string split(Op op) {
  if (op->no_jvp == Absent::by_region || op->no_jvp == Absent::plan_only) return hole(op->no_jvp);
  if (op->axes) return "*device*";
  if (!op->factors) return "*whole*";
  Words words;
  for (std::string_view text : samples_of(op)) {
    const auto sample = ir::parse_sample(text);
    const ir::Eqn& e = *sample->function->results()[0].eqn();
    const ir::Factors factors = *op->factors(e);
    for (const ir::Factor& f : factors.factors)
      if (f.size > 1) add(words, share(op, f));
  }
  constexpr std::string_view kOrder[] = {"parts",  "parts, reduced", "placed", "placed, reduced",
                                         "merged", "moved",          "whole"};
  std::sort(words.begin(), words.end(), [&](const std::string& a, const std::string& b) {
    return std::find(std::begin(kOrder), std::end(kOrder), a) < std::find(std::begin(kOrder), std::end(kOrder), b);
  });
  return fmt::format("{}", fmt::join(words, "; "));
}

// Code.

constexpr const char* kLowerings[] = {
    "Map",         "View",    "Windows", "Reshape",   "Pad",        "Concatenate", "Iota",      "RandomBits", "Gather",
    "UpdateSlice", "Scatter", "Reduce",  "ArgReduce", "Recurrence", "Contract",    "Attention", "Sort",       "Scan",
    "While",       "Branch",  "Check",   "Callback",  "Library",    "Collective",  "Barrier",   "Region"};
static_assert(std::size(kLowerings) == std::variant_size_v<ir::Lowering>);

/// Where an op without samples is when code is generated: a step of the host, or nowhere.
std::string fate(Op op) {
  if (op->no_jvp == Absent::plan_only) return hole(op->no_jvp);
  const passes::RegionRules* rules = passes::region_rules(op);
  if (op->manual && (!op->axes || !op->lower)) return "*gone*";  // a cast of types alone, or plain ops on parts
  return rules && (rules->expand || !rules->improve) ? "*gone*" : "host";
}

std::string lowering(Op op) {
  if (!op->lower) return "ops";
  if (samples_of(op).empty()) return fate(op) == "host" ? "host step" : fate(op);
  Words words;
  for (std::string_view text : samples_of(op)) {
    const auto sample = ir::parse_sample(text);
    if (ir::has_complex(*sample->function)) continue;  // gone by then
    const ir::Eqn& e = *sample->function->results()[0].eqn();
    if (op->expand && !op->has_kernel(e, {})) return "ops";
    const bool is_dense = op == &ir::ops::constant && e.out().rank() > 0;  // never in a kernel
    add(words, is_dense ? "buffer" : op->lower ? kLowerings[op->lower(e).index()] : "*none*");
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string kernels(Op op) {
  if (samples_of(op).empty()) return fate(op);
  Words templates;
  for (std::string_view text : samples_of(op)) {
    const passes::Plan plan = passes::run_pipeline(ir::parse_sample(text)->function);
    for (const ir::Eqn* e : plan.function->eqns())
      if (e->op == &ir::ops::kernel)
        add(templates, std::string(ir::kScheduleWords[static_cast<int>(e->attrs<ir::ops::Kernel>().schedule)]));
  }
  return fmt::format("{}", fmt::join(templates, ", "));
}

constexpr const char* kHead = R"(# Ops

This page is printed by `sheaf ops` from the data sheets in `ir/ops/`; a test compares the two. After a change of an op:

```
build/sheaf ops > docs/ops.md
```

* **dtypes**: what the op's samples are accepted with, in the place of their (most frequent) dtype.
* **jvp**: *rule* is a function of the sheet; an op that is *linear* in its operands, or *in each* with the others
  fixed, needs none; *rule, linear*: which one depends on the attributes; *regions*: `passes/regions.h` goes through
  the op's functions.
* **transpose**: *rule* is a function of the sheet.
* **batch**: *derived* from the factors of the shape rule, which fit any position of the batch dim; *rule* is a
  function of the sheet; *axis*: how it becomes array work when its named axis is vectorised.
* **split**: how the devices of a mesh can share the dims of its samples. *parts*: each runs the op on its part;
  *placed*: and knows where in the whole that lies; *reduced*: what they compute is combined; *merged*: by a rule of the
  sheet; *moved*: neighbours send what a part lacks; *whole*: not at all.
* **lowering**: what code generation sees; *ops*: the op is written out in other ops when all transforms are done.
* **kernels**: templates of the kernels that its samples become, by themselves, on CPUs and on GPUs. *host*: a step that
  the host runs, a loop, a branch, or a call of LAPACK.

Holes, in italics, and why:

| word | why |
|---|---|
| *no tangent* | the result is integers or bools, which have no derivative |
| *zero* | piecewise constant: the derivative is zero wherever it exists; of `convert`, between floats and integers |
| *stopped* | the op exists to have no derivative |
| *no operands* | there is nothing to differentiate or batch in |
| *by jvp* | not linear: its jvp is made of ops, and those are transposed |
| *plan only* | occurs in plans only, after all transforms |
| *gone* | never reaches code generation: written out where it stands, or gone with the `vmap` that named its axis |
| *device* | is part of the program of one device |

)";

}  // namespace

std::string ops_table() {
  std::string text = kHead;
  text += "| op | dtypes | jvp | transpose | batch | split | lowering | kernels |\n|---|---|---|---|---|---|---|---|\n";
  for (Op op : ir::all_ops()) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", op->name, dtypes(op), jvp(op), transpose(op),
                        batch(op), split(op), lowering(op), kernels(op));
  }
  return text;
}

}  // namespace sheaf
