// The benchmark as a process of its own, for what happens once in a process: its start, and first calls.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace bench {

/// Goes with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// What `bench ARGUMENT..` prints, with this cache on disk ("off": none).
std::string run_in_new_process(const std::vector<std::string>& arguments, const std::string& cache);

}  // namespace bench
