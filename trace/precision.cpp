// One variable of each thread.
#include "trace/precision.h"

#include <utility>

namespace sheaf {
namespace {

thread_local Precision current = Precision::full;

}  // namespace

PrecisionScope::PrecisionScope(Precision precision) : before_(std::exchange(current, precision)) {}
PrecisionScope::~PrecisionScope() { current = before_; }

Precision default_precision() { return current; }

Precision precision_of(std::optional<Precision> wanted, DType computed) {
  return part_dtype(accumulator(computed)) == f32 ? wanted.value_or(current) : Precision::full;
}

}  // namespace sheaf
