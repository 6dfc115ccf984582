// The bucket's program is traced at the bucket's own length and, to see what depends on it, at the shortest length that
// goes there. Padding and cutting are copies, no programs: how many lengths there are compiles nothing.
#include "trace/buckets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/log.h"
#include "ir/op.h"
#include "runtime/assemble.h"
#include "runtime/device.h"
#include "sheaf/error.h"
#include "trace/axes.h"
#include "trace/precision.h"

namespace sheaf {
namespace {

using detail::FlatCall;
using passes::LengthError;
using passes::LengthMarks;

std::string key_of(const FlatCall& call, std::span<const LeafType> types) {
  std::string key = call.statics();
  const auto add = [&](const void* p) { key.append(reinterpret_cast<const char*>(&p), sizeof p); };
  add(call.types());
  key += static_cast<char>(default_precision());
  for (const LeafType& t : types) {
    add(&t.type.data());
    key += t.is_weak ? 'w' : 's';
  }
  return key;
}

std::string literals_key(const LengthMarks& marks) {
  std::string key;
  for (const std::vector<bool>& values : marks.constants)
    for (const bool is_marked : values) key += is_marked ? '1' : '0';
  for (const std::vector<LengthMarks>& regions : marks.regions)
    for (const LengthMarks& region : regions) key += literals_key(region);
  return key;
}

// The dims of `marks` at these extents.
Shape dims_at(const Shape& dims, const std::vector<int>& marks, const std::vector<std::int64_t>& extents) {
  Shape at = dims;
  for (std::size_t d = 0; d < marks.size(); ++d)
    if (marks[d] >= 0) at[d] = extents[static_cast<std::size_t>(marks[d])];
  return at;
}

runtime::BufferPtr zeros_of(runtime::Device& device, std::int64_t bytes, Loc loc) {
  const std::vector<std::byte> zeros(static_cast<std::size_t>(bytes));
  auto buffer = runtime::Buffer::from_host(device, zeros, loc);
  check(buffer.status(), loc);
  return *std::move(buffer);
}

runtime::BufferPtr assembled(runtime::Device& device, ir::Type type, std::vector<runtime::Piece> pieces, Loc loc) {
  auto buffer = runtime::assemble(device, type.bytes(), ir::Type(type.dtype(), {}).bytes(), std::move(pieces), loc);
  check(buffer.status(), loc);
  return *std::move(buffer);
}

// The array at the beginning of one of `to`, zeros behind it.
Array padded(const Array& x, ir::Type to, Loc loc) {
  const ArrayNode& node = *x.node();
  const Shape from = node.type.dims(), &dims = to.dims();
  if (from == dims) return x;
  const runtime::BufferPtr buffer = buffer_of(x, node.type, loc);
  runtime::Device& device = buffer->device();
  const std::vector<std::int64_t> origin(dims.size(), 0);
  std::vector<runtime::Piece> pieces;
  if (num_elements(from) > 0)
    pieces.push_back({.from = buffer, .in = {from, origin}, .out = {dims, origin}, .extent = from});
  for (std::size_t d = 0; d < dims.size(); ++d) {
    Shape extent = dims;
    std::copy(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(d), extent.begin());
    extent[d] = dims[d] - from[d];
    if (num_elements(extent) == 0) continue;
    std::vector<std::int64_t> start = origin;
    start[d] = from[d];
    const std::int64_t bytes = ir::Type(to.dtype(), extent).bytes();
    pieces.push_back({.from = zeros_of(device, bytes, loc),
                      .in = {extent, origin},
                      .out = {dims, std::move(start)},
                      .extent = extent});
  }
  return concrete(assembled(device, to, std::move(pieces), loc), to, node.is_weak, loc);
}

Array cut(const Array& x, const Shape& to, Loc loc) {
  const ArrayNode& node = *x.node();
  if (node.type.dims() == to) return x;
  const ir::Type type(node.type.dtype(), to);
  const runtime::BufferPtr buffer = buffer_of(x, node.type, loc);
  const std::vector<std::int64_t> origin(to.size(), 0);
  std::vector<runtime::Piece> pieces;
  if (num_elements(to) > 0)
    pieces.push_back({.from = buffer, .in = {node.type.dims(), origin}, .out = {to, origin}, .extent = to});
  return concrete(assembled(buffer->device(), type, std::move(pieces), loc), type, node.is_weak, loc);
}

Array array_of(const ir::Literal& value, Loc loc) {
  auto buffer = runtime::Buffer::from_host(runtime::device(0), std::span(value.data(), value.bytes()), loc);
  check(buffer.status(), loc);
  return concrete(*std::move(buffer), value.type(), false, loc);
}

Array length_array(std::int64_t n, Loc loc) {
  ir::Literal value(ir::Type(DType::i32, {}));
  value.set_int(0, n);
  return array_of(value, loc);
}

}  // namespace

struct BucketedCalls::Base {
  std::string key;
  Lengths sizes;
  Traced traced;
  ir::FunctionRef plain;
  std::vector<KeyChange> changes;
  std::mutex mutex;  // guards what follows
  LengthMarks marks;  // only more constants are ever marked
};

struct BucketedCalls::Program {
  std::shared_ptr<const Runnable> runnable;
  std::vector<passes::Extent> extents;
  std::vector<std::vector<int>> results;  // marks of their dims
};

struct BucketedCalls::Entry {
  std::vector<LeafType> types;
  std::string statics;
  const void* cpp_types = nullptr;
  detail::Structure structure;
  Lengths lengths, sizes;
  ProgramPtr program;
  std::vector<ir::Type> padded;  // of the leaves
  std::vector<Array> behind;  // inputs after the leaves
  std::vector<Shape> result_dims;
};

BucketedCalls::BucketedCalls(Options options) : options_(std::move(options)) {
  const auto fail = [&](const std::string& why) {
    throw TypeError(options_.how.loc, fmt::format("{}: .buckets: {}", options_.how.what, why));
  };
  for (const Buckets& b : options_.buckets) {
    if (b.sizes.empty() || b.dims.empty()) fail("there must be sizes, and dims that have them");
    for (std::size_t i = 0; i < b.sizes.size(); ++i)
      if (b.sizes[i] <= (i ? b.sizes[i - 1] : 0)) fail("sizes are above 0 and ascend");
  }
}
BucketedCalls::~BucketedCalls() = default;

BucketedCalls::Lengths BucketedCalls::lengths_of(const FlatCall& call, std::span<const LeafType> types) const {
  const std::vector<std::string> places = leaf_places(call, options_.how.args);
  const std::span<const std::size_t> counts = call.leaf_counts();
  Lengths lengths;
  for (const Buckets& b : options_.buckets) {
    std::string first;
    std::int64_t length = -1;
    for (const Buckets::Dim& dim : b.dims) {
      if (dim.argument < 0 || dim.argument >= std::ssize(counts))
        throw TypeError(options_.how.loc, fmt::format("{}: .buckets lists argument {}, and there are {}",
                                                      options_.how.what, dim.argument, counts.size()));
      std::size_t leaf = 0;
      for (int k = 0; k < dim.argument; ++k) leaf += counts[k];
      for (const std::size_t end = leaf + counts[dim.argument]; leaf < end; ++leaf) {
        const int rank = types[leaf].type.rank(), d = dim.dim < 0 ? dim.dim + rank : dim.dim;
        const std::string place = fmt::format("{}: dim {}", places[leaf], d);
        if (d < 0 || d >= rank)
          throw ShapeError(call.loc(), fmt::format("{}: .buckets: {} is {}, which has no dim {}", options_.how.what,
                                                   places[leaf], ir::to_string(types[leaf].type), dim.dim));
        const std::int64_t n = types[leaf].type.dims()[static_cast<std::size_t>(d)];
        if (length >= 0 && n != length)
          throw ShapeError(call.loc(), fmt::format("{}: .buckets: {} is {} and {} is {}, which are to be one length",
                                                   options_.how.what, first, length, place, n));
        if (length < 0) first = place;
        length = n;
      }
    }
    if (length < 0)
      throw TypeError(options_.how.loc,
                      fmt::format("{}: .buckets: there is no array in what they list", options_.how.what));
    if (length > b.sizes.back())
      throw ShapeError(call.loc(), fmt::format("{}: .buckets: {} is {}, and the largest bucket is {}",
                                               options_.how.what, first, length, b.sizes.back()));
    lengths.push_back(length);
  }
  return lengths;
}

BucketedCalls::Lengths BucketedCalls::buckets_of(const Lengths& lengths, const FlatCall&) const {
  Lengths sizes;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    const std::vector<std::int64_t>& all = options_.buckets[s].sizes;
    const bool is_none = lengths[s] == 0 && all.front() == 1 && all.size() > 1;  // 1 is for broadcasting, not for none
    sizes.push_back(is_none ? all[1] : *std::ranges::lower_bound(all, lengths[s]));
  }
  return sizes;
}

