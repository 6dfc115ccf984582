// The disk cache of this process: compiled kernels that processes leave each other (docs/cache.md).
#pragma once

#include <cstdint>
#include <string>

namespace sheaf {

/// Of this process so far.
struct CacheStats {
  std::string folder;     // read and written; empty: none
  std::string read_only;  // a folder or pack that is read only; empty: none
  std::int64_t hits = 0;  // entries found
  std::int64_t hits_read_only = 0;  // of those, in the second place
  std::int64_t misses = 0;
  std::int64_t damaged = 0;  // of the misses: an entry was there, and was not whole
  std::int64_t stored = 0;
  std::int64_t stored_bytes = 0;
  std::int64_t not_stored = 0;  // because the folder could not be written, or there is none
  std::int64_t swept_bytes = 0;  // deleted by this process, to keep below the limit
  std::string trouble;  // the first thing that was wrong with the cache, as the warning said it; empty: nothing
};

CacheStats cache_stats();

}  // namespace sheaf
