// Section by section, in the order in which a reader asks: how much is it, which kernels, where is memory, who holds
// what, what was sent, and how did the compiler get there.
#include "trace/report/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "ir/text.h"
#include "passes/pass.h"
#include "passes/pipeline.h"
#include "sheaf/sharding.h"
#include "trace/aot.h"
#include "trace/mesh.h"
#include "trace/report/diff.h"
#include "trace/report/memory_map.h"
#include "trace/report/page.h"
#include "trace/report/steps.h"

namespace sheaf {
namespace {

std::string bytes(std::int64_t n) { return bytes_text(static_cast<double>(n)); }

std::string paragraph(const std::string& text) { return "<p>" + escaped_html(text) + "</p>\n"; }

std::string line_cell(Loc loc) {
  const std::string text = escaped_html(source_line(loc));
  return fmt::format("<code>{}</code>{}", escaped_html(to_string(loc)),
                     text.empty() ? "" : fmt::format(" <code class=\"dim\" title=\"{0}\">{0}</code>", text));
}

std::string lines_cell(const std::vector<Loc>& lines) {
  std::vector<std::string> cells;
  for (const Loc loc : lines) cells.push_back(line_cell(loc));
  return fmt::format("{}", fmt::join(cells, "<br>"));
}

// ---- How much ----

std::string cards(const ReportOf& of) {
  std::vector<std::pair<std::string, std::string>> all = {{count_text(of.cost.flops), "operations on elements"},
                                                          {bytes_text(of.cost.bytes), "read and written by kernels"},
                                                          {count_text(of.cost.transcendentals), "exp, log, tanh, .."},
                                                          {bytes(of.memory.arguments), "arguments"},
                                                          {bytes(of.memory.outputs), "outputs"},
                                                          {bytes(of.memory.aliased), "of outputs in donated buffers"},
                                                          {bytes(of.memory.temporaries), "temporaries at their peak"},
                                                          {bytes(of.memory.constants), "constants"},
                                                          {bytes(of.memory.code), "machine code"}};
  if (of.executable) all.emplace_back(std::to_string(of.executable->program().kernels.size()), "kernels");
  std::string text = "<div class=\"cards\">";
  for (const auto& [value, what] : all)
    text += fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>", value, what);
  return text + "</div>\n";
}

std::string intro(const ReportOf& of) {
  const Mesh& mesh = of.planned.program.mesh;
  const std::string where = mesh ? " on the mesh " + to_string(mesh) + ", numbers are those of each device" : "";
  return paragraph(
      fmt::format("{} at {}, for {}{}.", of.what, to_string(of.loc), to_string(of.planned.program.target), where));
}

// ---- Kernels ----

std::string launch_table(const aot::Kernel& kernel) {
  if (kernel.functions.empty()) return "";
  Table table{.head = {"function", "blocks", "threads", "registers", "shared", "stack", "spilled"},
              .is_number = {false, true, true, true, true, true, true}};
  for (const aot::Function& f : kernel.functions)
    table.rows.push_back({fmt::format("<code>{}</code>", escaped_html(f.name)), std::to_string(f.blocks),
                          std::to_string(f.threads), std::to_string(f.registers), bytes(f.shared_bytes),
                          bytes(f.stack_bytes), bytes(f.spilled_bytes)});
  return table.html();
}

std::string texts_of(const aot::Kernel& kernel) {
  std::string text = launch_table(kernel);
  for (const auto& [title, body] : {std::pair("loop nest", &kernel.loops),
                                    {"CUDA C++", &kernel.cuda},
                                    {"LLVM IR", &kernel.llvm},
                                    {"assembly", &kernel.assembly}})
    if (!body->empty()) text += details(title, code_block(*body));
  return text;
}

std::string kernels_section(const ReportOf& of) {
  if (!of.executable) return section("kernels", "Kernels", paragraph("The reference interpreter runs this program."));
  const std::vector<StepSummary> steps = summaries_of(of.executable->program(), of.planned.plan);
  double all = 0;
  for (const StepSummary& s : steps) all += s.work.bytes;
  Table table{.head = {"kernel or step", "bytes", "operations", "times", "lines"},
              .is_number = {false, true, true, true}};
  for (const StepSummary& s : steps)
    table.rows.push_back({fmt::format("<code>{}</code>", escaped_html(s.name)),
                          bar(all > 0 ? s.work.bytes / all : 0, bytes_text(s.work.bytes)), count_text(s.work.flops),
                          count_text(s.times), lines_cell(s.lines)});
  std::string body =
      paragraph("Bytes and operations of one run, loops as often as they go round; the bar is the part of all bytes.") +
      table.html();
  for (const aot::Kernel& kernel : shown_kernels(*of.executable, of.loc))
    body += details(fmt::format("<code>{}</code>", escaped_html(kernel.name)), texts_of(kernel));
  return section("kernels", "Kernels", body);
}

// ---- Memory ----

std::string memory_section(const ReportOf& of) {
  constexpr std::size_t kMost = 12;
  const MemoryMap map = memory_map(of.planned.plan);
  std::string body;
  if (map.values.empty()) {
    body = paragraph("No intermediate result is kept in memory.");
  } else {
    const int peak = map.peak();
    body = paragraph(fmt::format(
               "Intermediate results; the dashed line is step {}, where most is alive: {} of an arena of {}.", peak,
               bytes(map.live[peak]), bytes(map.arena_bytes))) +
           memory_svg(map);
    Table table{.head = {"alive there", "bytes", "steps", "made by", "line"}, .is_number = {false, true, true}};
    const std::vector<MemoryMap::Value> alive = map.alive_at(peak);
    for (const MemoryMap::Value& v : alive) {
      if (table.rows.size() == kMost) break;
      table.rows.push_back(
          {fmt::format("<code>{}</code>{}", escaped_html(v.type),
                       v.is_kept_for_backward ? " <span class=\"dim\">kept for the backward pass</span>" : ""),
           bytes(v.bytes), fmt::format("{}-{}", v.first, v.last),
           fmt::format("<code>{}</code>", escaped_html(v.made_by)), line_cell(v.loc)});
    }
    body += table.html();
    if (alive.size() > kMost) body += paragraph(fmt::format("and {} smaller ones", alive.size() - kMost));
  }
  const std::vector<int>& alias = of.planned.plan.alias;
  for (std::size_t j = 0; j < alias.size(); ++j) {
    if (alias[j] < 0) continue;
    const std::string& name = of.planned.plan.function->params()[alias[j]].name();
    body += paragraph(fmt::format("Result {} is in the buffer of {}, which is donated.", j,
                                  name.empty() ? fmt::format("parameter {}", alias[j]) : name));
  }
  return section("memory", "Memory over the steps", body);
}

// ---- Sharding ----

// Empty where every device holds all of it.
std::string place_svg(ir::Type type, const Mesh& mesh, Loc loc) {
  const ir::MeshAtoms& atoms = atoms_of(mesh);
  const ir::Sharding layout = ir::sharding_of(type, atoms);
  if (layout.is_replicated()) return "";
  return sharding_svg(ir::without_sharding(type).dims(), {mesh, spec_of(layout, atoms)}, loc);
}

std::string sharding_section(const ReportOf& of) {
  constexpr std::size_t kMostPictures = 48;
  const Mesh& mesh = of.planned.program.mesh;
  if (!mesh || of.planned.plan.in_types.empty()) return "";
  const passes::Plan& plan = of.planned.plan;
  std::vector<std::string> whole, pictures;
  const auto add = [&](const std::string& name, ir::Type type) {
    const std::string svg = place_svg(type, mesh, of.loc);
    if (svg.empty()) whole.push_back(name);
    else if (pictures.size() < kMostPictures)
      pictures.push_back(fmt::format("<figure><figcaption>{}<br><code class=\"dim\">{}</code></figcaption>{}</figure>",
                                     escaped_html(name), escaped_html(ir::to_string(type)), svg));
    else whole.push_back(name + " " + ir::to_string(type));
  };
  for (std::size_t i = 0; i < plan.in_types.size(); ++i) {
    const std::string& name = of.planned.program.function->params()[i].name();
    add(name.empty() ? fmt::format("parameter {}", i) : name, plan.in_types[i]);
  }
  for (std::size_t j = 0; j < plan.out_types.size(); ++j) add(fmt::format("result {}", j), plan.out_types[j]);
  std::string body =
      paragraph(
          "Which devices hold which part: a cell is a part, the numbers in it are devices; rows and columns are the last two dims.") +
      fmt::format("<div class=\"places\">{}</div>\n", fmt::join(pictures, "\n"));
  if (!whole.empty())
    body += paragraph(fmt::format("Whole on every device, or not drawn: {}.", fmt::join(whole, ", ")));
  return section("sharding", "Where arrays lie", body);
}

std::string collectives_section(const ReportOf& of) {
  if (of.collectives.entries.empty()) return "";
  double all = 0;
  for (const Collective& c : of.collectives.entries)
    all += c.seconds * static_cast<double>(std::max<std::int64_t>(c.times, 1));
  Table table{.head = {"collective", "sent by a device", "times", "estimated", "line", "why"},
              .is_number = {false, true, true, true}};
  for (const Collective& c : of.collectives.entries) {
    const double seconds = c.seconds * static_cast<double>(std::max<std::int64_t>(c.times, 1));
    const std::string name = fmt::format("{} over {}", c.op, fmt::join(c.axes, ", "));
    table.rows.push_back({fmt::format("<code>{}</code>{}", escaped_html(name),
                                      c.is_overlapped ? " <span class=\"dim\">beside other work</span>" : ""),
                          bytes_text(c.wire_bytes), c.times < 0 ? "?" : std::to_string(c.times),
                          bar(all > 0 ? seconds / all : 0, fmt::format("{:.1f} us", seconds * 1e6)), line_cell(c.loc),
                          escaped_html(c.reason.empty() ? "written by the user" : c.reason)});
  }
  return section("collectives", "What devices send each other", table.html());
}

// ---- Passes ----

struct Stage {
  std::string name, text;
  std::size_t equations = 0;
};

std::vector<Stage> stages_of(const Planned& planned) {
  std::vector<Stage> stages;
  passes::PipelineOptions options{
      .target = planned.program.target, .donated = planned.donated, .results = planned.program.results};
  options.observe = [&](int, std::string_view name, const ir::FunctionRef& f) {
    stages.push_back({std::string(name), ir::print(f, {.locs = true, .names = true}), f->eqns().size()});
  };
  passes::run_pipeline(planned.program.function, options);
  return stages;
}

std::string doc_of(std::string_view name) {
  const passes::Pass* pass = passes::find_pass(name);
  return pass ? std::string(pass->doc) : "";
}

std::string passes_section(const ReportOf& of) {
  const std::vector<Stage> stages = stages_of(of.planned);
  std::string body =
      paragraph("Each pass with what it changed. Lines that differ in the numbers of values alone count as the same.") +
      details(fmt::format("<b>traced</b> <small>{} equations, as written</small>", stages[0].equations),
              code_block(stages[0].text));
  for (std::size_t k = 1; k < stages.size(); ++k) {
    const Stage &before = stages[k - 1], &after = stages[k];
    const std::string head = fmt::format("<b>{}</b> <small>{}</small>", after.name, escaped_html(doc_of(after.name)));
    if (before.text == after.text) {
      body += fmt::format(
          "<div class=\"dim\" style=\"padding:5px 0 5px 16px\">{} <small>(changes nothing)</small></div>\n", head);
      continue;
    }
    const std::vector<DiffLine> lines = diff(before.text, after.text);
    const auto count = [&](DiffLine::Kind kind) { return std::ranges::count(lines, kind, &DiffLine::kind); };
    body += details(fmt::format("{} <small>({} equations, were {}; {} lines out, {} in)</small>", head, after.equations,
                                before.equations, count(DiffLine::Kind::removed), count(DiffLine::Kind::added)),
                    diff_block(lines, "pass" + std::to_string(k)));
  }
  return section("passes", "Passes", body);
}

}  // namespace

std::string report_html(const ReportOf& of) {
  std::vector<std::string> sections = {kernels_section(of), memory_section(of), sharding_section(of),
                                       collectives_section(of), passes_section(of)};
  std::string links;
  for (const auto& [id, title] : {std::pair("kernels", "Kernels"),
                                  {"memory", "Memory"},
                                  {"sharding", "Sharding"},
                                  {"collectives", "Collectives"},
                                  {"passes", "Passes"}})
    if (std::ranges::any_of(sections,
                            [&](const std::string& s) { return s.starts_with(fmt::format("<section id=\"{}\"", id)); }))
      links += fmt::format("<a href=\"#{}\">{}</a>", id, title);
  return page(of.what, intro(of) + fmt::format("<nav>{}</nav>\n", links) + cards(of), sections);
}

}  // namespace sheaf
