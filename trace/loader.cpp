// The batching loader: bytes on the host, gathered row by row into each batch.
#include "sheaf/loader.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

#include "sheaf/random.h"
#include "trace/array_node.h"

namespace sheaf {

struct Loader::Source {
  std::vector<std::byte> bytes;
  DType dtype;
  Shape example;          // dims without the first
  std::size_t row_bytes;
};

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
}

void Loader::order_epoch(std::int64_t epoch, Loc loc) {
  if (!options_.shuffle || epoch == epoch_) return;
  order_ = random::permutation(random::fold_in(random::key(options_.seed, loc), Operand(epoch, loc)), examples_, loc)
               .to_vector<std::int32_t>(loc);
  epoch_ = epoch;
}

std::vector<Array> Loader::batch(std::int64_t epoch, std::int64_t index, Loc loc) {
  if (index < 0 || index >= batches_) throw ShapeError(loc, fmt::format("Loader: batch {} of {}", index, batches_));
  order_epoch(epoch, loc);
  const std::int64_t begin = index * options_.batch, count = std::min(options_.batch, examples_ - begin);
  std::vector<Array> out;
  std::vector<std::byte> rows;
  for (const auto& s : sources_) {
    rows.resize(static_cast<std::size_t>(count) * s->row_bytes);
    for (std::int64_t i = 0; i < count && s->row_bytes > 0; ++i)
      std::memcpy(rows.data() + static_cast<std::size_t>(i) * s->row_bytes,
                  s->bytes.data() + static_cast<std::size_t>(order_[begin + i]) * s->row_bytes, s->row_bytes);
    Shape shape = s->example;
    shape.insert(shape.begin(), count);
    out.push_back(detail::from_host(rows.data(), s->dtype, shape, s->dtype, loc));
  }
  return out;
}

}  // namespace sheaf
