// Which functions an attention needs, how they are cut into tiles, and what stands at the $places of their texts.
#include "codegen/cuda/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numbers>
#include <utility>
#include <vector>

#include "codegen/cuda/attention_text.h"
#include "codegen/cuda/prelude.h"
#include "codegen/kir/attention.h"
#include "ir/check.h"

namespace sheaf::codegen {
namespace {

using kir::Attention;
using Array = kir::Attention::Array;

using Names = std::vector<std::pair<std::string, std::string>>;

/// `text` with each $name replaced, the longest of those that fit; what replaces one is replaced in as well.
std::string filled(std::string text, const Names& names) {
  for (std::size_t at = text.find('$'); at != std::string::npos; at = text.find('$', at)) {
    const std::pair<std::string, std::string>* best = nullptr;
    for (const auto& n : names)
      if (text.compare(at + 1, n.first.size(), n.first) == 0 && (!best || n.first.size() > best->first.size()))
        best = &n;
    SHEAF_CHECK(best, "a text has no value for " + text.substr(at, 20));
    text.replace(at, best->first.size() + 1, best->second);
  }
  return text;
}

constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b * b; }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::string float_constant(double x) {
  return cuda_constant(DType::f32, std::bit_cast<std::uint32_t>(static_cast<float>(x)));
}

/// How a walk is cut: the tile that a block keeps, the tiles it walks over, how many of them are in flight.
struct Tiling {
  std::int64_t rows = 64, columns = 64;
  int warps = 4, stages = 1;
  int threads() const { return warps * 32; }
  std::int64_t row_tiles() const { return rows / 16 / warps; }
};

/// Of one query for each head, the heads that read the same keys become the queries of one head.
Attention with_rows_of_heads(Attention a) {
  const bool meets_all = a.after < 0 || a.after >= a.keys - 1;
  if (a.queries != 1 || a.group == 1 || !meets_all || a.d_bias.is_there()) return a;
  a.before = a.after = -1;
  a.queries = std::exchange(a.group, 1);
  for (Array* x : {&a.query, &a.bias, &a.mask, &a.out, &a.lse, &a.ct, &a.ct_sum, &a.d_query, &a.d_bias, &a.ct_half,
                   &a.shift, &a.part_out, &a.part_lse}) {
    x->row = x->head;
    x->head *= a.queries;
  }
  return a;
}

class Writer {
 public:
  Writer(const kir::Kernel& kernel, std::string symbol, CudaText& out)
      : kernel_(kernel), a_(with_rows_of_heads(*kernel.attention)), symbol_(std::move(symbol)), out_(out) {}

  void write() {
    if (a_.kind == Attention::Kind::forward) return write_forward();
    write_prepare();
    write_keys();
    if (a_.d_query.is_there()) write_queries();
    if (a_.d_bias.is_there()) write_bias();
  }

 private:
  // --- sizes ---------------------------------------------------------------------------------------------------------

  std::int64_t f() const { return round_up(a_.features, 16); }
  std::int64_t v() const { return round_up(a_.values, 16); }
  std::int64_t widest() const { return std::max(f(), v()); }
  bool has_score_operands() const { return a_.bias.is_there() || a_.mask.is_there(); }

  // As many columns as registers allow: of a thread's 255, sums and scores take all but about 60, and a spill costs
  // more than narrower tiles. Tiles in shared memory are at most 99 KiB, which every GPU has.
  Tiling forward_tiling() const {
    Tiling t;
    if (a_.queries > 64 && widest() <= 128) t.rows = 128;
    if (widest() > 64) t.columns = 48;
    if (widest() > 112 || (widest() > 96 && (has_score_operands() || f() != v()))) t.columns = 32;
    if (widest() > 128 && widest() <= 192) t.columns = 64;
    if (widest() > 112 && widest() <= 128 && a_.bias.is_there()) t.columns = 16;
    return t;
  }
  Tiling keys_tiling(bool key) const {
    Tiling t;
    t.stages = widest() <= 128 ? 2 : 1;
    if (widest() > 64) t.columns = widest() <= 96 ? 48 : 32;
    if (key && widest() > 96 && has_score_operands()) t.columns = 16;
    return t;
  }
  Tiling queries_tiling() const {
    Tiling t;
    t.stages = widest() <= 128 ? 2 : 1;
    if (a_.queries > 64 && widest() <= 64) t.rows = 128;
    if (t.rows > 64 || widest() > 128) t.columns = 32;
    return t;
  }
  bool is_bf16() const { return a_.query.dtype == DType::bf16; }

