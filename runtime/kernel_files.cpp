// One object per kernel of a CPU; of a GPU a record per kernel and the images that those name.
#include "runtime/kernel_files.h"

#include <set>
#include <utility>

#include "runtime/cuda_compiler.h"
#include "runtime/native_compiler.h"

namespace sheaf::runtime {

absl::StatusOr<std::vector<KernelFile>> kernel_files(std::span<const KernelPtr> kernels) {
  std::vector<KernelFile> all;
  std::set<std::pair<std::string, std::string>> known;
  const auto add = [&](KernelFile file) {
    if (known.emplace(file.kind, file.key).second) all.push_back(std::move(file));
  };
  for (const KernelPtr& kernel : kernels) {
    if (kernel->code().target.is_gpu()) {
      for (KernelFile& file : cuda_files(*kernel)) add(std::move(file));
      continue;
    }
    absl::StatusOr<std::string> object = object_of(kernel->code());
    if (!object.ok()) return object.status();
    add({"object", kernel->code().key, *std::move(object)});
  }
  return all;
}

}  // namespace sheaf::runtime
