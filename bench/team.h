// The threads of the hand-written references: a fork-join over numbered chunks, as many threads as Sheaf uses, so that
// a comparison is of the code and not of the number of cores. Chunks are handed out in order to whoever is free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace bench {

class Team {
 public:
  static Team& global();

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  /// body(begin, end) over [0, count), in chunks that are multiples of `unit`.
  template <class Body>
  void for_chunks(std::size_t count, std::size_t unit, const Body& body) {
    const std::size_t units = (count + unit - 1) / unit;
    const std::size_t chunks = units < chunks_per_thread * static_cast<std::size_t>(size())
                                   ? units
                                   : chunks_per_thread * static_cast<std::size_t>(size());
    const auto chunk = [&](std::size_t i) {
      const std::size_t begin = units * i / chunks * unit, end = units * (i + 1) / chunks * unit;
      body(begin, end < count ? end : count);
    };
    run(chunks, [](const void* f, std::size_t i) { (*static_cast<const decltype(chunk)*>(f))(i); }, &chunk);
  }

 private:
  using Call = void (*)(const void*, std::size_t);
  static constexpr std::size_t chunks_per_thread = 4;

  explicit Team(int threads);
  void run(std::size_t chunks, Call call, const void* body);
  void work();
  void take_chunks();

  std::vector<std::jthread> threads_;
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::size_t> next_{0};
  std::atomic<int> busy_{0};
  std::size_t chunks_ = 0;
  Call call_ = nullptr;
  const void* body_ = nullptr;
};

}  // namespace bench
