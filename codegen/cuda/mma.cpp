// The text of one kernel, from the outside in: which tile a block has, how its operands come into shared memory, the
// products, and how sums leave the registers.
#include "codegen/cuda/mma.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <optional>

#include "codegen/cuda/contract.h"
#include "codegen/cuda/epilogue.h"
#include "codegen/cuda/parameters.h"
#include "codegen/cuda/phase_printer.h"
#include "codegen/cuda/prelude.h"
#include "codegen/kir/contract.h"
#include "ir/check.h"

namespace sheaf::codegen {
namespace {

using Dims = kir::Contract::Dims;
using kir::size_of;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The larger ones need fewer loads for a product; the smaller ones leave fewer multiprocessors without work.
constexpr MmaTile kTiles[] = {
    {.rows = 128,
     .columns = 256,
     .terms = 64,
     .warp_rows = 16,
     .warp_columns = 256,
     .stages = 4,
     .speed = 1.3,
     .is_wgmma = true},
    {.rows = 128,
     .columns = 128,
     .terms = 64,
     .warp_rows = 16,
     .warp_columns = 128,
     .stages = 3,
     .speed = 1.1,
     .is_wgmma = true},
    {.rows = 128, .columns = 256, .terms = 32, .warp_rows = 64, .warp_columns = 64, .stages = 3, .speed = 1.0},
    {.rows = 128, .columns = 128, .terms = 32, .warp_rows = 64, .warp_columns = 32, .stages = 4, .speed = 0.95},
    {.rows = 64, .columns = 128, .terms = 32, .warp_rows = 64, .warp_columns = 32, .stages = 4, .speed = 0.8},
    {.rows = 64, .columns = 64, .terms = 32, .warp_rows = 32, .warp_columns = 32, .stages = 4, .speed = 0.65},
    {.rows = 32, .columns = 128, .terms = 64, .warp_rows = 32, .warp_columns = 32, .stages = 3, .speed = 0.5},
    {.rows = 16, .columns = 128, .terms = 64, .warp_rows = 16, .warp_columns = 32, .stages = 3, .speed = 0.3},
};

// The same bytes of f32. wgmma cannot read those along rows or columns.
constexpr auto kWideTiles = [] {
  std::array<MmaTile, std::count_if(std::begin(kTiles), std::end(kTiles), [](const MmaTile& t) { return !t.is_wgmma; })>
      tiles;
  std::copy_if(std::begin(kTiles), std::end(kTiles), tiles.begin(), [](const MmaTile& t) { return !t.is_wgmma; });
  for (MmaTile& t : tiles) t.terms /= 2, t.halves = 2;
  return tiles;
}();

constexpr std::int64_t kMostPositions = 1 << 30;  // rows, columns or terms: they are counted in 32 bits
constexpr std::int64_t kFewestSplitTerms = 256;
constexpr int kMostSplits = 32;
constexpr int kSlabPitch = 40, kSlabElements = 16 * kSlabPitch;  // of a warp, on the way of results to memory
constexpr std::int64_t kSharedBytes = 227 * 1024;  // of a block of sm_90
constexpr int kGroupedRows = 8;  // tiles of rows that neighbouring blocks share, so that L2 serves both operands

constexpr std::int64_t kFewRows =
    16;  // such a product takes as long as reading its right operand: as much at a time as can be

/// What a prologue makes is not there to be copied: a warpgroup's products would wait for it.
MmaTile choose_tile(std::int64_t rows, std::int64_t columns, std::int64_t batches, DType dtype, bool has_prologue,
                    const Target& target) {
  const int processors = cuda_multiprocessors(target);
  if (rows <= kFewRows) return mma_tiles(dtype).back();
  const MmaTile* best = nullptr;
  double best_cost = std::numeric_limits<double>::infinity();
  for (const MmaTile& t : mma_tiles(dtype)) {
    if (t.is_wgmma && (target.gpu != "sm_90a" || has_prologue)) continue;
    const std::int64_t blocks = ceil_div(rows, t.rows) * ceil_div(columns, t.columns) * batches;
    const double cost = static_cast<double>(ceil_div(blocks, processors) * t.rows * t.columns) / t.speed;
    if (cost < best_cost) best = &t, best_cost = cost;
  }
  return *best;
}

class Printer {
 public:
  Printer(const kir::Kernel& kernel, const MmaPlan& plan)
      : kernel_(kernel), epilogue_(kernel), p_(plan), t_(plan.tile), c_(plan.contract) {}

