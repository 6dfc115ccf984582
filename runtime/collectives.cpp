// Everything but the sums is copying of blocks: a member fetches what its own result is made of. In an all_reduce each
// member sums its part of the elements and hands that to all, so the bytes read and written are those of the operands.
#include "runtime/collectives.h"

#include <algorithm>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "ir/check.h"
#include "runtime/reduce_bytes.h"
#include "runtime/thread_pool.h"

namespace sheaf::runtime {
namespace {

using codegen::Blocks;
using Kind = ir::lowering::Collective::Kind;
using Parts = std::span<const Rendezvous::Part>;

/// What one core copies in 8 us, at 8 GB/s.
constexpr std::int64_t kCopyChunk = 64 << 10;
constexpr std::int64_t kCopyPsPerByte = 125;

/// Bytes that lie in rows: byte p is at p / inner * stride + p % inner.
template <class Byte>
struct Piece {
  Byte* data;
  std::int64_t inner, stride;
};

/// Block k of n.
template <class Byte>
Piece<Byte> block(Byte* data, const Blocks& blocks, std::int64_t k, std::int64_t n) {
  return {data + k * blocks.inner, blocks.inner, n * blocks.inner};
}

void copy_run(std::byte* to, const std::byte* from, std::int64_t bytes) {
  switch (bytes) {
    case 1: std::memcpy(to, from, 1); break;
    case 2: std::memcpy(to, from, 2); break;
    case 4: std::memcpy(to, from, 4); break;
    case 8: std::memcpy(to, from, 8); break;
    default: std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

/// Bytes [begin, end) of a piece.
void copy(Piece<std::byte> to, Piece<const std::byte> from, std::int64_t begin, std::int64_t end) {
  std::int64_t to_at = begin % to.inner, from_at = begin % from.inner;
  std::byte* to_row = to.data + begin / to.inner * to.stride;
  const std::byte* from_row = from.data + begin / from.inner * from.stride;
  while (begin < end) {
    const std::int64_t run = std::min({end - begin, to.inner - to_at, from.inner - from_at});
    copy_run(to_row + to_at, from_row + from_at, run);
    begin += run;
    if ((to_at += run) == to.inner) to_at = 0, to_row += to.stride;
    if ((from_at += run) == from.inner) from_at = 0, from_row += from.stride;
  }
}

/// Fetches n pieces of `bytes` each: to(k) from from(k).
template <class To, class From>
void fetch(std::int64_t n, std::int64_t bytes, To to, From from) {
  if (bytes == 0) return;
  const std::int64_t chunks = (bytes + kCopyChunk - 1) / kCopyChunk;  // of each piece
  ThreadPool& pool = ThreadPool::global();
  pool.parallel_for(n * chunks, pool.grain(n * chunks, std::min(bytes, kCopyChunk) * kCopyPsPerByte),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t c = begin; c < end; ++c) {
                        const std::int64_t k = c / chunks, first = c % chunks * kCopyChunk;
                        copy(to(k), from(k), first, std::min(first + kCopyChunk, bytes));
                      }
                    });
}

void all_gather(Parts parts, int self) {
  const codegen::Collective& what = *parts[self].what;
  const std::int64_t n = std::ssize(parts);
  fetch(
      n, what.to.outer * what.to.inner, [&](std::int64_t k) { return block(parts[self].result, what.to, k, n); },
      [&](std::int64_t k) { return block(parts[k].operand, what.to, 0, 1); });
}

void all_to_all(Parts parts, int self) {
  const codegen::Collective& what = *parts[self].what;
  const std::int64_t n = std::ssize(parts);
  fetch(
      n, what.from.outer * what.from.inner, [&](std::int64_t k) { return block(parts[self].result, what.to, k, n); },
      [&](std::int64_t k) { return block(parts[k].operand, what.from, self, n); });
}

void ppermute(Parts parts, int self) {
  const codegen::Collective& what = *parts[self].what;
  const std::int64_t bytes = what.result.bytes;
  const int source = what.source[self];
  if (source < 0) {
    if (bytes > 0) std::memset(parts[self].result, 0, static_cast<std::size_t>(bytes));
    return;
  }
  const Blocks whole{.outer = 1, .inner = bytes};
  fetch(
      1, bytes, [&](std::int64_t) { return block(parts[self].result, whole, 0, 1); },
      [&](std::int64_t) { return block(parts[source].operand, whole, 0, 1); });
}

/// Calls f(first, count) for blocks of at most kReduceBlock of the elements [0, count), with room for a block.
template <class F>
void for_blocks(const codegen::Collective& what, std::int64_t n, std::int64_t count, F f) {
  const std::int64_t blocks = (count + kReduceBlock - 1) / kReduceBlock;
  const std::int64_t block_bytes = std::min(count, kReduceBlock) * size_bytes(what.dtype);
  ThreadPool& pool = ThreadPool::global();
  pool.parallel_for(blocks, pool.grain(blocks, 2 * n * block_bytes * kCopyPsPerByte),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t b = begin; b < end; ++b)
                        f(b * kReduceBlock, std::min(kReduceBlock, count - b * kReduceBlock));
                    });
}

