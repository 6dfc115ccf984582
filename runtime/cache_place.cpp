// A folder is a folder, and a file a pack.
#include "runtime/cache_place.h"

#include <filesystem>

#include "runtime/cache_folder.h"
#include "runtime/cache_pack.h"
#include "runtime/private_file.h"

namespace sheaf::runtime {

absl::StatusOr<CachePlacePtr> open_cache_place(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return CachePack::open(path);
  if (absl::Status status = check_private_folder(path); !status.ok()) return status;
  return std::make_shared<const CacheFolder>(path);
}

}  // namespace sheaf::runtime
