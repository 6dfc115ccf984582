// Native code in memory, loaded from the relocatable object a kernel was compiled to. The loader is our own, so that a
// process that finds its kernels on disk never maps the compiler; it knows exactly the sections and relocations that
// our own objects have, and refuses any other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf::codegen {

/// A kernel phase as the runtime calls it; see `Phase` in program.h for the contract.
using KernelFunction = void (*)(void* const* buffers, std::int64_t begin, std::int64_t end, std::byte* scratch);

class NativeCode {
 public:
  /// Maps an x86-64 ELF relocatable object, resolves it and makes it executable. DataLoss for a damaged object,
  /// Unimplemented for one that uses what our compiler never emits, ResourceExhausted when memory cannot be mapped.
  static absl::StatusOr<NativeCode> load(std::span<const std::byte> object);

  NativeCode(NativeCode&& other) noexcept { swap(other); }
  NativeCode& operator=(NativeCode&& other) noexcept {
    swap(other);
    return *this;
  }
  ~NativeCode();

  /// The function `symbol`; null if the object defines none of that name. Valid while this object lives.
  KernelFunction find(std::string_view symbol) const;
  /// Memory it takes: code and its constants, in whole pages.
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }

 private:
  NativeCode() = default;
  void swap(NativeCode& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    std::swap(functions_, other.functions_);
  }
  friend class ObjectLoader;

  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::pair<std::string, void*>> functions_;
};

}  // namespace sheaf::codegen