std::vector<LeafType> BucketedCalls::types_at(const FlatCall& call, std::span<const LeafType> types,
                                              const Lengths& lengths) const {
  std::vector<LeafType> at(types.begin(), types.end());
  const std::span<const std::size_t> counts = call.leaf_counts();
  for (std::size_t s = 0; s < lengths.size(); ++s)
    for (const Buckets::Dim& dim : options_.buckets[s].dims) {
      std::size_t leaf = 0;
      for (int k = 0; k < dim.argument; ++k) leaf += counts[k];
      for (const std::size_t end = leaf + counts[dim.argument]; leaf < end; ++leaf) {
        Shape dims = at[leaf].type.dims();
        dims[static_cast<std::size_t>(dim.dim < 0 ? dim.dim + std::ssize(dims) : dim.dim)] = lengths[s];
        at[leaf].type = ir::Type(at[leaf].type.dtype(), dims);
      }
    }
  return at;
}

Traced BucketedCalls::traced(const FlatCall& call, std::span<const LeafType> types) {
  options_.count_trace();
  return trace_call(call, options_.how, types);
}

void BucketedCalls::refuse(const LengthError& error) const {
  throw TypeError(error.loc ? error.loc : options_.how.loc,
                  fmt::format("{}: .buckets: {}; docs/buckets.md", options_.how.what, error.why));
}

