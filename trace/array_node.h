// What an Array holds: a number not yet on a device, bytes on a device, a value of a program being traced, or a mere
// type. Invariant: a node never changes but for the bytes a number is given when first needed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/recycled.h"
#include "runtime/buffer.h"
#include "sheaf/array.h"

namespace sheaf {

struct Placement;

/// One run of a user's function on traced values: who is tracing, and what its arguments are called. It outlives the
/// trace, so that a value used too late can say where it came from.
struct TraceInfo {
  std::string what;                      // "jit step"
  Loc loc;                               // where that was written
  std::vector<std::string> param_names;  // "m.out.W", "" where the user gave none
  std::vector<std::string> param_places; // "argument 0 .out.W"
  std::atomic<bool> is_live{true};
};

struct ArrayNode {
  ArrayNode() noexcept {}  // NOLINT: all of it is set below, where `= default` has it filled with zeros before
  enum class Kind : std::uint8_t { number, concrete, traced, abstract };
  Kind kind = Kind::concrete;
  bool is_weak = false;
  ir::Type type;                 // a traced weak float may be computed from an f64 value; see Recorder::param
  Loc made_at;
  Number number = 0;             // number
  runtime::BufferPtr buffer;     // concrete, on the first device
  const Placement* placement = nullptr;  // concrete, put on other devices: `shards` and no `buffer`; see placement.h
  std::vector<runtime::BufferPtr> shards;  // per device
  ir::Value value;  // traced
  std::shared_ptr<TraceInfo> trace;
};

/// The node, or TypeError: an Array that was never given a value.
const ArrayNode& node_of(const Array& x, Loc use);
/// Also TypeError where it has no elements that could be read: of an Array made by abstract(), or of a trace, which
/// `wanted` is wanted from.
const ArrayNode& node_with_value(const Array& x, std::string_view wanted, Loc use);

Array concrete(runtime::BufferPtr buffer, ir::Type type, bool is_weak, Loc made_at);

/// The value's bytes as a buffer of `type`'s dtype, gathered if they are on several devices; a number is written out.
/// Throws for traced and abstract arrays.
runtime::BufferPtr buffer_of(const Array& x, ir::Type type, Loc use);
runtime::BufferPtr number_buffer(Number v, DType dtype, runtime::Device& on, Loc made_at);

/// Throws RuntimeError unless the status is OK.
void check(const absl::Status& status, Loc loc);

}  // namespace sheaf
