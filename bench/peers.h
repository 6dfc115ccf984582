// Other libraries as sides of the benchmark, each in a process of its own (bench/peers): libtorch, and what Python has
// of JAX, MLX and Dr.Jit. A turn is asked for by a line and answered by a line, so the turns of a row take turns with
// Sheaf's, and a library's threads, allocator and crashes are its own.
#pragma once

#include <string>
#include <vector>

#include "measure.h"

namespace bench {

class Peer;

class Peers {
 public:
  /// Starts them. Their environment is the one each is fastest in.
  explicit Peers(const Options& options);
  ~Peers();

  /// Those that know the row, ready for their first turn.
  std::vector<Side> sides(const std::string& request);
  /// "libtorch 1.13.1, JAX: No module named 'jax'".
  std::string versions() const;

 private:
  std::vector<std::shared_ptr<Peer>> peers_;
};

}  // namespace bench
