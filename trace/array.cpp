// Arrays: making them from host memory, reading them back, and what a handle can say about itself.
#include "sheaf/array.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ir/scalar.h"
#include "runtime/device.h"
#include "sheaf/ops.h"
#include "trace/apply.h"
#include "trace/array_node.h"
#include "trace/messages.h"
#include "trace/placement.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

// Whether a part of each complex element is not zero.
void are_nonzero(const std::byte* from, DType from_dtype, std::byte* to, std::int64_t count) {
  const DType part = part_dtype(from_dtype);
  const std::size_t bytes = size_bytes(part);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t parts[2] = {};
    std::memcpy(&parts[0], from + 2 * i * bytes, bytes);
    std::memcpy(&parts[1], from + (2 * i + 1) * bytes, bytes);
    to[i] = std::byte{ir::from_bits(part, parts[0]) != 0 || ir::from_bits(part, parts[1]) != 0};
  }
}

// Elements converted one by one, by the same rules as on a device; from complex only to complex or bool.
void convert_elements(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, std::int64_t count) {
  if (is_complex(from_dtype) && is_complex(to_dtype))
    return convert_elements(from, part_dtype(from_dtype), to, part_dtype(to_dtype), 2 * count);
  if (is_complex(from_dtype)) return are_nonzero(from, from_dtype, to, count);
  const std::size_t from_bytes = size_bytes(from_dtype), to_bytes = size_bytes(to_dtype);
  const DType to_part = part_dtype(to_dtype);
  if (from_dtype == to_dtype) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * from_bytes);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t in[3] = {};
    std::memcpy(in, from + i * from_bytes, from_bytes);
    // Of a complex element the real part, before an imaginary one of 0.
    const std::uint64_t out[2] = {from_dtype == to_part ? in[0]
                                                        : ir::eval_op(ir::ScalarOp::convert, from_dtype, to_part, in)};
    std::memcpy(to + i * to_bytes, out, size_bytes(to_part));
    std::memset(to + i * to_bytes + size_bytes(to_part), 0, to_bytes - size_bytes(to_part));
  }
}

Array new_number(Number v, Loc loc) {
  auto node = ir::make_recycled<ArrayNode>();
  node->kind = ArrayNode::Kind::number;
  node->is_weak = v.kind() != Number::Kind::boolean;
  node->type = ir::Type(v.dtype(), {});
  node->made_at = loc;
  node->number = v;
  return Array(std::move(node));
}

}  // namespace

void check(const absl::Status& status, Loc loc) {
  if (!status.ok()) throw RuntimeError(loc, std::string(status.message()));
}

DType Number::dtype() const {
  if (kind_ == Kind::boolean) return bool_;
  if (kind_ == Kind::floating) return f32;
  if (is_above_i64_) return u64;
  return integer_ >= INT32_MIN && integer_ <= INT32_MAX ? i32 : i64;
}

Shape Operand::shape() const { return array_ ? node_of(*array_, loc_).type.dims() : Shape{}; }
DType Operand::dtype() const { return array_ ? node_of(*array_, loc_).type.dtype() : number_.dtype(); }
int Operand::rank() const { return array_ ? node_of(*array_, loc_).type.rank() : 0; }

const ArrayNode& node_of(const Array& x, Loc use) {
  if (!x.has_value()) throw TypeError(use, "an Array that was never given a value is used");
  return *x.node();
}

const ArrayNode& node_with_value(const Array& x, std::string_view wanted, Loc use) {
  const ArrayNode& node = node_of(x, use);
  if (node.kind == ArrayNode::Kind::abstract)
    throw TypeError(use, "an array made by abstract() has no value: " + type_text(node));
  if (node.kind != ArrayNode::Kind::traced) return node;
  if (!node.trace->is_live) throw_leaked(node, use);
  throw_traced(node, use, wanted,
               "It has a value only when the compiled function runs: return it, and read it outside");
}

Array concrete(runtime::BufferPtr buffer, ir::Type type, bool is_weak, Loc made_at) {
  auto node = ir::make_recycled<ArrayNode>();
  node->kind = ArrayNode::Kind::concrete;
  node->is_weak = is_weak;
  node->type = type;
  node->made_at = made_at;
  node->buffer = std::move(buffer);
  return Array(std::move(node));
}

runtime::BufferPtr number_buffer(Number v, DType dtype, runtime::Device& on, Loc made_at) {
  std::uint64_t bits[1] = {};
  const DType from = v.kind() == Number::Kind::floating ? f64 : v.is_above_i64() ? u64 : i64;
  if (from == f64) bits[0] = ir::to_bits(f64, v.as_double());
  else bits[0] = static_cast<std::uint64_t>(v.as_int());
  std::byte bytes[16] = {};  // of a complex number the real part, before an imaginary one of 0
  convert_elements(reinterpret_cast<const std::byte*>(bits), from, bytes, part_dtype(dtype), 1);
  auto buffer = runtime::Buffer::from_host(on, std::span(bytes, static_cast<std::size_t>(size_bytes(dtype))), made_at);
  check(buffer.status(), made_at);
  return *std::move(buffer);
}

runtime::BufferPtr buffer_of(const Array& x, ir::Type type, Loc use) {
  const ArrayNode& node = node_with_value(x, "elements to read", use);
  if (node.kind == ArrayNode::Kind::number)
    return number_buffer(node.number, type.dtype(), runtime::device(0), node.made_at);
  if (node.type == type) return node.placement ? gathered(node, use) : node.buffer;
  // A weak result of an eager operation, wanted in another precision.
  return buffer_of(convert(x, type.dtype()), type, use);
}

