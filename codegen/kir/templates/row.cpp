// Row-persistent: softmax, norms, cross-entropy. All reductions run over the same trailing dims, so one unit takes a
// row through all of them while it is in cache; what a later pass would have to compute again is kept, on a CPU where a
// result of the row will lie, so that memory is written while there is something to compute, else in a row of scratch.
// On a GPU so is what it would have to read again, as long as rows fit: a warp keeps a short row in registers, a block
// a longer one in its memory.
#include <algorithm>

#include "codegen/kir/estimate.h"
#include "codegen/kir/reduction.h"
#include "codegen/kir/templates/columns.h"
#include "codegen/kir/templates/template.h"
#include "ir/check.h"
#include "ir/columns.h"

namespace sheaf::kir {
namespace {

namespace low = ir::lowering;

/// An operand of this many scalar ops is stored rather than computed twice.
constexpr std::size_t kWorthStoring = 6;
/// Of the rows that a block of a GPU keeps.
constexpr std::int64_t kRowBytes = 24 * 1024;

bool is_reduction(const Group& g, int node) { return g.as<low::Reduce>(node) || g.as<low::ArgReduce>(node); }

struct RowForm {
  std::vector<int> heroes;  // over the row
  std::vector<int> columns;  // over the kept dims
  Shape dims;  // of every hero's operand: kept dims, then the row's
  Shape kept, row;
  std::int64_t rows = 1, length = 1;
};

RowForm row_form(const Group& g) {
  RowForm form;
  std::size_t first = 0;  // dim of the row
  for (int node = g.num_inputs; node < static_cast<int>(g.nodes.size()); ++node) {
    if (is_inlinable(g, node)) continue;
    SHEAF_CHECK(is_reduction(g, node), "a row kernel of something else than reductions");
    const Shape& dims = g.dims(g.nodes[node].operands[0]);
    std::vector<std::int64_t> over = reduced_dims_of(g, node);
    std::sort(over.begin(), over.end());
    const bool is_column = ir::are_leading(over, dims.size());
    const std::size_t begin = is_column ? over.size() : dims.size() - over.size();
    for (std::size_t i = 0; i < over.size() && !is_column; ++i)
      SHEAF_CHECK(over[i] == static_cast<std::int64_t>(begin + i), "a row kernel of reductions over middle dims");
    if (form.heroes.empty() && form.columns.empty()) {
      form.dims = dims;
      first = begin;
    }
    SHEAF_CHECK(dims == form.dims && begin == first, "a row kernel of reductions over different rows");
    (is_column ? form.columns : form.heroes).push_back(node);
  }
  SHEAF_CHECK(!form.heroes.empty() || !form.columns.empty(), "a row kernel of no reduction");
  form.kept.assign(form.dims.begin(), form.dims.begin() + static_cast<std::ptrdiff_t>(first));
  form.row.assign(form.dims.begin() + static_cast<std::ptrdiff_t>(first), form.dims.end());
  form.rows = num_elements(form.kept);
  form.length = num_elements(form.row);
  SHEAF_CHECK(form.length <= ir::kLongestRow, "a row kernel of rows that no thread's scratch holds");
  return form;
}

/// Scalar ops below `node`, down to inputs and heroes, counted until they are enough.
std::size_t weight(const Group& g, int node) {
  if (!g.nodes[node].lowering || !is_inlinable(g, node)) return 0;
  std::size_t total = 0;
  if (const auto* map = g.as<low::Map>(node)) total = map->fn.nodes.size() - map->fn.args.size();
  for (int operand : g.nodes[node].operands) {
    if (total >= kWorthStoring) break;
    total += weight(g, operand);
  }
  return total;
}

bool is_read_again(const Group& g, int node, int by) {
  if (std::find(g.results.begin(), g.results.end(), node) != g.results.end()) return true;
  for (int other = 0; other < static_cast<int>(g.nodes.size()); ++other) {
    const auto& operands = g.nodes[other].operands;
    if (other != by && std::find(operands.begin(), operands.end(), node) != operands.end()) return true;
  }
  return false;
}

/// Whether computing `nodes` reads `wanted`, where nobody looks behind `known`.
bool reads(const Group& g, std::vector<int> nodes, int wanted, const std::vector<int>& known) {
  std::vector<bool> is_seen(g.nodes.size());
  for (int node : known) is_seen[node] = node != wanted;
  while (!nodes.empty()) {
    const int node = nodes.back();
    nodes.pop_back();
    if (node == wanted) return true;
    if (is_seen[node]) continue;
    is_seen[node] = true;
    nodes.insert(nodes.end(), g.nodes[node].operands.begin(), g.nodes[node].operands.end());
  }
  return false;
}

bool is_among(const std::vector<int>& nodes, int node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

class RowTemplate {
 public:
  RowTemplate(const KernelBuilder& k, const RowForm& form, const std::vector<Target>& results, ColumnTotals* columns)
      : k_(k), g_(k.group()), form_(form), columns_(columns) {
    for (const Target& t : results) {
      if (is_among(form.columns, t.node)) continue;
      const std::int64_t count = g_.nodes[t.node].type.num_elements();
      SHEAF_CHECK(count == form.rows || count == form.rows * form.length, "a result of a row kernel is neither");
      (count == form.rows ? per_row_ : per_element_).push_back(t);
    }
    if (k.grain().is_gpu()) threads_ = form.length <= kWarpRow ? 32 : k.grain().threads;
  }

  int threads() const { return threads_; }

  /// One row, and of which slot it is, where columns are added up.
  void emit(PhaseBuilder& b, Index row, Index slot = {}) {
    b_ = &b;
    row_ = row;
    slot_ = slot;
    kept_at_ = unflatten(b.indices(), row, form_.kept);
    reduced_.clear();
    stored_.clear();
    free_.clear();
    taken_.clear();
    stage_ = {};
    room_ = is_staged() ? kRowBytes : INT64_MAX;
    for (std::size_t pass = 0; pass < form_.heroes.size(); ++pass) reduce(pass);
    store_per_element();
    store_per_row();
  }

 private:
  struct Stored {
    int node;
    BufferId row;
    bool is_result = false;  // a row of a result, not one of scratch
  };

  bool is_staged() const { return threads_ > 32; }
  int operand_of(int node) const { return g_.nodes[node].operands[0]; }

  Position element_at(Index r) const {
    Position at = kept_at_;
    for (Index i : unflatten(b_->indices(), r, form_.row)) at.push_back(i);
    return at;
  }

  static ValueId read(Reader& reader, int node, const Position& at) {
    const ValueId value = reader.read(node, at);
    SHEAF_CHECK(reader.ok(), "a row kernel reads a reduction of another row");
    return value;
  }

  /// A reader for a body outside the row loops.
  Reader reader() const {
    Reader reader(*b_, g_, k_.buffers);
    for (const auto& [hero, value] : reduced_) reader.bind(hero, kept_at_, value);
    return reader;
  }
  /// A reader for a body at element r.
  Reader reader(Index r, const std::vector<Stored>& stored) const {
    Reader reader = this->reader();
    for (const Stored& s : stored) reader.bind(s.node, element_at(r), b_->load(s.row, place(s, r)));
    return reader;
  }

  Index place(const Stored& s, Index r) const {
    return s.is_result ? b_->indices().add(b_->indices().scale(row_, form_.length), r) : r;
  }

  bool is_stored(int node) const {
    return std::any_of(stored_.begin(), stored_.end(), [&](const Stored& s) { return s.node == node; });
  }

  /// Where a CPU keeps the values of `node` until the last pass stores the row's results: its own place, or one that
  /// nothing is kept in yet; -1 for none.
  BufferId result_for(int node) {
    if (k_.grain().is_gpu()) return -1;
    const auto is_free = [&](const Target& t) {
      return g_.dtype(t.node) == g_.dtype(node) && std::find(taken_.begin(), taken_.end(), t.buffer) == taken_.end();
    };
    const auto own =
        std::find_if(per_element_.begin(), per_element_.end(), [&](const Target& t) { return t.node == node; });
    const auto any = own != per_element_.end() ? own : std::find_if(per_element_.begin(), per_element_.end(), is_free);
    if (any == per_element_.end() || !is_free(*any)) return -1;
    taken_.push_back(any->buffer);
    return any->buffer;
  }

  /// A row for the values of `node`, one that is free or a new one; -1 where there is no room for it.
  BufferId row_for(int node) {
    const DType t = g_.dtype(node);
    const auto free = std::find_if(free_.begin(), free_.end(), [&](const Stored& s) { return g_.dtype(s.node) == t; });
    if (free != free_.end()) {
      const BufferId row = free->row;
      free_.erase(free);
      return row;
    }
    const std::int64_t bytes = form_.length * size_bytes(t);
    if (bytes > room_) return -1;
    room_ -= bytes;
    return b_->scratch(t, form_.length);
  }

  /// What the passes from `pass` on compute.
  std::vector<int> wanted_from(std::size_t pass) const {
    std::vector<int> nodes;
    for (; pass < form_.heroes.size(); ++pass) nodes.push_back(operand_of(form_.heroes[pass]));
    for (int node : form_.columns) nodes.push_back(operand_of(node));
    for (const std::vector<Target>* targets : {&per_element_, &per_row_})
      for (const Target& t : *targets) nodes.push_back(t.node);
    return nodes;
  }

  std::vector<int> known() const {
    std::vector<int> nodes = form_.heroes;
    for (const Stored& s : stored_) nodes.push_back(s.node);
    return nodes;
  }

  bool is_read_from(std::size_t pass, int node) const { return reads(g_, wanted_from(pass), node, known()); }

  /// Of the whole rows in memory, those that the first pass keeps for the later ones.
  std::vector<Stored> inputs_to_keep(std::size_t pass) {
    std::vector<Stored> kept;
    if (!k_.grain().is_gpu() || pass > 0) return kept;
    for (int i = 0; i < g_.num_inputs; ++i) {
      if (g_.dims(i) != form_.dims || !is_read_from(1, i)) continue;
      if (const BufferId row = row_for(i); row >= 0) kept.push_back({i, row});
    }
    return kept;
  }

  void free_what_is_done(std::size_t next_pass) {
    for (std::size_t i = 0; k_.grain().is_gpu() && i < stored_.size();) {
      if (is_read_from(next_pass, stored_[i].node)) {
        ++i;
        continue;
      }
      free_.push_back(stored_[i]);
      stored_.erase(stored_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void reduce(std::size_t pass) {
    const int hero = form_.heroes[pass], operand = g_.nodes[hero].operands[0];
    const Reduction reduction = reduction_of(g_, hero);
    const std::vector<Stored> inputs = inputs_to_keep(pass), before = stored_;
    Stored keep{operand, -1};
    if (!is_stored(operand) && weight(g_, operand) >= kWorthStoring && is_read_again(g_, operand, hero)) {
      // In the place of what nobody reads once this is stored.
      stored_.push_back(keep);
      free_what_is_done(pass + 1);
      std::erase_if(stored_, [&](const Stored& s) { return s.node == operand; });
      keep.row = result_for(operand);
      keep.is_result = keep.row >= 0;
      if (!keep.is_result) keep.row = row_for(operand);
    }
    const State state = reduce_row(
        *b_, reduction, form_.length,
        [&](Index r) {
          Reader at_r = reader(r, before);
          for (const Stored& i : inputs) b_->store(i.row, r, read(at_r, i.node, element_at(r)));
          const ValueId value = read(at_r, operand, element_at(r));
          if (keep.row >= 0) b_->store(keep.row, place(keep, r), value);
          State contribution{b_->convert(value, reduction.parts[0])};
          if (reduction.parts.size() > 1) contribution.push_back(b_->index_value(r, reduction.parts[1]));
          return contribution;
        },
        is_staged() ? &stage_ : nullptr);
    stored_.insert(stored_.end(), inputs.begin(), inputs.end());
    if (keep.row >= 0) stored_.push_back(keep);
    reduced_.emplace_back(hero, b_->convert(state.back(), g_.dtype(hero)));
    free_what_is_done(pass + 1);
  }

  bool is_in_place(const Target& t) const {
    return std::any_of(stored_.begin(), stored_.end(),
                       [&](const Stored& s) { return s.is_result && s.node == t.node && s.row == t.buffer; });
  }

  void store_per_element() {
    const bool are_stored =
        std::all_of(per_element_.begin(), per_element_.end(), [&](const Target& t) { return is_in_place(t); });
    if (form_.length == 0 || (are_stored && form_.columns.empty())) return;
    IndexPool& pool = b_->indices();
    const Index r = b_->axis(b_->begin_for("e", form_.length, LoopKind::vector));
    const Index flat = pool.add(pool.scale(row_, form_.length), r);
    Reader at_r = reader(r, stored_);
    std::vector<ValueId> values;
    for (const Target& t : per_element_) {
      const Position at = g_.dims(t.node) == form_.dims ? element_at(r) : unflatten(pool, flat, g_.dims(t.node));
      values.push_back(read(at_r, t.node, at));
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!is_in_place(per_element_[i])) b_->store(per_element_[i].buffer, flat, values[i]);
    std::vector<ValueId> of_columns;
    for (int node : form_.columns) of_columns.push_back(read(at_r, operand_of(node), element_at(r)));
    if (columns_) columns_->add(*b_, slot_, row_, r, of_columns);
    b_->end();
  }

  void store_per_row() {
    Reader per_row = reader();
    for (const Target& t : per_row_) {
      b_->store(t.buffer, row_, read(per_row, t.node, unflatten(b_->indices(), row_, g_.dims(t.node))));
    }
  }

  const KernelBuilder& k_;
  const Group& g_;
  const RowForm& form_;
  ColumnTotals* columns_;  // null: there are none
  std::vector<Target> per_row_, per_element_;
  int threads_ = 1;
  PhaseBuilder* b_ = nullptr;
  Index row_, slot_;
  Position kept_at_;
  std::vector<std::pair<int, ValueId>> reduced_;
  std::vector<Stored> stored_;
  std::vector<Stored> free_;  // rows whose values nobody reads any more
  std::vector<BufferId> taken_;  // results in whose place something is kept
  std::int64_t room_ = 0;  // bytes that are left for rows
  Stage stage_;
};

}  // namespace

namespace {

double row_ps(const KernelBuilder& k, const RowForm& form, RowTemplate& rows) {
  PhaseBuilder sketch = k.begin_phase(form.rows);
  rows.emit(sketch, sketch.unit(), sketch.unit());
  return static_cast<double>(estimate_unit_ps(KernelBuilder::sketch(sketch)));
}

/// How many slots of one leaf a unit takes: what takes about its time, and as much as makes long runs in memory, in
/// which rows of lanes next to each other lie.
std::int64_t slots_of_unit(const KernelBuilder& k, const RowForm& form, const ColumnTotals& columns, double row_ps) {
  constexpr std::int64_t kRun = 512;  // elements
  const std::int64_t lanes = std::min<std::int64_t>(columns.slots(), kLanes);
  std::int64_t count = choose_blocking(k.grain(), lanes, static_cast<double>(columns.rows_of_slot()) * row_ps).block;
  while (lanes % count != 0 || (count < lanes && count * form.length < kRun)) ++count;
  return count;
}

/// A unit takes the rows of some slots, in the order in which they lie in memory.
void rows_and_columns(KernelBuilder& k, const RowForm& form, const std::vector<Target>& results) {
  SHEAF_CHECK(!k.grain().is_gpu(), "a row kernel that adds up columns on a GPU");
  ColumnTotals columns(k.group(), form.columns, form.rows, form.length,
                       [&](DType t, std::int64_t count) { return k.temporary(t, count); });
  RowTemplate rows(k, form, results, &columns);
  const std::int64_t count = slots_of_unit(k, form, columns, row_ps(k, form, rows));
  PhaseBuilder b = k.begin_phase(columns.slots() / count);
  IndexPool& pool = b.indices();
  const Index first = pool.scale(b.unit(), count);
  const auto for_each_lane = [&](const std::function<void(Index lane)>& body) {
    for_each_item(b, {count, count}, pool.constant(0), "l", body);
  };
  for_each_lane([&](Index lane) { columns.begin(b, pool.add(first, lane)); });
  if (form.rows > 0) {
    const Index step = b.axis(b.begin_for("j", columns.rows_of_slot(), LoopKind::serial));
    const Index first_row = columns.slot_row(pool, first, step);
    for_each_lane([&](Index lane) {
      Index row = pool.add(first_row, lane);
      // One number, of which divisions by the kept dims are short.
      if (form.kept.size() > 1) row = b.index_of(b.index_value(row), pool.range(row));
      if (!columns.are_even()) b.begin_if(b.in_range(row, 0, form.rows));
      rows.emit(b, row, pool.add(first, lane));
      if (!columns.are_even()) b.end();
    });
    b.end();
  }
  k.end_phase(b);
  PhaseBuilder last = k.begin_phase(columns.units());
  columns.finish(last, [&](Index c, const std::vector<ValueId>& totals) {
    for (std::size_t i = 0; i < totals.size(); ++i)
      for (const Target& t : results)
        if (t.node == form.columns[i]) last.store(t.buffer, c, totals[i]);
  });
  k.end_phase(last);
}

}  // namespace

void row_template(KernelBuilder& k, const std::vector<Target>& results) {
  const auto is_empty = [&](const Target& t) { return k.group().nodes[t.node].type.num_elements() == 0; };
  if (std::all_of(results.begin(), results.end(), is_empty)) return;
  RowForm form = row_form(k.group());
  if (form.length == 0) form.columns.clear();  // there are none to add up
  if (!form.columns.empty()) return rows_and_columns(k, form, results);
  RowTemplate rows(k, form, results, nullptr);
  const Blocking blocking = choose_blocking(k.grain(), form.rows, row_ps(k, form, rows));
  PhaseBuilder b = k.begin_phase(blocking.units());
  for_each_item(b, blocking, b.unit(), "o", [&](Index row) { rows.emit(b, row); });
  k.end_phase(b, rows.threads());
}

}  // namespace sheaf::kir
