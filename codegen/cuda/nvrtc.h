// NVIDIA's run-time compiler, opened when first needed; this header declares the few entry points it uses, so building
// Sheaf needs no CUDA. Any thread may compile; each program is compiled by one thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf::codegen {

class Nvrtc {
 public:
  /// The library SHEAF_LIBNVRTC names, else the first of the usual names and places. Unavailable, with the places
  /// tried, where there is none.
  static absl::StatusOr<const Nvrtc*> load();

  int major() const { return major_; }
  int minor() const { return minor_; }
  /// "sm_80", ...: what this version compiles for.
  std::vector<std::string> architectures() const;
  bool supports(const std::string& architecture) const;
  /// Machine code for exactly `architecture` ("sm_90a"). No fast math, no contraction of a * b + c. The error is the
  /// compiler's log.
  absl::StatusOr<std::vector<std::byte>> compile(const std::string& text, const std::string& name,
                                                 const std::string& architecture) const;

 private:
  using Program = void*;
  struct Functions {
    int (*version)(int*, int*);
    int (*num_architectures)(int*);
    int (*architectures)(int*);
    int (*create)(Program*, const char* text, const char* name, int headers, const char* const*, const char* const*);
    int (*compile)(Program, int options, const char* const*);
    int (*destroy)(Program*);
    int (*log_size)(Program, std::size_t*);
    int (*log)(Program, char*);
    int (*cubin_size)(Program, std::size_t*);
    int (*cubin)(Program, char*);
  };
  static absl::StatusOr<const Nvrtc*> open();

  Functions f_{};
  int major_ = 0, minor_ = 0;
};

}  // namespace sheaf::codegen
