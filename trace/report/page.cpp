// Colours are variables, so that a dark page is another set of them. What can be chosen is chosen by inputs and CSS:
// there is no script.
#include "trace/report/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace sheaf {
namespace {

constexpr std::string_view kStyle = R"(
:root { --bg: #fbfbfa; --box: #ffffff; --text: #1d2126; --dim: #626b76; --line: #dcdfe4; --accent: #2458b3;
  --added: #e2f4e4; --added-text: #14532d; --removed: #fbe6e5; --removed-text: #7f1d1d; --bar: #d5e2f8;
  --fill: 74%; --edge: 42%; --grid: #e7e9ec; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #15181c; --box: #1c2026; --text: #e4e7eb; --dim: #98a2ae; --line: #333a43; --accent: #82aefc;
    --added: #16321f; --added-text: #a7e3b5; --removed: #3c1d1d; --removed-text: #f3b4b0; --bar: #26385a;
    --fill: 38%; --edge: 66%; --grid: #2a3038; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 16px; }
h1 { font-size: 1.5rem; margin: 8px 0 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 8px; }
p { margin: 4px 0 10px; color: var(--dim); max-width: 75ch; }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 10px 0 14px; }
a { color: var(--accent); }
section { background: var(--box); border: 1px solid var(--line); border-radius: 8px; padding: 14px; margin: 0 0 14px; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(140px, 1fr)); gap: 10px; margin: 0 0 14px; }
.card { background: var(--box); border: 1px solid var(--line); border-radius: 8px; padding: 8px 12px; }
.card b { display: block; font-size: 1.15rem; font-weight: 600; }
.card span { color: var(--dim); font-size: .85rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--dim); font-weight: 500; white-space: nowrap; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
code, pre { font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
td code { white-space: nowrap; }
td code.dim { display: inline-block; max-width: 64ch; overflow: hidden; text-overflow: ellipsis; vertical-align: bottom; }
pre { margin: 6px 0; padding: 8px; overflow: auto; max-height: 32rem; border: 1px solid var(--line); border-radius: 6px;
  background: var(--bg); }
details { border-top: 1px solid var(--line); padding: 5px 0; }
details details { border: 0; padding: 2px 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
summary small, .dim { color: var(--dim); }
.bar { position: relative; min-width: 90px; text-align: right; padding: 0 4px; }
.bar i { position: absolute; inset: 1px auto 1px 0; background: var(--bar); border-radius: 2px; }
.bar span { position: relative; }
.diff label { margin-right: 12px; color: var(--dim); font-size: .85rem; }
.diff pre span { display: block; min-width: max-content; }
.diff .a { background: var(--added); color: var(--added-text); }
.diff .r { background: var(--removed); color: var(--removed-text); }
.diff .a::before { content: "+ "; } .diff .r::before { content: "- "; }
.diff .s::before, .diff .n::before, .diff .o::before { content: "  "; }
.diff .o { display: none; }
.diff:has(.after:checked) .r, .diff:has(.before:checked) .a, .diff:has(.before:checked) .n { display: none; }
.diff:has(.before:checked) .o { display: block; }
.diff:has(.after:checked) .a, .diff:has(.before:checked) .r { background: none; color: inherit; }
.diff:has(.after:checked) span::before, .diff:has(.before:checked) span::before { content: ""; }
.chart { overflow-x: auto; }
.chart svg { min-width: 820px; width: 100%; height: auto; display: block; font: 12px system-ui, sans-serif; }
.chart text { fill: var(--dim); } .chart .grid { stroke: var(--grid); } .chart .peak { stroke: var(--accent); }
.chart .live { fill: var(--bar); stroke: var(--accent); }
.chart .v { fill: hsl(var(--h) 55% var(--fill)); stroke: hsl(var(--h) 45% var(--edge)); stroke-width: .7; }
.chart .v:hover { stroke: var(--text); stroke-width: 2; }
.places { display: flex; flex-wrap: wrap; gap: 14px; }
.places figure { margin: 0; max-width: 100%; overflow-x: auto; }
.places text[text-anchor=start] { fill: var(--text); }
)";

std::string class_of(const std::vector<bool>& is_number, std::size_t column) {
  return column < is_number.size() && is_number[column] ? " class=\"n\"" : "";
}

}  // namespace

