// Tiles of halves, and of f32, in shared memory, and how tensor cores read them: pieces of the prelude that kernels
// over mma.sync share. A tile's rows are `Columns` halves long, in chunks of 16 bytes; chunks change places within
// their row so that the same chunk of 8 neighbouring rows, which is what an instruction reads at once, never meets in a
// bank.
#pragma once

#include <cstdint>
#include <span>

#include "codegen/cuda/prelude.h"

namespace sheaf::codegen {

/// sf_tile_at<Columns>(row, column): where an element lies. Columns: a multiple of 8.
/// sf_tile_copy<Rows, Columns, Threads>(tile, from, pitch, rows, columns): asynchronously, by all threads of the block;
///   zeros beyond `rows` and `columns`. `from`, `pitch` and `columns` are multiples of 8; the caller commits and waits.
///   A fourth number says how often the loop is unrolled, where addresses ahead would take too many registers.
/// Fragments of 16 x 16 elements for sf_mma_*, by a warp:
/// sf_lhs_fragment<Columns>(r[4], tile, m, k) of a tile [m, k]; sf_lhs_fragment_trans(r, tile, m, k) of a tile [k, m].
/// sf_rhs_fragments<Columns>(r[4], tile, n, k) of a tile [n, k]; sf_rhs_fragments_trans(r, tile, n, k) of a tile
///   [k, n]: r is of columns n to n + 7, r + 2 of the next 8.
/// The four with _tf32 are of tiles of f32, and 8 in k, for sf_mma_tf32: k and Columns count elements, and those are
/// rounded. A tile with rows along k lies as twice as many halves; others by sf_wide_tile_at<Columns>(row, column).
std::span<const CudaPiece> cuda_tile_pieces();

}  // namespace sheaf::codegen
