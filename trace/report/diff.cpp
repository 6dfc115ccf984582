// Patience diff (B. Cohen): lines that both texts have exactly once are matched by a longest increasing subsequence,
// and what lies between them again; short rests by the table of longest common subsequences.
#include "trace/report/diff.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace sheaf {
namespace {

struct Range {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};
using Match = std::pair<std::size_t, std::size_t>;  // positions of one line in both

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return lines;
}

/// "%12: f32[4] = add %3, %arg0" -> "%: f32[4] = add %, %arg0"
std::string without_numbers(std::string_view line) {
  std::string key;
  for (std::size_t i = 0; i < line.size(); ++i) {
    key += line[i];
    if (line[i] != '%') continue;
    while (i + 1 < line.size() && std::isdigit(static_cast<unsigned char>(line[i + 1]))) ++i;
  }
  return key;
}

class Diff {
 public:
  Diff(std::string_view before, std::string_view after) : before_(lines_of(before)), after_(lines_of(after)) {
    absl::flat_hash_map<std::string, int> ids;
    const auto ids_of = [&](const std::vector<std::string_view>& lines) {
      std::vector<int> out;
      for (const std::string_view line : lines)
        out.push_back(ids.try_emplace(without_numbers(line), static_cast<int>(ids.size())).first->second);
      return out;
    };
    a_ = ids_of(before_);
    b_ = ids_of(after_);
  }

  std::vector<DiffLine> run() {
    compare({0, a_.size()}, {0, b_.size()});
    return std::move(lines_);
  }

 private:
  using Kind = DiffLine::Kind;

  void compare(Range a, Range b) {
    while (a.size() > 0 && b.size() > 0 && a_[a.begin] == b_[b.begin]) add_same(a.begin++, b.begin++);
    Range end{a.end, a.end};
    while (a.size() > 0 && b.size() > 0 && a_[a.end - 1] == b_[b.end - 1]) --a.end, --b.end, --end.begin;
    between(a, b, matches(a, b));
    for (std::size_t k = 0; k < end.size(); ++k) add_same(end.begin + k, b.end + k);
  }

  /// What is neither of a match is told; between unique lines there may be more that are alike.
  void between(Range a, Range b, const std::optional<std::vector<Match>>& unique) {
    if (!unique || unique->empty()) return rest(a, b);
    for (const auto& [i, j] : *unique) {
      compare({a.begin, i}, {b.begin, j});
      add_same(i, j);
      a.begin = i + 1;
      b.begin = j + 1;
    }
    compare(a, b);
  }

  std::optional<std::vector<Match>> matches(Range a, Range b) const {
    if (a.size() == 0 || b.size() == 0) return {};
    struct Seen {
      int in_a = 0, in_b = 0;
      std::size_t at_a = 0, at_b = 0;
    };
    absl::flat_hash_map<int, Seen> seen;
    for (std::size_t i = a.begin; i < a.end; ++i) ++seen[a_[i]].in_a, seen[a_[i]].at_a = i;
    for (std::size_t j = b.begin; j < b.end; ++j) ++seen[b_[j]].in_b, seen[b_[j]].at_b = j;
    std::vector<Match> unique;
    for (const auto& [id, s] : seen)
      if (s.in_a == 1 && s.in_b == 1) unique.emplace_back(s.at_a, s.at_b);
    std::sort(unique.begin(), unique.end());
    return longest_rising(unique);
  }

  /// By piles, each line knowing what lies on top of the pile before it.
  static std::vector<Match> longest_rising(const std::vector<Match>& all) {
    std::vector<std::size_t> tops;
    std::vector<std::size_t> below(all.size(), SIZE_MAX);
    for (std::size_t k = 0; k < all.size(); ++k) {
      const auto pile = std::lower_bound(tops.begin(), tops.end(), all[k].second,
                                         [&](std::size_t top, std::size_t at) { return all[top].second < at; });
      if (pile != tops.begin()) below[k] = *std::prev(pile);
      if (pile == tops.end()) tops.push_back(k);
      else *pile = k;
    }
    std::vector<Match> rising;
    for (std::size_t k = tops.empty() ? SIZE_MAX : tops.back(); k != SIZE_MAX; k = below[k]) rising.push_back(all[k]);
    std::reverse(rising.begin(), rising.end());
    return rising;
  }

  void rest(Range a, Range b) {
    constexpr std::size_t kLargestTable = 1 << 20;
    if (a.size() * b.size() <= kLargestTable) return by_table(a, b);
    for (; a.size() > 0; ++a.begin) add_removed(a.begin);
    for (; b.size() > 0; ++b.begin) add_added(b.begin);
  }

  void by_table(Range a, Range b) {
    const std::size_t columns = b.size() + 1;
    std::vector<std::uint32_t> longest((a.size() + 1) * columns, 0);
    const auto at = [&](std::size_t i, std::size_t j) -> std::uint32_t& {
      return longest[(i - a.begin) * columns + (j - b.begin)];
    };
    for (std::size_t i = a.end; i-- > a.begin;)
      for (std::size_t j = b.end; j-- > b.begin;)
        at(i, j) = a_[i] == b_[j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
    std::size_t i = a.begin, j = b.begin;
    while (i < a.end || j < b.end) {
      if (i < a.end && j < b.end && a_[i] == b_[j]) add_same(i++, j++);
      else if (j == b.end || (i < a.end && at(i + 1, j) >= at(i, j + 1))) add_removed(i++);
      else add_added(j++);
    }
  }

  void add_same(std::size_t i, std::size_t j) { lines_.push_back({Kind::same, before_[i], after_[j]}); }
  void add_removed(std::size_t i) { lines_.push_back({.kind = Kind::removed, .before = before_[i]}); }
  void add_added(std::size_t j) { lines_.push_back({.kind = Kind::added, .after = after_[j]}); }

  std::vector<std::string_view> before_, after_;
  std::vector<int> a_, b_;  // lines as numbers: equal ones are the same
  std::vector<DiffLine> lines_;
};

}  // namespace

std::vector<DiffLine> diff(std::string_view before, std::string_view after) { return Diff(before, after).run(); }

}  // namespace sheaf