// To see what depends on a length: the shortest that goes to that bucket, but for 0 and 1, at which programs are
// others, and where that happens to be an extent of something else, the next one; then one in the middle, as what is
// shorter than the length may be nothing. Beside 2 all are longer.
std::vector<std::int64_t> BucketedCalls::other_lengths(std::size_t s, std::int64_t size) const {
  if (size == 1) return {};
  if (size == 2) return {3, 4};
  const std::vector<std::int64_t>& all = options_.buckets[s].sizes;
  const auto own = std::ranges::lower_bound(all, size);
  const std::int64_t shortest = std::max<std::int64_t>(2, own == all.begin() ? 0 : *(own - 1) + 1);
  std::vector<std::int64_t> others;
  for (const std::int64_t n : {shortest, shortest + 1, (shortest + size) / 2})
    if (n < size && (others.empty() || n > others.back())) others.push_back(n);
  return others;
}

// Null where the function throws, as nobody has asked it for this length.
ir::FunctionRef BucketedCalls::plain_at(const FlatCall& call, std::span<const LeafType> types) {
  try {
    return passes::plain_for_lengths(traced(call, types).function);
  } catch (...) { return nullptr; }
}

BucketedCalls::BasePtr BucketedCalls::make_base(const FlatCall& call, std::span<const LeafType> types,
                                                const Lengths& sizes) {
  const std::vector<LeafType> at = types_at(call, types, sizes);
  Traced whole = traced(call, at);
  const ir::FunctionRef plain = passes::plain_for_lengths(whole.function);
  LengthMarks marks(*plain);
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    LengthError first = passes::mark_lengths(*plain, sizes, *plain, sizes, true, marks);  // nothing depends on it
    for (const std::int64_t n : other_lengths(s, sizes[s])) {
      Lengths others = sizes;
      others[s] = n;
      const ir::FunctionRef other = plain_at(call, types_at(call, types, others));
      if (!other) continue;
      LengthMarks more = marks;
      LengthError error = passes::mark_lengths(*plain, sizes, *other, others, true, more);
      if (error.why.empty()) {
        marks = std::move(more);
        first = {};
        break;
      }
      if (first.why.empty()) first = std::move(error);
    }
    if (!first.why.empty()) refuse(first);
  }
  const Signature signature{
      at, call.statics(), surroundings_key(), call.types(), default_precision(), call.arguments(), options_.how.args};
  std::vector<KeyChange> changes =
      note_trace(options_.how.what, options_.site, options_.function, options_.texts, signature);
  if (!changes.empty()) options_.again->add({.called_at = call.loc(), .changes = changes});
  return std::shared_ptr<Base>(
      new Base{key_of(call, at), sizes, std::move(whole), plain, std::move(changes), {}, std::move(marks)});
}

