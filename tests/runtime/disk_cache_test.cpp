// A folder of checksummed files: what comes back is what was stored, or nothing, whatever happens to the files.
#include "runtime/disk_cache.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <thread>
#include <vector>

#include "codegen/fingerprint.h"
#include "runtime/cache_entry.h"
#include "runtime/cache_pack.h"
#include "tests/child.h"
#include "tests/full_disk.h"
#include "tests/places.h"
#include "tests/runtime/cache_folders.h"

using namespace sheaf;
using runtime::CacheFolder;
using runtime::DiskCache;
using tests::contents;
using tests::lines_of;
using tests::write;

namespace {

namespace fs = std::filesystem;

std::string folder() { return tests::empty_folder("disk_cache_test"); }

const std::string kKey = codegen::fingerprint("a key"), kOther = codegen::fingerprint("another");

/// "nothing" if there is nothing.
std::string found(DiskCache& cache, const std::string& kind, const std::string& key) {
  const auto read = cache.find(kind, key);
  return read ? read->bytes : "nothing";
}

void set_time(const std::string& path, std::int64_t seconds_ago) {
  const timespec then{std::time(nullptr) - seconds_ago, 0};
  const timespec times[] = {then, then};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

std::int64_t seconds_since_use(const std::string& path) {
  struct stat s;
  REQUIRE(stat(path.c_str(), &s) == 0);
  return std::time(nullptr) - s.st_mtime;
}

const std::string kCannotWrite = "sheaf warning: the cache cannot be written, so other processes compile this again: ";

}  // namespace

TEST_CASE("what was stored comes back, in this process and in the next") {
  const std::string at = folder();
  DiskCache cache({.folder = at});
  CHECK(found(cache, "cubin", kKey) == "nothing");
  const std::string bytes("\0\n\nbytes\xff", 9);
  cache.store("cubin", kKey, "two\nlines", bytes);
  CHECK(found(cache, "cubin", kKey) == bytes);
  DiskCache next({.folder = at});
  CHECK(found(next, "cubin", kKey) == bytes);
  CHECK(found(cache, "kernel", kKey) == "nothing");
  cache.store("cubin", kKey, "", "");
  CHECK(found(cache, "cubin", kKey).empty());
}

TEST_CASE("a file says what it is in four lines, is its owner's alone, and nothing else is left beside it") {
  const std::string at = folder();
  DiskCache cache({.folder = at});
  cache.store("kernel", kKey, "exp for sm_90a", "abc");
  const std::string path = CacheFolder(at).path_of("kernel", kKey),
                    lines = "sheaf cache 2\nkernel " + kKey + "\nexp for sm_90a\n";
  CHECK(contents(path) == lines + "3 bytes, " + codegen::fingerprint(lines + codegen::fingerprint("abc")) + "\nabc");
  for (const auto& entry : fs::directory_iterator(fs::path(path).parent_path())) CHECK(entry.path() == path);
  CHECK(fs::status(path).permissions() == fs::perms(0600));
  CHECK(fs::status(at).permissions() == fs::perms(0700));
  CHECK(fs::status(fs::path(path).parent_path()).permissions() == fs::perms(0700));
}

TEST_CASE("a file that was cut, lengthened, changed or renamed is not there, which is one warning") {
  const std::string at = folder();
  DiskCache cache({.folder = at});
  cache.store("kernel", kKey, "about", "the bytes of a kernel");
  const CacheFolder files(at);
  const std::string path = files.path_of("kernel", kKey), whole = contents(path);
  const auto lines = lines_of([&] {
    for (std::size_t length = 0; length < whole.size(); ++length) {
      write(path, whole.substr(0, length));
      CHECK(found(cache, "kernel", kKey) == "nothing");
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string changed = whole;
        changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
        write(path, changed);
        CHECK(found(cache, "kernel", kKey) == "nothing");
      }
    }
    write(path, whole + "x");
    CHECK(found(cache, "kernel", kKey) == "nothing");
    write(path, std::string(whole.size(), '\0'));
    CHECK(found(cache, "kernel", kKey) == "nothing");
    write(files.path_of("kernel", kOther), whole);
    CHECK(found(cache, "kernel", kOther) == "nothing");
    write(files.path_of("cubin", kKey), whole);
    CHECK(found(cache, "cubin", kKey) == "nothing");
  });
  CHECK(lines == std::vector<std::string>{"sheaf warning: " + path + " is damaged in the cache, and compiled anew"});
  CHECK(cache.stats().trouble == path + " is damaged in the cache, and compiled anew");
  cache.store("kernel", kKey, "about", "the bytes of a kernel");  // takes the place of the bad one
  CHECK(found(cache, "kernel", kKey) == "the bytes of a kernel");
}

