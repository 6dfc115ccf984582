// What the two templates of elementwise nests share: the loops that are left of the result's dims, and the body.
#pragma once

#include <vector>

#include "codegen/kir/templates/template.h"

namespace sheaf::kir {

/// What a nest covers of the results: all, or a part along one dim.
struct Part {
  std::int64_t dim = -1, begin = 0, end = 0;
};

/// One loop of the nest: a run of adjacent logical dims, read as one index.
struct Loop {
  Shape dims;
  Shape from;  // where along each of them the nest begins
  std::int64_t extent = 1;
  std::int64_t block = 1;   // iterations inside a unit; the rest are units
  std::int64_t blocks() const { return (extent + block - 1) / block; }
};

/// As few loops as possible, the dims of `tile` in different ones.
std::vector<Loop> collapse(const KernelBuilder& k, const std::vector<Target>& targets,
                           const std::vector<std::int64_t>& tile, const Part& part = {});
/// The loop that runs over logical dim `dim`.
std::size_t loop_of(const std::vector<Loop>& loops, std::int64_t dim);
/// The logical position, from that of each loop.
Position positions(IndexPool& pool, const std::vector<Loop>& loops, const std::vector<Index>& at);
/// The targets' values at `position`, unspecified where `mask` is false. All are read before any is stored: a result
/// may share memory with an operand.
std::vector<ValueId> read_targets(Reader& reader, const std::vector<Target>& targets, const Position& position,
                                  ValueId mask = -1);
void store_targets(Reader& reader, const std::vector<Target>& targets, const Position& position,
                   const std::vector<ValueId>& values, ValueId mask = -1);

/// A map in square tiles of two dims, for a GPU: what lies along the outer one goes through the block's memory.
void tile_template(KernelBuilder& k, const std::vector<Target>& targets, const std::vector<std::int64_t>& tile);

}  // namespace sheaf::kir
