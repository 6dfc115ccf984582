// The data readers: what well-formed files give, and the one sentence each malformed file gives.
#include "sheaf/data.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sheaf/error.h"

using namespace sheaf;
using namespace std::string_literals;

namespace {

// A file in a fresh folder, removed with it.
class TempFile {
 public:
  explicit TempFile(const std::string& content = {}) {
    std::string pattern = (std::filesystem::temp_directory_path() / "sheaf-data-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    std::ofstream(path(), std::ios::binary) << content;
  }
  ~TempFile() { std::filesystem::remove_all(folder_); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  std::string path() const { return (folder_ / "file").string(); }
  std::string folder() const { return folder_.string(); }
  std::string content() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::filesystem::path folder_;
};

template <class T>
std::vector<T> values(const HostArray& array) {
  std::vector<T> out(array.bytes.size() / sizeof(T));
  REQUIRE(out.size() * sizeof(T) == array.bytes.size());
  if (!out.empty()) std::memcpy(out.data(), array.bytes.data(), array.bytes.size());
  return out;
}

template <class T>
HostArray host(DType dtype, std::vector<std::int64_t> dims, std::vector<T> elements) {
  HostArray array{.dtype = dtype, .dims = std::move(dims)};
  array.bytes.resize(elements.size() * sizeof(T));
  if (!elements.empty()) std::memcpy(array.bytes.data(), elements.data(), array.bytes.size());
  return array;
}

// A version-1 file around a dict literal.
std::string npy(const std::string& dict, const std::string& elements) {
  return "\x93NUMPY\x01\x00"s + static_cast<char>(dict.size()) + '\0' + dict + elements;
}

std::string gzipped(const std::string& content) {
  TempFile out;
  gzFile file = gzopen(out.path().c_str(), "wb");
  REQUIRE(gzwrite(file, content.data(), static_cast<unsigned>(content.size())) > 0);
  gzclose(file);
  return out.content();
}

// What the reader says about a file with this content, after "data_test.cpp:LINE: reader: PATH: ".
template <class Reader>
std::string problem(Reader read, const std::string& content) {
  const TempFile file(content);
  try {
    read(file.path(), Loc::current());
  } catch (const RuntimeError& error) {
    const std::string text = error.what();
    const std::size_t at = text.find(file.path() + ": ");
    REQUIRE(at != std::string::npos);
    CHECK(text.starts_with("data_test.cpp:"));
    return text.substr(at + file.path().size() + 2);
  }
  return "(no error)";
}

const std::string kIdxU8 = "\x00\x00\x08\x02\x00\x00\x00\x02\x00\x00\x00\x03"s;

}  // namespace

TEST_CASE("read_idx reads bytes of any rank, plain and gzipped") {
  for (const bool gz : {false, true}) {
    const std::string content = kIdxU8 + "abcdef";
    const HostArray a = read_idx(TempFile(gz ? gzipped(content) : content).path());
    CHECK(a.dtype == u8);
    CHECK(a.dims == std::vector<std::int64_t>{2, 3});
    CHECK(values<char>(a) == std::vector<char>{'a', 'b', 'c', 'd', 'e', 'f'});
  }
  const HostArray scalar = read_idx(TempFile("\x00\x00\x09\x00\xff"s).path());
  CHECK(scalar.dims.empty());
  CHECK(values<std::int8_t>(scalar) == std::vector<std::int8_t>{-1});
}

TEST_CASE("read_idx turns big-endian words into the host's") {
  const HostArray shorts = read_idx(TempFile("\x00\x00\x0b\x01\x00\x00\x00\x02\x01\x02\xff\xfe"s).path());
  CHECK(shorts.dtype == i16);
  CHECK(values<std::int16_t>(shorts) == std::vector<std::int16_t>{0x0102, -2});
  const HostArray ints = read_idx(TempFile("\x00\x00\x0c\x01\x00\x00\x00\x01\x01\x02\x03\x04"s).path());
  CHECK(values<std::int32_t>(ints) == std::vector<std::int32_t>{0x01020304});
  const HostArray floats = read_idx(TempFile("\x00\x00\x0d\x01\x00\x00\x00\x01\x3f\x80\x00\x00"s).path());
  CHECK(values<float>(floats) == std::vector<float>{1.0F});
  const HostArray doubles = read_idx(TempFile("\x00\x00\x0e\x01\x00\x00\x00\x01\xbf\xf0\0\0\0\0\0\0"s).path());
  CHECK(values<double>(doubles) == std::vector<double>{-1.0});
}

TEST_CASE("read_idx accepts an array without elements") {
  const HostArray a = read_idx(TempFile("\x00\x00\x0d\x02\x00\x00\x00\x00\xff\xff\xff\xff"s).path());
  CHECK(a.dims == std::vector<std::int64_t>{0, 0xFFFFFFFF});
  CHECK(a.bytes.empty());
}

TEST_CASE("read_idx says what is wrong with a malformed file") {
  CHECK(problem(read_idx, "") == "ends after 0 of the 4 bytes of the magic number");
  CHECK(problem(read_idx, "\x01\x00\x08\x01"s) == "is not an IDX file: it starts with 01 00, not 00 00");
  CHECK(problem(read_idx, "\x00\x00\x0a\x01"s) == "has the unknown element type 0x0a");
  CHECK(problem(read_idx, kIdxU8.substr(0, 9)) == "ends after 5 of the 8 bytes of the dims");
  CHECK(problem(read_idx, kIdxU8 + "abcde") == "ends after 5 of the 6 bytes of the elements");
  CHECK(problem(read_idx, kIdxU8 + "abcdefg") == "holds more data than its header says");
  CHECK(problem(read_idx, "\x00\x00\x08\x03"s + std::string(12, '\xff')) ==
        "the header gives more elements than memory can hold");
  CHECK(problem(read_idx, "\x00\x00\x08\x01\xff\xff\xff\xff"s + "abc") ==
        "ends after 3 of the 4294967295 bytes of the elements");
}

TEST_CASE("A damaged gzip file is an error, whether cut short or altered") {
  const std::string good = gzipped(kIdxU8 + "abcdef");
  CHECK(problem(read_idx, good.substr(0, good.size() - 9)) == "the gzip data is damaged: unexpected end of file");
  std::string altered = good;
  altered[altered.size() - 8] = static_cast<char>(altered[altered.size() - 8] ^ 1);  // the checksum
  CHECK(problem(read_idx, altered) == "the gzip data is damaged: incorrect data check");
}

TEST_CASE("A path that is missing or a folder is an error that gives the system's reason") {
  const TempFile file;
  CHECK_THROWS_WITH_AS(read_idx("/nonexistent/x", Loc{"train.cpp", 9}),
                       "train.cpp:9: read_idx: /nonexistent/x: cannot be opened: No such file or directory",
                       RuntimeError);
  CHECK_THROWS_WITH_AS(read_npy(file.folder(), Loc{"train.cpp", 9}),
                       ("train.cpp:9: read_npy: " + file.folder() + ": cannot be read: Is a directory").c_str(),
                       RuntimeError);
}

TEST_CASE("read_npy reads what NumPy writes") {
  const HostArray a = read_npy(TempFile(npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2, 2), }   \n",
                                            "\x01\x00\x02\x00\x03\x00\xff\xff"s))
                                   .path());
  CHECK(a.dtype == i16);
  CHECK(a.dims == std::vector<std::int64_t>{2, 2});
  CHECK(values<std::int16_t>(a) == std::vector<std::int16_t>{1, 2, 3, -1});
  const HostArray scalar =
      read_npy(TempFile(npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()}\n", "\x00\x00\x80\x3f"s)).path());
  CHECK(scalar.dims.empty());
  CHECK(values<float>(scalar) == std::vector<float>{1.0F});
  const HostArray empty =
      read_npy(TempFile(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 5)}\n", "")).path());
  CHECK(empty.dims == std::vector<std::int64_t>{0, 5});
  const HostArray truths =
      read_npy(TempFile(npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}\n", "\x00\x01\x02"s)).path());
  CHECK(values<char>(truths) == std::vector<char>{0, 1, 1});
}

TEST_CASE("read_npy reads format versions 2 and 3, and keys in any order") {
  const std::string dict = "{\"shape\": (2,), \"descr\": \"|u1\", \"fortran_order\": False}\n";
  for (const char version : {'\x02', '\x03'}) {
    const std::string content =
        "\x93NUMPY"s + version + '\0' + static_cast<char>(dict.size()) + "\0\0\0"s + dict + "ab";
    CHECK(values<char>(read_npy(TempFile(content).path())) == std::vector<char>{'a', 'b'});
  }
}

TEST_CASE("read_npy turns Fortran order into row-major order") {
  const HostArray a =
      read_npy(TempFile(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}\n", "adbecf")).path());
  CHECK(values<char>(a) == std::vector<char>{'a', 'b', 'c', 'd', 'e', 'f'});
  const HostArray cube =
      read_npy(TempFile(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2, 2)}\n", "aecgbfdh")).path());
  CHECK(values<char>(cube) == std::vector<char>{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'});
}

TEST_CASE("read_npy swaps each part of a big-endian complex number on its own") {
  const HostArray a = read_npy(
      TempFile(npy("{'descr': '>c8', 'fortran_order': False, 'shape': (1,)}\n", "\x3f\x80\x00\x00\xc0\x00\x00\x00"s))
          .path());
  CHECK(a.dtype == c64);
  CHECK(values<float>(a) == std::vector<float>{1.0F, -2.0F});
}

TEST_CASE("read_npy says what is wrong with a malformed file") {
  const std::string form = "has a header that is not {'descr': '...', 'fortran_order': ..., 'shape': (...)}: ";
  CHECK(problem(read_npy, "\x93NUMPX\x01\x00"s) == "is not a .npy file: it does not start with \\x93NUMPY");
  CHECK(problem(read_npy, "\x93NUMPY\x04\x00"s) == "has format version 4.0; 1.0, 2.0 and 3.0 can be read");
  CHECK(problem(read_npy, "\x93NUMPY\x01\x00\x10\x00{'descr"s) == "ends after 7 of the 16 bytes of the header");
  CHECK(problem(read_npy, "\x93NUMPY\x02\x00\xff\xff\xff\xff"s) == "claims a header of 4294967295 bytes");
  for (const char* dict : {"", "{}", "{'descr': '<f4', 'shape': (3,)}",
                           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x",
                           "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}"}) {
    CHECK(problem(read_npy, npy(dict, "")) == form + dict);
  }
  CHECK(problem(read_npy, npy("{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", "")) ==
        "has elements of type '|O', which has no counterpart here");
  CHECK(problem(read_npy, npy("{'descr': '', 'fortran_order': False, 'shape': (3,)}", "")) ==
        "has elements of type '', which has no counterpart here");
  CHECK(problem(read_npy, npy("{'descr': '|f4', 'fortran_order': False, 'shape': (3,)}", "")) ==
        "gives no byte order for '|f4'");
  CHECK(problem(read_npy, npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "abcd")) ==
        "ends after 4 of the 12 bytes of the elements");
  CHECK(problem(read_npy, npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "ab")) ==
        "holds more data than its header says");
}

TEST_CASE("A file with any few bytes altered is read or refused, and never more") {
  const std::string idx = kIdxU8 + "abcdef";
  const std::string dict = npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3)}\n", "abcdefghijkl");
  std::mt19937 random(7);
  for (int round = 0; round < 1500; ++round) {
    for (const bool is_npy : {false, true}) {
      std::string content = is_npy ? dict : idx;
      for (auto edits = 1 + random() % 3; edits > 0; --edits) {
        content[random() % content.size()] = static_cast<char>(random());
      }
      if (random() % 4 == 0) content.resize(random() % content.size());
      const TempFile file(content);
      try {
        const HostArray a = is_npy ? read_npy(file.path()) : read_idx(file.path());
        CHECK(a.bytes.size() <= content.size());
      } catch (const RuntimeError&) {}
    }
  }
}

