// Written as CUDA, with names for what differs: `constexpr` sizes, and $places for addresses and for what some
// attentions lack. Invariant: a warp owns 16 rows of its block's tile, or a few times 16, and all sums over columns are
// its own; a barrier stands before a tile is read that other warps helped to load, and before it is loaded again.
#include "codegen/cuda/attention_text.h"

namespace sheaf::codegen {
namespace {

// Chunks of rows a multiple of 8 apart change places alike, so such a distance is a constant beside an address.
// M tiles of 16 rows and N of 8 columns: element i of lane 4 g + t is row g + i / 2 * 8, column 2 t + i % 2.
constexpr CudaPiece kPieces[] = {
    {"sf_mma_half", R"(
template <bool IsBf16> __device__ __forceinline__ void sf_mma_half(float* d, const sf_u32* a, const sf_u32* b) {
  if constexpr (IsBf16) sf_mma_bf16(d, a, b);
  else sf_mma_f16(d, a, b);
})"},
    {"sf_pack_half", R"(
template <bool IsBf16> __device__ __forceinline__ sf_u32 sf_pack_half(float low, float high) {
  if constexpr (IsBf16) return sf_pack_bf16(low, high);
  else return sf_pack_f16(low, high);
})"},
    // Rows of one tile times rows of another. `left(a, k)` gives the fragments of columns k..
    {"sf_products", R"(
template <bool IsBf16, int Columns, int M, int N, class Left> __device__ __forceinline__ void sf_products(float (&sums)[M][N][4], Left left, const sf_u16* right) {
#pragma unroll
  for (int i = 0; i < M * N * 4; ++i) sums[i / 4 / N][i / 4 % N][i % 4] = 0;
  const int lane = sf_here(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < Columns; k += 16) {
    sf_u32 a[M][4];
    left(a, k);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      sf_u32 b[4];
      sf_ldmatrix<4>(b, right + 8 * n * Columns + sf_tile_at<Columns>(lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        sf_mma_half<IsBf16>(sums[m][n], a[m], b);
        sf_mma_half<IsBf16>(sums[m][n + 1], a[m], b + 2);
      }
    }
  }
})"},
    {"sf_row_products", R"(
template <bool IsBf16, int Columns, int M, int N> __device__ __forceinline__ void sf_row_products(float (&sums)[M][N][4], const sf_u16* left, int row, const sf_u16* right) {
  const int lane = sf_here(threadIdx.x) % 32;
  const auto load = [&](sf_u32 (&a)[M][4], int k) {
#pragma unroll
    for (int m = 0; m < M; ++m) sf_ldmatrix<4>(a[m], left + (row + 16 * m) * Columns + sf_tile_at<Columns>(lane % 16, k + lane / 16 * 8));
  };
  sf_products<IsBf16, Columns>(sums, load, right);
})"},
    // Adds to the sums the rows of a tile, by weights.
    {"sf_weighted_rows", R"(
template <bool IsBf16, int Columns, int M, int K, int N> __device__ __forceinline__ void sf_weighted_rows(float (&sums)[M][N][4], const float (&weights)[M][K][4], const sf_u16* right) {
  const int lane = sf_here(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < K; k += 2) {
    sf_u32 a[M][4];
#pragma unroll
    for (int i = 0; i < M * 4; ++i) {
      const float* w = weights[i / 4][k + i % 4 / 2] + i % 2 * 2;
      a[i / 4][i % 4] = sf_pack_half<IsBf16>(w[0], w[1]);
    }
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      sf_u32 b[4];
      sf_ldmatrix_trans<4>(b, right + 8 * k * Columns + sf_tile_at<Columns>(lane % 16, 8 * n + lane / 16 * 8));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        sf_mma_half<IsBf16>(sums[m][n], a[m], b);
        sf_mma_half<IsBf16>(sums[m][n + 1], a[m], b + 2);
      }
    }
  }
})"},
    // The sums, rounded, as rows `row`.. of a tile.
    {"sf_put_rows", R"(
template <bool IsBf16, int Columns, int M, int N> __device__ __forceinline__ void sf_put_rows(sf_u16* tile, int row, const float (&sums)[M][N][4]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < M * N * 2; ++i) {
    const float* s = sums[i / 2 / N][i / 2 % N] + i % 2 * 2;
    *(sf_u32*)(tile + sf_tile_at<Columns>(row + i / 2 / N * 16 + i % 2 * 8 + g, i / 2 % N * 8 + 2 * t)) = sf_pack_half<IsBf16>(s[0], s[1]);
  }
})"},
    {"sf_tile_store", R"(
template <int Rows, int Columns, int Threads> __device__ __forceinline__ void sf_tile_store(sf_u16* to, sf_i64 pitch, const sf_u16* tile, int rows, int columns) {
#pragma unroll
  for (int i = threadIdx.x; i < Rows * Columns / 8; i += Threads) {
    const int row = i / (Columns / 8), column = i % (Columns / 8) * 8;
    if (row < rows && column < columns) sf_store(to + row * pitch + column, sf_load<8>(tile + sf_tile_at<Columns>(row, column)));
  }
})"},
};

}  // namespace