TEST_CASE("a file of another version of the format is not there, and no damage") {
  const std::string at = folder();
  DiskCache cache({.folder = at});
  write(CacheFolder(at).path_of("kernel", kKey), "sheaf cache 1\nkernel " + kKey + "\n0 bytes, 0\n");
  CHECK(lines_of([&] { CHECK(found(cache, "kernel", kKey) == "nothing"); }).empty());
  CHECK(cache.stats().damaged == 0);
}

TEST_CASE("a folder that cannot be made is one warning") {
  DiskCache cache({.folder = "/dev/null/cache"});
  const auto lines = lines_of([&] {
    cache.store("kernel", kKey, "", "abc");
    cache.store("kernel", kOther, "", "abc");
  });
  CHECK(lines == std::vector<std::string>{kCannotWrite + CacheFolder("/dev/null/cache").path_of("kernel", kKey) +
                                          ": Not a directory"});
  CHECK(found(cache, "kernel", kKey) == "nothing");
}

TEST_CASE("a file that cannot take its place is one warning, and leaves nothing behind") {
  const std::string at = folder();
  DiskCache cache({.folder = at});
  const std::string path = CacheFolder(at).path_of("kernel", kKey);
  fs::create_directories(path);
  const auto lines = lines_of([&] { cache.store("kernel", kKey, "", "abc"); });
  CHECK(lines == std::vector<std::string>{kCannotWrite + path + ": Is a directory"});
  CHECK(std::distance(fs::directory_iterator(fs::path(path).parent_path()), fs::directory_iterator()) == 1);
  CHECK(found(cache, "kernel", kKey) == "nothing");
}

TEST_CASE("a disk that takes a part of a file and no more is one warning, and leaves nothing behind") {
  const std::string at = folder(), path = CacheFolder(at).path_of("kernel", kKey);
  DiskCache cache({.folder = at});
  const auto lines = lines_of([&] {
    const tests::FullDisk disk(1000);
    cache.store("kernel", kKey, "", std::string(5000, 'x'));
  });
  CHECK(lines == std::vector<std::string>{kCannotWrite + path + ": File too large"});
  CHECK(fs::is_empty(fs::path(path).parent_path()));
  CHECK(found(cache, "kernel", kKey) == "nothing");
  cache.store("kernel", kKey, "", std::string(5000, 'x'));
  CHECK(found(cache, "kernel", kKey) == std::string(5000, 'x'));
}

TEST_CASE("what is no file is not there, and is neither read without end nor waited for") {
  const std::string at = folder();
  DiskCache cache({.folder = at});
  cache.store("kernel", kKey, "", "abc");
  const std::string path = CacheFolder(at).path_of("kernel", kKey);
  fs::rename(path, path + ".elsewhere");
  fs::create_symlink(path + ".elsewhere", path);
  CHECK(found(cache, "kernel", kKey) == "abc");
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);
  CHECK(found(cache, "kernel", kKey) == "nothing");
  fs::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(found(cache, "kernel", kKey) == "nothing");
  cache.store("kernel", kKey, "", "abc");
  CHECK(found(cache, "kernel", kKey) == "abc");
  fs::resize_file(path, std::uintmax_t{1} << 40);  // a hole, longer than memory
  CHECK(found(cache, "kernel", kKey) == "nothing");
}

