// From a Function to Arrays: the passes, code generation and the runtime behind two functions. Programs are cached by
// their canonical text, so equal programs are compiled once whoever traced them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "passes/plan.h"
#include "runtime/executable.h"
#include "trace/array_node.h"
#include "trace/dump.h"
#include "trace/nan_search.h"

namespace sheaf {

/// A program ready to run.
class Compiled {
 public:
  virtual ~Compiled() = default;
  virtual std::vector<runtime::BufferPtr> run(std::span<const runtime::BufferPtr> inputs,
                                              const std::vector<bool>& donated, Loc loc) const = 0;
  /// Null where the reference interpreter runs it.
  virtual runtime::ExecutablePtr executable() const { return nullptr; }

  std::vector<ir::Type> inputs, outputs;
};
using CompiledPtr = std::shared_ptr<const Compiled>;

/// A program that the passes are done with, and nothing is compiled of.
struct Planned {
  ir::FunctionRef function;
  std::vector<bool> donated;
  passes::Plan plan;
  Dump dump;
};
Planned plan_program(const ir::FunctionRef& f, const std::vector<bool>& donated);
/// Its compiled form, which is that of any equal program.
CompiledPtr compile(const Planned& planned, Loc loc);

/// The compiled form of f. Throws RuntimeError if the compiler fails. `is_new`: set when no equal program was there.
CompiledPtr compile(const ir::FunctionRef& f, const std::vector<bool>& donated, Loc loc, bool* is_new = nullptr);

/// Runs on concrete arrays and appends the results, weak where `weak` says so (empty: none). Throws RuntimeError where
/// results are searched for NaN and hold one, telling it from `source`.
void run(const Compiled& f, const Source& source, std::span<const Array* const> inputs,
         const std::vector<bool>& donated, const std::vector<bool>& weak, Loc loc, std::vector<Array>& out);

std::int64_t programs_loaded();

}  // namespace sheaf