  std::int64_t elements() const { return batches_ * rows_ * columns_; }

  std::int64_t shared_bytes() const { return 2 * t_.stages * stage_halves(); }

  CudaLaunch launch(const std::string& entry) const {
    if (has_tensor_copies_) return pipeline_launch(entry);
    return {.entry = entry,
            .blocks = tiles() * p_.splits * batches_,
            .threads = t_.threads(),
            .shared_bytes = 0,
            .dynamic_shared_bytes = shared_bytes()};
  }

  std::string print(const std::string& entry) const {
    if (has_tensor_copies_) return print_pipeline(entry);
    std::string out = signature(entry, t_.threads());
    out += "  SF_DYNAMIC_SHARED(sf_u16, memory);\n";
    out += warp_of("threadIdx.x / 32") + place("blockIdx.x") + sums() + loads();
    out += (t_.is_wgmma ? products_of_warpgroups() : products());
    out +=
        fmt::format("  sf_cp_async_wait<0>();\n  __syncthreads();\n  float* const part = (float*)memory + warp * {};\n",
                    kSlabElements);
    return out + results() + "}\n";
  }

  /// The second launch: the splits' sums of one element after the other.
  std::string print_finish(const std::string& entry, int threads) const {
    std::string out = signature(entry, threads);
    out += fmt::format("  const sf_i64 i = blockIdx.x * {}ll + threadIdx.x;\n", threads);
    out += fmt::format("  if (i >= {}) return;\n", elements());
    out += fmt::format("  const sf_i32 b = i / {}, row = i % {} / {}, column = i % {};\n", rows_ * columns_,
                       rows_ * columns_, columns_, columns_);
    out += "  const float* part = (const float*)scratch + i;\n  float sum = part[0];\n";
    out +=
        fmt::format("#pragma unroll\n  for (int s = 1; s < {}; ++s) sum += part[s * {}ll];\n", p_.splits, elements());
    return out + "  " + store() + "\n}\n";
  }

 private:
  std::int64_t row_tiles() const { return ceil_div(rows_, t_.rows); }
  std::int64_t column_tiles() const { return ceil_div(columns_, t_.columns); }
  std::int64_t tiles() const { return row_tiles() * column_tiles(); }

  bool has_prologue() const { return lhs_.prologue || rhs_.prologue; }

  std::string signature(const std::string& entry, int threads, std::string_view maps = "") const {
    return cuda_head(kernel_, entry, fmt::to_string(threads), p_.splits > 1, maps);
  }

  std::string warp_of(std::string_view warp) const {
    return fmt::format(
        "  const int lane = threadIdx.x % 32, warp = {}, warp_row = warp / {} * {}, warp_column = warp % {} * {};\n",
        warp, t_.columns / t_.warp_columns, t_.warp_rows, t_.columns / t_.warp_columns, t_.warp_columns);
  }

  /// Blocks that follow each other walk down a few tiles of rows before they go on to the next columns.
  std::string place(std::string_view block) const {
    std::string out = fmt::format("  const sf_i32 tile = {0} % {1}, split = {0} / {1} % {2}, b = {0} / {3};\n", block,
                                  tiles(), p_.splits, tiles() * p_.splits);
    out += fmt::format(
        "  const sf_i32 group = tile / {0} * {1}, height = {2} - group < {1} ? {2} - group : {1};\n"
        "  const sf_i32 row0 = (group + tile % {0} % height) * {3}, column0 = tile % {0} / height * {4};\n",
        kGroupedRows * column_tiles(), kGroupedRows, row_tiles(), t_.rows, t_.columns);
    out +=
        p_.splits == 1
            ? fmt::format("  const sf_i32 k_begin = 0, k_end = {};\n", terms_)
            : fmt::format("  const sf_i32 k_begin = split * {0}, k_end = {1} - k_begin < {0} ? {1} : k_begin + {0};\n",
                          p_.split_terms, terms_);
    return out;
  }

  std::string sums() const {
    return fmt::format(
        "  float sums[{0}][{1}][4];\n"
        "#pragma unroll\n  for (int i = 0; i < {0}; ++i)\n"
        "#pragma unroll\n    for (int j = 0; j < {1}; ++j)\n"
        "#pragma unroll\n      for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;\n",
        t_.warp_rows / 16, t_.warp_columns / 8);
  }