std::string escaped_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} bytes", bytes) : fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

std::string count_text(double n) {
  constexpr const char* kUnits[] = {"", " K", " M", " G", " T", " P"};
  std::size_t unit = 0;
  for (; n >= 1000 && unit + 1 < std::size(kUnits); ++unit) n /= 1000;
  return fmt::format("{:.3g}{}", n, kUnits[unit]);
}

std::string Table::html() const {
  std::string text = "<div class=\"wide\"><table><thead><tr>";
  for (std::size_t c = 0; c < head.size(); ++c) text += fmt::format("<th{}>{}</th>", class_of(is_number, c), head[c]);
  text += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    text += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c) text += fmt::format("<td{}>{}</td>", class_of(is_number, c), row[c]);
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string details(const std::string& summary, const std::string& body, bool is_open) {
  return fmt::format("<details{}><summary>{}</summary>\n{}</details>\n", is_open ? " open" : "", summary, body);
}

std::string section(const std::string& id, const std::string& title, const std::string& body) {
  return fmt::format("<section id=\"{}\"><h2>{}</h2>\n{}</section>\n", id, escaped_html(title), body);
}

std::string code_block(std::string_view text) { return fmt::format("<pre>{}</pre>\n", escaped_html(text)); }

std::string diff_block(const std::vector<DiffLine>& lines, const std::string& id) {
  std::string text = "<div class=\"diff\">";
  for (const auto& [kind, label] : {std::pair("changes", "what changes"), {"before", "before"}, {"after", "after"}})
    text += fmt::format("<label><input type=\"radio\" name=\"{}\" class=\"{}\"{}> {}</label>", id, kind,
                        std::string_view(kind) == "changes" ? " checked" : "", label);
  text += "<pre>";
  const auto add = [&](char c, std::string_view line) {
    text += fmt::format("<span class=\"{}\">{}</span>", c, escaped_html(line));
  };
  for (const DiffLine& line : lines) {
    if (line.kind == DiffLine::Kind::removed) add('r', line.before);
    else if (line.kind == DiffLine::Kind::added) add('a', line.after);
    else if (line.before == line.after) add('s', line.after);
    else add('o', line.before), add('n', line.after);  // other numbers of values
  }
  return text + "</pre></div>\n";
}

std::string bar(double part, const std::string& text) {
  return fmt::format("<div class=\"bar\"><i style=\"width:{:.1f}%\"></i><span>{}</span></div>",
                     100 * std::clamp(part, 0.0, 1.0), text);
}

// ---- Memory ----

namespace {

constexpr double kWidth = 1000, kLeft = 74, kAbove = 90, kGap = 34, kBelow = 250;

class MemoryChart {
 public:
  explicit MemoryChart(const MemoryMap& map) : map_(map), most_(map.live.empty() ? 0 : map.live[map.peak()]) {}

  std::string svg() const {
    return fmt::format(
        "<div class=\"chart\"><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"memory over the steps\">\n{}{}{}</svg>"
        "</div>\n",
        kWidth, kTop + kAbove + kGap + kBelow + kFoot, live(), arena(), peak());
  }

 private:
  static constexpr double kTop = 18, kFoot = 22;
  static constexpr std::size_t kMostBoxes = 3000;