namespace attention_text {

// Of the scores s of rows `first`.. and columns `c`..: the scale where it cannot wait for the exponential, bias, mask
// and window. Eight columns at a time, behind a branch, so that not all loads are under way at once; a tile that all
// meet needs no tests.
const std::string_view kScores = R"(
    const sf_u32 here = sf_here(threadIdx.x);
    const int row = first + here / 32 * 16 * kM + here % 32 / 4, t = here % 4;$score_arrays
    if constexpr (kScalesNow) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) s[i / 4 / kN][i / 4 % kN][i % 4] *= kScaleNow;
    }
    if ($has_arrays || $last_key >= kKeys || $last_query >= kQueries || (kAfter >= 0 && $last_key - $first_query > kAfter) || (kBefore >= 0 && $last_query - $first_key > kBefore)) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        if ($has_arrays && c + 8 * n >= $columns_end) {
#pragma unroll
          for (int i = 0; i < 4 * kM; ++i) s[i / 4][n][i % 4] = __uint_as_float(0xff800000u);
          continue;
        }
#pragma unroll
        for (int i = 0; i < 4 * kM; ++i) {
          const int query = $query_of, key = $key_of;
          float& x = s[i / 4][n][i % 4];
          const bool meets = key < kKeys && query < kQueries && (kAfter < 0 || key - query <= kAfter) && (kBefore < 0 || query - key <= kBefore)$mask;
          x = meets ? $biased : __uint_as_float(0xff800000u);
        }
      }
    })";

// One step ahead, keys come while values are multiplied, and values while keys are. Queries are kept in registers where
// those suffice.
const std::string_view kForward = R"(
  sf_u16 *const keys = shared + kRows * kF, *const values = keys + kColumns * kF;
  const int part = blockIdx.x % kParts, block = blockIdx.x / kParts;
  const int first = (kTiles - 1 - block % kTiles) * kRows, head = block / kTiles % kHeads, row0 = threadIdx.x / 32 * 16 * kM;
  const sf_i64 batch = block / (kTiles * kHeads);
  const int last = first + kRows < kQueries ? first + kRows - 1 : kQueries - 1;
  int begin = 0, end = kKeys;
  if (kBefore >= 0 && first > kBefore) begin = (first - kBefore) / kColumns * kColumns;
  if (kAfter >= 0 && last + kAfter + 1 < end) end = last + kAfter + 1;
  if constexpr (kParts > 1) {
    if (part * kPartKeys > begin) begin = part * kPartKeys;
    if ((part + 1) * kPartKeys < end) end = (part + 1) * kPartKeys;
  }
  float sums[kM][kV / 8][4], top[kM][2], total[kM][2];
