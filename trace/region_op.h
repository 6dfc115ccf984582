// What the ops with regions share when a user's functions become their regions: captures are operands, the same list
// for all regions of an op, and C++ numbers take the dtype of what they stand beside. Invariant: the functions given to
// an op agree in their parameters and results, because every disagreement has been an error of the user's before.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/functional/function_ref.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "trace/trace_call.h"

namespace sheaf {

/// The type of a value that is `a` on one path and `b` on the other: equal types, or a C++ number's that follows the
/// other; it differs along the manual axes that one of them does. Nothing where they do not meet.
std::optional<LeafType> meet(const LeafType& a, const LeafType& b);

/// The type of the value that differs along these manual axes too.
LeafType varied(LeafType t, const ir::Axes& axes);
std::vector<LeafType> varied(std::vector<LeafType> types, const ir::Axes& axes);
/// Those of their cotangents.
std::vector<LeafType> cotangents(std::vector<LeafType> types);
ir::Axes varying_of(std::span<const LeafType> types);

/// A call whose results that are C++ numbers, or computed from such, take the dtypes wanted, and all of them the manual
/// axes, where they meet.
class WithResultTypes final : public detail::FlatCall {
 public:
  WithResultTypes(const detail::FlatCall& call, std::vector<LeafType> wanted)
      : FlatCall(call.loc(), call.types()), call_(call), wanted_(std::move(wanted)) {}
  std::vector<Array> trace(std::span<const Array> leaves, detail::Structure& result) const override;
  std::vector<detail::Argument> arguments() const override { return call_.arguments(); }
  std::span<const std::size_t> leaf_counts() const override { return call_.leaf_counts(); }

 private:
  const detail::FlatCall& call_;
  std::vector<LeafType> wanted_;  // of the first results
};

/// The arrays that the regions of one op capture, each once, in the order of first use.
class Captures {
 public:
  explicit Captures(std::span<const Traced* const> regions);
  const std::vector<Array>& arrays() const { return arrays_; }
  const std::vector<ir::Type>& types() const { return types_; }
  /// The region as a function of all captures, then of its own leaves.
  ir::FunctionRef first(const Traced& region) const;

 private:
  std::vector<Array> arrays_;
  std::vector<ir::Type> types_;
  absl::flat_hash_map<const void*, std::size_t> position_;
};

/// A program of `inputs`, which it gets with the given types: written into the current trace, or run at once, giving
/// up the inputs with `donated`.
std::vector<Array> apply_program(std::string name, std::span<const Array> inputs, std::span<const ir::Type> types,
                                 const std::vector<bool>& weak, Loc loc,
                                 absl::FunctionRef<ir::Values(ir::Builder&, const ir::Values&)> program,
                                 const std::vector<bool>& donated = {});

/// Whether a C++ number among the leaves would lose digits as f32.
bool has_precise_number(const detail::FlatCall& call);

/// ".h", or `whole` for a tree that is one array.
std::string leaf_name(const std::string& path, const char* whole);
/// ".h, .c", or "none".
std::string list_of(const std::vector<std::string>& paths);

std::vector<bool> weak_of(std::span<const LeafType> types);

}  // namespace sheaf