Array::Array(Number value, Loc loc) : Array(new_number(value, loc)) {}

const Shape& Array::shape() const { return node_of(*this, {}).type.dims(); }
DType Array::dtype() const { return node_of(*this, {}).type.dtype(); }
int Array::rank() const { return node_of(*this, {}).type.rank(); }
std::int64_t Array::size() const { return node_of(*this, {}).type.num_elements(); }
bool Array::is_traced() const { return node_of(*this, {}).kind == ArrayNode::Kind::traced; }
Loc Array::made_at() const { return node_ ? node_->made_at : Loc{}; }

std::int64_t Array::shape(int dim) const {
  const int r = rank();
  if (dim < -r || dim >= r)
    throw ShapeError(made_at(), fmt::format("shape: axis {} is out of range for {}", dim, type_text(*this)));
  return shape()[dim < 0 ? dim + r : dim];
}

void Array::read(DType as, void* to, std::int64_t count, bool one, Loc loc) const {
  const ArrayNode& node = node_with_value(*this, one ? "number" : "elements to read", loc);
  if (is_complex(node.type.dtype()) != is_complex(as))
    throw TypeError(loc, fmt::format("{}: the elements of {} are {}, not {}", one ? "item" : "to_vector",
                                     type_text(node), is_complex(as) ? "real" : "complex", name(as)));
  if (one && node.type.num_elements() != 1)
    throw ShapeError(loc, fmt::format("item: {} has {} elements, not one", type_text(node), node.type.num_elements()));
  const runtime::BufferPtr buffer = buffer_of(*this, node.type, loc);
  const auto bytes = buffer->view();
  check(bytes.status(), loc);
  convert_elements(bytes->get(), node.type.dtype(), static_cast<std::byte*>(to), as, count);
}

Array::operator bool() const {
  const ArrayNode& node = node_of(*this, {});
  if (node.kind == ArrayNode::Kind::traced) {
    if (!node.trace->is_live) throw_leaked(node, {});
    throw_traced(node, {}, "bool", "Its value is not known while tracing: use where(condition, a, b)");
  }
  if (node.kind != ArrayNode::Kind::abstract && node.type.num_elements() != 1)
    throw ShapeError(node.made_at, fmt::format("bool: {} has {} elements, not one: use all() or any()", type_text(node),
                                               node.type.num_elements()));
  bool v = false;
  read(bool_, &v, 1, true, node.made_at);
  return v;
}

const Array& Array::wait(Loc loc) const {
  const ArrayNode& node = node_of(*this, loc);
  if (node.kind != ArrayNode::Kind::concrete) return *this;
  if (!node.placement) check(node.buffer->wait(), loc);
  for (const runtime::BufferPtr& shard : node.shards) check(shard->wait(), loc);
  return *this;
}

Array Array::astype(DType dtype, Loc loc) const { return convert(Operand(*this, loc), dtype); }
Array Array::reshape(const Shape& shape, Loc loc) const { return sheaf::reshape(Operand(*this, loc), shape); }

namespace detail {

Array from_host(const void* data, DType from, const Shape& shape, DType to, Loc loc) {
  check_shape("array", shape, loc);
  if (is_complex(from) && !is_complex(to) && !is_bool(to))
    throw TypeError(
        loc, fmt::format("array: no conversion from {} to {}: take real(), imag() or abs()", name(from), name(to)));
  const ir::Type type(to, shape);
  std::vector<std::byte> converted;
  std::span bytes(static_cast<const std::byte*>(data),
                  static_cast<std::size_t>(type.num_elements() * size_bytes(from)));
  if (from != to) {
    converted.resize(static_cast<std::size_t>(type.bytes()));
    convert_elements(bytes.data(), from, converted.data(), to, type.num_elements());
    bytes = converted;
  }
  auto buffer = runtime::Buffer::from_host(runtime::device(0), bytes, loc);
  check(buffer.status(), loc);
  return concrete(*std::move(buffer), type, false, loc);
}

Array from_numbers(std::span<const Number> values, const Shape& shape, std::optional<DType> dtype, Loc loc) {
  const auto has = [&](Number::Kind k) {
    return std::any_of(values.begin(), values.end(), [&](Number n) { return n.kind() == k; });
  };
  const bool floats = has(Number::Kind::floating);
  const DType of_integers = has(Number::Kind::integer) ? list_dtype<Number>(values) : bool_;
  const DType to = dtype.value_or(floats ? f32 : of_integers);
  std::vector<double> reals;
  std::vector<std::int64_t> integers;
  for (const Number n : values) reals.push_back(n.as_double()), integers.push_back(n.as_int());
  const DType from = of_integers == u64 ? u64 : i64;
  return floats ? from_host(reals.data(), f64, shape, to, loc) : from_host(integers.data(), from, shape, to, loc);
}

void ragged_list(Loc loc) { throw ShapeError(loc, "array: the inner lists must have the same length"); }

}  // namespace detail

Array array(std::initializer_list<Number> values, std::optional<DType> dtype, Loc loc) {
  return detail::from_numbers({values.begin(), values.size()}, {static_cast<std::int64_t>(values.size())}, dtype, loc);
}

Array array(std::initializer_list<std::initializer_list<Number>> values, std::optional<DType> dtype, Loc loc) {
  std::vector<Number> flat;
  const std::size_t inner = values.size() ? values.begin()->size() : 0;
  for (const auto& row : values) {
    if (row.size() != inner) detail::ragged_list(loc);
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return detail::from_numbers(flat, {static_cast<std::int64_t>(values.size()), static_cast<std::int64_t>(inner)}, dtype,
                              loc);
}

}  // namespace sheaf