  // --- addresses -----------------------------------------------------------------------------------------------------

  /// The offset of the block's example, from its number: digits times steps.
  std::string batch_offset(const Array& x) const {
    std::string sum;
    std::int64_t inner = 1;
    for (std::size_t d = a_.batch.size(); d-- > 0; inner *= a_.batch[d]) {
      if (x.batch[d] == 0) continue;
      const std::string digit = inner * a_.batch[d] == a_.batches()
                                    ? fmt::format("batch / {}", inner)
                                    : fmt::format("batch / {} % {}", inner, a_.batch[d]);
      sum += fmt::format(" + {} * {}ll", digit, x.batch[d]);
    }
    return sum;
  }
  std::string pointer(const Array& x, std::string_view head, std::string_view row) const {
    std::string text = fmt::format("p{}{}", x.buffer, batch_offset(x));
    if (x.head != 0) text += fmt::format(" + {} * {}ll", head, x.head);
    if (x.row != 0) text += fmt::format(" + {} * {}ll", row, x.row);
    return text;
  }
  std::string element(const Array& x, std::string_view column) const {
    std::string at = pointer(x, "head", "query");
    if (x.column != 0) at += fmt::format(" + {} * {}ll", column, x.column);
    return fmt::format("*({})", at);
  }
  /// The scores' part of an array, and one of its elements.
  std::string score_array(std::string_view name, const Array& x) const {
    return fmt::format("\n    const {}* const {} = p{}{} + head * {}ll;", cuda_memory_type(x.dtype), name, x.buffer,
                       batch_offset(x), x.head);
  }
  std::string score_element(std::string_view name, const Array& x) const {
    const bool is_narrow = a_.queries * a_.keys <= INT32_MAX;
    return fmt::format("{}[query * {}{} + key * {}]", name, x.row, is_narrow ? "" : "ll", x.column);
  }
  std::string as_float(const Array& x, const std::string& text) const {
    const std::string in[3] = {text, "", ""};
    return x.dtype == DType::f32 ? text : cuda_expression(ir::ScalarOp::convert, x.dtype, DType::f32, in);
  }

  Names addresses() const {
    const std::string key_head = fmt::format("(head / {})", a_.group);
    Names names = {
        {"query", pointer(a_.query, "head", "first")},
        {"query_c", pointer(a_.query, "head", "c")},
        {"query_pitch", fmt::format("{}ll", a_.query.row)},
        {"key", pointer(a_.key, "key_head", "first")},
        {"key_begin", pointer(a_.key, key_head, "begin")},
        {"key_c", pointer(a_.key, key_head, "c")},
        {"key_next", pointer(a_.key, key_head, "(c + kColumns)")},
        {"key_pitch", fmt::format("{}ll", a_.key.row)},
        {"value", pointer(a_.value, "key_head", "first")},
        {"value_c", pointer(a_.value, key_head, "c")},
        {"value_pitch", fmt::format("{}ll", a_.value.row)},
    };
    if (a_.kind == Attention::Kind::backward) {
      const Names more = {
          {"ct_half", pointer(a_.ct_half, "head", "first")},      {"ct_half_c", pointer(a_.ct_half, "head", "c")},
          {"ct_half_pitch", fmt::format("{}ll", a_.ct_half.row)}, {"shift_at", element(a_.shift, "")},
          {"shift_0", fmt::format("*p{}", a_.shift.buffer)},      {"ct_sum_at", element(a_.ct_sum, "")},
          {"ct_sum_0", fmt::format("*p{}", a_.ct_sum.buffer)},
      };
      names.insert(names.end(), more.begin(), more.end());
    }
    return names;
  }