#pragma unroll
  for (int i = 0; i < kM * kV / 2; ++i) sums[i / (kV / 2)][i / 4 % (kV / 8)][i % 4] = 0;
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    top[i / 2][i % 2] = __uint_as_float(0xff800000u);
    total[i / 2][i % 2] = 0;
  }
  sf_tile_copy<kRows, kF, kThreads, 2>(shared, $query, $query_pitch, kQueries - first, kFeatures);
  if (begin < end) sf_tile_copy<kColumns, kF, kThreads, 2>(keys, $key_begin, $key_pitch, kKeys - begin, kFeatures);
  sf_cp_async_commit();
  sf_u32 kept[kM][kKeeps ? kF / 16 : 1][4];
  if constexpr (kKeeps) {
    sf_cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kM * kF / 16; ++i) sf_lhs_fragment<kF>(kept[i / (kF / 16)][i % (kF / 16)], shared, row0 + i / (kF / 16) * 16, i % (kF / 16) * 16);
  }
  for (int c = begin; c < end; c += kColumns) {
    sf_cp_async_wait<0>();
    __syncthreads();
    sf_tile_copy<kColumns, kV, kThreads, 2>(values, $value_c, $value_pitch, kKeys - c, kValues);
    sf_cp_async_commit();
    float s[kM][kN][4];
    if constexpr (kKeeps) {
      sf_products<kIsBf16, kF>(s, [&](sf_u32 (&a)[kM][4], int k) {
#pragma unroll
        for (int i = 0; i < kM * 4; ++i) a[i / 4][i % 4] = kept[i / 4][k / 16][i % 4];
      }, keys);
    } else {
      sf_row_products<kIsBf16, kF>(s, shared, row0, keys);
    }
    sf_cp_async_wait<0>();
    __syncthreads();
    if (c + kColumns < end) sf_tile_copy<kColumns, kF, kThreads, 2>(keys, $key_next, $key_pitch, kKeys - c - kColumns, kFeatures);
    sf_cp_async_commit();$scores
#pragma unroll
    for (int r = 0; r < 2 * kM; ++r) {
      const int m = r / 2, h = r % 2 * 2;
      float most = top[m][r % 2];
#pragma unroll
      for (int i = 0; i < 2 * kN; ++i) most = fmaxf(most, s[m][i / 2][h + i % 2]);
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float shift = most == __uint_as_float(0xff800000u) ? 0 : most * kScaleLater;
      const float rescale = sf_exp2(fmaf(top[m][r % 2], kScaleLater, -shift));
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 2 * kN; ++i) {
        float& x = s[m][i / 2][h + i % 2];
        x = sf_exp2(fmaf(x, kScaleLater, -shift));
        sum += x;
      }
      top[m][r % 2] = most;
      total[m][r % 2] = fmaf(total[m][r % 2], rescale, sum);
#pragma unroll
      for (int i = 0; i < kV / 4; ++i) sums[m][i / 2][h + i % 2] *= rescale;
    }
    sf_weighted_rows<kIsBf16, kV>(sums, s, values);
  }
  sf_cp_async_wait<0>();
#pragma unroll
  for (int r = 0; r < 2 * kM; ++r) {
    const int m = r / 2, h = r % 2 * 2;
    float all = total[m][r % 2];
    all += __shfl_xor_sync(0xffffffffu, all, 1);
    all += __shfl_xor_sync(0xffffffffu, all, 2);
    const float share = all == 0 ? 0 : 1 / all;
#pragma unroll
    for (int i = 0; i < kV / 4; ++i) sums[m][i / 2][h + i % 2] *= share;$lse
  }
$out
)";

const std::string_view kForwardOut = R"(
  __syncthreads();
  sf_put_rows<kIsBf16, kV>(shared, row0, sums);
  __syncthreads();$out_rows)";

