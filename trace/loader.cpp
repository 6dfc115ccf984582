// The batching loader: bytes on the host, gathered row by row into each batch.
#include "sheaf/loader.h"

#include <fmt/format.h>

#include <numeric>

#include "runtime/assemble.h"
#include "sheaf/random.h"
#include "sheaf/sharding.h"
#include "trace/array_node.h"
#include "trace/mesh.h"

namespace sheaf {

struct Loader::Source {
  std::vector<std::byte> bytes;
  DType dtype;
  Shape example;          // dims without the first
  std::size_t row_bytes;
};

namespace {

// Of batches, and of the last one of an epoch.
void check_sharding(const std::vector<Array>& arrays, const LoaderOptions& options, Loc loc) {
  const auto& [mesh, spec] = options.sharding;
  check_has_devices("Loader", mesh, loc);
  const std::int64_t examples = arrays[0].shape()[0], rest = options.drop_last ? 0 : examples % options.batch;
  for (const std::int64_t count : {options.batch, rest})
    for (std::size_t k = 0; k < arrays.size(); ++k) {
      if (count == 0 || count > examples) continue;
      Shape shape = arrays[k].shape();
      shape[0] = count;
      checked_layout(fmt::format("Loader: array {}{}", k, count == rest ? " of the last batch" : ""), mesh, spec, shape,
                     ir::to_string(ir::Type(arrays[k].dtype(), shape)), loc);
    }
}

}  // namespace

Loader::Loader(std::vector<Array> arrays, LoaderOptions options, Loc loc) : options_(options) {
  if (arrays.empty()) throw ShapeError(loc, "Loader: no arrays");
  if (options_.batch <= 0) throw ShapeError(loc, fmt::format("Loader: a batch of {}", options_.batch));
  for (const Array& x : arrays) {
    if (x.rank() == 0 || x.shape()[0] != arrays[0].shape()[0]) {
      std::string text = "Loader: the arrays must have the same extent of dim 0";
      for (std::size_t k = 0; k < arrays.size(); ++k) text += fmt::format("\n  array {}: {}", k, type_text(arrays[k]));
      throw ShapeError(loc, text);
    }
    const ir::Type type = node_of(x, loc).type;
    auto s = std::make_shared<Source>();
    s->bytes.resize(static_cast<std::size_t>(type.bytes()));
    check(buffer_of(x, type, loc)->to_host(s->bytes), loc);
    s->dtype = x.dtype();
    s->example = Shape(x.shape().begin() + 1, x.shape().end());
    s->row_bytes = static_cast<std::size_t>(num_elements(s->example) * size_bytes(s->dtype));
    sources_.push_back(std::move(s));
  }
  examples_ = arrays[0].shape()[0];
  batches_ = options_.drop_last ? examples_ / options_.batch : (examples_ + options_.batch - 1) / options_.batch;
  order_.resize(static_cast<std::size_t>(examples_));
  std::iota(order_.begin(), order_.end(), 0);
  if (options_.sharding.mesh) check_sharding(arrays, options_, loc);
}

void Loader::order_epoch(std::int64_t epoch, Loc loc) {
  if (!options_.shuffle || epoch == epoch_) return;
  order_ = random::permutation(random::fold_in(random::key(options_.seed, loc), Operand(epoch, loc)), examples_, loc)
               .to_vector<std::int32_t>(loc);
  epoch_ = epoch;
}

Array Loader::read(const Source& source, std::int64_t first, const Shape& part, const std::vector<std::int64_t>& start,
                   Loc loc) const {
  const Shape extent(part.begin() + 1, part.end());
  const runtime::Region in{source.example, {start.begin() + 1, start.end()}};
  const runtime::Region out{extent, std::vector<std::int64_t>(extent.size(), 0)};
  const std::int64_t element = size_bytes(source.dtype), row = num_elements(extent) * element;
  std::vector<std::byte> rows(static_cast<std::size_t>(part[0] * row));
  for (std::int64_t i = 0; i < part[0]; ++i)
    runtime::copy_block(source.bytes.data() + static_cast<std::size_t>(order_[first + i]) * source.row_bytes, in,
                        rows.data() + i * row, out, extent, element);
  return detail::from_host(rows.data(), source.dtype, part, source.dtype, loc);
}

std::vector<Array> Loader::batch(std::int64_t epoch, std::int64_t index, Loc loc) {
  if (index < 0 || index >= batches_) throw ShapeError(loc, fmt::format("Loader: batch {} of {}", index, batches_));
  if (epoch < 0) throw ShapeError(loc, fmt::format("Loader: epoch {}", epoch));
  order_epoch(epoch, loc);
  const std::int64_t begin = index * options_.batch, count = std::min(options_.batch, examples_ - begin);
  std::vector<Array> out;
  for (const auto& s : sources_) {
    Shape shape = s->example;
    shape.insert(shape.begin(), count);
    if (!options_.sharding.mesh) {
      out.push_back(read(*s, begin, shape, std::vector<std::int64_t>(shape.size(), 0), loc));
      continue;
    }
    out.push_back(make_array_from_callback(
        shape, options_.sharding,
        [&](const std::vector<Slice>& part) {
          Shape extent, start;
          for (const Slice& r : part) {
            start.push_back(*r.start.value);
            extent.push_back(*r.stop.value - *r.start.value);
          }
          return read(*s, begin + start[0], extent, start, loc);
        },
        loc));
  }
  return out;
}

}  // namespace sheaf
