#include "new_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace bench {

TemporaryFolder::TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "sheaf_bench_XXXXXX").string()) {
  if (!mkdtemp(path_.data())) throw std::runtime_error("no temporary folder");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string run_in_new_process(const std::vector<std::string>& arguments, const std::string& cache) {
  std::vector<std::string> words{"/usr/bin/env", "SHEAF_CACHE_DIR=" + cache,
                                 std::filesystem::read_symlink("/proc/self/exe").string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  int from[2];
  if (pipe(from) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    dup2(from[1], STDOUT_FILENO);
    close(from[0]), close(from[1]);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(from[1]);
  std::string text;
  char part[256];
  for (ssize_t n; (n = read(from[0], part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(n));
  close(from[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    throw std::runtime_error("a new process could not run");
  return text;
}

}  // namespace bench
