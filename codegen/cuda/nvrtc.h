// NVIDIA's run-time compiler, opened when first needed; this header declares the few entry points it uses, so building
// Sheaf needs no CUDA. Any thread may compile; each program is compiled by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf::codegen {

/// What one function takes of a GPU, as the assembler says.
struct CudaFunction {
  std::string entry;
  int registers = 0;  // of a thread
  std::int64_t shared_bytes = 0;  // of a block, declared by the function itself
  std::int64_t stack_bytes = 0, spill_bytes = 0;  // of a thread; spilled: written to memory for want of registers
};

struct CudaImage {
  std::vector<std::byte> code;
  std::vector<CudaFunction> functions;  // those that the assembler told of
};

class Nvrtc {
 public:
  /// The oldest that will do, by major times a thousand plus minor times ten.
  static constexpr int kMinVersion = 12000;

  /// The library SHEAF_LIBNVRTC names, else the first of the usual names and places. Unavailable, with the places
  /// tried, where there is none; FailedPrecondition for one that is too old.
  static absl::StatusOr<const Nvrtc*> load();
  /// The same from these places, for this call.
  static absl::StatusOr<Nvrtc> open(const std::vector<std::string>& paths);

  const std::string& path() const { return path_; }
  int major() const { return major_; }
  int minor() const { return minor_; }
  /// "NVRTC 13.0".
  std::string name() const;
  /// "sm_80", ...: what this version compiles for.
  std::vector<std::string> architectures() const;
  bool supports(const std::string& architecture) const;
  /// Machine code for exactly `architecture` ("sm_90a"). No fast math, no contraction of a * b + c. Unimplemented for
  /// an architecture that it does not know; a text that it refuses is InvalidArgument, with its log and the lines of
  /// the text around the first error. `name` is the text's name there.
  absl::StatusOr<CudaImage> compile(const std::string& text, const std::string& name,
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
  std::string log_of(Program program) const;

  std::string path_;
  Functions f_{};
  int major_ = 0, minor_ = 0;
};

/// What every text is compiled with, but for the architecture; machine code depends on these.
std::span<const char* const> nvrtc_options();

/// What the assembler's log says of each function.
std::vector<CudaFunction> functions_in_log(std::string_view log);

}  // namespace sheaf::codegen
