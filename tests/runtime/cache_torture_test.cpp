// Processes that share a cache while others are killed, the disk is full for some, and somebody damages its files at
// random: what is found is what was stored, and a program gets its numbers.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "runtime/disk_cache.h"
#include "sheaf/sheaf.h"
#include "tests/runtime/cache_folders.h"

using namespace sheaf;
using runtime::CacheFile;
using runtime::CacheFolder;
using runtime::DiskCache;

namespace {

namespace fs = std::filesystem;
using Random = std::mt19937;

constexpr int kKeys = 50, kProcesses = 16;

int below(Random& random, int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); }

/// What is stored under a key, which nothing else is.
std::string bytes_of(int key) {
  Random random(static_cast<unsigned>(key));
  std::string bytes(100 + 371 * static_cast<std::size_t>(key), '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

/// Does something to a file of the folder that nobody should.
void damage(const CacheFolder& folder, Random& random) {
  const std::vector<CacheFile> files = folder.list();
  if (files.empty()) return;
  const auto any = [&] { return files[static_cast<std::size_t>(below(random, static_cast<int>(files.size())))].path; };
  const std::string path = any();
  std::error_code ignored;  // it may be gone, or a folder by now
  const std::uintmax_t bytes = fs::file_size(path, ignored);
  if (ignored) return fs::remove_all(path, ignored), void();
  switch (below(random, 8)) {
    case 0: fs::resize_file(path, bytes / 2, ignored); break;
    case 1: fs::resize_file(path, 0, ignored); break;
    case 2: fs::resize_file(path, bytes + 100, ignored); break;
    case 3: fs::remove(path, ignored); break;
    case 4: fs::copy_file(any(), path, fs::copy_options::overwrite_existing, ignored); break;  // not renamed: torn
    case 5:
      if (below(random, 8) > 0) break;  // it stays for ever
      fs::remove(path, ignored);
      fs::create_directory(path, ignored);
      break;
    case 6: fs::permissions(path, fs::perms(0666), ignored); break;
    default: {  // a bit of what is there
      const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
      const off_t at = bytes ? below(random, static_cast<int>(bytes)) : 0;
      char c = 0;
      if (fd >= 0 && pread(fd, &c, 1, at) == 1) {
        c = static_cast<char>(c ^ (1 << below(random, 8)));
        (void)!pwrite(fd, &c, 1, at);
      }
      if (fd >= 0) close(fd);
    }
  }
}

/// Stores and finds, in an own process that tells each step through `progress`. 0 if all that it found was right.
int share(const std::string& at, unsigned seed, int steps, int progress) {
  ir::set_log_sink([](std::string_view) {});  // there is something to say
  Random random(seed);
  if (seed % 4 == 0) {  // a disk that takes short files only
    signal(SIGXFSZ, SIG_IGN);
    const rlimit small{5000, 5000};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  if (seed % 4 == 1) umask(0);
  for (int step = 0; step < steps; ++step) {
    DiskCache cache({.folder = at, .limit_bytes = seed % 4 == 2 ? 200'000 : 1 << 30});
    const int key = below(random, kKeys);
    const auto found = cache.find("object", tests::key_of(key));
    if (found && found->bytes != bytes_of(key)) return 1;
    if (!found) cache.store("object", tests::key_of(key), "", bytes_of(key));
    if (seed % 4 == 3) damage(CacheFolder(at), random);
    (void)!::write(progress, "x", 1);
  }
  return 0;
}

/// Sixteen processes and their successors, of which a random one is killed every so many steps of all.
void share_and_kill(const std::string& at, int steps, int kills) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::map<pid_t, bool> children;  // whether it was killed
  unsigned seed = 0;
  const auto start = [&] {
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      _exit(share(at, seed, steps, ends[1]));
    }
    children[child] = false;
    ++seed;
  };
  for (int i = 0; i < kProcesses; ++i) start();
  Random random(7);
  char byte = 0;
  for (int k = 0; k < kills; ++k) {
    for (int i = 0; i < 20; ++i) REQUIRE(read(ends[0], &byte, 1) == 1);
    auto victim = children.begin();
    std::advance(victim, below(random, static_cast<int>(children.size())));
    if (!victim->second && kill(victim->first, SIGKILL) == 0) victim->second = true;
    start();
  }
  close(ends[1]);
  while (read(ends[0], &byte, 1) == 1) {}
  close(ends[0]);
  for (const auto& [child, is_killed] : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    const bool is_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    CHECK((is_well || (is_killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)));
  }
}

/// Whoever comes after all that can store and find everything.
void check_usable(const std::string& at) {
  for (int key = 0; key < kKeys; ++key) {  // what stands in an entry's place is no business of the cache's
    std::error_code ignored;
    const std::string path = CacheFolder(at).path_of("object", tests::key_of(key));
    if (fs::is_directory(path, ignored)) fs::remove_all(path, ignored);
  }
  DiskCache cache({.folder = at});
  tests::lines_of([&] {
    for (int key = 0; key < kKeys; ++key) cache.store("object", tests::key_of(key), "", bytes_of(key));
  });
  for (int key = 0; key < kKeys; ++key) {
    const auto found = cache.find("object", tests::key_of(key));
    REQUIRE(found);
    CHECK(found->bytes == bytes_of(key));
  }
  CHECK(cache.stats().not_stored == 0);
}

// ---- programs ----

const std::string kAnswer = "3025 385 55 0.0497871 10";

/// A process that runs the program below over the folder, and writes what it says into a file.
pid_t start_program(const std::string& at, const std::string& said) {
  const pid_t child = fork();
  if (child != 0) return child;
  setenv("SHEAF_CACHE_DIR", at.c_str(), 1);
  dup2(open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
  dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
  execl("/proc/self/exe", "sheaf_tests", "-tc=[cache torture] a program", "--no-skip", static_cast<char*>(nullptr));
  _exit(127);
}

/// Programs that start and end beside each other, while their files are damaged and every fourth of them is killed, if
/// it is not quicker.
void run_and_damage(const std::string& at, int processes, int at_once) {
  const std::string said = tests::empty_folder("cache_torture_said");
  fs::create_directories(said);
  Random random(11);
  std::map<pid_t, int> running;
  int well = 0;
  for (int started = 0, ended = 0; ended < processes;) {
    while (started < processes && std::ssize(running) < at_once) {
      running[start_program(at, fmt::format("{}/{}", said, started))] = started;
      ++started;
    }
    for (const auto& [child, number] : running)
      if (number % 4 == 3 && below(random, 100'000) == 0) kill(child, SIGKILL);
    if (below(random, 20'000) == 0) damage(CacheFolder(at), random);  // seldom enough for some to be found
    int status = 0;
    const pid_t child = waitpid(-1, &status, WNOHANG);
    if (child <= 0) continue;
    ++ended;
    const int number = running[child];
    running.erase(child);
    if (number % 4 == 3 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) continue;
    const std::string text = tests::contents(fmt::format("{}/{}", said, number));
    ++well;
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(text.ends_with(kAnswer + "\n"));
  }
  CHECK(well >= processes / 4 * 3);
}

}  // namespace

TEST_CASE("[cache torture] a program" * doctest::skip()) {
  const Array x = arange(1, 11, 1, f32);
  const auto compiled = [&](auto f) { return f.trace(x).lower().compile()(x).template item<double>(); };
  const double cubes = compiled(jit([](Array v) { return sum(v * v * v); }));
  const double squares = compiled(jit([](Array v) { return dot(v, v); }));
  const double plain = compiled(jit([](Array v) { return cumsum(v)[9]; }));
  const double least = compiled(jit([](Array v) { return max(exp(-v - 2.0)); }));
  const double last = compiled(jit([](Array v) { return sort(-v)[0] * -1.0; }));
  const CacheStats stats = cache_stats();
  std::fprintf(stderr, "%d found, %d not\n", static_cast<int>(stats.hits), static_cast<int>(stats.misses));
  std::fprintf(stderr, "%g %g %g %g %g\n", cubes, squares, plain, least, last);
}

TEST_CASE("sixteen processes share a cache that is damaged while some are killed, and find what was stored or nothing" *
          doctest::test_suite("full")) {
  const std::string at = tests::empty_folder("cache_torture");
  share_and_kill(at, 100, 40);
  check_usable(at);
}

TEST_CASE("programs over a cache that is damaged meanwhile get their numbers" * doctest::test_suite("full")) {
  run_and_damage(tests::empty_folder("cache_torture_programs"), 16, 4);
}

TEST_CASE("the same for minutes" * doctest::test_suite("soak")) {
  const std::string at = tests::empty_folder("cache_torture");
  for (int round = 0; round < 5; ++round) {
    share_and_kill(at, 300, 200);
    check_usable(at);
  }
  run_and_damage(tests::empty_folder("cache_torture_programs"), 200, 16);
}
