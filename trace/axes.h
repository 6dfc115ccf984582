// The named axes of the vmaps and shard_maps being traced on this thread, innermost last, and the branches being traced
// that devices choose for themselves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/type.h"
#include "sheaf/collectives.h"
#include "sheaf/source.h"

namespace sheaf {

struct NamedAxis {
  /// Of a vmap; of a mesh, along which a shard_map's values may differ; or a name for several of those together.
  enum class Kind : std::uint8_t { mapped, manual, logical };
  static constexpr char kOwn = '\'';  // ends the name of one that is the library's and not told
  std::string name;
  std::int64_t size = 0;
  Kind kind = Kind::mapped;
  std::vector<std::string> parts = {};  // of a logical one, major to minor
};

class AxisScope {
 public:
  /// An empty name opens nothing.
  AxisScope(std::string name, std::int64_t size);
  explicit AxisScope(std::vector<NamedAxis> axes);
  ~AxisScope();
  AxisScope(const AxisScope&) = delete;
  AxisScope& operator=(const AxisScope&) = delete;

 private:
  std::size_t before_;
};

/// Axes as collectives go over them: logical ones are what they stand for.
struct AxesInScope {
  std::vector<NamedAxis> axes;  // major to minor
  std::int64_t size = 1;  // of all together

  ir::Axes names() const;
  /// Those of a mesh, sorted by name.
  ir::Axes manual() const;
  bool all_manual() const { return manual().size() == axes.size(); }
};
/// Throws TypeError: `who` goes over an axis that no enclosing vmap or shard_map has, or over one twice.
AxesInScope axes_in_scope(const AxisNames& names, std::string_view who, Loc loc);

/// Those of all enclosing shard_maps, sorted by name.
ir::Axes manual_axes();
/// Throws TypeError where `name` is one of them: what a value is along that is told by name.
void check_is_no_mesh_axis(const std::string& name, std::string_view who, Loc loc);

/// All that a trace can find out about the axes and choices around it, as part of a key; empty where there are none.
std::string surroundings_key();
/// Whether it is this one.
bool is_surroundings_key(const std::string& key);

/// While the regions are traced of which each device runs its own, or as often as it likes: all they capture differs
/// along `axes` too, and those devices cannot meet there.
class ChoiceScope {
 public:
  ChoiceScope(ir::Axes axes, std::string who, Loc loc);
  ~ChoiceScope();
  ChoiceScope(const ChoiceScope&) = delete;
  ChoiceScope& operator=(const ChoiceScope&) = delete;
};
/// The axes of all enclosing choices, sorted by name.
ir::Axes chosen_axes();
/// Throws TypeError where a choice is read by a value yet to be summed along an axis of it.
void check_none_is_unreduced(ir::Type captured, Loc loc);
/// Throws TypeError where devices along one of the axes may not all get here.
void check_all_meet(const AxesInScope& axes, std::string_view who, Loc loc);

}  // namespace sheaf
