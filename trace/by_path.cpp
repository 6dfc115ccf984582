// The longest path above each leaf; every listed path has to have a leaf, and every leaf a path.
#include "trace/by_path.h"

#include <fmt/format.h>

#include <string_view>

#include "sheaf/error.h"

namespace sheaf {
namespace {

bool is_below(std::string_view leaf, std::string_view path) {
  if (!leaf.starts_with(path)) return false;
  return leaf.size() == path.size() || path.empty() || leaf[path.size()] == '.' || leaf[path.size()] == '[';
}

// "the leaf .W", or of an Array itself "one leaf, itself".
std::string leaf_text(const std::string& path) { return path.empty() ? "one leaf, itself" : "the leaf " + path; }

// "axes only for .W, .b", or "no axes".
std::string listed_text(std::span<const std::string> listed, const std::string& several) {
  std::string text;
  for (const std::string& path : listed) text += (text.empty() ? several + " only for " : ", ") + path;
  return text.empty() ? "no " + several : text;
}

}  // namespace

std::vector<int> choose_paths(std::span<const std::string> listed, std::span<const std::string> leaves,
                              const ByPathWords& words, Loc loc) {
  for (std::size_t i = 0; i < listed.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (listed[i] == listed[j])
        throw TypeError(loc, fmt::format("{}: the {} of {} list the path \"{}\" twice", words.who, words.several,
                                         words.what, listed[i]));
  std::vector<int> chosen;
  std::vector<bool> is_used(listed.size(), false);
  for (const std::string& leaf : leaves) {
    int best = -1;
    for (int i = 0; i < std::ssize(listed); ++i) {
      if (!is_below(leaf, listed[i])) continue;
      is_used[i] = true;
      if (best < 0 || listed[i].size() > listed[best].size()) best = i;
    }
    if (best < 0)
      throw TypeError(loc, fmt::format("{}: {} has {}, and {}", words.who, words.what, leaf_text(leaf),
                                       listed_text(listed, words.several)));
    chosen.push_back(best);
  }
  for (std::size_t i = 0; i < listed.size(); ++i)
    if (!is_used[i])
      throw TypeError(loc, fmt::format("{}: {} has no leaf {}to give {}", words.who, words.what,
                                       listed[i].empty() ? "" : listed[i] + " ", words.one));
  return chosen;
}

}  // namespace sheaf
