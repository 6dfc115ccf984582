// As PTX lays fragments out: lane 4 g + t holds, of a left operand, rows g and g + 8 at k = 2 t, 2 t + 1 and 8 beyond;
// of a right one, column g at the same k. ldmatrix gives each lane its part of 8 x 8 matrices whose rows the lanes
// point to, so all four forms differ in those pointers alone.
#include "codegen/cuda/tiles.h"

namespace sheaf::codegen {
namespace {

constexpr CudaPiece kPieces[] = {
    // Rows of `chunks` chunks begin at 8 / group different banks; a group of rows that begin at the same one is told
    // apart by the exchange. Unsigned, so that compilers see that rows a multiple of 8 apart exchange alike.
    {"sf_tile_at", R"(
template <int Columns> __device__ __forceinline__ int sf_tile_at(int row, int column) {
  constexpr int chunks = Columns / 8, group = chunks % 8 == 0 ? 8 : chunks % 4 == 0 ? 4 : chunks % 2 == 0 ? 2 : 1;
  return row * Columns + (column ^ (int)((unsigned)row / (8 / group) % group * 8));
})"},
    {"sf_tile_copy", R"(
template <int Rows, int Columns, int Threads, int Unroll = 64> __device__ __forceinline__ void sf_tile_copy(sf_u16* tile, const sf_u16* from, sf_i64 pitch, int rows, int columns) {
#pragma unroll Unroll
  for (int i = threadIdx.x; i < Rows * Columns / 8; i += Threads) {
    const int row = i / (Columns / 8), column = i % (Columns / 8) * 8;
    const bool is_there = row < rows && column < columns;
    sf_cp_async<16>(tile + sf_tile_at<Columns>(row, column), from + (is_there ? row * pitch + column : 0), is_there);
  }
})"},
    {"sf_lhs_fragment", R"(
template <int Columns> __device__ __forceinline__ void sf_lhs_fragment(sf_u32* r, const sf_u16* tile, int m, int k) {
  const int lane = threadIdx.x % 32;
  sf_ldmatrix<4>(r, tile + sf_tile_at<Columns>(m + lane % 16, k + lane / 16 * 8));
}
template <int Columns> __device__ __forceinline__ void sf_lhs_fragment_trans(sf_u32* r, const sf_u16* tile, int m, int k) {
  const int lane = threadIdx.x % 32;
  sf_ldmatrix_trans<4>(r, tile + sf_tile_at<Columns>(k + lane / 16 * 8 + lane % 8, m + lane / 8 % 2 * 8));
})"},
    {"sf_rhs_fragments", R"(
template <int Columns> __device__ __forceinline__ void sf_rhs_fragments(sf_u32* r, const sf_u16* tile, int n, int k) {
  const int lane = threadIdx.x % 32;
  sf_ldmatrix<4>(r, tile + sf_tile_at<Columns>(n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
}
template <int Columns> __device__ __forceinline__ void sf_rhs_fragments_trans(sf_u32* r, const sf_u16* tile, int n, int k) {
  const int lane = threadIdx.x % 32;
  sf_ldmatrix_trans<4>(r, tile + sf_tile_at<Columns>(k + lane % 16, n + lane / 16 * 8));
})"},
    // A fragment reads 8 neighbours of each of 4 rows: runs of 8 change places within their row so that those of 4
    // neighbouring rows begin 8 banks apart.
    {"sf_wide_tile_at", R"(
template <int Columns> __device__ __forceinline__ int sf_wide_tile_at(int row, int column) {
  constexpr int runs = Columns / 8, group = runs % 4 == 0 ? 4 : runs % 2 == 0 ? 2 : 1;
  return row * Columns + (column ^ (int)((unsigned)row / (4 / group) % group * 8));
})"},
    {"sf_fragment_to_tf32", R"(
__device__ __forceinline__ void sf_fragment_to_tf32(sf_u32* r) {
#pragma unroll
  for (int i = 0; i < 4; ++i) r[i] = sf_float_to_tf32(__uint_as_float(r[i]));
})"},
    // The second register of a fragment is 8 rows further in a left operand, and 4 terms further in a right one.
    {"sf_turned_fragment_tf32", R"(
template <int Columns, bool IsLhs> __device__ __forceinline__ void sf_turned_fragment_tf32(sf_u32* r, const sf_u16* tile, int outer, int k) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int terms = IsLhs ? i / 2 : i % 2, outers = IsLhs ? i % 2 : i / 2;
    r[i] = sf_float_to_tf32(((const float*)tile)[sf_wide_tile_at<Columns>(k + t + terms * 4, outer + g + outers * 8)]);
  }
})"},
    // What ldmatrix takes for two neighbouring halves is one f32.
    {"sf_lhs_fragment_tf32", R"(
template <int Columns> __device__ __forceinline__ void sf_lhs_fragment_tf32(sf_u32* r, const sf_u16* tile, int m, int k) {
  sf_lhs_fragment<2 * Columns>(r, tile, m, 2 * k);
  sf_fragment_to_tf32(r);
}
template <int Columns> __device__ __forceinline__ void sf_lhs_fragment_tf32_trans(sf_u32* r, const sf_u16* tile, int m, int k) {
  sf_turned_fragment_tf32<Columns, true>(r, tile, m, k);
})"},
    {"sf_rhs_fragments_tf32", R"(
template <int Columns> __device__ __forceinline__ void sf_rhs_fragments_tf32(sf_u32* r, const sf_u16* tile, int n, int k) {
  sf_rhs_fragments<2 * Columns>(r, tile, n, 2 * k);
  sf_fragment_to_tf32(r);
}
template <int Columns> __device__ __forceinline__ void sf_rhs_fragments_tf32_trans(sf_u32* r, const sf_u16* tile, int n, int k) {
  sf_turned_fragment_tf32<Columns, false>(r, tile, n, k);
})"},
};

}  // namespace

std::span<const CudaPiece> cuda_tile_pieces() { return kPieces; }

}  // namespace sheaf::codegen
