// IDX, the format of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, a type code, the rank, one big-endian
// u32 per dim, then the elements, big-endian too.
#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sheaf/data.h"
#include "sheaf/dtype.h"
#include "sheaf/source.h"
#include "trace/file_reader.h"

namespace sheaf {
namespace {

std::optional<DType> dtype_of(unsigned code) {
  switch (code) {
    case 0x08: return u8;
    case 0x09: return i8;
    case 0x0B: return i16;
    case 0x0C: return i32;
    case 0x0D: return f32;
    case 0x0E: return f64;
    default: return std::nullopt;
  }
}

}  // namespace

HostArray read_idx(const std::string& path, Loc loc) {
  FileReader file("read_idx", path, loc);
  const std::vector<std::byte> magic = file.take(4, "the magic number");
  if (magic[0] != std::byte{0} || magic[1] != std::byte{0}) {
    file.fail(fmt::format("is not an IDX file: it starts with {:02x} {:02x}, not 00 00", std::to_integer<int>(magic[0]),
                          std::to_integer<int>(magic[1])));
  }
  const auto code = std::to_integer<unsigned>(magic[2]);
  const std::optional<DType> dtype = dtype_of(code);
  if (!dtype) file.fail(fmt::format("has the unknown element type 0x{:02x}", code));

  HostArray array{.dtype = *dtype};
  const auto rank = std::to_integer<std::int64_t>(magic[3]);
  const std::vector<std::byte> dims = file.take(4 * rank, "the dims");
  for (std::size_t at = 0; at < dims.size(); at += 4) {
    std::int64_t dim = 0;
    for (std::size_t i = 0; i < 4; ++i) dim = (dim << 8) | std::to_integer<std::int64_t>(dims[at + i]);
    array.dims.push_back(dim);
  }
  array.bytes = file.take(file.bytes_of(array.dims, *dtype), "the elements");
  file.expect_end();
  if (std::endian::native == std::endian::little) swap_bytes(array.bytes, size_bytes(*dtype));
  return array;
}

}  // namespace sheaf
