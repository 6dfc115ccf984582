// Two stacks of a thread: named axes, and choices that differ along some of them.
#include "trace/axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

// Appends what the axis stands for.
void resolve(const std::string& name, std::string_view who, Loc loc, std::vector<NamedAxis>& out) {
  std::string known;
  for (std::size_t i = open_axes().size(); i-- > 0;) {
    const NamedAxis& axis = open_axes()[i];
    if (axis.name == name) {
      if (axis.kind != Kind::logical) return out.push_back(axis);
      const std::vector<std::string> parts = axis.parts;
      for (const std::string& part : parts) resolve(part, who, loc, out);
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
  for (const std::string& name : names.names) resolve(name, who, loc, found.axes);
  for (std::size_t i = 0; i < found.axes.size(); ++i) {
    found.size *= found.axes[i].size;
    for (std::size_t j = 0; j < i; ++j)
      if (found.axes[j].name == found.axes[i].name)
        throw TypeError(loc, fmt::format("{}: goes over axis \"{}\" twice", who, found.axes[i].name));
  }
  return found;
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
