// Between HostArrays, which files give and take, and Arrays: the same dtype, shape and bytes on either side.
#include "trace/host_array.h"

#include <fmt/format.h>

#include "sheaf/error.h"
#include "trace/array_node.h"

namespace sheaf {

void expect_full(const HostArray& host, const std::string& who, Loc loc) {
  const std::int64_t bytes = num_elements(host.dims) * size_bytes(host.dtype);
  if (bytes != static_cast<std::int64_t>(host.bytes.size())) {
    throw ShapeError(loc, fmt::format("{}: {}{} takes {} bytes, and the array holds {}", who, name(host.dtype),
                                      to_string(host.dims), bytes, host.bytes.size()));
  }
}

Array array(const HostArray& data, Loc loc) {
  expect_full(data, "array", loc);
  return detail::from_host(data.bytes.data(), data.dtype, data.dims, data.dtype, loc);
}

HostArray to_host(const Array& x, Loc loc) {
  const ir::Type type = node_of(x, loc).type;
  HostArray host{.dtype = type.dtype(), .dims = type.dims()};
  host.bytes.resize(static_cast<std::size_t>(type.bytes()));
  check(buffer_of(x, type, loc)->to_host(host.bytes), loc);
  return host;
}

}  // namespace sheaf
