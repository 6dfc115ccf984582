// See file_reader.h. zlib reads plain files as they are, so one path serves both; its errors become sentences here.
#include "trace/file_reader.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "sheaf/error.h"

namespace sheaf {
namespace {

// The first allocation for a block, doubled as long as the file keeps giving.
constexpr std::int64_t kFirstChunkBytes = 1 << 20;
// gzread counts in int.
constexpr std::size_t kMaxReadBytes = std::size_t{1} << 30;

gzFile handle(void* file) { return static_cast<gzFile>(file); }

}  // namespace

FileReader::FileReader(const char* reader, std::string path, Loc loc)
    : reader_(reader), path_(std::move(path)), loc_(loc) {
  errno = 0;
  file_ = gzopen(path_.c_str(), "rb");
  if (file_ == nullptr) fail(fmt::format("cannot be opened: {}", std::strerror(errno)));
  gzbuffer(handle(file_), 1U << 17);
}

FileReader::~FileReader() { gzclose_r(handle(file_)); }

void FileReader::fail(const std::string& problem) const {
  throw RuntimeError(loc_, fmt::format("{}: {}: {}", reader_, path_, problem));
}

std::size_t FileReader::read(std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto want = static_cast<unsigned>(std::min(out.size() - done, kMaxReadBytes));
    errno = 0;
    const int got = gzread(handle(file_), out.data() + done, want);
    if (got > 0) done += static_cast<std::size_t>(got);
    if (got < 0 || static_cast<unsigned>(got) < want) break;
  }
  int code = Z_OK;
  std::string_view message = gzerror(handle(file_), &code);
  if (code == Z_ERRNO) fail(fmt::format("cannot be read: {}", std::strerror(errno)));
  if (code != Z_OK && code != Z_STREAM_END) {
    if (message.starts_with(path_ + ": ")) message.remove_prefix(path_.size() + 2);
    fail(fmt::format("the gzip data is damaged: {}", message));
  }
  return done;
}

std::vector<std::byte> FileReader::take(std::int64_t count, const char* what) {
  std::vector<std::byte> out;
  std::int64_t have = 0;
  while (have < count) {
    const std::int64_t next = std::min(count, std::max(2 * have, kFirstChunkBytes));
    out.resize(static_cast<std::size_t>(next));
    have += static_cast<std::int64_t>(read(std::span(out).subspan(static_cast<std::size_t>(have))));
    if (have < next) fail(fmt::format("ends after {} of the {} bytes of {}", have, count, what));
  }
  return out;
}

std::int64_t FileReader::bytes_of(std::span<const std::int64_t> dims, DType dtype) const {
  // A zero anywhere makes the array empty, however large its other dims are.
  if (std::ranges::find(dims, 0) != dims.end()) return 0;
  std::int64_t bytes = size_bytes(dtype);
  for (const std::int64_t dim : dims) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) fail("the header gives more elements than memory can hold");
  }
  return bytes;
}

void FileReader::expect_end() {
  std::byte extra{};
  if (read({&extra, 1}) != 0) fail("holds more data than its header says");
}

void swap_bytes(std::span<std::byte> bytes, int width) {
  const auto step = static_cast<std::size_t>(width);
  for (std::size_t at = 0; at + step <= bytes.size(); at += step) { std::ranges::reverse(bytes.subspan(at, step)); }
}

}  // namespace sheaf
