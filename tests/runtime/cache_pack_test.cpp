// One file with all entries: what is in it is found, what is damaged is not, and it is the same whoever makes it.
#include "runtime/cache_pack.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "runtime/cache_entry.h"
#include "tests/places.h"
#include "tests/runtime/cache_folders.h"

using namespace sheaf;
using namespace sheaf::runtime;

namespace {

const std::string kPath = SHEAF_BINARY_DIR "/cache_pack_test.pack";

std::string entry(int i) {
  return to_text({"object", tests::key_of(i), "about", std::string(static_cast<std::size_t>(i), 'x')});
}

/// The bytes of entry i in the pack at kPath, if they are whole.
std::optional<std::string> read(const CachePlace& pack, int i) {
  const auto file = pack.read("object", tests::key_of(i));
  const auto whole = file ? parse_entry(*file) : std::nullopt;
  if (!whole || whole->key != tests::key_of(i) || whole->kind != "object") return {};
  return std::string(whole->bytes);
}

std::string pack_of(int entries) {
  std::vector<std::string> files;
  for (int i = 0; i < entries; ++i) files.push_back(entry(i));
  return to_pack(files);
}

}  // namespace

TEST_CASE("every entry of a pack is found, and no other") {
  for (const int entries : {0, 1, 2, 3, 100}) {
    tests::write(kPath, pack_of(entries));
    const CachePlacePtr pack = *open_cache_place(kPath);
    for (int i = 0; i < entries; ++i) CHECK(read(*pack, i) == std::string(static_cast<std::size_t>(i), 'x'));
    for (int i = entries; i < entries + 50; ++i) CHECK(!read(*pack, i));
    CHECK(!pack->read("cubin", tests::key_of(0)));
    CHECK(std::ssize(pack->list()) == entries);
  }
}

TEST_CASE("a pack does not depend on the order of its entries, holds each once, and nothing that is none") {
  std::vector<std::string> files = {entry(1), entry(2), entry(3), entry(2), "no entry", entry(4).substr(1)};
  const std::string text = to_pack(files);
  std::ranges::reverse(files);
  CHECK(to_pack(files) == text);
  CHECK(text == to_pack({entry(1), entry(2), entry(3)}));
}

TEST_CASE("an entry under a key that is the way to another file is none") {
  CHECK(parse_entry(entry(1)));
  for (const char* key : {"../../../home/me/.profile", "", "0123456789abcdef0123456789abcde/"})
    CHECK(!parse_entry(to_text({"object", key, "about", "x"})));
  for (const char* kind : {"a/b", "", "Object", "..", "longerthanthat"})
    CHECK(!parse_entry(to_text({kind, tests::key_of(1), "about", "x"})));
}

TEST_CASE("of a pack that was cut or changed anywhere, what is found is right") {
  const std::string whole = pack_of(3);
  const auto check = [&](const std::string& text) {
    tests::write(kPath, text);
    const auto pack = open_cache_place(kPath);
    for (int i = 0; pack.ok() && i < 3; ++i)
      if (const auto bytes = read(**pack, i)) CHECK(*bytes == std::string(static_cast<std::size_t>(i), 'x'));
  };
  for (std::size_t length = 0; length < whole.size(); ++length) check(whole.substr(0, length));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    check(changed);
  }
}

TEST_CASE("a pack that is cut while it is open gives nothing") {
  tests::write(kPath, pack_of(10));
  const CachePlacePtr pack = *open_cache_place(kPath);
  std::filesystem::resize_file(kPath, 100);
  for (int i = 0; i < 10; ++i) CHECK(!read(*pack, i));
}

TEST_CASE("what is no pack is told") {
  tests::write(kPath, "something else");
  CHECK(std::string(open_cache_place(kPath).status().message()) == "it is no pack of this version of Sheaf");
  tests::write(kPath, "");
  CHECK(absl::IsInvalidArgument(open_cache_place(kPath).status()));
  tests::write(kPath, "sheaf pack 1\n          -5 entries\n");
  CHECK(absl::IsInvalidArgument(open_cache_place(kPath).status()));
  CHECK(absl::IsNotFound(open_cache_place("/nowhere/cache.pack").status()));
}
