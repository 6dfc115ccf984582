// Where a NaN or an infinity comes from: the program is run again by the reference interpreter, equation by equation.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/literal.h"
#include "runtime/buffer.h"
#include "sheaf/mesh.h"
#include "sheaf/source.h"

namespace sheaf {

/// Which values are looked for.
struct BadValues {
  bool nans = false;
  bool infinities = false;
  explicit operator bool() const { return nans || infinities; }
};

/// What the results of every run are searched for: SHEAF_DEBUG_NANS, SHEAF_DEBUG_INFS, set_debug_nans, set_debug_infs.
BadValues watched_values();

/// A program as it was written, which a report about a run of it is told from.
struct Source {
  ir::FunctionRef function;  // on a mesh: with parameters that say where they lie
  Loc line = {};  // of all its equations instead of their own: library functions have one program for all their callers
  std::vector<std::string> devices = {};  // names, where it is on a mesh
};

/// f as the devices of the mesh run it.
Source source_on(const Mesh& mesh, const ir::FunctionRef& f, Loc line = {});

/// The first equation that makes a bad value of good ones, with the step of the loop and the operands' ranges;
/// empty if there is none. Of a program on a mesh, that each device runs on its parts of `inputs`, with the device.
std::string first_bad_equation(const Source& source, std::span<const ir::Literal> inputs, BadValues bad);

/// Throws RuntimeError if a result holds what is watched for, saying where it comes from. `inputs` as they were before
/// the run.
void check_results(const Source& source, std::span<runtime::Buffer* const> inputs,
                   std::span<const runtime::BufferPtr> results, Loc loc);

}  // namespace sheaf
