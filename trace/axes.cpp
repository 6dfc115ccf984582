// Two stacks of a thread: named axes, and choices that differ along some of them.
#include "trace/axes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "ir/manual.h"
#include "ir/op.h"
#include "sheaf/error.h"

namespace sheaf {
namespace {

using Kind = NamedAxis::Kind;
constexpr char kOwn = NamedAxis::kOwn;

std::vector<NamedAxis>& open_axes() {
  thread_local std::vector<NamedAxis> open;
  return open;
}

struct Choice {
  ir::Axes axes;
  std::string who;
  Loc loc;
};
std::vector<Choice>& open_choices() {
  thread_local std::vector<Choice> open;
  return open;
}

// Appends what the axis stands for, of the first `end` that are open: one that stands for others may have the name of
// one of them.
void resolve(const std::string& name, std::size_t end, std::string_view who, Loc loc, std::vector<NamedAxis>& out) {
  std::string known;
  for (std::size_t i = end; i-- > 0;) {
    const NamedAxis& axis = open_axes()[i];
    if (axis.name == name) {
      if (axis.kind != Kind::logical) return out.push_back(axis);
      const std::vector<std::string> parts = axis.parts;
      for (const std::string& part : parts) resolve(part, i, who, loc, out);
      return;
    }
    if (axis.name.ends_with(kOwn)) continue;
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", axis.name);
  }
  throw TypeError(loc, fmt::format("{}: no enclosing vmap or shard_map has an axis \"{}\"; {}", who, name,
                                   known.empty() ? "give vmap one with .axis_name" : "there is " + known));
}

}  // namespace

AxisScope::AxisScope(std::string name, std::int64_t size) : before_(open_axes().size()) {
  if (!name.empty()) open_axes().push_back({std::move(name), size});
}
AxisScope::AxisScope(std::vector<NamedAxis> axes) : before_(open_axes().size()) {
  for (NamedAxis& axis : axes) open_axes().push_back(std::move(axis));
}
AxisScope::~AxisScope() { open_axes().resize(before_); }

ir::Axes AxesInScope::names() const {
  ir::Axes all;
  for (const NamedAxis& a : axes) all.push_back(a.name);
  return all;
}

ir::Axes AxesInScope::manual() const {
  ir::Axes all;
  for (const NamedAxis& a : axes)
    if (a.kind == Kind::manual) all.push_back(a.name);
  std::sort(all.begin(), all.end());
  return all;
}

AxesInScope axes_in_scope(const AxisNames& names, std::string_view who, Loc loc) {
  AxesInScope found;
  if (names.names.empty()) throw TypeError(loc, fmt::format("{}: there is no axis to go over", who));
  for (const std::string& name : names.names) resolve(name, open_axes().size(), who, loc, found.axes);
  for (std::size_t i = 0; i < found.axes.size(); ++i) {
    found.size *= found.axes[i].size;
    for (std::size_t j = 0; j < i; ++j)
      if (found.axes[j].name == found.axes[i].name)
        throw TypeError(loc, fmt::format("{}: goes over axis \"{}\" twice", who, found.axes[i].name));
  }
  return found;
}

void check_is_no_mesh_axis(const std::string& name, std::string_view who, Loc loc) {
  const ir::Axes manual = manual_axes();
  if (std::find(manual.begin(), manual.end(), name) != manual.end())
    throw TypeError(loc,
                    fmt::format("{}: the axis \"{}\" has the name of an axis of the shard_map around it", who, name));
}

ir::Axes manual_axes() {
  AxesInScope all;
  all.axes = open_axes();
  return all.manual();
}

ChoiceScope::ChoiceScope(ir::Axes axes, std::string who, Loc loc) {
  open_choices().push_back({std::move(axes), std::move(who), loc});
}
ChoiceScope::~ChoiceScope() { open_choices().pop_back(); }

ir::Axes chosen_axes() {
  ir::Axes all;
  for (const Choice& c : open_choices()) all = ir::joined(std::move(all), c.axes);
  return all;
}

void check_none_is_unreduced(ir::Type captured, Loc loc) {
  for (const Choice& c : open_choices())
    for (const std::string& axis : c.axes)
      if (ir::along(captured.manual(), axis) == Along::unreduced)
        throw TypeError(loc,
                        fmt::format("{}: what the {} at {} decides by differs along \"{}\", along which {} is yet to "
                                    "be summed: psum it first",
                                    c.who, c.who, to_string(c.loc), axis, ir::to_string(captured)));
}

std::string surroundings_key() {
  std::string key;
  for (const NamedAxis& a : open_axes())
    key += fmt::format("{}={},{}[{}];", a.name, a.size, static_cast<int>(a.kind), fmt::join(a.parts, ","));
  for (const Choice& c : open_choices()) key += fmt::format("?{};", fmt::join(c.axes, ","));
  return key;
}

bool is_surroundings_key(const std::string& key) {
  return key.empty() ? open_axes().empty() && open_choices().empty() : surroundings_key() == key;
}

void check_all_meet(const AxesInScope& axes, std::string_view who, Loc loc) {
  for (const Choice& c : open_choices())
    for (const NamedAxis& a : axes.axes)
      if (a.kind == Kind::manual && std::find(c.axes.begin(), c.axes.end(), a.name) != c.axes.end())
        throw TypeError(loc, fmt::format("{}: devices along \"{}\" may not all get here: what the {} at {} decides by "
                                         "differs along it; take the {} out of it, or decide by a value that all "
                                         "share",
                                         who, a.name, c.who, to_string(c.loc), who));
}

}  // namespace sheaf