const std::string_view kPartOut = R"(
#pragma unroll
  for (int i = 0; i < kM * kV / 4; ++i) {
    const int m = i / (kV / 4), n = i / 2 % (kV / 8), h = i % 2 * 2;
    const int query = first + row0 + 16 * m + h * 4 + threadIdx.x % 32 / 4, column = 8 * n + threadIdx.x % 4 * 2;
    if (query < kQueries && column < kValues) {
      sf_vec<float, 2> pair;
      pair.v[0] = sums[m][n][h];
      pair.v[1] = sums[m][n][h + 1];
      sf_store($part_out_at, pair);
    }
  })";

// A thread puts together four values of one row: the parts' means by how much of the row's sum each part is.
const std::string_view kCombine = R"(
  const sf_i64 i = blockIdx.x * $threadsll + threadIdx.x;
  if (i >= $chunksll) return;
  const int column = i % $row_chunks * 4;
  const sf_i64 at = i / $row_chunks, batch = at / $rows_of_batch, sum = batch * $rows_of_batch + at % $heads * $queries + at / $heads % $queries;
  float top = __uint_as_float(0xff800000u), total = 0, mean[4] = {0, 0, 0, 0};
  for (int part = 0; part < $parts; ++part) top = fmaxf(top, $part_lse[part * $sumsll + sum]);
  for (int part = 0; part < $parts && top != __uint_as_float(0xff800000u); ++part) {
    const float weight = sf_exp2(($part_lse[part * $sumsll + sum] - top) * kLog2e);
    const sf_vec<float, 4> x = sf_load<4>($part_out + part * $countll + 4 * i);
    total += weight;
#pragma unroll
    for (int k = 0; k < 4; ++k) mean[k] = fmaf(weight, x.v[k], mean[k]);
  }
  const float share = total == 0 ? 0 : 1 / total;
  sf_vec<sf_u32, 2> halves;
  halves.v[0] = sf_pack_half<kIsBf16>(mean[0] * share, mean[1] * share);
  halves.v[1] = sf_pack_half<kIsBf16>(mean[2] * share, mean[3] * share);$store
)";

const std::string_view kForwardLse = R"(
    const int query = first + row0 + 16 * m + h * 4 + threadIdx.x % 32 / 4;
    if (threadIdx.x % 4 == 0 && query < kQueries) $lse_at = fmaf(top[m][r % 2], kScaleLater, log2f(all)) * kLn2;)";

// A row's shift for each thread, and four elements of ct.
const std::string_view kPrepare = R"(
  const sf_i64 i = blockIdx.x * $threadsll + threadIdx.x;$halves
  if (i < $sumsll) {
    const float lse = $lse[i];
    $shift[i] = lse == __uint_as_float(0xff800000u) ? __uint_as_float(0x7f800000u) : lse * kLog2e;
  }
)";

const std::string_view kHalves = R"(
  if (i < $chunksll) {
    const sf_vec<float, 4> a = sf_load<4>($ct + 4 * i);
    sf_vec<sf_u32, 2> halves;
    halves.v[0] = sf_pack_half<kIsBf16>(a.v[0], a.v[1]);
    halves.v[1] = sf_pack_half<kIsBf16>(a.v[2], a.v[3]);
    sf_store((sf_u32*)$ct_half + 2 * i, halves);
  })";

const std::string_view kBackwardQueries = R"(
  sf_u16 *const cts = shared + kRows * kF, *const keys = cts + kRows * kV, *const values = keys + kStages * kColumns * kF;
  const int first = (kTiles - 1 - blockIdx.x % kTiles) * kRows, head = blockIdx.x / kTiles % kHeads, row0 = threadIdx.x / 32 * 16 * kM;
  const sf_i64 batch = blockIdx.x / (kTiles * kHeads);
  const int last = first + kRows < kQueries ? first + kRows - 1 : kQueries - 1;
  int begin = 0, end = kKeys;
  if (kBefore >= 0 && first > kBefore) begin = (first - kBefore) / kColumns * kColumns;
  if (kAfter >= 0 && last + kAfter + 1 < end) end = last + kAfter + 1;
  float sums[kM][kF / 8][4], shift[kM][2], ct_sum[kM][2];