  /// Of score i of a thread: where it is kept, and whose it is.
  Names scores(bool rows_are_keys) const {
    const std::string row = "row + i / 4 * 16 + i % 4 / 2 * 8", column = "c + 8 * n + 2 * t + i % 2";
    Names names = {{"has_arrays", has_score_operands() ? "true" : "false"},
                   {"columns_end", rows_are_keys ? "kQueries" : "kKeys"},
                   {"query_of", rows_are_keys ? column : row},
                   {"key_of", rows_are_keys ? row : column}};
    for (const auto& [row_name, is_row] : {std::pair("query", !rows_are_keys), {"key", rows_are_keys}}) {
      names.emplace_back(fmt::format("first_{}", row_name), is_row ? "first" : "c");
      names.emplace_back(fmt::format("last_{}", row_name), is_row ? "(first + kRows - 1)" : "(c + kColumns - 1)");
    }
    std::string arrays;
    if (a_.bias.is_there()) arrays += score_array("bias", a_.bias);
    if (a_.mask.is_there()) arrays += score_array("mask", a_.mask);
    names.emplace_back("score_arrays", arrays);
    names.emplace_back("mask", a_.mask.is_there() ? " && " + score_element("mask", a_.mask) + " != 0" : "");
    names.emplace_back("biased", a_.bias.is_there() ? fmt::format("fmaf({}, kLog2e, x)",
                                                                  as_float(a_.bias, score_element("bias", a_.bias)))
                                                    : "x");
    names.emplace_back("scores", std::string(attention_text::kScores));
    return names;
  }

  // --- functions -----------------------------------------------------------------------------------------------------

  std::string params() const {
    std::string text;
    for (std::size_t i = 0; i < kernel_.params.size(); ++i) {
      const kir::Param& p = kernel_.params[i];
      const bool is_const = p.access == kir::Param::Access::read;
      text += fmt::format("{}{}{}* {}p{}", i ? ", " : "", is_const ? "const " : "", cuda_memory_type(p.dtype),
                          is_const ? "__restrict__ " : "", i);
    }
    return text;
  }

  std::string constants(const Tiling& t, std::int64_t tiles) const {
    // The scale is part of the exponential where nothing comes between, and a larger score stays the larger one.
    const double in_log2 = a_.scale * std::numbers::log2e;
    // Of a scale that is 0 in f32, -inf would be NaN.
    const bool scales_now = a_.bias.is_there() || !(static_cast<float>(in_log2) > 0);
    std::string text = fmt::format(
        "  constexpr int kQueries = {}, kKeys = {}, kHeads = {}, kKeyHeads = {}, kGroup = {}, kFeatures = {}, kValues "
        "= {}, kF = {}, kV = {};\n",
        a_.queries, a_.keys, a_.heads(), a_.key_heads, a_.group, a_.features, a_.values, f(), v());
    text += fmt::format(
        "  constexpr int kBefore = {}, kAfter = {}, kRows = {}, kColumns = {}, kThreads = {}, kM = {}, kN = {}, "
        "kScores = 4 * kM * kN, kTiles = {}, kStages = {};\n",
        a_.before, a_.after, t.rows, t.columns, t.threads(), t.row_tiles(), t.columns / 8, tiles, t.stages);
    text += fmt::format("  constexpr bool kIsBf16 = {}, kScalesNow = {};\n", is_bf16(), scales_now);
    text += fmt::format("  const float kScale = {}, kScaleNow = {}, kScaleLater = {}, kLog2e = {}, kLn2 = {};\n",
                        float_constant(a_.scale), float_constant(in_log2), float_constant(scales_now ? 1 : in_log2),
                        float_constant(std::numbers::log2e), float_constant(std::numbers::ln2));
    return text;
  }

  void add(const std::string& body, std::int64_t blocks, int threads, std::int64_t shared_bytes) {
    CudaLaunch launch{
        .entry = fmt::format("{}_{}", symbol_, out_.launches.size()), .blocks = blocks, .threads = threads};
    launch.dynamic_shared_bytes = shared_bytes;
    // Two blocks share a multiprocessor: for a third one, registers would be too few.
    out_.functions += fmt::format("extern \"C\" __global__ void __launch_bounds__({}, 2) {}({}) {{\n{}}}\n", threads,
                                  launch.entry, params(), body);
    out_.launches.push_back(std::move(launch));
  }

  void add_walk(std::string_view text, Names names, bool rows_are_keys, const Tiling& t, std::string more_constants,
                std::int64_t shared_bytes, std::int64_t blocks_of_tile) {
    const std::int64_t tiles = ceil_div(rows_are_keys ? a_.keys : a_.queries, t.rows);
    for (const Names& more : {addresses(), scores(rows_are_keys)}) names.insert(names.end(), more.begin(), more.end());
    const std::string body = constants(t, tiles) + more_constants + "  SF_DYNAMIC_SHARED(sf_u16, shared);" +
                             filled(std::string(text), names);
    add(body, tiles * blocks_of_tile, t.threads(), shared_bytes);
  }

