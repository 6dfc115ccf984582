// NumPy's .npy (https://numpy.org/neps/nep-0001-npy-format.html): a magic string, a version, and a Python dict literal
// with exactly `descr`, `fortran_order` and `shape`; then the elements. The dict is parsed, not searched, so anything
// NumPy would not have written is refused.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sheaf/data.h"
#include "sheaf/dtype.h"
#include "sheaf/error.h"
#include "sheaf/source.h"
#include "trace/file_reader.h"
#include "trace/host_array.h"

namespace sheaf {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kMaxHeaderBytes = 1 << 20;
constexpr bool kHostIsBig = std::endian::native == std::endian::big;

struct NpyType {
  std::string_view descr;  // kind and width, without the byte order
  DType dtype;
};
constexpr NpyType kTypes[] = {
    {"b1", bool_}, {"i1", i8},  {"i2", i16}, {"i4", i32}, {"i8", i64}, {"u1", u8},  {"u2", u16},
    {"u4", u32},   {"u8", u64}, {"f2", f16}, {"f4", f32}, {"f8", f64}, {"c8", c64}, {"c16", c128},
};

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> dims;
};

// Recursive descent over the dict literal; every function returns false where the text is not as expected.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  bool parse(Header& out) {
    bool descr = false, order = false, shape = false;
    if (!accept('{')) return false;
    while (!accept('}')) {
      std::string key;
      if (!quoted(key) || !accept(':')) return false;
      bool* seen = key == "descr" ? &descr : key == "fortran_order" ? &order : key == "shape" ? &shape : nullptr;
      if (seen == nullptr || *seen) return false;
      *seen = seen == &descr ? quoted(out.descr) : seen == &order ? boolean(out.fortran_order) : tuple(out.dims);
      if (!*seen) return false;
      if (!accept(',') && peek() != '}') return false;
    }
    return descr && order && shape && peek() == '\0';
  }

 private:
  char peek() {
    const std::size_t at = text_.find_first_not_of(" \t\n");
    text_.remove_prefix(std::min(at, text_.size()));
    return text_.empty() ? '\0' : text_.front();
  }
  bool accept(char c) {
    if (peek() != c || text_.empty()) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool word(std::string_view w) {
    if (peek() == '\0' || !text_.starts_with(w)) return false;
    text_.remove_prefix(w.size());
    return true;
  }
  bool boolean(bool& out) {
    out = word("True");
    return out || word("False");
  }
  bool quoted(std::string& out) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return false;
    const std::size_t end = text_.find(quote, 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return true;
  }
  bool tuple(std::vector<std::int64_t>& out) {
    if (!accept('(')) return false;
    while (!accept(')')) {
      peek();
      std::int64_t dim = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), dim);
      if (error != std::errc{} || dim < 0) return false;
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      out.push_back(dim);
      // (3) is a number in Python; only (3,) is a tuple.
      if (!accept(',') && (out.size() == 1 || peek() != ')')) return false;
    }
    return true;
  }

  std::string_view text_;
};

std::int64_t little_endian(const std::vector<std::byte>& bytes) {
  std::int64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = (value << 8) | std::to_integer<std::int64_t>(bytes[i]);
  return value;
}

Header read_header(FileReader& file) {
  const std::vector<std::byte> magic = file.take(8, "the magic number and version");
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
    file.fail("is not a .npy file: it does not start with \\x93NUMPY");
  }
  const int major = std::to_integer<int>(magic[6]), minor = std::to_integer<int>(magic[7]);
  if (major < 1 || major > 3 || minor != 0) {
    file.fail(fmt::format("has format version {}.{}; 1.0, 2.0 and 3.0 can be read", major, minor));
  }
  const std::int64_t length = little_endian(file.take(major == 1 ? 2 : 4, "the header length"));
  if (length > kMaxHeaderBytes) file.fail(fmt::format("claims a header of {} bytes", length));
  const std::vector<std::byte> bytes = file.take(length, "the header");
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Header header;
  if (text.find('\0') != std::string::npos || !HeaderParser(text).parse(header)) {
    // A record type is a list in the same place, and the one well-formed header that is refused here.
    file.fail(fmt::format("has a header that is not {{'descr': '...', 'fortran_order': ..., 'shape': (...)}}: {:.200}",
                          text.substr(0, text.find_last_not_of(" \n") + 1)));
  }
  return header;
}

