// Everything but the sums is copying of blocks. What all members get is read, or summed, once and written to all while
// it is in the cache, so the bytes that go through memory are those of the operands and of the results.
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

/// Calls f(k, begin, end) for chunks [begin, end) of n pieces of `bytes` bytes, of which each chunk moves `times`.
template <class F>
void for_chunks(std::int64_t n, std::int64_t bytes, std::int64_t times, F f) {
  if (bytes == 0) return;
  const std::int64_t chunks = (bytes + kCopyChunk - 1) / kCopyChunk;  // of each piece
  ThreadPool& pool = ThreadPool::global();
  pool.parallel_for(n * chunks, pool.grain(n * chunks, times * std::min(bytes, kCopyChunk) * kCopyPsPerByte),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t c = begin; c < end; ++c) {
                        const std::int64_t first = c % chunks * kCopyChunk;
                        f(c / chunks, first, std::min(first + kCopyChunk, bytes));
                      }
                    });
}

void all_gather(Parts parts) {
  const Blocks& to = parts[0].what->to;
  const std::int64_t n = std::ssize(parts);
  for_chunks(n, to.outer * to.inner, n, [&](std::int64_t k, std::int64_t begin, std::int64_t end) {
    for (const Rendezvous::Part& part : parts)
      copy(block(part.result, to, k, n), block(parts[k].operand, to, 0, 1), begin, end);
  });
}

void all_to_all(Parts parts) {
  const Blocks &from = parts[0].what->from, &to = parts[0].what->to;
  const std::int64_t n = std::ssize(parts);
  for_chunks(n * n, from.outer * from.inner, 1, [&](std::int64_t k, std::int64_t begin, std::int64_t end) {
    const std::int64_t sender = k / n, receiver = k % n;
    copy(block(parts[receiver].result, to, sender, n), block(parts[sender].operand, from, receiver, n), begin, end);
  });
}

void ppermute(Parts parts) {
  const codegen::Collective& what = *parts[0].what;
  for_chunks(std::ssize(parts), what.result.bytes, 1, [&](std::int64_t k, std::int64_t begin, std::int64_t end) {
    const auto bytes = static_cast<std::size_t>(end - begin);
    if (what.source[k] < 0) std::memset(parts[k].result + begin, 0, bytes);
    else std::memcpy(parts[k].result + begin, parts[what.source[k]].operand + begin, bytes);
  });
}

/// Calls f(k, first, count) for blocks of at most kReduceBlock of the `count` elements of each of `sums` sums.
template <class F>
void for_blocks(Parts parts, std::int64_t sums, std::int64_t count, F f) {
  const std::int64_t block_bytes = std::min(count, kReduceBlock) * size_bytes(parts[0].what->dtype);
  const std::int64_t blocks = (count + kReduceBlock - 1) / kReduceBlock;
  ThreadPool& pool = ThreadPool::global();
  pool.parallel_for(sums * blocks, pool.grain(sums * blocks, 2 * std::ssize(parts) * block_bytes * kCopyPsPerByte),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t b = begin; b < end; ++b) {
                        const std::int64_t first = b % blocks * kReduceBlock;
                        f(b / blocks, first, std::min(kReduceBlock, count - first));
                      }
                    });
}

using Sources = absl::InlinedVector<const std::byte*, 16>;

Sources operands_at(Parts parts, std::int64_t offset) {
  Sources sources;
  for (const Rendezvous::Part& part : parts) sources.push_back(part.operand + offset);
  return sources;
}

void all_reduce(Parts parts) {
  const codegen::Collective& what = *parts[0].what;
  const std::int64_t size = size_bytes(what.dtype);
  for_blocks(parts, 1, what.result.bytes / size, [&](std::int64_t, std::int64_t first, std::int64_t count) {
    alignas(64) std::byte sum[kReduceBlock * 8];
    reduce_block(what.dtype, what.reduce, operands_at(parts, first * size), count, sum);
    for (const Rendezvous::Part& part : parts)
      std::memcpy(part.result + first * size, sum, static_cast<std::size_t>(count * size));
  });
}

void reduce_scatter(Parts parts) {
  const codegen::Collective& what = *parts[0].what;
  const std::int64_t n = std::ssize(parts), size = size_bytes(what.dtype), row = what.from.inner / size;
  if (row == 0) return;
  for_blocks(parts, n, what.from.outer * row, [&](std::int64_t k, std::int64_t first, std::int64_t count) {
    for (const std::int64_t end = first + count; first < end;) {
      const std::int64_t at = first % row, run = std::min(end - first, row - at);
      const std::int64_t offset = (first / row * n + k) * what.from.inner + at * size;
      reduce_block(what.dtype, what.reduce, operands_at(parts, offset), run, parts[k].result + first * size);
      first += run;
    }
  });
}

}  // namespace

void do_collective(Parts parts) {
  switch (parts[0].what->kind) {
    case Kind::all_reduce: return all_reduce(parts);
    case Kind::all_gather: return all_gather(parts);
    case Kind::reduce_scatter: return reduce_scatter(parts);
    case Kind::all_to_all: return all_to_all(parts);
    case Kind::ppermute: return ppermute(parts);
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
