// Batches of a data set in memory, in an order shuffled anew in each epoch by a key of the loader's own: the same seed
// gives the same batches on every machine.
#pragma once

#include <vector>

#include "sheaf/mesh.h"
#include "sheaf/ops.h"

namespace sheaf {

struct LoaderOptions {
  std::int64_t batch = 128;
  std::int64_t seed = 0;
  bool shuffle = true;
  bool drop_last = true;   // the last, smaller batch of an epoch, which would compile a program of its own
  NamedSharding sharding = {};  // of batches: each device reads the rows it holds, and no more; no mesh: one device
};

class Loader {
 public:
  /// Arrays with the same extent of dim 0. Throws ShapeError.
  explicit Loader(std::vector<Array> arrays, LoaderOptions options = {}, Loc loc = Loc::current());

  std::int64_t batches() const { return batches_; }  // per epoch
  /// Batch `index` of `epoch`: one array per data array, copied from host memory. Throws ShardingError where a batch
  /// does not divide as .sharding says.
  std::vector<Array> batch(std::int64_t epoch, std::int64_t index, Loc loc = Loc::current());

 private:
  void order_epoch(std::int64_t epoch, Loc loc);

  struct Source;  // bytes on the host
  /// The rows of `order_` from `first` on, as many as `part` has, of each the elements from `start` on.
  Array read(const Source& source, std::int64_t first, const Shape& part, const std::vector<std::int64_t>& start,
             Loc loc) const;
  std::vector<std::shared_ptr<const Source>> sources_;
  LoaderOptions options_;
  std::int64_t examples_ = 0, batches_ = 0;
  std::int64_t epoch_ = -1;
  std::vector<std::int32_t> order_;
};

}  // namespace sheaf