  std::string store(const Array& x, std::string_view head, std::string_view wide, std::string_view offset,
                    std::string_view rows, std::string_view columns) const {
    if (!x.is_there()) return "";
    return fmt::format("\n  sf_tile_store<kRows, {}, kThreads>({}, {}ll, shared{}, {} - first, {});", wide,
                       pointer(x, head, "first"), x.row, offset, rows, columns);
  }

  void write_forward() {
    const Tiling t = forward_tiling();
    const std::int64_t main = t.rows * f() + t.columns * (f() + v()), end = t.rows * v();
    const bool is_cut = a_.parts > 1;
    const Array &out = is_cut ? a_.part_out : a_.out, &lse = is_cut ? a_.part_lse : a_.lse;
    Names names = {{"lse", lse.is_there() ? std::string(attention_text::kForwardLse) : ""},
                   {"out", is_cut           ? std::string(attention_text::kPartOut)
                           : out.is_there() ? std::string(attention_text::kForwardOut)
                                            : ""},
                   {"out_rows", store(a_.out, "head", "kV", "", "kQueries", "kValues")}};
    const std::int64_t sums = a_.batches() * a_.heads() * a_.queries;
    const auto of_part = [&](std::int64_t count) { return is_cut ? fmt::format(" + part * {}ll", count) : ""; };
    if (lse.is_there())
      names.emplace_back("lse_at", fmt::format("*({}{})", pointer(lse, "head", "query"), of_part(sums)));
    if (is_cut)
      names.emplace_back("part_out_at", pointer(out, "head", "query") + of_part(sums * a_.values) + " + column");
    const std::int64_t part_keys = round_up(ceil_div(a_.keys, a_.parts), t.columns);
    add_walk(attention_text::kForward, std::move(names), false, t,
             fmt::format("  constexpr bool kKeeps = {};\n  constexpr int kParts = {}, kPartKeys = {};\n",
                         widest() <= 64 && !has_score_operands(), a_.parts, part_keys),
             2 * std::max(main, end), a_.batches() * a_.heads() * a_.parts);
    if (is_cut) write_combine();
  }

  void write_combine() {
    constexpr int kThreads = 128;
    // Of the arrays as they lie, whatever became rows of what.
    const Attention& a = *kernel_.attention;
    const std::int64_t rows_of_batch = a.heads() * a.queries, rows = a.batches() * rows_of_batch;
    const std::int64_t chunks = rows * a.values / 4;
    const auto name = [](const Array& x) { return fmt::format("p{}", x.buffer); };
    std::string store;
    if (a.out.is_there()) store += fmt::format("\n  sf_store((sf_u32*){} + 2 * i, halves);", name(a.out));
    if (a.lse.is_there())
      store += fmt::format("\n  if (column == 0) {}[sum] = total == 0 ? top : top + log2f(total) * kLn2;", name(a.lse));
    const std::string text =
        filled(std::string(attention_text::kCombine), {{"threads", std::to_string(kThreads)},
                                                       {"chunks", std::to_string(chunks)},
                                                       {"row_chunks", std::to_string(a.values / 4)},
                                                       {"rows_of_batch", std::to_string(rows_of_batch)},
                                                       {"heads", std::to_string(a.heads())},
                                                       {"queries", std::to_string(a.queries)},
                                                       {"parts", std::to_string(a.parts)},
                                                       {"part_lse", name(a.part_lse)},
                                                       {"part_out", name(a.part_out)},
                                                       {"sums", std::to_string(rows)},
                                                       {"count", std::to_string(rows * a.values)},
                                                       {"store", store}});
    const std::string constants =
        fmt::format("  constexpr bool kIsBf16 = {};\n  const float kLog2e = {}, kLn2 = {};", is_bf16(),
                    float_constant(std::numbers::log2e), float_constant(std::numbers::ln2));
    add(constants + text, ceil_div(chunks, kThreads), kThreads, 0);
  }

  void write_prepare() {
    constexpr int kThreads = 256;
    const bool converts = a_.ct.buffer != a_.ct_half.buffer;
    const std::int64_t chunks = converts ? kernel_.params[a_.ct.buffer].count / 4 : 0;
    const std::int64_t sums = kernel_.params[a_.lse.buffer].count;
    const auto name = [](const Array& x) { return fmt::format("p{}", x.buffer); };
    const std::string text =
        filled(std::string(attention_text::kPrepare), {{"threads", std::to_string(kThreads)},
                                                       {"halves", std::string(converts ? attention_text::kHalves : "")},
                                                       {"chunks", std::to_string(chunks)},
                                                       {"sums", std::to_string(sums)},
                                                       {"ct", name(a_.ct)},
                                                       {"ct_half", name(a_.ct_half)},
                                                       {"lse", name(a_.lse)},
                                                       {"shift", name(a_.shift)}});
    const std::string constants = fmt::format("  constexpr bool kIsBf16 = {};\n  const float kLog2e = {};", is_bf16(),
                                              float_constant(std::numbers::log2e));
    add(constants + text, ceil_div(std::max(chunks, sums), kThreads), kThreads, 0);
  }

