// The exceptions users can catch. One family; the class says whose rule was broken, `what()` says where (the user's
// file:line), what, and both sides. Errors of the world (disk, driver, memory) are RuntimeError.
#pragma once

#include <stdexcept>
#include <string>

#include "sheaf/source.h"

namespace sheaf {

class Error : public std::runtime_error {
 public:
  Error(Loc loc, const std::string& message)
      : std::runtime_error(loc ? to_string(loc) + ": " + message : message), loc_(loc) {}
  explicit Error(const std::string& message) : std::runtime_error(message) {}
  /// The user's line; empty when the error has no single line.
  Loc loc() const { return loc_; }

 private:
  Loc loc_;
};

struct ShapeError : Error {
  using Error::Error;
};        // shapes, ranks, axes, sizes
struct TypeError : Error {
  using Error::Error;
};         // dtypes, trees, wrong kind of argument
struct ShardingError : Error {
  using Error::Error;
};     // meshes, specs, axes
struct TracedBoolError : Error {
  using Error::Error;
};   // a traced value used as a host bool, number or shape
struct LeakedTracerError : Error {
  using Error::Error;
}; // a traced value used after its trace ended
struct PurityError : Error {
  using Error::Error;
};       // a traced function that gave two different programs
struct RuntimeError : Error {
  using Error::Error;
};      // compiler, memory, files, devices

}  // namespace sheaf