#pragma unroll
  for (int i = 0; i < kM * kF / 2; ++i) sums[i / (kF / 2)][i / 4 % (kF / 8)][i % 4] = 0;
#pragma unroll
  for (int r = 0; r < 2 * kM; ++r) {
    const int query = first + row0 + 8 * r + threadIdx.x % 32 / 4;
    shift[r / 2][r % 2] = query < kQueries ? $shift_at : 0;
    ct_sum[r / 2][r % 2] = query < kQueries ? $ct_sum_at : 0;
  }
  sf_tile_copy<kRows, kF, kThreads, 2>(shared, $query, $query_pitch, kQueries - first, kFeatures);
  sf_tile_copy<kRows, kV, kThreads, 2>(cts, $ct_half, $ct_half_pitch, kQueries - first, kValues);
  const auto load = [&](int c, int stage) {
    sf_tile_copy<kColumns, kF, kThreads, 2>(keys + stage * kColumns * kF, $key_c, $key_pitch, kKeys - c, kFeatures);
    sf_tile_copy<kColumns, kV, kThreads, 2>(values + stage * kColumns * kV, $value_c, $value_pitch, kKeys - c, kValues);
  };
  if (kStages == 2 && begin < end) load(begin, 0);
  if (kStages == 2) sf_cp_async_commit();
  int stage = 0;
  for (int c = begin; c < end; c += kColumns) {
    const int ahead = c + (kStages - 1) * kColumns;
    if (ahead < end) load(ahead, kStages == 2 ? 1 - stage : 0);
    sf_cp_async_commit();
    sf_cp_async_wait<kStages - 1>();
    __syncthreads();
    float s[kM][kN][4], d[kM][kN][4];
    sf_row_products<kIsBf16, kF>(s, shared, row0, keys + stage * kColumns * kF);
    sf_row_products<kIsBf16, kV>(d, cts, row0, values + stage * kColumns * kV);$scores
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int m = i / 4 / kN, n = i / 4 % kN, e = i % 4;
      s[m][n][e] = sf_exp2(fmaf(s[m][n][e], kScaleLater, -shift[m][e / 2])) * (d[m][n][e] + ct_sum[m][e / 2]);
    }
    sf_weighted_rows<kIsBf16, kF>(sums, s, keys + stage * kColumns * kF);
    __syncthreads();
    if (kStages == 2) stage = 1 - stage;
  }
  sf_cp_async_wait<0>();
#pragma unroll
  for (int i = 0; i < kM * kF / 2; ++i) sums[i / (kF / 2)][i / 4 % (kF / 8)][i % 4] *= kScale;
  __syncthreads();
  sf_put_rows<kIsBf16, kF>(shared, row0, sums);
  __syncthreads();$d_query
)";

// A tile of the bias's gradient, of all examples and heads that read it.
const std::string_view kBackwardBias = R"(
  sf_u16 *const cts = shared + kRows * kF, *const keys = cts + kRows * kV, *const values = keys + kColumns * kF;
  const int first = blockIdx.x / kColumnTiles % kTiles * kRows, c = blockIdx.x % kColumnTiles * kColumns, row0 = threadIdx.x / 32 * 16 * kM;
  const int own = blockIdx.x / (kColumnTiles * kTiles), last = first + kRows < kQueries ? first + kRows - 1 : kQueries - 1;
  const bool some_meet = (kAfter < 0 || c - last <= kAfter) && (kBefore < 0 || first - (c + kColumns - 1) <= kBefore);
  float sums[kM][kN][4];
