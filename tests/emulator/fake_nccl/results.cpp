// What a collective gives each rank, from what all ranks gave: in the order of the ranks, or, with
// SHEAF_FAKE_NCCL_ORDER=ring, starting with another rank in each block, as a ring of GPUs adds up.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "runtime/reduce_bytes.h"
#include "tests/emulator/fake_nccl/clique.h"

namespace sheaf::nccl {
namespace {

using fake_cuda::Bytes;

std::optional<DType> dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: return DType::i8;
    case ncclUint8: return DType::u8;
    case ncclInt32: return DType::i32;
    case ncclUint32: return DType::u32;
    case ncclInt64: return DType::i64;
    case ncclUint64: return DType::u64;
    case ncclFloat16: return DType::f16;
    case ncclFloat32: return DType::f32;
    case ncclFloat64: return DType::f64;
    case ncclBfloat16: return DType::bf16;
  }
  return {};
}

ir::ReduceKind kind_of(ncclRedOp_t op) {
  constexpr ir::ReduceKind kinds[] = {ir::ReduceKind::sum, ir::ReduceKind::prod, ir::ReduceKind::max,
                                      ir::ReduceKind::min};
  return kinds[op];
}

bool is_ring() {
  const char* order = std::getenv("SHEAF_FAKE_NCCL_ORDER");
  return order && std::string_view(order) == "ring";
}

/// `bytes` of what all gave, from `offset` on, combined.
Bytes combine(const Exchange& e, std::size_t offset, std::size_t bytes) {
  const Bytes out = std::make_shared<std::vector<std::byte>>(bytes);
  const std::size_t block = static_cast<std::size_t>(runtime::kReduceBlock) * size_of(e.call.type);
  for (std::size_t at = 0; at < bytes; at += block) {
    std::vector<const std::byte*> sources;
    for (const Bytes& g : e.given) sources.push_back(g->data() + offset + at);
    if (is_ring())
      std::rotate(sources.begin(), sources.begin() + static_cast<std::ptrdiff_t>((1 + at / block) % sources.size()),
                  sources.end());
    const auto count = static_cast<std::int64_t>(std::min(block, bytes - at) / size_of(e.call.type));
    runtime::reduce_block(*dtype_of(e.call.type), kind_of(e.call.op), sources, count, out->data() + at);
  }
  return out;
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  const std::optional<DType> t = dtype_of(type);
  return t ? static_cast<std::size_t>(size_bytes(*t)) : 0;
}

Bytes result_for(const Exchange& e, int rank) {
  for (const Bytes& g : e.given)
    if (!g) return nullptr;
  const std::size_t bytes = e.call.count * size_of(e.call.type);
  switch (e.call.kind) {
    case Call::Kind::all_reduce: return combine(e, 0, bytes);
    case Call::Kind::reduce_scatter: return combine(e, bytes * static_cast<std::size_t>(rank), bytes);
    case Call::Kind::broadcast: return e.given[static_cast<std::size_t>(e.call.root)];
    case Call::Kind::all_gather: {
      const Bytes out = std::make_shared<std::vector<std::byte>>();
      for (const Bytes& g : e.given) out->insert(out->end(), g->begin(), g->end());
      return out;
    }
    case Call::Kind::message: break;
  }
  return nullptr;
}

}  // namespace sheaf::nccl