using Sources = absl::InlinedVector<const std::byte*, 16>;

Sources operands_at(Parts parts, std::int64_t offset) {
  Sources sources;
  for (const Rendezvous::Part& part : parts) sources.push_back(part.operand + offset);
  return sources;
}

void all_reduce(Parts parts, int self) {
  const codegen::Collective& what = *parts[self].what;
  const std::int64_t n = std::ssize(parts), size = size_bytes(what.dtype), count = what.result.bytes / size;
  const std::int64_t line = 64 / size;  // no two members write to one line of the cache
  const std::int64_t share = ((count + n - 1) / n + line - 1) / line * line;
  const std::int64_t first = std::min(self * share, count), own = std::min(share, count - first);
  for_blocks(what, n, own, [&](std::int64_t begin, std::int64_t block) {
    alignas(64) std::byte sum[kReduceBlock * 8];
    const std::int64_t offset = (first + begin) * size;
    reduce_block(what.dtype, what.reduce, operands_at(parts, offset), block, sum);
    for (const Rendezvous::Part& part : parts)
      std::memcpy(part.result + offset, sum, static_cast<std::size_t>(block * size));
  });
}

void reduce_scatter(Parts parts, int self) {
  const codegen::Collective& what = *parts[self].what;
  const std::int64_t n = std::ssize(parts), size = size_bytes(what.dtype), row = what.from.inner / size;
  if (row == 0) return;
  for_blocks(what, n, what.from.outer * row, [&](std::int64_t begin, std::int64_t block) {
    for (const std::int64_t end = begin + block; begin < end;) {
      const std::int64_t at = begin % row, run = std::min(end - begin, row - at);
      const std::int64_t offset = begin / row * n * what.from.inner + self * what.from.inner + at * size;
      reduce_block(what.dtype, what.reduce, operands_at(parts, offset), run, parts[self].result + begin * size);
      begin += run;
    }
  });
}

}  // namespace

void do_share(Parts parts, int self) {
  switch (parts[self].what->kind) {
    case Kind::all_reduce: return all_reduce(parts, self);
    case Kind::all_gather: return all_gather(parts, self);
    case Kind::reduce_scatter: return reduce_scatter(parts, self);
    case Kind::all_to_all: return all_to_all(parts, self);
    case Kind::ppermute: return ppermute(parts, self);
    case Kind::axis_index: SHEAF_CHECK(false, "nobody meets for an axis_index");
  }
}

std::int64_t bytes_moved(const codegen::Collective& what, std::int64_t n) {
  switch (what.kind) {
    case Kind::all_reduce: return 2 * (n - 1) * what.result.bytes;
    case Kind::all_gather: return (n - 1) * what.result.bytes;
    case Kind::reduce_scatter: return (n - 1) * what.operand.bytes;
    case Kind::all_to_all: return (n - 1) * what.operand.bytes;
    case Kind::ppermute: {
      std::int64_t senders = 0;
      for (int k = 0; k < std::ssize(what.source); ++k) senders += what.source[k] >= 0 && what.source[k] != k;
      return senders * what.operand.bytes;
    }
    case Kind::axis_index: return 0;
  }
  return 0;
}

}  // namespace sheaf::runtime