  /// `load` asks for what lies in memory, operands or what prologues make them of; `make` has what these make in its
  /// place when it returns, of what this thread has asked for.
  std::string loads() const {
    const auto filler = [&](std::string_view name, const std::string& pieces) {
      return fmt::format(
          "  const auto {} = [&](int stage, sf_i32 k0) {{\n"
          "    sf_u16* const lhs = memory + stage * {};\n    sf_u16* const rhs = lhs + {};\n{}  }};\n",
          name, stage_halves(), t_.lhs_halves(), pieces);
    };
    const Side left{lhs_, "lhs", "row0", t_.rows, rows_, t_.stage_halves()},
        right{rhs_, "rhs", "column0", t_.columns, columns_, t_.stage_halves() + copied_halves(lhs_, t_.rows)};
    std::string out = filler("load", load(left) + load(right));
    if (has_prologue()) out += filler("make", make(left) + make(right));
    return out;
  }

  /// An operand, the tile it goes to, the tile's first position along `extent` of `end`, and where in a stage copies of
  /// what it is made of lie.
  struct Side {
    const ContractOperand& operand;
    std::string_view tile, first;
    int extent;
    std::int64_t end;
    std::int64_t copies;
  };
  std::int64_t pieces(const ContractOperand& o, int extent) const { return extent * t_.terms / o.width(); }
  /// In a stage, counted in halves.
  std::int64_t copied_halves(const ContractOperand& o, int extent) const {
    return p_.has_copies && o.prologue ? pieces(o, extent) * o.prologue->copied_bytes(o.width()) / 2 : 0;
  }
  std::int64_t stage_halves() const {
    return t_.stage_halves() + copied_halves(lhs_, t_.rows) + copied_halves(rhs_, t_.columns);
  }
  Prologue::Copies copies(const Side& s) const {
    return {.from = fmt::format("(sf_u8*)(memory + stage * {} + {})", stage_halves(), s.copies),
            .piece = "c",
            .pieces = pieces(s.operand, s.extent)};
  }

  /// Where the piece of this thread goes. A warpgroup reads along rows or columns in tiles of 64 of them.
  std::string place_of(const Side& s) const {
    const bool has_k_rows = s.operand.has_k_rows();
    const int columns = has_k_rows ? t_.terms : s.extent;
    if (t_.is_wgmma && !has_k_rows)
      return fmt::format("{} + q / 64 * {} + sf_tile_at<64>(r, q % 64)", s.tile, 64 * t_.terms);
    if (t_.halves == 1) return fmt::format("{} + sf_tile_at<{}>(r, q)", s.tile, columns);
    return has_k_rows ? fmt::format("{} + sf_tile_at<{}>(r, 2 * q)", s.tile, 2 * columns)
                      : fmt::format("{} + 2 * sf_wide_tile_at<{}>(r, q)", s.tile, columns);
  }

  std::string load(const Side& s) const {
    const ContractOperand& o = s.operand;
    const int width = o.width();
    if (o.prologue)
      return copied_halves(o, s.extent) == 0
                 ? ""
                 : each_piece(s, o.prologue->copy(o.place("b", "at", "k"), width, copies(s)));
    const std::string address = o.address("b", "at", "k"), at = place_of(s);
    const int bytes = width * size_bytes(o.dtype);
    return each_piece(s, bytes == 2
                             ? fmt::format("      *({}) = is_there ? {}[{}] : (sf_u16)0;\n", at, o.pointer(), address)
                             : fmt::format("      sf_cp_async<{}>({}, {} + (is_there ? {} : 0), is_there);\n", bytes,
                                           at, o.pointer(), address));
  }

  std::string make(const Side& s) const {
    const ContractOperand& o = s.operand;
    if (!o.prologue) return "";
    const Prologue::Copies from = copies(s);
    return each_piece(s, fmt::format("      sf_vec<{}, {}> made = {{}};\n      if (is_there) {{\n{}      }}\n"
                                     "      sf_store(({}*)({}), made);\n",
                                     cuda_memory_type(o.dtype), o.width(),
                                     o.prologue->make(o.place("b", "at", "k"), o.width(), "made",
                                                      copied_halves(o, s.extent) > 0 ? &from : nullptr),
                                     cuda_memory_type(o.dtype), place_of(s)));
  }

