// Small facts about KIR nodes that every user of a kernel needs.
#include "codegen/kir/kir.h"

namespace sheaf::kir {

std::int64_t aligned_bytes(const Scratch& s) { return (s.count * size_bytes(s.dtype) + 63) / 64 * 64; }

std::int64_t scratch_bytes(const Phase& phase) {
  std::int64_t bytes = 0;
  for (const Scratch& s : phase.scratch) bytes += aligned_bytes(s);
  return bytes;
}

}  // namespace sheaf::kir