TEST_CASE("threads that store and find the same see all of it or nothing") {
  const std::string at = folder(), bytes(100'000, 'k');
  std::atomic<int> torn{0}, whole{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      DiskCache cache({.folder = at});
      for (int i = 0; i < 20; ++i) {
        if (const auto read = cache.find("kernel", kKey)) (read->bytes == bytes ? whole : torn)++;
        cache.store("kernel", kKey, "", bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(torn == 0);
  CHECK(whole > 0);
}

// ---- whom it trusts ----

TEST_CASE("a folder that others can write is one warning, and neither read nor written") {
  const std::string at = folder();
  DiskCache({.folder = at}).store("kernel", kKey, "", "abc");
  const auto before = std::distance(fs::recursive_directory_iterator(at), fs::recursive_directory_iterator());
  fs::permissions(at, fs::perms(0777));
  const auto lines = lines_of([&] {
    DiskCache cache({.folder = at});
    CHECK(found(cache, "kernel", kKey) == "nothing");
    cache.store("kernel", kOther, "", "abc");
    CHECK(cache.stats().folder.empty());
    CHECK(cache.stats().not_stored == 1);
  });
  CHECK(lines == std::vector<std::string>{"sheaf warning: " + at +
                                          " is not used as a cache: others can write there (its mode "
                                          "is 777); chmod go-w ends that"});
  CHECK(std::distance(fs::recursive_directory_iterator(at), fs::recursive_directory_iterator()) == before);
  fs::permissions(at, fs::perms(0755));
  DiskCache cache({.folder = at});
  CHECK(found(cache, "kernel", kKey) == "abc");
}

TEST_CASE("a file that others can write is not there") {
  const std::string at = folder();
  DiskCache cache({.folder = at});
  cache.store("kernel", kKey, "", "abc");
  fs::permissions(CacheFolder(at).path_of("kernel", kKey), fs::perms(0622));
  CHECK(found(cache, "kernel", kKey) == "nothing");
}

TEST_CASE("a folder of another user is one warning, a file of one is not there; root's are as good as one's own") {
  if (geteuid() != 0) return;  // nobody else can make files for another user
  char at[] = "/tmp/sheaf_disk_cache_test_XXXXXX";
  REQUIRE(mkdtemp(at));
  const std::string path = CacheFolder(at).path_of("kernel", kKey);
  DiskCache cache({.folder = at});
  cache.store("kernel", kKey, "", "abc");
  REQUIRE(chown(path.c_str(), 12345, 12345) == 0);
  CHECK(found(cache, "kernel", kKey) == "nothing");
  REQUIRE(chown(at, 12345, 12345) == 0);
  CHECK(lines_of([&] { CHECK(DiskCache({.folder = at}).stats().folder.empty()); }) ==
        std::vector<std::string>{"sheaf warning: " + std::string(at) +
                                 " is not used as a cache: it belongs to user 12345, and this process is user 0's"});
  REQUIRE(chown(at, 0, 0) == 0);
  REQUIRE(chown(path.c_str(), 0, 0) == 0);
  fs::permissions(at, fs::perms(0755));
  fs::permissions(fs::path(path).parent_path(), fs::perms(0755));
  fs::permissions(path, fs::perms(0644));
  CHECK(tests::holds_for_ordinary_user([&] {
    DiskCache of_user({.folder = at});
    return found(of_user, "kernel", kKey) == "abc";
  }));
  fs::remove_all(at);
}

TEST_CASE("a folder that may only be read is read, and is one warning when something is to be stored") {
  char made[] = "/tmp/sheaf_disk_cache_test_XXXXXX";
  REQUIRE(mkdtemp(made));
  const std::string at = made, path = CacheFolder(at).path_of("kernel", kKey);
  DiskCache({.folder = at}).store("kernel", kKey, "", "abc");
  if (geteuid() == 0)
    for (const std::string& p : {at, std::string(fs::path(path).parent_path()), path})
      REQUIRE(chown(p.c_str(), 65534, 65534) == 0);
  fs::permissions(fs::path(path).parent_path(), fs::perms(0555));
  fs::permissions(at, fs::perms(0555));
  CHECK(tests::holds_for_ordinary_user([&] {
    bool is_read = false;
    const auto lines = lines_of([&] {
      DiskCache cache({.folder = at});
      is_read = found(cache, "kernel", kKey) == "abc";
      for (int i = 0; i < 300; ++i) cache.store("kernel", tests::key_of(i), "", "abc");
      is_read = is_read && cache.stats().not_stored == 300;
    });
    return is_read &&
           lines == std::vector<std::string>{kCannotWrite + CacheFolder(at).path_of("kernel", tests::key_of(0)) +
                                             ": Permission denied"};
  }));
  fs::permissions(at, fs::perms(0755));
  fs::permissions(fs::path(path).parent_path(), fs::perms(0755));
  fs::remove_all(at);
}

// ---- how much it keeps ----

TEST_CASE("what is found is marked as used, once an hour at most") {
  const std::string at = folder(), path = CacheFolder(at).path_of("kernel", kKey);
  DiskCache cache({.folder = at});
  cache.store("kernel", kKey, "", "abc");
  set_time(path, 3500);
  CHECK(found(cache, "kernel", kKey) == "abc");
  CHECK(seconds_since_use(path) >= 3500);
  set_time(path, 3700);
  CHECK(found(cache, "kernel", kKey) == "abc");
  CHECK(seconds_since_use(path) < 100);
}

TEST_CASE("a use that is to come was one by a clock that was wrong, and counts as long ago") {
  const std::string at = folder();
  const CacheFolder files(at);
  DiskCache cache({.folder = at});
  const std::string read = files.path_of("kernel", kKey), unread = files.path_of("kernel", kOther);
  cache.store("kernel", kKey, "", "abc");
  cache.store("kernel", kOther, "", std::string(9000, 'x'));
  for (const std::string& path : {read, unread, unread + ".1.2.3.new"})
    write(path, contents(path)), set_time(path, -90'000);
  CHECK(found(cache, "kernel", kKey) == "abc");
  CHECK(std::abs(seconds_since_use(read)) < 100);
  CHECK(files.sweep(8000) > 9000);
  CHECK(fs::exists(read));
  CHECK(!fs::exists(unread));
  CHECK(!fs::exists(unread + ".1.2.3.new"));
}

TEST_CASE("beyond the limit those go that were used longest ago, down to four fifths") {
  const std::string at = folder();
  const CacheFolder files(at);
  DiskCache cache({.folder = at, .limit_bytes = 1 << 20});
  for (int i = 0; i < 10; ++i) {
    cache.store("object", tests::key_of(i), "", std::string(98'000, 'x'));  // 24 blocks of the disk
    set_time(files.path_of("object", tests::key_of(i)), 5000 + 10 * ((i + 5) % 10));  // 4 was used longest ago
  }
  CHECK(cache.stats().swept_bytes == 0);
  CHECK(found(cache, "object", tests::key_of(4)) != "nothing");  // now 3 was
  cache.store("object", tests::key_of(10), "", std::string(98'000, 'x'));
  for (int i = 0; i <= 10; ++i) CHECK(fs::exists(files.path_of("object", tests::key_of(i))) == (i < 1 || i > 3));
  CHECK(cache.stats().swept_bytes >= 3 * 98'000);
}

TEST_CASE("however much is stored in one go, little more than the limit is there at any time") {
  const std::string at = folder();
  DiskCache cache({.folder = at, .limit_bytes = 1 << 20});
  for (int i = 0; i < 100; ++i) {
    cache.store("object", tests::key_of(i), "", std::string(50'000, 'x'));
    std::int64_t total = 0;
    for (const runtime::CacheFile& file : CacheFolder(at).list()) total += file.bytes;
    CHECK(total < (1 << 20) * 12 / 10);
  }
  CHECK(found(cache, "object", tests::key_of(99)) != "nothing");
}

TEST_CASE("files that nobody has come to finish go after ten minutes, and what is not the cache's stays") {
  const std::string at = folder();
  const CacheFolder files(at);
  files.write("kernel", kKey, "x").IgnoreError();
  const std::string old = files.path_of("kernel", kKey) + ".1.2.3.new",
                    young = files.path_of("kernel", kKey) + ".1.2.4.new";
  const std::vector<std::string> foreign = {at + "/letter.txt",          at + "/ab/letter.txt",
                                            at + "/ab/" + kKey,          at + "/ab/" + kKey + ".TXT",
                                            at + "/" + kKey + ".kernel", at + "/abc/" + kKey + ".kernel"};
  for (const std::string& path : foreign) write(path, "x"), set_time(path, 100'000);
  write(old, "x"), set_time(old, 700);
  write(young, "x"), set_time(young, 500);
  CHECK(files.sweep(0) > 0);
  CHECK(!fs::exists(files.path_of("kernel", kKey)));
  CHECK(!fs::exists(old));
  CHECK(fs::exists(young));
  for (const std::string& path : foreign) CHECK(fs::exists(path));
}

TEST_CASE("of all processes one sweeps, every hour") {
  const std::string at = folder();
  const CacheFolder files(at);
  CHECK(files.claim_sweep());
  CHECK(!files.claim_sweep());
  set_time(at + "/swept", 3700);
  CHECK(CacheFolder(at).claim_sweep());
  set_time(at + "/swept", -3700);  // a clock that was wrong
  CHECK(files.claim_sweep());
}

// ---- the second place ----

TEST_CASE("what is not in the folder is looked for in a second one, or in a pack, which are never written") {
  const std::string at = folder(), shipped = tests::empty_folder("disk_cache_test_shipped"), pack = shipped + ".pack";
  DiskCache({.folder = shipped}).store("kernel", kKey, "", "shipped");
  tests::write(pack, runtime::to_pack({contents(CacheFolder(shipped).path_of("kernel", kKey))}));
  for (const std::string& second : {shipped, pack}) {
    DiskCache cache({.folder = tests::empty_folder("disk_cache_test"), .read_only = second});
    CHECK(found(cache, "kernel", kKey) == "shipped");
    CHECK(cache.find("kernel", kKey)->path == (second == pack ? pack : CacheFolder(shipped).path_of("kernel", kKey)));
    CHECK(found(cache, "kernel", kOther) == "nothing");
    cache.store("kernel", kOther, "", "own");
    CHECK(found(cache, "kernel", kOther) == "own");
    cache.store("kernel", kKey, "", "newer");
    CHECK(found(cache, "kernel", kKey) == "newer");
    const CacheStats stats = cache.stats();
    CHECK(stats.folder == at);
    CHECK(stats.read_only == second);
    CHECK(stats.hits == 4);
    CHECK(stats.hits_read_only == 2);
    CHECK(stats.misses == 1);
    CHECK(stats.stored == 2);
    CHECK(stats.trouble.empty());
    DiskCache alone({.read_only = second});
    CHECK(found(alone, "kernel", kKey) == "shipped");
    CHECK(lines_of([&] { alone.store("kernel", kKey, "", "x"); }).empty());
    CHECK(alone.stats().not_stored == 1);
  }
}

TEST_CASE("an entry of a pack that was changed or lies beyond its end is damaged, which is one warning with its name") {
  const std::string pack = SHEAF_BINARY_DIR "/disk_cache_damaged.pack";
  const auto entry = [](const std::string& key) {
    return runtime::to_text({"kernel", key, "about", "the bytes of a kernel"});
  };
  const std::string whole = runtime::to_pack({entry(kKey), entry(kOther)});
  const std::string last = std::max(kKey, kOther), first = std::min(kKey, kOther);
  std::string flipped = whole;
  flipped.back() = 'x';
  for (const std::string& text : {flipped, whole.substr(0, whole.size() - 1)}) {
    write(pack, text);
    DiskCache cache({.read_only = pack});
    const auto lines = lines_of([&] {
      CHECK(found(cache, "kernel", last) == "nothing");
      CHECK(found(cache, "kernel", last) == "nothing");
      CHECK(found(cache, "kernel", first) == "the bytes of a kernel");
      CHECK(found(cache, "cubin", first) == "nothing");
    });
    CHECK(lines == std::vector<std::string>{"sheaf warning: " + pack + " is damaged: its entry kernel " + last +
                                            " is compiled anew, and not mended there, because SHEAF_CACHE_READONLY is "
                                            "only read"});
    CHECK(cache.stats().damaged == 2);
    CHECK(cache.stats().misses == 3);
  }
}

TEST_CASE("a pack that is cut off within its table is damaged, which is one warning") {
  const std::string pack = SHEAF_BINARY_DIR "/disk_cache_damaged.pack";
  const std::string whole = runtime::to_pack({runtime::to_text({"kernel", kKey, "about", "bytes"})});
  for (const std::size_t length : {34, 60, 102}) {
    write(pack, whole.substr(0, length));
    std::int64_t damaged = 0;
    const auto lines = lines_of([&] { damaged = DiskCache({.read_only = pack}).stats().damaged; });
    CHECK(lines == std::vector<std::string>{"sheaf warning: " + pack +
                                            " is not used as a second cache: it is damaged: cut off within its table "
                                            "of 1 entries"});
    CHECK(damaged == 1);
  }
}

TEST_CASE("a second place that is not there, or no pack, is one warning") {
  const auto said = [](const std::string& path) { return lines_of([&] { DiskCache({.read_only = path}); }); };
  const std::string file = SHEAF_BINARY_DIR "/disk_cache_test.pack";
  CHECK(said("/nowhere/cache.pack") ==
        std::vector<std::string>{
            "sheaf warning: /nowhere/cache.pack is not used as a second cache: No such file or directory"});
  fs::remove(file);
  write(file, "sheaf pack 9\n");
  CHECK(said(file) ==
        std::vector<std::string>{"sheaf warning: " + file +
                                 " is not used as a second cache: it is no pack of this version of Sheaf"});
  fs::permissions(file, fs::perms(0666));
  CHECK(said(file) == std::vector<std::string>{"sheaf warning: " + file +
                                               " is not used as a second cache: others can write there (its mode is "
                                               "666); chmod go-w ends that"});
}

// ---- the environment ----

TEST_CASE("[disk cache] a program" * doctest::skip()) {
  const CacheStats stats = cache_stats();
  std::fprintf(stderr, "%s|%s\n", stats.folder.c_str(), stats.read_only.c_str());
}

TEST_CASE("the folder is the one that the environment names, or the user's, or none") {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const auto said = [](const Variables& variables) { return tests::said_by_child("disk cache", variables); };
  const auto off = std::pair<std::string, std::string>("SHEAF_CACHE_DIR", "off"),
             unset = std::pair<std::string, std::string>("SHEAF_CACHE_DIR", "");
  CHECK(said({off}) == "|\n");
  CHECK(said({{"SHEAF_CACHE_DIR", "/a/folder"}}) == "/a/folder|\n");
  CHECK(said({{"SHEAF_CACHE_DIR", "a/folder"}}) == fs::current_path().string() + "/a/folder|\n");
  CHECK(said({unset, {"XDG_CACHE_HOME", "/caches"}, {"HOME", "/home/me"}}) == "/caches/sheaf|\n");
  CHECK(said({unset, {"XDG_CACHE_HOME", "relative"}, {"HOME", "/home/me"}}) == "/home/me/.cache/sheaf|\n");
  CHECK(
      said({unset, {"XDG_CACHE_HOME", ""}, {"HOME", ""}}) ==
      "sheaf warning: what this process compiles is not kept for others, because neither HOME nor XDG_CACHE_HOME names a "
      "folder; SHEAF_CACHE_DIR can name a folder, and SHEAF_CACHE_DIR=off says that none is wanted\n|\n");
  const std::string home = tests::empty_folder("disk_cache_test_home");
  fs::create_directories(home);
  if (geteuid() == 0) {  // nobody else can give a folder away
    REQUIRE(chown(home.c_str(), 65534, 65534) == 0);
    CHECK(said({unset, {"XDG_CACHE_HOME", ""}, {"HOME", home}}) ==
          "sheaf warning: what this process compiles is not kept for others, because " + home +
              " belongs to another user; SHEAF_CACHE_DIR can name a folder, and SHEAF_CACHE_DIR=off says that none is "
              "wanted\n|\n");
    CHECK(fs::is_empty(home));
  }
  const std::string shipped = tests::empty_folder("disk_cache_test_shipped");
  fs::create_directories(shipped);
  CHECK(said({off, {"SHEAF_CACHE_READONLY", shipped}}) == "|" + shipped + "\n");
  CHECK(
      said({off, {"SHEAF_CACHE_LIMIT", "10%"}}) ==
      "sheaf warning: SHEAF_CACHE_LIMIT: '10%' is not a size: a number of bytes, or one with K, M or G; the limit is 1G\n|\n");
  CHECK(said({off, {"SHEAF_CACHE_LIMIT", "64M"}}) == "|\n");
}