  /// `statements` for each piece of neighbours of a tile, c, whose first element is at [r, q] of the tile.
  std::string each_piece(const Side& s, const std::string& statements) const {
    const ContractOperand& o = s.operand;
    const std::int64_t rounds = pieces(o, s.extent) / t_.threads();
    std::string there;
    if (s.end % s.extent != 0) there = fmt::format("at < {}", s.end);
    if (terms_ % t_.terms != 0) there += there.empty() ? "k < k_end" : " && k < k_end";
    return fmt::format(
        "{unroll}    for (int i = 0; i < {rounds}; ++i) {{\n"
        "      const int c = threadIdx.x + {threads} * i, r = c / {per_row}, q = c % {per_row} * {width};\n"
        "      const sf_i32 at = {first} + {outer}, k = k0 + {term};\n"
        "      const bool is_there = {there};\n"
        "{statements}    }}\n",
        fmt::arg("unroll", rounds <= 8 ? "#pragma unroll\n" : "#pragma unroll 4\n"), fmt::arg("rounds", rounds),
        fmt::arg("threads", t_.threads()), fmt::arg("per_row", (o.has_k_rows() ? t_.terms : s.extent) / o.width()),
        fmt::arg("width", o.width()), fmt::arg("first", s.first), fmt::arg("outer", o.has_k_rows() ? "r" : "q"),
        fmt::arg("term", o.has_k_rows() ? "q" : "r"), fmt::arg("there", there.empty() ? "true" : there),
        fmt::arg("statements", statements));
  }

  /// The first stages are asked for, `ahead` of them, and the loop over all begins: the oldest is there for this
  /// thread.
  std::string each_stage(int ahead) const {
    return fmt::format(
        "#pragma unroll\n"
        "  for (int s = 0; s < {ahead}; ++s) {{\n"
        "    if (k_begin + {terms} * s < k_end) load(s, k_begin + {terms} * s);\n"
        "    sf_cp_async_commit();\n"
        "  }}\n"
        "  int stage = 0;\n{make}"
        "  for (sf_i32 k0 = k_begin; k0 < k_end; k0 += {terms}) {{\n"
        "    sf_cp_async_wait<{pending}>();\n",
        fmt::arg("ahead", ahead), fmt::arg("pending", ahead - 1), fmt::arg("terms", t_.terms),
        fmt::arg("make",
                 has_prologue() ? fmt::format("  sf_cp_async_wait<{}>();\n  make(0, k_begin);\n", ahead - 1) : ""));
  }

  /// Into the stage that was read from `stages - ahead` stages ago.
  std::string load_ahead(int ahead) const {
    const int ago = t_.stages - ahead;
    return fmt::format("    if (k0 + {reach} < k_end) load({free}, k0 + {reach});\n    sf_cp_async_commit();\n",
                       fmt::arg("reach", t_.terms * ahead),
                       fmt::arg("free", ago == 1 ? fmt::format("stage == 0 ? {} : stage - 1", ahead)
                                                 : fmt::format("stage < {1} ? stage + {0} : stage - {1}", ahead, ago)));
  }
  std::string next_stage() const { return fmt::format("    stage = stage == {} ? 0 : stage + 1;\n", t_.stages - 1); }

  /// A stage is loaded into where the one before last was read from: all warps are past that at the barrier. What
  /// prologues make for the next products is made while other warps still multiply.
  std::string products() const {
    const int ahead = t_.stages - 1;
    return each_stage(ahead) + "    __syncthreads();\n" + load_ahead(ahead) + multiplies() + next_stage() +
           (has_prologue() ? fmt::format("    if (k0 + {0} < k_end) {{\n      sf_cp_async_wait<{1}>();\n"
                                         "      make(stage, k0 + {0});\n    }}\n",
                                         t_.terms, t_.stages - 2)
                           : "") +
           "  }\n";
  }

