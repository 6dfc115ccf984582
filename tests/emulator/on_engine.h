// For tests of kernels on the engine: named buffers, a text with its prelude, and the ways a run may be scheduled.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "codegen/cuda/emit.h"
#include "tests/emulator/engine.h"

namespace sheaf::emulator {

/// Global memory, in the order of a kernel's parameters.
class Buffers {
 public:
  template <class T>
  T* add(const std::string& name, const std::vector<T>& values) {
    T* data = add_unwritten<T>(name, static_cast<std::int64_t>(values.size()));
    if (!values.empty()) std::memcpy(data, values.data(), values.size() * sizeof(T));
    std::fill(marks_.back().begin(), marks_.back().end(), Mark::kInitialised);
    return data;
  }
  template <class T>
  T* add_unwritten(const std::string& name, std::int64_t count) {
    constexpr std::size_t kAlignment = 256;
    const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
    // As much again behind it, so that no two buffers touch.
    memory_.emplace_back(bytes + 2 * kAlignment);
    void* data = memory_.back().data();
    std::size_t space = memory_.back().size();
    std::align(kAlignment, bytes, data, space);
    marks_.emplace_back(bytes, std::uint8_t{0});
    pointers_.push_back(data);
    allocations.push_back(
        {static_cast<std::byte*>(data), static_cast<std::int64_t>(bytes), name, marks_.back().data()});
    return static_cast<T*>(data);
  }
  /// As cuLaunchKernel takes them.
  std::vector<void*> params() {
    std::vector<void*> all;
    for (void*& p : pointers_) all.push_back(&p);
    return all;
  }

  std::vector<Allocation> allocations;

 private:
  std::deque<std::vector<std::byte>> memory_;
  std::deque<std::vector<std::uint8_t>> marks_;
  std::deque<void*> pointers_;
};

/// Functions with the prelude they need, compiled.
class Text {
 public:
  explicit Text(const std::string& functions) : text_(codegen::cuda_program(functions)) {
    auto loaded = load(text_);
    REQUIRE_MESSAGE(loaded.ok(), loaded.status().ToString());
    module_ = *std::move(loaded);
  }
  const Kernel& kernel(const std::string& name) const {
    const Kernel* k = find(*module_, name);
    REQUIRE_MESSAGE(k, name);
    return *k;
  }
  /// The line that ends with the comment `// [mark]`.
  int line(const std::string& mark) const {
    const std::size_t at = text_.find("// [" + mark + "]");
    REQUIRE_MESSAGE(at != std::string::npos, mark);
    return 1 + static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  }

 private:
  std::string text_;
  std::shared_ptr<Module> module_;
};

/// Every order of threads and blocks, with copies as late and as early as can be.
inline std::vector<Policy> all_policies() {
  std::vector<Policy> all;
  for (Order order : {Order::forward, Order::reverse, Order::random}) {
    for (bool late : {true, false}) all.push_back({.order = order, .late_copies = late, .seed = 7});
  }
  return all;
}

}  // namespace sheaf::emulator
