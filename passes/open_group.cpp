// Kinds follow from lowerings; rows from which dims a group reduces.
#include "passes/open_group.h"

#include <algorithm>
#include <type_traits>
#include <variant>

namespace sheaf::passes {

using namespace ir;

Kind kind_of(const Lowering& l) {
  using namespace lowering;
  return std::visit(
      [](const auto& x) {
        using L = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<L, Map>) return Kind::map;
        else if constexpr (std::is_same_v<L, View> || std::is_same_v<L, Windows> || std::is_same_v<L, Reshape> ||
                           std::is_same_v<L, Iota>)
          return Kind::free;
        else if constexpr (std::is_same_v<L, Pad> || std::is_same_v<L, Concatenate> || std::is_same_v<L, RandomBits> ||
                           std::is_same_v<L, Gather> || std::is_same_v<L, UpdateSlice>)
          return Kind::indexed;
        else if constexpr (std::is_same_v<L, Reduce>) return Kind::reduce;
        else if constexpr (std::is_same_v<L, Scan> || std::is_same_v<L, While> || std::is_same_v<L, Branch> ||
                           std::is_same_v<L, Barrier> || std::is_same_v<L, Check> || std::is_same_v<L, Callback> ||
                           std::is_same_v<L, Library> || std::is_same_v<L, Collective>)
          return Kind::host;
        else return Kind::hero;
      },
      l);
}

Shape OpenGroup::row() const {
  Shape s;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(full.size()); ++d)
    if (std::find(reduced.begin(), reduced.end(), d) == reduced.end()) s.push_back(full[d]);
  return s;
}

bool OpenGroup::has_rows() const {
  constexpr std::int64_t kMaxRow = 32768;  // elements of a row that stays in cache between the passes of a row kernel
  std::int64_t length = 1;
  for (std::size_t i = 0; i < reduced.size(); ++i) {
    if (reduced[i] != static_cast<std::int64_t>(full.size() - reduced.size() + i)) return false;
    length *= full[reduced[i]];
  }
  return length <= kMaxRow;
}

OpenGroup OpenGroup::space() const {
  OpenGroup space;
  space.full = full;
  space.reduced = reduced;
  space.has_reduce = has_reduce;
  return space;
}

Shape without_ones(const Shape& dims) {
  Shape s;
  for (std::int64_t d : dims)
    if (d != 1) s.push_back(d);
  return s;
}

}  // namespace sheaf::passes