std::vector<bool> BucketedCalls::donated(const FlatCall& call, std::size_t params) const {
  if (options_.donate.empty()) return {};
  std::vector<bool> flags;
  const std::span<const std::size_t> counts = call.leaf_counts();
  for (std::size_t k = 0; k < counts.size(); ++k)
    flags.insert(flags.end(), counts[k],
                 std::ranges::find(options_.donate, static_cast<int>(k)) != options_.donate.end());
  flags.resize(params, false);
  return flags;
}

BucketedCalls::ProgramPtr BucketedCalls::make_program(const FlatCall& call, const Base& base,
                                                      const LengthMarks& marks) const {
  passes::Padded program = passes::padded_program(*base.plain, marks, static_cast<int>(base.sizes.size()));
  if (!program.function) refuse(program.error);
  auto made = std::make_shared<Program>();
  made->extents = marks.extents;
  for (const ir::Value r : base.plain->results()) made->results.push_back(marks.dims[r]);
  RunnableOptions how{.what = options_.how.what, .arguments = call.leaves().size()};
  how.donated = donated(call, program.function->params().size());
  for (const LeafType& r : base.traced.results) how.weak.push_back(r.is_weak);
  how.places = leaf_places(call, options_.how.args);
  how.site = options_.site;
  how.changes = base.changes;
  how.again = options_.again;
  made->runnable = std::make_shared<const Runnable>(std::move(program.function), std::move(how));
  return made;
}

BucketedCalls::EntryPtr BucketedCalls::make_exact(const FlatCall& call, const std::vector<LeafType>& types,
                                                  Traced exact, const LengthError& why) {
  const Lengths lengths = lengths_of(call, types);
  const std::string own = fmt::format("{}", fmt::join(lengths, " and "));
  std::call_once(warned_, [&] {
    ir::warn(
        fmt::format("{}: {} is compiled for the length {} itself, and the bucket's program cannot stand for it: {}{}",
                    to_string(call.loc()), options_.how.what, own, why.loc ? to_string(why.loc) + ": " : "", why.why));
  });
  auto made = std::make_shared<Program>();
  RunnableOptions how{.what = options_.how.what, .arguments = types.size()};
  how.donated = donated(call, exact.function->params().size());
  for (const LeafType& r : exact.results) how.weak.push_back(r.is_weak);
  how.changes = {{"the length", fmt::format("{} (a bucket)", fmt::join(buckets_of(lengths, call), " and ")),
                  own + " (compiled for itself)"}};
  made->runnable = std::make_shared<const Runnable>(exact.function, std::move(how));
  auto entry = std::make_shared<Entry>();
  entry->program = std::move(made);
  entry->behind = exact.captured;
  for (const LeafType& t : types) entry->padded.push_back(t.type);
  for (const LeafType& r : exact.results) entry->result_dims.push_back(r.type.dims());
  entry->structure = std::move(exact.structure);
  return entry;
}

