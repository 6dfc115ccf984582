// Which work is known to be over: for each stream, the number of its items. Work that another does not know to be over
// is in no order with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sheaf::fake_cuda {

using Clock = std::vector<std::uint64_t>;  // by Stream::id

inline void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

inline std::uint64_t at(const Clock& clock, int stream) {
  const auto i = static_cast<std::size_t>(stream);
  return i < clock.size() ? clock[i] : 0;
}

/// What both know.
inline void meet(Clock& clock, const Clock& other) {
  clock.resize(std::min(clock.size(), other.size()));
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::min(clock[i], other[i]);
}

inline void set(Clock& clock, int stream, std::uint64_t number) {
  const auto i = static_cast<std::size_t>(stream);
  if (clock.size() <= i) clock.resize(i + 1);
  clock[i] = number;
}

/// Item `number` of a stream, begun when `before` was over.
struct Position {
  int stream = 0;
  std::uint64_t number = 0;
  const Clock& before;
  const Clock& settled;  // over before whatever may yet begin, on any stream
  const std::string& what;  // "sheaf_k0 on stream 2 of device 0"
};

}  // namespace sheaf::fake_cuda
