// From a Function to Arrays: the passes, code generation and the runtime behind two functions. Programs are cached by
// their canonical text, so equal programs are compiled once whoever traced them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/sharding.h"
#include "passes/plan.h"
#include "runtime/executable.h"
#include "sheaf/mesh.h"
#include "trace/array_node.h"
#include "trace/dump.h"
#include "trace/nan_search.h"
#include "trace/recompile.h"

namespace sheaf {

/// A traced program, on a mesh if its function is, and where its results are wanted there.
struct MeshProgram {
  Mesh mesh = {};  // with its devices, if it has any
  ir::FunctionRef function;
  codegen::Target target = {};
  std::vector<std::optional<ir::Spec>> results = {};  // none, or beyond the list: as the compiler decides
};

/// What was compiled, and for whom first.
struct ProgramSource {
  MeshProgram program;
  std::vector<bool> donated = {};  // per parameter; empty: none
  std::string what = {};
  Loc loc = {};
};

/// A program ready to run.
class Compiled {
 public:
  virtual ~Compiled() = default;
  virtual runtime::Buffers run(runtime::Device& device, std::span<runtime::Buffer* const> inputs,
                               const std::vector<bool>& donated, Loc loc) const = 0;
  /// Of a program on a mesh: with the parts of each device.
  virtual std::vector<runtime::Buffers> run_on(std::span<runtime::Device* const> devices,
                                               std::span<const runtime::Buffers> inputs,
                                               const std::vector<bool>& donated, Loc loc) const = 0;
  /// Null where the reference interpreter runs it.
  virtual runtime::ExecutablePtr executable() const { return nullptr; }

  std::vector<ir::Type> inputs, outputs;  // whole; on a mesh with the axes that their parts lie on
  ProgramSource source;
};
using CompiledPtr = std::shared_ptr<const Compiled>;

/// A program that the passes are done with, and nothing is compiled of.
struct Planned {
  MeshProgram program;
  std::vector<bool> donated;
  passes::Plan plan;
  Dump dump;
};
Planned plan_program(const MeshProgram& program, const std::vector<bool>& donated);
/// Its compiled form, which is that of any equal program.
CompiledPtr compile(const Planned& planned, const Asked& asked);

/// A plan as code that is not compiled.
struct Lowered {
  Planned planned;
  codegen::Program code;
};
Lowered lower(Planned planned);

/// The key that programs are found by: of equal ones it is the same.
std::string program_key(const MeshProgram& program, const std::vector<bool>& donated);
/// All that were compiled and that this process can still run.
std::vector<CompiledPtr> compiled_programs();
/// Null where there is none.
CompiledPtr find_program(const std::string& program_key);
CompiledPtr compile(const Lowered& lowered, const Asked& asked);
/// Called with each program from now on that is compiled, by its thread; null: nobody is.
void observe_compilations(std::function<void(const ProgramSource&)> observer);

/// The compiled form of the program. Throws RuntimeError if the compiler fails, and after require_warm if there is none.
CompiledPtr compile(const MeshProgram& program, const std::vector<bool>& donated, const Asked& asked);

std::int64_t programs_loaded();

}  // namespace sheaf