  double x(double step) const {
    return kLeft + (kWidth - kLeft - 8) * step / std::max(1.0, static_cast<double>(map_.live.size()));
  }
  static double share(std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(whole, 1));
  }
  double y_live(std::int64_t bytes) const { return kTop + kAbove * (1 - share(bytes, most_)); }
  double y_arena(std::int64_t offset) const {
    return kTop + kAbove + kGap + kBelow * (1 - share(offset, map_.arena_bytes));
  }
  static std::string scale(double y, const std::string& text) {
    return fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text x=\"{3}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5}</text>\n",
        kLeft, kWidth - 8, y, kLeft - 6, y + 4, text);
  }

  std::string live() const {
    std::string text = fmt::format("<text x=\"{}\" y=\"12\">alive at each step</text>\n", kLeft);
    for (const double part : {0.0, 0.5, 1.0})
      text += scale(kTop + kAbove * (1 - part), bytes_text(part * static_cast<double>(most_)));
    std::string points = fmt::format("{:.1f},{:.1f}", x(0), y_live(0));
    for (std::size_t k = 0; k < map_.live.size(); ++k)
      points += fmt::format(" {0:.1f},{2:.1f} {1:.1f},{2:.1f}", x(static_cast<double>(k)),
                            x(static_cast<double>(k + 1)), y_live(map_.live[k]));
    points += fmt::format(" {:.1f},{:.1f}", x(static_cast<double>(map_.live.size())), y_live(0));
    return text + fmt::format("<polygon class=\"live\" points=\"{}\"/>\n", points);
  }

  std::string arena() const {
    std::string text =
        fmt::format("<text x=\"{}\" y=\"{}\">where values lie in the arena</text>\n", kLeft, kTop + kAbove + kGap - 6);
    for (const double part : {0.0, 0.5, 1.0})
      text +=
          scale(kTop + kAbove + kGap + kBelow * (1 - part), bytes_text(part * static_cast<double>(map_.arena_bytes)));
    std::vector<const MemoryMap::Value*> shown;
    for (const MemoryMap::Value& v : map_.values) shown.push_back(&v);
    std::ranges::stable_sort(shown, std::greater(), [](const MemoryMap::Value* v) { return v->bytes; });
    if (shown.size() > kMostBoxes) shown.resize(kMostBoxes);
    for (const MemoryMap::Value* v : shown) text += box(*v);
    return text +
           fmt::format("<text x=\"{}\" y=\"{}\">step 0</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
                       kLeft, kTop + kAbove + kGap + kBelow + 16, kWidth - 8, kTop + kAbove + kGap + kBelow + 16,
                       map_.live.size());
  }

  std::string box(const MemoryMap::Value& v) const {
    constexpr int kHueStep = 137;  // neighbours differ: a golden angle apart
    const double left = x(v.first), right = x(v.last + 1);
    const double top = y_arena(v.offset + v.bytes), bottom = y_arena(v.offset);
    return fmt::format(
        "<rect class=\"v\" style=\"--h:{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">"
        "<title>{}, {}\nmade by {}{}\nsteps {} to {}{}</title></rect>\n",
        (v.first * kHueStep + static_cast<int>(v.offset / 256)) % 360, left, top, std::max(right - left, 1.0),
        std::max(bottom - top, 1.0), escaped_html(v.type), bytes_text(static_cast<double>(v.bytes)),
        escaped_html(v.made_by), v.loc ? " at " + escaped_html(to_string(v.loc)) : "", v.first, v.last,
        v.is_kept_for_backward ? "\nkept for the backward pass" : "");
  }

  std::string peak() const {
    if (map_.live.empty()) return "";
    const double at = x(map_.peak() + 0.5);
    return fmt::format(
        "<line class=\"peak\" stroke-dasharray=\"4 3\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>\n", at,
        kTop, kTop + kAbove + kGap + kBelow);
  }

  const MemoryMap& map_;
  const std::int64_t most_;
};

}  // namespace

std::string memory_svg(const MemoryMap& map) { return MemoryChart(map).svg(); }

std::string page(const std::string& title, const std::string& intro, const std::vector<std::string>& sections) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{0}</title>\n<style>{1}</style></head>\n<body><main>\n<h1>{0}</h1>\n{2}{3}</main></body></html>\n",
      escaped_html(title), kStyle, intro, fmt::join(sections, ""));
}

}  // namespace sheaf