  /// Of one stage, by one warp.
  std::string multiplies() const {
    return fmt::format(
        "    const sf_u16* const lhs = memory + stage * {stage};\n"
        "    const sf_u16* const rhs = lhs + {lhs_elements};\n"
        "#pragma unroll\n"
        "    for (int k = 0; k < {terms}; k += {step}) {{\n"
        "      sf_u32 left[{m}][4], right[{pairs}][4];\n"
        "#pragma unroll\n"
        "      for (int i = 0; i < {m}; ++i) {left}(left[i], lhs, warp_row + 16 * i, k);\n"
        "#pragma unroll\n"
        "      for (int j = 0; j < {pairs}; ++j) {right}(right[j], rhs, warp_column + 16 * j, k);\n"
        "#pragma unroll\n"
        "      for (int i = 0; i < {m}; ++i)\n"
        "#pragma unroll\n"
        "        for (int j = 0; j < {n}; ++j) {mma}(sums[i][j], left[i], right[j / 2] + j % 2 * 2);\n"
        "    }}\n",
        fmt::arg("terms", t_.terms), fmt::arg("stage", stage_halves()), fmt::arg("lhs_elements", t_.lhs_halves()),
        fmt::arg("m", t_.warp_rows / 16), fmt::arg("n", t_.warp_columns / 8), fmt::arg("pairs", t_.warp_columns / 16),
        fmt::arg("left", fragments("sf_lhs_fragment", lhs_, t_.rows)),
        fmt::arg("right", fragments("sf_rhs_fragments", rhs_, t_.columns)), fmt::arg("step", 16 / t_.halves),
        fmt::arg("mma", c_.lhs == DType::bf16  ? "sf_mma_bf16"
                        : c_.lhs == DType::f16 ? "sf_mma_f16"
                                               : "sf_mma_tf32"));
  }

  std::string fragments(std::string_view what, const ContractOperand& o, int extent) const {
    return fmt::format("{}{}{}<{}>", what, t_.halves == 2 ? "_tf32" : "", o.has_k_rows() ? "" : "_trans",
                       o.has_k_rows() ? t_.terms : extent);
  }

  /// Of one stage, by the four warps that `warp` belongs to.
  std::string warpgroup_multiplies() const {
    const auto descriptor = [](const ContractOperand& o, const std::string& tile) {
      return o.has_k_rows() ? fmt::format("sf_wgmma_descriptor({} + k)", tile)
                            : fmt::format("sf_wgmma_descriptor_trans({} + 64 * k, 8192)", tile);
    };
    return fmt::format(
        "    const sf_u16* const lhs = memory + stage * {stage} + warp / 4 * {group};\n"
        "    const sf_u16* const rhs = memory + stage * {stage} + {lhs_elements};\n"
        "    sf_wgmma_fence();\n"
        "#pragma unroll\n"
        "    for (int k = 0; k < {terms}; k += 16) sf_wgmma_{type}<{n}, {lhs_trans}, {rhs_trans}>(&sums[0][0][0], {left}, "
        "{right});\n"
        "    sf_wgmma_commit();\n",
        fmt::arg("terms", t_.terms), fmt::arg("stage", t_.stage_halves()), fmt::arg("group", 64 * t_.terms),
        fmt::arg("lhs_elements", t_.lhs_halves()), fmt::arg("type", c_.lhs == DType::bf16 ? "bf16" : "f16"),
        fmt::arg("n", t_.warp_columns), fmt::arg("lhs_trans", lhs_.has_k_rows() ? 0 : 1),
        fmt::arg("rhs_trans", rhs_.has_k_rows() ? 0 : 1), fmt::arg("left", descriptor(lhs_, "lhs")),
        fmt::arg("right", descriptor(rhs_, "rhs")));
  }

  /// The products of one stage are waited for while those of the next are under way, so a stage is loaded into where
  /// the one before the last but one was read from.
  std::string products_of_warpgroups() const {
    const int ahead = t_.stages - 2;
    return each_stage(ahead) + "    sf_async_proxy_fence();\n    __syncthreads();\n" + warpgroup_multiplies() +
           load_ahead(ahead) + "    sf_wgmma_wait<1>();\n" + next_stage() + "  }\n  sf_wgmma_wait<0>();\n";
  }

  // ---- tensor copies: four warps more, of which one thread copies, and blocks that go from tile to tile ----

  /// Bytes of the stages, of the slabs that results leave through, and of two mbarriers for each stage.
  std::int64_t stages_bytes() const { return std::int64_t{2} * t_.stage_halves() * pipeline_stages(); }
  std::int64_t slabs_bytes() const { return std::int64_t{4} * kSlabElements * t_.threads() / 32; }
  int pipeline_stages() const {
    return static_cast<int>((kSharedBytes - slabs_bytes()) / (2 * t_.stage_halves() + 16));
  }

  CudaLaunch pipeline_launch(const std::string& entry) const {
    return {.entry = entry,
            .blocks = std::min<std::int64_t>(tiles() * p_.splits * batches_, cuda_multiprocessors({.gpu = "sm_90a"})),
            .threads = t_.threads() + 128,
            .shared_bytes = 0,
            .dynamic_shared_bytes = stages_bytes() + slabs_bytes() + 16 * pipeline_stages(),
            .maps = {*tensor_map(lhs_, t_.rows), *tensor_map(rhs_, t_.columns)}};
  }