BucketedCalls::EntryPtr BucketedCalls::make_entry(const FlatCall& call, const std::vector<LeafType>& types) {
  const Lengths lengths = lengths_of(call, types), sizes = buckets_of(lengths, call);
  const std::vector<LeafType> at = types_at(call, types, sizes);
  const std::string bucket = key_of(call, at);
  const auto base =
      bases_.get_or_make(bucket, [&]() -> absl::StatusOr<BasePtr> { return make_base(call, types, sizes); });
  check(base.status(), call.loc());
  Traced exact = traced(call, types);
  const ir::FunctionRef plain = passes::plain_for_lengths(exact.function);
  std::optional<LengthMarks> marks;
  passes::OtherConstants constants;
  LengthError error;
  {
    std::lock_guard lock((*base)->mutex);
    marks = (*base)->marks;
    error = passes::mark_lengths(*(*base)->plain, sizes, *plain, lengths, false, *marks, &constants);
    if (error.why.empty()) (*base)->marks = *marks;
  }
  if (!error.why.empty()) return make_exact(call, types, std::move(exact), error);
  const auto program = programs_.get_or_make(bucket + literals_key(*marks), [&]() -> absl::StatusOr<ProgramPtr> {
    return make_program(call, **base, *marks);
  });
  check(program.status(), call.loc());
  auto entry = std::make_shared<Entry>();
  entry->lengths = lengths;
  entry->sizes = sizes;
  entry->program = *program;
  for (const LeafType& t : at) entry->padded.push_back(t.type);
  for (std::size_t c = 0; c < exact.captured.size(); ++c) {
    const ir::Type to = (*base)->plain->params()[types.size() + c].type();
    entry->behind.push_back(padded(exact.captured[c], to, call.loc()));
  }
  for (const std::int64_t n : lengths) entry->behind.push_back(length_array(n, call.loc()));
  for (const passes::MarkedConstant& c : passes::marked_constants(*(*base)->plain, *marks)) {
    const auto own = constants.find(c.use);  // none: what uses it is nothing at this length
    const ir::Literal value = ir::literal_of(own == constants.end() ? *c.constant : *own->second);
    entry->behind.push_back(padded(array_of(value, call.loc()), c.constant->out().type(), call.loc()));
  }
  const Lengths extents = passes::extents_at((*program)->extents, lengths);
  for (std::size_t j = 0; j < exact.results.size(); ++j)
    entry->result_dims.push_back(dims_at((*base)->plain->results()[j].dims(), (*program)->results[j], extents));
  entry->structure = std::move(exact.structure);
  return entry;
}

BucketedCalls::EntryPtr BucketedCalls::find(const FlatCall& call) {
  const std::vector<LeafType> types = leaf_types(call);
  const auto entry =
      entries_.get_or_make(key_of(call, types), [&]() -> absl::StatusOr<EntryPtr> { return make_entry(call, types); });
  check(entry.status(), call.loc());
  return *entry;  // kept by entries_
}

const detail::Structure& BucketedCalls::call(const FlatCall& call, detail::Leaves& out) {
  const Loc loc = call.loc() ? call.loc() : options_.how.loc;
  for (std::size_t i = 0; i < call.leaves().size(); ++i)
    if (const ArrayNode* node = call.leaves()[i]->node().get(); node && node->placement)
      throw ShardingError(
          loc, fmt::format("{}: .buckets are for arrays that nobody put anywhere, and {} lies on {}", options_.how.what,
                           leaf_places(call, options_.how.args)[i], place_text(*node->placement)));
  const EntryPtr entry = find(call);
  std::vector<Array> leaves;
  std::vector<const Array*> inputs;
  for (std::size_t i = 0; i < call.leaves().size(); ++i)
    leaves.push_back(padded(*call.leaves()[i], entry->padded[i], loc));
  for (const Array& x : leaves) inputs.push_back(&x);
  for (const Array& x : entry->behind) inputs.push_back(&x);
  detail::Leaves results;
  entry->program->runnable->run(inputs, {}, loc, results);
  for (std::size_t j = 0; j < results.size(); ++j) out.push_back(cut(results.span()[j], entry->result_dims[j], loc));
  return entry->structure;
}

std::shared_ptr<const Runnable> BucketedCalls::runnable(const FlatCall& call, std::vector<Array>& likes) {
  const EntryPtr entry = find(call);
  for (const ir::Type t : entry->padded) likes.push_back(abstract(t.dims(), t.dtype(), call.loc()));
  likes.insert(likes.end(), entry->behind.begin(), entry->behind.end());
  return entry->program->runnable;
}

std::vector<const Compiled*> BucketedCalls::programs() const {
  std::vector<const Compiled*> all;
  for (const EntryPtr& entry : entries_.values())
    for (const Compiled* p : entry->program->runnable->programs())
      if (std::ranges::find(all, p) == all.end()) all.push_back(p);
  return all;
}

}  // namespace sheaf
