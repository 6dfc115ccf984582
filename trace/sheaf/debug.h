// Looking into a running program: printing traced values, checking what must hold, calling functions of the host, and
// finding where a NaN comes from. What is written here keeps the program's order, runs at every step of a loop, and
// under vmap once per example, in order (check: all examples at once). Inside cond under vmap it is an error, for there
// every branch runs.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sheaf/call.h"
#include "sheaf/ops.h"

namespace sheaf {

/// Ends the run with RuntimeError "file:line: check failed: message" unless `pred`, a bool scalar, holds: at once
/// outside of traced functions, else when a result of the program is read.
void check(Operand pred, std::string message, Loc loc = Loc::current());

namespace detail {
void debug_print(std::string format, std::vector<Array> arrays, Loc loc);
/// The format with the line of the call, which a pack of arguments leaves no room for.
struct Format {
  template <std::convertible_to<std::string> T>
  Format(T words, Loc at = Loc::current()) : text(std::move(words)), loc(at) {}  // NOLINT
  std::string text;
  Loc loc;
};
}  // namespace detail

/// Prints a line to standard output when the program gets there: each {} of the format is one array, as to_string
/// prints it. Throws TypeError if there are more or fewer arrays than {}.
template <std::convertible_to<Array>... A>
void debug_print(detail::Format format, const A&... arrays) {
  detail::debug_print(std::move(format.text), {Array(arrays)...}, format.loc);
}
/// Where debug_print goes from now on, instead of standard output; null: back to it. Called from the device's thread.
void set_debug_output(std::function<void(std::string_view line)> output);

/// An array on the host, while a HostFunction runs: row-major.
struct HostTensor {
  Shape shape;
  DType dtype = f32;
  std::span<std::byte> bytes;
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

struct HostFunctionOptions {
  bool pure = false;  // may be dropped where no result is read, and called more or less often than written
};

/// A function of the host that traced programs can call. Make it once, outside of what is traced. It has no derivative:
/// stop_gradient of what it computes. It must not run Sheaf functions: the device waits for it.
class HostFunction {
 public:
  /// f gets the operands, and fills the results; what it throws ends the run with its message.
  using Body = std::function<void(std::span<const HostTensor> operands, std::span<const HostTensor> results)>;
  HostFunction(std::string name, Body f, HostFunctionOptions options = {});

  /// results_like: arrays of the results' shapes and dtypes (abstract() will do).
  std::vector<Array> operator()(const std::vector<Array>& operands, const std::vector<Array>& results_like = {},
                                Loc loc = Loc::current()) const;

 private:
  std::string name_;
  int slot_;
  bool is_pure_;
};

struct FindNanOptions {
  bool infinities = false;
};
namespace detail {
std::string find_nan(const FlatCall& call, FindNanOptions options);
template <bool infinities>
struct FindNan {
  template <class F, class... A>
  std::string operator()(Loc loc, const F& f, const A&... args) const {
    return find_nan(CallOf<F, A...>(f, loc, args...), {.infinities = infinities});
  }
};
}  // namespace detail

/// find_nan(f, arguments...): where the first NaN (or infinity, if asked for) appears when f's program is run equation
/// by equation on these arguments: "mlp.cpp:12: log gives NaN at [3, 0] in step 7 of the scan at mlp.cpp:9\n  operand
/// 0: f32[8, 4] in [-0.2, 3]"; empty when there is none. Slow: the reference interpreter runs it.
inline constexpr detail::WithLine<detail::FindNan<false>> find_nan{};
inline constexpr detail::WithLine<detail::FindNan<true>> find_nan_or_infinity{};

namespace detail {
std::string find_nondeterminism(const FlatCall& call);
struct FindNondeterminism {
  template <class F, class... A>
  std::string operator()(Loc loc, const F& f, const A&... args) const {
    return find_nondeterminism(CallOf<F, A...>(f, loc, args...));
  }
};
}  // namespace detail

/// find_nondeterminism(f, arguments...): runs f's compiled program several times on these arguments, and compares the
/// results bit by bit: empty where all are equal, else which result differs, where, and the first equation whose values
/// do. What can differ are host functions and `deterministic = false`; everything else is a bug of Sheaf's. Nothing is
/// donated.
inline constexpr detail::WithLine<detail::FindNondeterminism> find_nondeterminism{};

/// Every result of every run from now on, of jitted, transformed and eager functions alike, is searched for NaN (or
/// infinity), as with SHEAF_DEBUG_NANS=1 (SHEAF_DEBUG_INFS=1). Where there is one, the program is run again equation by
/// equation, as find_nan does, and RuntimeError on the line of the call holds that report. Slow: each run is waited
/// for, nothing is donated, and host functions of a program that fails are called again.
void set_debug_nans(bool on);
void set_debug_infs(bool on);

}  // namespace sheaf
