// A traced program with its compiled forms: one for arrays on a single device, and one for each way its inputs have
// lain on meshes. Where inputs lie is no part of a trace, so another layout means another compiled form and no new
// trace. Invariant: a form, once there, is found by comparing the addresses of the inputs' placements.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "sheaf/mesh.h"
#include "sheaf/tree.h"
#include "trace/communication.h"
#include "trace/execute.h"
#include "trace/placement.h"
#include "trace/recompile.h"

namespace sheaf {

/// The mesh that with_sharding and shard_map in f are for, or none. Throws ShardingError where they are for several.
Mesh mesh_named_in(const ir::Function& f, const std::string& what);

/// What the user says beyond where the arguments lie.
struct MeshWishes {
  Mesh mesh = {};  // where no argument is on one
  std::vector<std::optional<PartitionSpec>> in = {}, out = {};  // per input and result; what is beyond the list: none
  std::vector<std::string> result_names = {};  // "result .loss", of those with a wish
  CommunicationLimits limits = {};

  bool has_specs() const { return !in.empty() || !out.empty(); }
};

struct RunnableOptions {
  std::string what = {};  // "jit step", for messages; none: an operation outside of any jit
  std::size_t arguments = SIZE_MAX;  // the inputs after so many were captured
  std::vector<bool> donated = {};  // per input; empty: none
  std::vector<bool> weak = {};  // per result; empty: none
  MeshWishes wishes = {};
  // For those who ask why it is compiled.
  std::vector<std::string> places = {};  // of the arguments' leaves: "argument 0 .x"
  FunctionSite site = {};
  std::vector<KeyChange> changes = {};  // why it was traced again
  std::shared_ptr<Recompilations> again = nullptr;
};

/// The user's name of the parameter, or what it is to an op of as many operands.
std::string input_name(const ir::Function& f, std::size_t i);

/// The mesh that a program runs on: `own`, if it names one, else that of the inputs. Throws ShardingError where inputs
/// that somebody put somewhere are on another, or on several; one that differs in names only is the same.
Mesh mesh_of_inputs(const std::string& what, const Mesh& own, std::span<const Array* const> inputs,
                    absl::FunctionRef<std::string(std::size_t)> name_of, Loc loc);

class Runnable {
 public:
  Runnable(ir::FunctionRef f, RunnableOptions options);
  ~Runnable();

  /// The mesh that the user or the program itself names, or none.
  const Mesh& named_mesh() const { return own_mesh_; }
  /// Runs on concrete arrays and appends the results. Inputs that nobody put anywhere go where the others are; the
  /// program moves those that lie otherwise than `wishes.in` says. Throws ShardingError where they are on several
  /// meshes, RuntimeError if the compiler fails or where results are searched for NaN and hold one, told as if all
  /// equations were on `line`, if there is one.
  void run(std::span<const Array* const> inputs, Loc line, Loc loc, detail::Leaves& out) const;
  std::vector<Array> run(std::span<const Array* const> inputs, Loc line, Loc loc) const;
  /// The form for inputs that lie as these do (abstract ones will do), planned but not compiled, for this target or
  /// that of its devices; and where the inputs
  /// of it are: null of those on the first device because nobody put any of them anywhere.
  struct PlannedForm {
    Planned planned;
    std::vector<const Placement*> in;
  };
  PlannedForm plan(std::span<const Array* const> inputs, const std::optional<codegen::Target>& target, Loc loc) const;
  /// As a part of the program that this trace is of: throws where a wish can only be that of a whole program, or of a
  /// mesh that is not known; the others become constraints.
  void check_can_be_part(const TraceInfo& of, Loc loc) const;
  void constrain_inputs(std::vector<Array>& inputs, Loc loc) const;
  void constrain_results(std::vector<Array>& results, Loc loc) const;
  /// The forms that have been compiled.
  std::vector<const Compiled*> programs() const;

 private:
  struct Form;  // on a mesh

  const Compiled& single(const runtime::Device& device, Loc loc) const;
  void run_single(runtime::Device* device, std::span<const Array* const> inputs, Loc line, Loc loc,
                  detail::Leaves& out) const;
  void run_on(const Mesh& mesh, std::span<const Array* const> inputs, Loc line, Loc loc, detail::Leaves& out) const;
  Mesh mesh_of(std::span<const Array* const> inputs, Loc loc) const;
  const Form& form_for(const Mesh& mesh, std::span<const Array* const> inputs, Loc loc) const;
  std::vector<const Placement*> placements(const Mesh& mesh, std::span<const Array* const> inputs, Loc loc) const;
  MeshProgram mesh_program(const Mesh& mesh, std::span<const Placement* const> in, Loc loc) const;
  std::string input_name(std::size_t i) const;
  std::string result_place(std::size_t j) const;
  /// What is new beside the nearest form there is. Called with the mutex held.
  std::vector<KeyChange> layout_changes(const Mesh& mesh, std::span<const Array* const> inputs) const;
  void note_again(const std::vector<KeyChange>& changes, Loc loc) const;
  Asked asked(std::vector<KeyChange> changes, Loc loc) const;
  Planned planned_within(const MeshProgram& program, Loc loc) const;
  CompiledPtr compile_within(const MeshProgram& program, const Asked& asked) const;

  ir::FunctionRef function_;
  RunnableOptions options_;
  bool is_operation_ = false;  // outside of any jit
  Mesh own_mesh_;
  bool needs_mesh_ = false;  // whatever the inputs are
  mutable std::array<std::atomic<const Compiled*>, 2> single_{};  // for the CPU, for GPUs
  mutable std::atomic<const Form*> last_{nullptr};
  mutable std::mutex mutex_;  // guards what follows
  mutable std::array<CompiledPtr, 2> single_owner_;
  mutable std::vector<std::unique_ptr<const Form>> forms_;
};

}  // namespace sheaf
