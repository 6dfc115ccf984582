// What a pass changed: two texts line by line, where lines that differ in the numbers of values alone are the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sheaf {

struct DiffLine {
  enum class Kind : std::uint8_t { same, removed, added };
  Kind kind = Kind::same;
  std::string_view before = {}, after = {};  // lines of the two texts
};

/// All lines of both, in order. The texts must outlive it.
std::vector<DiffLine> diff(std::string_view before, std::string_view after);

}  // namespace sheaf