#pragma unroll
  for (int i = 0; i < kScores; ++i) sums[i / 4 / kN][i / 4 % kN][i % 4] = 0;
  for (int other = 0; other < kOthers && some_meet; ++other) {
    const int head = $head_of;
    const sf_i64 batch = $batch_of;
    __syncthreads();
    sf_tile_copy<kRows, kF, kThreads, 2>(shared, $query, $query_pitch, kQueries - first, kFeatures);
    sf_tile_copy<kRows, kV, kThreads, 2>(cts, $ct_half, $ct_half_pitch, kQueries - first, kValues);
    sf_tile_copy<kColumns, kF, kThreads, 2>(keys, $key_c, $key_pitch, kKeys - c, kFeatures);
    sf_tile_copy<kColumns, kV, kThreads, 2>(values, $value_c, $value_pitch, kKeys - c, kValues);
    sf_cp_async_commit();
    sf_cp_async_wait<0>();
    __syncthreads();
    float s[kM][kN][4], d[kM][kN][4];
    sf_row_products<kIsBf16, kF>(s, shared, row0, keys);
    sf_row_products<kIsBf16, kV>(d, cts, row0, values);$scores
#pragma unroll
    for (int r = 0; r < 2 * kM; ++r) {
      const int query = first + row0 + 8 * r + threadIdx.x % 32 / 4, m = r / 2;
      const float shift = query < kQueries ? $shift_at : 0, ct_sum = query < kQueries ? $ct_sum_at : 0;
#pragma unroll
      for (int i = 0; i < 2 * kN; ++i) {
        const int n = i / 2, e = r % 2 * 2 + i % 2;
        sums[m][n][e] = fmaf(sf_exp2(fmaf(s[m][n][e], kScaleLater, -shift)), d[m][n][e] + ct_sum, sums[m][n][e]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    const int query = first + row0 + i / 4 / kN * 16 + i % 4 / 2 * 8 + threadIdx.x % 32 / 4, key = c + i / 4 % kN * 8 + threadIdx.x % 4 * 2 + i % 2;
    if (query < kQueries && key < kKeys) $d_bias_at = $d_bias_value;
  }
)";

// Rows are keys: the scores of a tile are transposed, so that weights are left operands as they come.
const std::string_view kBackwardKeys = R"(
  sf_u16 *const values = shared + kRows * kF, *const queries = values + (kHasKey ? kRows * kV : 0), *const cts = queries + kStages * kColumns * kF;
  float *const shifts = (float*)(cts + kStages * kColumns * kV), *const ct_sums = shifts + kStages * kColumns;
  const int first = blockIdx.x % kTiles * kRows, key_head = blockIdx.x / kTiles % kKeyHeads, row0 = threadIdx.x / 32 * 16 * kM;
  const sf_i64 batch = blockIdx.x / (kTiles * kKeyHeads);
  const int last = first + kRows < kKeys ? first + kRows - 1 : kKeys - 1;
  int begin = 0, end = kQueries;
  if (kAfter >= 0 && first > kAfter) begin = (first - kAfter) / kColumns * kColumns;
  if (kBefore >= 0 && last + kBefore + 1 < end) end = last + kBefore + 1;
  const int steps = begin < end ? (end - begin + kColumns - 1) / kColumns : 0;
  float d_keys[kHasKey ? kM : 1][kHasKey ? kF / 8 : 1][4], d_values[kHasValue ? kM : 1][kHasValue ? kV / 8 : 1][4];
  if constexpr (kHasKey) {
#pragma unroll
    for (int i = 0; i < kM * kF / 2; ++i) d_keys[i / (kF / 2)][i / 4 % (kF / 8)][i % 4] = 0;
  }
  if constexpr (kHasValue) {
#pragma unroll
    for (int i = 0; i < kM * kV / 2; ++i) d_values[i / (kV / 2)][i / 4 % (kV / 8)][i % 4] = 0;
  }
  sf_tile_copy<kRows, kF, kThreads, 2>(shared, $key, $key_pitch, kKeys - first, kFeatures);
  if (kHasKey) sf_tile_copy<kRows, kV, kThreads, 2>(values, $value, $value_pitch, kKeys - first, kValues);
  const auto load = [&](int step, int stage) {
    const int head = key_head * kGroup + step / steps, c = begin + step % steps * kColumns;
    sf_tile_copy<kColumns, kF, kThreads, 2>(queries + stage * kColumns * kF, $query_c, $query_pitch, kQueries - c, kFeatures);
    sf_tile_copy<kColumns, kV, kThreads, 2>(cts + stage * kColumns * kV, $ct_half_c, $ct_half_pitch, kQueries - c, kValues);
    const int i = threadIdx.x % kColumns, query = c + i;
    if (threadIdx.x < kColumns) sf_cp_async<4>(shifts + stage * kColumns + i, query < kQueries ? &$shift_at : &$shift_0, query < kQueries);
    else if (threadIdx.x < 2 * kColumns) sf_cp_async<4>(ct_sums + stage * kColumns + i, query < kQueries ? &$ct_sum_at : &$ct_sum_0, query < kQueries);
  };
  if (kStages == 2 && steps > 0) load(0, 0);
  if (kStages == 2) sf_cp_async_commit();
  int stage = 0;
  for (int step = 0; step < steps * kGroup; ++step) {
    const int ahead = step + kStages - 1;
    if (ahead < steps * kGroup) load(ahead, kStages == 2 ? 1 - stage : 0);
    sf_cp_async_commit();
    sf_cp_async_wait<kStages - 1>();
    __syncthreads();
    const int head = key_head * kGroup + step / steps, c = begin + step % steps * kColumns;
    float s[kM][kN][4];
    sf_row_products<kIsBf16, kF>(s, shared, row0, queries + stage * kColumns * kF);$scores
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const sf_vec<float, 2> shift = sf_load<2>(shifts + stage * kColumns + 8 * n + 2 * t);
#pragma unroll
      for (int i = 0; i < 4 * kM; ++i) s[i / 4][n][i % 4] = sf_exp2(fmaf(s[i / 4][n][i % 4], kScaleLater, -shift.v[i % 2]));
    }
    if constexpr (kHasValue) sf_weighted_rows<kIsBf16, kV>(d_values, s, cts + stage * kColumns * kV);
    if constexpr (kHasKey) {
      float d[kM][kN][4];
      sf_row_products<kIsBf16, kV>(d, values, row0, cts + stage * kColumns * kV);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const sf_vec<float, 2> ct_sum = sf_load<2>(ct_sums + stage * kColumns + 8 * n + 2 * t);
#pragma unroll
        for (int i = 0; i < 4 * kM; ++i) s[i / 4][n][i % 4] *= d[i / 4][n][i % 4] + ct_sum.v[i % 2];
      }
      sf_weighted_rows<kIsBf16, kF>(d_keys, s, queries + stage * kColumns * kF);
    }
    __syncthreads();
    if (kStages == 2) stage = 1 - stage;
  }
  sf_cp_async_wait<0>();
  __syncthreads();
  if constexpr (kHasKey) {
#pragma unroll
    for (int i = 0; i < kM * kF / 2; ++i) d_keys[i / (kF / 2)][i / 4 % (kF / 8)][i % 4] *= kScale;
    sf_put_rows<kIsBf16, kF>(shared, row0, d_keys);
  }
  if constexpr (kHasValue) sf_put_rows<kIsBf16, kV>(shared + (kHasKey ? kRows * kF : 0), row0, d_values);
  __syncthreads();$d_key$d_value
)";

}  // namespace attention_text

std::span<const CudaPiece> cuda_attention_pieces() { return kPieces; }

}  // namespace sheaf::codegen
