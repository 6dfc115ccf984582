// What is given per leaf of a tree by a list of paths, where a path stands for all leaves below it and the longest one
// counts: axes of vmap, specs of shardings.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sheaf/source.h"

namespace sheaf {

struct ByPathWords {
  std::string who;      // "vmap"
  std::string what;     // "argument 0"
  std::string one;      // "an axis"
  std::string several;  // "axes"
};

/// For each leaf, which of the listed paths counts. Throws TypeError where a leaf has none, a path no leaf, or a path
/// is listed twice.
std::vector<int> choose_paths(std::span<const std::string> listed, std::span<const std::string> leaves,
                              const ByPathWords& words, Loc loc);

}  // namespace sheaf
