// From a Function to Arrays: the passes, code generation and the runtime behind two functions. Programs are cached by
// their canonical text, so equal programs are compiled once whoever traced them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "trace/array_node.h"

namespace sheaf {

/// A program ready to run.
class Compiled {
 public:
  virtual ~Compiled() = default;
  virtual std::vector<runtime::BufferPtr> run(std::span<const runtime::BufferPtr> inputs,
                                              const std::vector<bool>& donated, Loc loc) const = 0;

  std::vector<ir::Type> inputs, outputs;
};
using CompiledPtr = std::shared_ptr<const Compiled>;

/// The compiled form of f. Throws RuntimeError if the compiler fails. `is_new`: set when no equal program was there.
CompiledPtr compile(const ir::FunctionRef& f, const std::vector<bool>& donated, Loc loc, bool* is_new = nullptr);

/// Runs on concrete arrays and appends the results, weak where `weak` says so (empty: none).
void run(const Compiled& f, std::span<const Array* const> inputs, const std::vector<bool>& donated,
         const std::vector<bool>& weak, Loc loc, std::vector<Array>& out);

std::int64_t programs_loaded();

}  // namespace sheaf
