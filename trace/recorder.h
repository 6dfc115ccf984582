// Tracing: a Recorder writes down what the user's function does on traced Arrays. Recorders of one thread form a stack,
// innermost last; a value of an outer one, or a concrete Array, that is used in an inner one becomes an extra parameter
// there (closure conversion). Invariant: when a Recorder is destroyed, by return or exception, its values are dead and
// using one throws LeakedTracerError.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "sheaf/mesh.h"
#include "trace/array_node.h"

namespace sheaf {

/// What is captured once: a buffer, a placed array, or a value of an outer trace.
const void* capture_key(const ArrayNode& node);

class Recorder {
 public:
  Recorder(std::string what, Loc loc, std::string function_name = "main");
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// The innermost trace of this thread; null outside all of them.
  static Recorder* current();
  /// That of the whole program.
  static Recorder* outermost();

  /// How a traced argument is called: in messages (the user's name or path, or ""), in IR text, and by position.
  struct ParamName {
    std::string shown, in_text, place;
  };
  /// A traced argument. `precise`: a weak float is passed as f64, so that it meets f64 arrays unrounded.
  Array param(ir::Type type, bool is_weak, const ParamName& name, bool precise = false);
  /// x as a value of this trace, of dtype x.dtype() (or `as`, for weak arrays).
  ir::Value lift(const Array& x, Loc use, std::optional<DType> as = {});
  /// A C++ number as a value of this trace: a rank-0 constant.
  ir::Value number(Number v, DType dtype);
  /// A value of this trace as an Array.
  Array wrap(ir::Value value, bool is_weak, Loc made_at) const;

  ir::Builder& builder() { return builder_; }
  const TraceInfo& info() const { return *info_; }
  /// The arrays captured so far; they are the parameters after those made by `param`.
  const std::vector<Array>& captured() const { return captured_; }
  /// The mesh of these axes that this program has devices of, if any. Throws ShardingError where it has others already.
  Mesh keep_to_one(const Mesh& mesh, const std::string& who, Loc loc);
  /// Seals the function. Results are lifted; no value of this trace may be used after.
  ir::FunctionRef finish(std::span<const Array> results, Loc loc);

 private:
  struct NamedMesh {
    Mesh mesh;
    std::string who;
    Loc loc;
  };
  ir::Value capture(const Array& x, const ArrayNode& node, Loc use);

  struct Constant {
    DType dtype = {};
    double number = 0;
    ir::Value value;
  };

  std::shared_ptr<TraceInfo> info_;
  ir::Builder builder_;
  Constant latest_;  // that a floating number became: programs repeat few
  Recorder* outer_;
  std::vector<Array> captured_;
  std::vector<NamedMesh> meshes_;
  absl::flat_hash_map<const void*, ir::Value> captures_;  // by buffer, placed array or outer value
};

/// The line to stamp on equations: a library function's caller's, not the library's.
class UserLine {
 public:
  explicit UserLine(Loc loc);
  ~UserLine();
  UserLine(const UserLine&) = delete;
  UserLine& operator=(const UserLine&) = delete;
  /// The outermost library call's line, or `own` outside all of them.
  static Loc or_own(Loc own);

 private:
  Loc before_;
};

/// Runs `f` on arrays: written into the current trace, or executed at once. Results are weak where `weak` says so
/// (empty: none). What is executed may give up the inputs with `donated`.
std::vector<Array> apply_function(const ir::FunctionRef& f, std::span<const Array> inputs, Loc loc,
                                  const std::vector<bool>& weak = {}, const std::vector<bool>& donated = {});

}  // namespace sheaf