  /// Rows of the map from one element of the batch to the next.
  static std::int64_t batch_rows(const ContractOperand& o) {
    return o.batch_strides[0] / (o.has_k_rows() ? o.outer_strides[0] : o.k_strides[0]);
  }

  /// The operand as one matrix of all of the batch; none where it does not lie so. A box may then reach into the next
  /// element of the batch: into rows or columns that are not stored, but not into terms.
  std::optional<TensorMap> tensor_map(const ContractOperand& o, int extent) const {
    if (o.batch.extents.size() != 1 || o.outer.extents.size() != 1 || o.k.extents.size() != 1 || o.width() != 8)
      return {};
    const bool has_k_rows = o.has_k_rows();
    const std::int64_t pitch = has_k_rows ? o.outer_strides[0] : o.k_strides[0];
    if (pitch <= 0 || o.batch_strides[0] < 0 || o.batch_strides[0] % pitch != 0) return {};
    if (!has_k_rows && o.batch_strides[0] != 0 && o.batch.extents[0] > 1 && terms_ % t_.terms != 0) return {};
    const std::int64_t rows = has_k_rows ? o.outer.extents[0] : terms_;
    return TensorMap{.buffer = o.param,
                     .dtype = o.dtype,
                     .offset = o.offset,
                     .columns = has_k_rows ? terms_ : o.outer.extents[0],
                     .rows = (o.batch.extents[0] - 1) * batch_rows(o) + rows,
                     .pitch = pitch,
                     .box_columns = 64,
                     .box_rows = has_k_rows ? extent : t_.terms};
  }

  std::string tensor_copies(const ContractOperand& o, std::string_view name, std::string_view first, int extent,
                            int begin) const {
    std::string out;
    const std::string to = fmt::format("memory + stage * {} + {}", t_.stage_halves(), begin);
    if (o.has_k_rows())
      return fmt::format("        sf_tma_load_2d({}, &{}, full + stage, k0, {} + b * {});\n", to, name, first,
                         batch_rows(o));
    for (int part = 0; part < extent; part += 64)
      out += fmt::format("        sf_tma_load_2d({} + {}, &{}, full + stage, {} + {}, k0 + b * {});\n", to,
                         part * t_.terms, name, first, part, batch_rows(o));
    return out;
  }

  std::string print_pipeline(const std::string& entry) const {
    std::string out =
        signature(entry, t_.threads() + 128,
                  ", const __grid_constant__ sf_tensor_map lhs_map, const __grid_constant__ sf_tensor_map "
                  "rhs_map");
    out += fmt::format(
        "  SF_DYNAMIC_SHARED(sf_u16, memory);\n"
        "  sf_u64* const full = (sf_u64*)(memory + {barriers});\n  sf_u64* const empty = full + {stages};\n"
        "  if (threadIdx.x == 0) {{\n"
        "    for (int s = 0; s < {stages}; ++s) {{\n"
        "      sf_mbarrier_init(full + s, 1);\n      sf_mbarrier_init(empty + s, {readers});\n    }}\n"
        "    sf_mbarrier_init_fence();\n  }}\n  __syncthreads();\n",
        fmt::arg("barriers", (stages_bytes() + slabs_bytes()) / 2), fmt::arg("stages", pipeline_stages()),
        fmt::arg("readers", t_.rows / 64));
    const std::string tiles_of_block = fmt::format(
        "  for (sf_i32 block = blockIdx.x; block < {}; block += gridDim.x) {{\n", tiles() * p_.splits * batches_);
    out += "  if (threadIdx.x < 128) {\n" + producer(tiles_of_block) + "    return;\n  }\n";
    return out + consumer(tiles_of_block) + "}\n";
  }

