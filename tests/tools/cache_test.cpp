// `sheaf cache` as a process, over folders of its own.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/cache_folder.h"
#include "tests/environment.h"
#include "tests/places.h"
#include "tests/runtime/cache_folders.h"
#include "tests/tools/ran.h"

using namespace sheaf;

namespace {

namespace fs = std::filesystem;

tests::Ran cache(const std::string& arguments) { return tests::ran(SHEAF_BINARY_DIR "/sheaf cache " + arguments); }

std::string said(const std::string& arguments) {
  const tests::Ran ran = cache(arguments);
  CHECK(ran.status == 2);
  return ran.text;
}

std::string done(const std::string& arguments) {
  const tests::Ran ran = cache(arguments);
  CHECK(ran.status == 0);
  return ran.text;
}

const std::string kFolder = SHEAF_BINARY_DIR "/tool_cache", kOther = SHEAF_BINARY_DIR "/tool_cache_other",
                  kPack = SHEAF_BINARY_DIR "/tool_cache.pack", kProgram = SHEAF_BINARY_DIR "/tool_cache.sheaf";

/// Both folders empty, and a file with two functions of one kernel each.
void start() {
  fs::remove_all(kFolder);
  fs::remove_all(kOther);
  fs::remove(kPack);
  tests::write(kProgram,
               "func @f(%x: f32[100]) -> f32[100] {\n  %0: f32[100] = exp %x\n  return %0\n}\n"
               "func @g(%x: f32[3]) -> f32[3] {\n  %0: f32[3] = log %x\n  return %0\n}\n");
}

std::vector<std::string> paths(const std::string& folder) {
  std::vector<std::string> all;
  for (const runtime::CacheFile& file : runtime::CacheFolder(folder).list()) all.push_back(file.path);
  return all;
}

}  // namespace

TEST_CASE("build compiles what is not there; list, stats and verify tell what is") {
  start();
  const tests::Variable here("SHEAF_CACHE_DIR", kFolder);
  CHECK(done("build " + kProgram) == kFolder + ": 2 programs, 2 kernels compiled, 0 were there\n");
  CHECK(done("build " + kProgram) == kFolder + ": 2 programs, 0 kernels compiled, 2 were there\n");
  CHECK(done("verify") == kFolder + ": 2 of 2 entries are whole\n");
  const std::string lines = done("list");
  CHECK(lines.find("object   ") == 0);
  CHECK(lines.find(" exp_") != std::string::npos);
  CHECK(lines.find(" log_") != std::string::npos);
  CHECK(lines.find(" for x86-64") != std::string::npos);
  CHECK(lines.find(" by llvm-") != std::string::npos);
  const std::string sums = done("stats");
  CHECK(sums.starts_with(kFolder + "\nobject            2 "));
  CHECK(sums.find(" bytes\nall               2 ") != std::string::npos);
  CHECK(sums.ends_with(" bytes\nlimit                   1073741824 bytes\n"));
}

TEST_CASE("a cache that no process has made yet has no entries, and asking makes none") {
  start();
  const tests::Variable here("SHEAF_CACHE_DIR", kFolder);
  CHECK(done("stats") == kFolder +
                             "\nall               0              0 bytes\n"
                             "limit                   1073741824 bytes\n");
  CHECK(done("list").empty());
  CHECK(done("verify") == kFolder + ": 0 of 0 entries are whole\n");
  CHECK(!fs::exists(kFolder));
}

