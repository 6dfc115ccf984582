// SHEAF_DUMP=dir: everything that happened to a program on its way to machine code, one folder per program.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "codegen/program.h"
#include "ir/graph.h"
#include "passes/plan.h"

namespace sheaf {

/// Writes one program's dumps; does nothing unless SHEAF_DUMP is set. Files that cannot be written are warned of once:
/// a dump never stops a program.
class Dump {
 public:
  explicit Dump(const ir::FunctionRef& f);

  bool is_on() const { return !folder_.empty(); }
  /// "NN-pass.sheaf", with the user's lines; parses again.
  void pass(int number, std::string_view name, const ir::FunctionRef& f);
  void plan(const passes::Plan& plan);
  /// Loop nests, LLVM IR, assembly and, but for contractions, CUDA text of every kernel.
  void kernels(const codegen::Program& program);
  /// Adds a line to timings.txt.
  void time(std::string_view what, double milliseconds);

 private:
  void write(const std::string& name, const std::string& text, bool append = false);

  std::string folder_;
  int passes_ = 0;
};

}  // namespace sheaf