  std::string producer(const std::string& tiles_of_block) const {
    return fmt::format(
        "  sf_registers_down<40>();\n  if (threadIdx.x > 0) return;\n  int stage = 0, parity = 1;\n{tiles}{place}"
        "    for (sf_i32 k0 = k_begin; k0 < k_end; k0 += {terms}) {{\n"
        "        sf_mbarrier_wait(empty + stage, parity);\n"
        "        sf_mbarrier_expect(full + stage, {bytes});\n{lhs}{rhs}"
        "        if (++stage == {stages}) stage = 0, parity ^= 1;\n"
        "    }}\n  }}\n",
        fmt::arg("tiles", tiles_of_block), fmt::arg("place", place("block")), fmt::arg("terms", t_.terms),
        fmt::arg("bytes", 2 * t_.stage_halves()), fmt::arg("lhs", tensor_copies(lhs_, "lhs_map", "row0", t_.rows, 0)),
        fmt::arg("rhs", tensor_copies(rhs_, "rhs_map", "column0", t_.columns, t_.rows * t_.terms)),
        fmt::arg("stages", pipeline_stages()));
  }

  /// A stage may be loaded again once the products after it are under way, since its own are then done.
  std::string consumer(const std::string& tiles_of_block) const {
    return fmt::format(
        "  sf_registers_up<232>();\n{warp}"
        "  float* const part = (float*)(memory + {slabs}) + warp * {slab};\n"
        "  int stage = 0, parity = 0;\n{tiles}{place}{sums}"
        "  for (sf_i32 k0 = k_begin; k0 < k_end; k0 += {terms}) {{\n"
        "    sf_mbarrier_wait(full + stage, parity);\n{multiply}"
        "    sf_wgmma_wait<1>();\n"
        "    if (k0 > k_begin && threadIdx.x % 128 == 0) sf_mbarrier_arrive(empty + (stage == 0 ? {last} : stage - 1));\n"
        "    if (++stage == {stages}) stage = 0, parity ^= 1;\n"
        "  }}\n"
        "  sf_wgmma_wait<0>();\n"
        "  if (threadIdx.x % 128 == 0) sf_mbarrier_arrive(empty + (stage == 0 ? {last} : stage - 1));\n{results}  }}\n",
        fmt::arg("warp", warp_of("threadIdx.x / 32 - 4")), fmt::arg("slabs", stages_bytes() / 2),
        fmt::arg("slab", kSlabElements), fmt::arg("tiles", tiles_of_block), fmt::arg("place", place("block")),
        fmt::arg("sums", sums()), fmt::arg("terms", t_.terms), fmt::arg("multiply", warpgroup_multiplies()),
        fmt::arg("last", pipeline_stages() - 1), fmt::arg("stages", pipeline_stages()), fmt::arg("results", results()));
  }

  /// 16 rows and 32 columns of a warp at a time go through its part of shared memory, so that they are written as they
  /// lie. The pitch lets a fragment's rows begin 8 banks apart.
  std::string results() const {
    return fmt::format(
        "#pragma unroll\n"
        "  for (int i = 0; i < {m}; ++i)\n"
        "#pragma unroll\n"
        "    for (int c = 0; c < {slabs}; ++c) {{\n"
        "#pragma unroll\n"
        "      for (int j = 0; j < 4; ++j)\n"
        "#pragma unroll\n"
        "        for (int h = 0; h < 2; ++h)\n"
        "          sf_store(part + (lane / 4 + 8 * h) * {pitch} + 8 * j + lane % 4 * 2, sf_vec<float, 2>{{sums[i][4 * c + "
        "j][2 * h], sums[i][4 * c + j][2 * h + 1]}});\n"
        "      __syncwarp();\n"
        "#pragma unroll 2\n"
        "      for (int r = 0; r < 16; ++r) {{\n"
        "        const sf_i32 row = row0 + warp_row + 16 * i + r, column = column0 + warp_column + 32 * c + lane;\n"
        "        const float sum = part[r * {pitch} + lane];\n"
        "        if (row < {rows} && column < {columns}) {{ {store} }}\n"
        "      }}\n"
        "      __syncwarp();\n"
        "    }}\n",
        fmt::arg("m", t_.warp_rows / 16), fmt::arg("slabs", t_.warp_columns / 32), fmt::arg("pitch", kSlabPitch),
        fmt::arg("rows", rows_), fmt::arg("columns", columns_),
        fmt::arg("store", p_.splits == 1
                              ? store()
                              : fmt::format("((float*)scratch)[split * {}ll + (b * {}ll + row) * {} + column] = sum;",
                                            elements(), rows_, columns_)));
  }

  /// `sum` is what the element [b, row, column] comes to.
  std::string store() const {
    return p_.is_swapped ? epilogue_.store("b", "column", "row", "sum") : epilogue_.store("b", "row", "column", "sum");
  }