  /// The sums of both gradients are too many for the registers of a thread where rows are long: one after the other.
  void write_keys() {
    const bool key = a_.d_key.is_there(), value = a_.d_value.is_there();
    if (key && value && f() + v() > 256) {
      write_keys(true, false);
      write_keys(false, true);
    } else if (key || value) {
      write_keys(key, value);
    }
  }

  void write_keys(bool key, bool value) {
    const Tiling t = keys_tiling(key);
    const std::int64_t main =
        2 * (t.rows * (f() + (key ? v() : 0)) + t.stages * t.columns * (f() + v())) + 8 * t.stages * t.columns;
    const std::int64_t end = 2 * t.rows * ((key ? f() : 0) + (value ? v() : 0));
    const Names names = {
        {"d_key", key ? store(a_.d_key, "key_head", "kF", "", "kKeys", "kFeatures") : ""},
        {"d_value", value ? store(a_.d_value, "key_head", "kV", key ? " + kRows * kF" : "", "kKeys", "kValues") : ""}};
    add_walk(attention_text::kBackwardKeys, names, true, t,
             fmt::format("  constexpr bool kHasKey = {}, kHasValue = {};\n", key, value), std::max(main, end),
             a_.batches() * a_.key_heads);
  }

  void write_queries() {
    const Tiling t = queries_tiling();
    const std::int64_t main = t.rows * (f() + v()) + t.stages * t.columns * (f() + v());
    const Names names = {{"d_query", store(a_.d_query, "head", "kF", "", "kQueries", "kFeatures")}};
    add_walk(attention_text::kBackwardQueries, names, false, t, "", 2 * main, a_.batches() * a_.heads());
  }

  /// Digits of a number over the dims of batch and heads: those that the bias has from `own`, the others from `other`.
  struct Digits {
    std::string batch, head;
    std::int64_t own = 1, others = 1;
  };
  Digits digits() const {
    Digits all{.batch = "0", .head = "0"};
    std::int64_t step = 1;
    const auto digit = [&](std::int64_t extent, bool is_own) {
      std::int64_t& inner = is_own ? all.own : all.others;
      return fmt::format("({} / {} % {})", is_own ? "own" : "other", std::exchange(inner, inner * extent), extent);
    };
    all.head = digit(a_.heads(), a_.d_bias.head != 0);
    for (std::size_t d = a_.batch.size(); d-- > 0; step *= a_.batch[d])
      all.batch += fmt::format(" + {} * {}ll", digit(a_.batch[d], a_.d_bias.batch[d] != 0), step);
    return all;
  }

  void write_bias() {
    Tiling t;
    if (widest() > 128) t.columns = 32;
    const Digits of = digits();
    const std::string in[3] = {"sums[i / 4 / kN][i / 4 % kN][i % 4]", "", ""};
    const Array& x = a_.d_bias;
    const Names names = {
        {"head_of", of.head},
        {"batch_of", of.batch},
        {"d_bias_at",
         fmt::format("p{}[own * {}ll + query * {}ll + key * {}ll]", x.buffer, a_.queries * a_.keys, x.row, x.column)},
        {"d_bias_value",
         x.dtype == DType::f32 ? in[0] : cuda_expression(ir::ScalarOp::convert, DType::f32, x.dtype, in)}};
    const std::int64_t column_tiles = ceil_div(a_.keys, t.columns);
    add_walk(attention_text::kBackwardBias, names, false, t,
             fmt::format("  constexpr int kColumnTiles = {}, kOthers = {};\n", column_tiles, of.others),
             2 * (t.rows + t.columns) * (f() + v()), of.own * column_tiles);
  }

  const kir::Kernel& kernel_;
  const Attention a_;
  const std::string symbol_;
  CudaText& out_;
};

}  // namespace

void emit_cuda_attention(const kir::Kernel& kernel, const std::string& symbol, CudaText& out) {
  Writer(kernel, symbol, out).write();
}

}  // namespace sheaf::codegen