// dst[i, j, k] = src[k, j, i], read in the order of the destination.
std::vector<std::byte> row_major(const std::vector<std::byte>& source, const std::vector<std::int64_t>& dims,
                                 int width) {
  const auto rank = dims.size();
  const auto step = static_cast<std::size_t>(width);
  std::vector<std::size_t> strides(rank, step), index(rank, 0);
  for (std::size_t d = 1; d < rank; ++d) strides[d] = strides[d - 1] * static_cast<std::size_t>(dims[d - 1]);
  std::vector<std::byte> out(source.size());
  std::size_t from = 0;
  for (std::size_t to = 0; to < out.size(); to += step) {
    std::memcpy(out.data() + to, source.data() + from, step);
    for (std::size_t d = rank; d-- > 0;) {
      from += strides[d];
      if (++index[d] < static_cast<std::size_t>(dims[d])) break;
      from -= strides[d] * index[d];
      index[d] = 0;
    }
  }
  return out;
}

int word_bytes(DType dtype) { return is_complex(dtype) ? size_bytes(dtype) / 2 : size_bytes(dtype); }

}  // namespace

HostArray read_npy(const std::string& path, Loc loc) {
  FileReader file("read_npy", path, loc);
  const Header header = read_header(file);
  const std::string_view descr = header.descr;
  const char order = descr.empty() ? '\0' : descr.front();
  const auto* type = std::ranges::find(kTypes, descr.substr(descr.empty() ? 0 : 1), &NpyType::descr);
  if (type == std::end(kTypes) || std::string_view("<>=|").find(order) == std::string_view::npos) {
    file.fail(fmt::format("has elements of type '{}', which has no counterpart here", descr));
  }
  if (order == '|' && size_bytes(type->dtype) > 1) file.fail(fmt::format("gives no byte order for '{}'", descr));

  HostArray array{.dtype = type->dtype, .dims = header.dims};
  array.bytes = file.take(file.bytes_of(array.dims, array.dtype), "the elements");
  file.expect_end();
  const bool is_big = order == '>' || (order != '<' && kHostIsBig);
  if (is_big != kHostIsBig) swap_bytes(array.bytes, word_bytes(array.dtype));
  if (header.fortran_order && array.dims.size() > 1) {
    array.bytes = row_major(array.bytes, array.dims, size_bytes(array.dtype));
  }
  if (is_bool(array.dtype)) {  // NumPy takes any non-zero byte as true; here a bool is 0 or 1
    for (std::byte& b : array.bytes) b = std::byte{b != std::byte{0}};
  }
  return array;
}

void write_npy(const std::string& path, const HostArray& array, Loc loc) {
  const auto* type = std::ranges::find(kTypes, array.dtype, &NpyType::dtype);
  if (type == std::end(kTypes)) {
    throw TypeError(
        loc, fmt::format("write_npy: {}: .npy has no type for {}; convert to f32 first", path, name(array.dtype)));
  }
  expect_full(array, "write_npy: " + path, loc);
  const char order = size_bytes(array.dtype) == 1 ? '|' : kHostIsBig ? '>' : '<';
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}", order, type->descr,
                                   fmt::join(array.dims, ", "), array.dims.size() == 1 ? "," : "");
  // Magic, version and length take 10 bytes; the elements start at a multiple of 64.
  header.append(63 - (10 + header.size()) % 64, ' ').push_back('\n');
  const std::array<char, 4> version_and_length = {1, 0, static_cast<char>(header.size() & 0xFF),
                                                  static_cast<char>(header.size() >> 8)};
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << kMagic;
  out.write(version_and_length.data(), version_and_length.size());
  out << header;
  out.write(reinterpret_cast<const char*>(array.bytes.data()), static_cast<std::streamsize>(array.bytes.size()));
  out.close();
  if (!out) throw RuntimeError(loc, fmt::format("write_npy: {}: cannot be written: {}", path, std::strerror(errno)));
}

}  // namespace sheaf