  const kir::Kernel& kernel_;
  Epilogue epilogue_;
  const MmaPlan& p_;
  const MmaTile& t_;
  const kir::Contract& c_;
  std::int64_t rows_ = size_of(c_.m), columns_ = size_of(c_.n), terms_ = size_of(c_.k), batches_ = size_of(c_.batch);
  ContractOperand lhs_ = ContractOperand::lhs(kernel_, c_, p_.is_swapped);
  ContractOperand rhs_ = ContractOperand::rhs(kernel_, c_, p_.is_swapped);
  bool has_tensor_copies_ = t_.is_wgmma && tensor_map(lhs_, t_.rows) && tensor_map(rhs_, t_.columns);
};

}  // namespace

std::span<const MmaTile> mma_tiles(DType dtype) {
  if (dtype == DType::f32) return kWideTiles;
  return kTiles;
}

void MmaPlan::split(int into) {
  const std::int64_t pieces = ceil_div(size_of(contract.k), tile.terms);
  split_terms = ceil_div(pieces, into) * tile.terms;
  splits = static_cast<int>(ceil_div(size_of(contract.k), split_terms));
}

bool has_mma(const kir::Contract& c, const Target& target) {
  const bool is_rounded_enough =
      c.lhs == DType::bf16 || c.lhs == DType::f16 || (c.lhs == DType::f32 && c.precision == Precision::tf32);
  if (target.compute_capability() < 80 || !is_rounded_enough || c.rhs != c.lhs || c.accumulate != DType::f32)
    return false;
  const std::int64_t rows = size_of(c.m), columns = size_of(c.n), terms = size_of(c.k), batches = size_of(c.batch);
  const auto is_counted = [](std::int64_t n) { return 0 < n && n <= kMostPositions; };
  return is_counted(rows) && is_counted(columns) && is_counted(terms) && is_counted(batches) &&
         ceil_div(rows, 16) * ceil_div(columns, 64) * batches <= kMostPositions / kMostSplits;
}

MmaPlan plan_mma(const kir::Kernel& kernel, const Target& target) {
  MmaPlan p{.contract = *kernel.contract};
  kir::Contract& c = p.contract;
  for (Dims* dims : {&c.batch, &c.m, &c.n, &c.k}) *dims = merged(*dims);
  // Results are written along columns; few columns beside many rows are better the few rows of a flat tile.
  const bool has_rows = runs_along(c.m, c.m.out_strides) && !runs_along(c.n, c.n.out_strides);
  if (has_rows || (size_of(c.n) <= kFewRows && size_of(c.m) > kFewRows)) {
    c = swapped(c);
    p.is_swapped = true;
  }
  const std::int64_t rows = size_of(c.m), columns = size_of(c.n), terms = size_of(c.k), batches = size_of(c.batch);
  const int processors = cuda_multiprocessors(target);
  const bool has_prologue = kir::prologue_of(kernel, 0) || kir::prologue_of(kernel, 1);
  p.tile = choose_tile(rows, columns, batches, c.lhs, has_prologue, target);
  const std::int64_t blocks = ceil_div(rows, p.tile.rows) * ceil_div(columns, p.tile.columns) * batches;
  const std::int64_t wanted = blocks < processors / 2 ? processors / blocks : 1;
  p.has_copies = has_prologue;
  if (has_prologue) p.has_copies = Printer(kernel, p).shared_bytes() <= cuda_shared_bytes(target);
  p.split(static_cast<int>(
      std::clamp<std::int64_t>(std::min<std::int64_t>(wanted, terms / kFewestSplitTerms), 1, kMostSplits)));
  return p;
}

void emit_mma(const kir::Kernel& kernel, const MmaPlan& plan, const std::string& symbol, CudaText& out) {
  constexpr int kFinishThreads = 256;
  SHEAF_CHECK(!plan.tile.is_wgmma || (!kir::prologue_of(kernel, 0) && !kir::prologue_of(kernel, 1)));
  const Printer printer(kernel, plan);
  out.launches.push_back(printer.launch(symbol + "_0"));
  out.functions += printer.print(out.launches.back().entry);
  if (plan.splits == 1) return;
  out.scratch_bytes = printer.elements() * plan.splits * std::int64_t{4};
  out.launches.push_back(
      {.entry = symbol + "_1", .blocks = ceil_div(printer.elements(), kFinishThreads), .threads = kFinishThreads});
  out.functions += printer.print_finish(out.launches.back().entry, kFinishThreads);
}

}  // namespace sheaf::codegen