TEST_CASE("write_npy and read_npy are inverses for every type the format has") {
  const TempFile file;
  for (const DType dtype : {bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64, c64, c128}) {
    for (const std::vector<std::int64_t>& dims : {std::vector<std::int64_t>{}, {1}, {2, 1, 3}, {0, 4}}) {
      std::size_t bytes = static_cast<std::size_t>(size_bytes(dtype));
      for (const std::int64_t dim : dims) bytes *= static_cast<std::size_t>(dim);
      std::vector<char> elements(bytes, '\x01');
      if (dtype != bool_) {
        for (std::size_t i = 0; i < bytes; ++i) elements[i] = static_cast<char>(i * 37 + 5);
      }
      write_npy(file.path(), host(dtype, dims, elements));
      CHECK((file.content().size() - bytes) % 64 == 0);
      const HostArray back = read_npy(file.path());
      CHECK(back.dtype == dtype);
      CHECK(back.dims == dims);
      CHECK(values<char>(back) == elements);
    }
  }
}

TEST_CASE("write_npy refuses what the format cannot hold, and says why") {
  const TempFile file;
  const Loc loc{"train.cpp", 9};
  const std::string start = "train.cpp:9: write_npy: " + file.path() + ": ";
  CHECK_THROWS_WITH_AS(write_npy(file.path(), host<std::uint16_t>(bf16, {1}, {0}), loc),
                       (start + ".npy has no type for bf16; convert to f32 first").c_str(), TypeError);
  CHECK_THROWS_WITH_AS(write_npy(file.path(), host<float>(f32, {2, 3}, {1, 2}), loc),
                       (start + "f32[2, 3] takes 24 bytes, and the array holds 8").c_str(), ShapeError);
  CHECK_THROWS_WITH_AS(write_npy(file.folder(), host<float>(f32, {}, {1}), loc),
                       ("train.cpp:9: write_npy: " + file.folder() + ": cannot be written: Is a directory").c_str(),
                       RuntimeError);
}

TEST_CASE("An Array goes to a file and comes back with the same dtype, shape and bits") {
  const TempFile file;
  for (const HostArray& a :
       {host<float>(f32, {2, 3}, {1, -0.0F, 3, 4, 5, 6}), host<std::uint16_t>(f16, {2}, {0x3C00, 0x7E01}),
        host<std::int64_t>(i64, {}, {-5}), host<float>(f32, {0, 4}, {}), host<std::uint8_t>(bool_, {3}, {1, 0, 1})}) {
    const Array x = array(a);
    CHECK(x.dtype() == a.dtype);
    CHECK(x.shape() == a.dims);
    write_npy(file.path(), to_host(x));
    const HostArray back = read_npy(file.path());
    CHECK(back.dtype == a.dtype);
    CHECK(back.dims == a.dims);
    CHECK(back.bytes == a.bytes);
  }
  CHECK_THROWS_WITH_AS(array(host<float>(f32, {2, 3}, {1, 2}), Loc{"train.cpp", 9}),
                       "train.cpp:9: array: f32[2, 3] takes 24 bytes, and the array holds 8", ShapeError);
}