TEST_CASE("build for a GPU needs none, and leaves what a process on one loads") {
  start();
  const tests::Variable here("SHEAF_CACHE_DIR", kFolder),
      nvrtc("SHEAF_LIBNVRTC", SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so");
  CHECK(done("build --target=sm_90a " + kProgram) == kFolder + ": 2 programs, 2 kernels compiled, 0 were there\n");
  const tests::Variable none("SHEAF_LIBNVRTC", "/nowhere/libnvrtc.so");
  CHECK(done("build --target=sm_90 " + kProgram) == kFolder + ": 2 programs, 0 kernels compiled, 2 were there\n");
}

TEST_CASE("build compiles what a manifest tells of, for the CPU and for a GPU") {
  start();
  const std::string manifest = SHEAF_BINARY_DIR "/tool_cache.manifest";
  fs::remove(manifest);
  {
    const tests::Variable off("SHEAF_CACHE_DIR", "off"), record("SHEAF_MANIFEST", manifest);
    REQUIRE(std::system((SHEAF_BINARY_DIR "/sheaf run " + kProgram + " > /dev/null").c_str()) == 0);
  }
  const tests::Variable here("SHEAF_CACHE_DIR", kFolder),
      nvrtc("SHEAF_LIBNVRTC", SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so");
  CHECK(done("build " + manifest).ends_with(kFolder + ": 1 programs, 1 kernels compiled, 0 were there\n"));
  CHECK(done("build " + manifest + " " + kProgram)
            .ends_with(kFolder + ": 3 programs, 1 kernels compiled, 1 were there\n"));
  CHECK(done("build --target=sm_90a " + manifest).ends_with(": 1 programs, 1 kernels compiled, 0 were there\n"));
}

TEST_CASE("build refuses a manifest that is empty or cut off and a file without a function, and names the file") {
  start();
  const tests::Variable here("SHEAF_CACHE_DIR", kFolder);
  const std::string manifest = SHEAF_BINARY_DIR "/tool_cache_cut.manifest";
  tests::write(manifest, "");
  CHECK(said("build " + manifest) == "sheaf: " + manifest + ": it is empty\n");
  tests::write(manifest, "\n");
  CHECK(said("build " + manifest) == "sheaf: " + manifest + ": holds no function\n");
  tests::write(manifest, "sheaf manifest 1\nprogram 0 5\nab");
  CHECK(said("build " + manifest) == "sheaf: warm: " + manifest + ": program 1: it is cut off after 2 of 5 bytes\n");
}

TEST_CASE("what is damaged is named by verify and pack, and left out of a pack") {
  start();
  const tests::Variable here("SHEAF_CACHE_DIR", kFolder);
  done("build " + kProgram);
  const std::string damaged = paths(kFolder).at(0), name = fs::path(damaged).stem();
  fs::resize_file(damaged, fs::file_size(damaged) - 1);
  const std::string told = damaged + ": object " + name + " is damaged\n";
  const tests::Ran verified = cache("verify");
  CHECK(verified.status == 1);
  CHECK(verified.text == told + kFolder + ": 1 of 2 entries are whole\n");
  CHECK(done("pack " + kPack) == told + kPack + ": 1 entries\n");
  CHECK(done("list").find("damaged, or of another version") != std::string::npos);
  CHECK(done("build " + kProgram).ends_with(": 2 programs, 1 kernels compiled, 1 were there\n"));
}

TEST_CASE("a pack serves as a second place, and unpacked it is the folder again") {
  start();
  {
    const tests::Variable here("SHEAF_CACHE_DIR", kFolder);
    done("build " + kProgram);
    CHECK(done("pack " + kPack) == kPack + ": 2 entries\n");
  }
  CHECK(done("verify " + kPack) == kPack + ": 2 of 2 entries are whole\n");
  CHECK(done("stats " + kPack).starts_with(kPack + "\nobject            2 "));
  CHECK(done("unpack " + kPack + " " + kOther) == kOther + ": 2 entries\n");
  for (const std::string& path : paths(kFolder))
    CHECK(tests::contents(path) == tests::contents(kOther + path.substr(kFolder.size())));
  fs::remove_all(kOther);
  const tests::Variable here("SHEAF_CACHE_DIR", kOther), shipped("SHEAF_CACHE_READONLY", kPack);
  CHECK(done("build " + kProgram).ends_with(": 2 programs, 0 kernels compiled, 2 were there\n"));
  CHECK(!fs::exists(kOther));
}

TEST_CASE("purge deletes all, or down to a size") {
  start();
  const tests::Variable here("SHEAF_CACHE_DIR", kFolder);
  done("build " + kProgram);
  CHECK(done("purge --to=1G") == kFolder + ": 0 bytes deleted\n");
  CHECK(paths(kFolder).size() == 2);
  CHECK(done("purge").starts_with(kFolder + ": "));
  CHECK(paths(kFolder).empty());
}

TEST_CASE("what cannot be done with a cache is said in one line") {
  start();
  const tests::Variable off("SHEAF_CACHE_DIR", "off");
  const std::string there = ": there are build, list, pack, purge, stats, unpack, verify; see sheaf cache --help\n";
  CHECK(said("") == "sheaf: cache takes a command" + there);
  CHECK(said("clear") == "sheaf: no command 'cache clear'" + there);
  CHECK(said("list --all") == "sheaf: unknown option --all; see sheaf cache --help\n");
  CHECK(said("list") == "sheaf: no folder is used as a cache here, and none was named\n");
  CHECK(said("list a b") == "sheaf: one place at a time: a and b\n");
  CHECK(said("list /nowhere") == "sheaf: /nowhere: No such file or directory\n");
  CHECK(said("stats " + kProgram) == "sheaf: " + kProgram + ": it is no pack of this version of Sheaf\n");
  CHECK(said("purge --to=much a") == "sheaf: --to: 'much' is not a size: a number of bytes, or one with K, M or G\n");
  CHECK(said("purge " + kProgram) == "sheaf: " + kProgram + ": it is no folder\n");
  CHECK(said("build") == "sheaf: no FILE; see sheaf cache --help\n");
  CHECK(said("build " + kProgram) == "sheaf: no folder is used as a cache here, and none was named\n");
  CHECK(said("pack") == "sheaf: no FILE; see sheaf cache --help\n");
  CHECK(said("unpack " + kPack + " " + kOther) == "sheaf: " + kPack + ": No such file or directory\n");
  const tests::Variable here("SHEAF_CACHE_DIR", kFolder);
  CHECK(said("build /nowhere.sheaf") == "sheaf: /nowhere.sheaf: No such file or directory\n");
  CHECK(said("build --target=sm_x " + kProgram) ==
        "sheaf: --target: 'sm_x' is no target: cpu, or the architecture of a GPU, such as sm_90a\n");
  const tests::Variable bad("SHEAF_CACHE_DIR", "/dev/null/cache");
  const std::string text = said("build " + kProgram);
  CHECK(text.find("sheaf: not all was kept: the cache cannot be written, so other processes compile this again: ") !=
        std::string::npos);
  CHECK(done("--help").starts_with("sheaf cache: looks after compiled kernels on disk\n"));
}
