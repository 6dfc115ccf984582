// A folder of checksummed files: what comes back is what was stored, or nothing, whatever happens to the files.
#include "runtime/disk_cache.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "codegen/fingerprint.h"
#include "ir/log.h"

using namespace sheaf;
using runtime::DiskCache;

namespace {

namespace fs = std::filesystem;

/// Empty at the beginning of each case.
std::string folder() {
  const std::string path = SHEAF_BINARY_DIR "/disk_cache_test";
  fs::remove_all(path);
  return path;
}

const std::string kKey = codegen::fingerprint("a key"), kOther = codegen::fingerprint("another");

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::vector<std::string> lines_of(const std::function<void()>& f) {
  std::vector<std::string> lines;
  ir::LogSink before = ir::set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  f();
  ir::set_log_sink(before);
  return lines;
}

}  // namespace

TEST_CASE("what was stored comes back, in this process and in the next") {
  const std::string at = folder();
  DiskCache cache(at);
  CHECK(!cache.find("cubin", kKey));
  const std::string bytes("\0\n\nbytes\xff", 9);
  cache.store("cubin", kKey, bytes);
  CHECK(cache.find("cubin", kKey) == bytes);
  CHECK(DiskCache(at).find("cubin", kKey) == bytes);
  CHECK(!cache.find("kernel", kKey));
  cache.store("cubin", kKey, "");
  CHECK(cache.find("cubin", kKey) == "");
}

TEST_CASE("a file says what it is in three lines, and nothing else is left in the folder") {
  DiskCache cache(folder());
  cache.store("kernel", kKey, "abc");
  const std::string path = cache.path_of("kernel", kKey);
  CHECK(contents(path) == "sheaf cache 1\nkernel " + kKey + "\n3 bytes, " + codegen::fingerprint("abc") + "\nabc");
  for (const auto& entry : fs::directory_iterator(fs::path(path).parent_path())) CHECK(entry.path() == path);
}

TEST_CASE("a file that was cut, lengthened, changed, renamed or written by another version is not there") {
  DiskCache cache(folder());
  cache.store("kernel", kKey, "the bytes of a kernel");
  const std::string path = cache.path_of("kernel", kKey), whole = contents(path);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(path, whole.substr(0, length));
    CHECK(!cache.find("kernel", kKey));
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] ^= 1;
    write(path, changed);
    CHECK(!cache.find("kernel", kKey));
  }
  write(path, whole + "x");
  CHECK(!cache.find("kernel", kKey));
  fs::create_directories(fs::path(cache.path_of("kernel", kOther)).parent_path());
  write(cache.path_of("kernel", kOther), whole);
  CHECK(!cache.find("kernel", kOther));
  write(cache.path_of("cubin", kKey), whole);
  CHECK(!cache.find("cubin", kKey));
  cache.store("kernel", kKey, "the bytes of a kernel");  // takes the place of the bad one
  CHECK(cache.find("kernel", kKey) == "the bytes of a kernel");
}

TEST_CASE("a folder that cannot be made is one warning") {
  DiskCache cache("/dev/null/cache");
  const auto lines = lines_of([&] {
    cache.store("kernel", kKey, "abc");
    cache.store("kernel", kOther, "abc");
  });
  CHECK(lines ==
        std::vector<std::string>{"sheaf warning: the cache cannot be written, so other processes compile this again: " +
                                 cache.path_of("kernel", kKey) + ": Not a directory"});
  CHECK(!cache.find("kernel", kKey));
}

TEST_CASE("a file that cannot take its place is one warning, and leaves nothing behind") {
  DiskCache cache(folder());
  cache.store("kernel", kKey, "abc");
  const std::string path = cache.path_of("kernel", kKey);
  fs::remove(path);
  fs::create_directory(path);
  const auto lines = lines_of([&] { cache.store("kernel", kKey, "abc"); });
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "sheaf warning: the cache cannot be written, so other processes compile this again: " + path +
                        ": Is a directory");
  CHECK(std::distance(fs::directory_iterator(fs::path(path).parent_path()), fs::directory_iterator()) == 1);
  CHECK(!cache.find("kernel", kKey));
}

TEST_CASE("what is no file is not there, and is neither read without end nor waited for") {
  DiskCache cache(folder());
  cache.store("kernel", kKey, "abc");
  const std::string path = cache.path_of("kernel", kKey);
  fs::rename(path, path + ".elsewhere");
  fs::create_symlink(path + ".elsewhere", path);
  CHECK(cache.find("kernel", kKey) == "abc");
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);
  CHECK(!cache.find("kernel", kKey));
  fs::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(!cache.find("kernel", kKey));
  cache.store("kernel", kKey, "abc");
  CHECK(cache.find("kernel", kKey) == "abc");
}

TEST_CASE("threads that store and find the same see all of it or nothing") {
  const std::string at = folder(), bytes(100'000, 'k');
  std::atomic<int> torn{0}, found{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      DiskCache cache(at);
      for (int i = 0; i < 20; ++i) {
        if (const auto read = cache.find("kernel", kKey)) (*read == bytes ? found : torn)++;
        cache.store("kernel", kKey, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(torn == 0);
  CHECK(found > 0);
}
