// Row-persistent: softmax, norms, cross-entropy. All reductions run over the same trailing dims, so one unit takes a row
// through all of them while it is in cache; what a later pass would have to compute again is kept in a row of scratch.
#include <algorithm>

#include "codegen/kir/estimate.h"
#include "codegen/kir/reduction.h"
#include "codegen/kir/templates/template.h"

namespace sheaf::kir {
namespace {

namespace low = ir::lowering;

/// A longer row leaves the second-level cache between its passes, and its scratch grows too large for a thread.
constexpr std::int64_t kLongestRow = 1 << 18;
/// An operand of this many scalar ops is stored rather than computed twice.
constexpr std::size_t kWorthStoring = 6;

bool is_reduction(const Group& g, int node) { return g.as<low::Reduce>(node) || g.as<low::ArgReduce>(node); }

struct RowForm {
  std::vector<int> heroes;
  Shape dims;             // of every hero's operand: kept dims, then the row's
  Shape kept, row;
  std::int64_t rows = 1, length = 1;
};

std::optional<RowForm> row_form(const Group& g, std::int64_t many_rows) {
  RowForm form;
  std::vector<std::int64_t> reduced;
  for (int node = g.num_inputs; node < static_cast<int>(g.nodes.size()); ++node) {
    if (is_inlinable(g, node)) continue;
    if (!is_reduction(g, node)) return std::nullopt;
    const Shape& dims = g.dims(g.nodes[node].operands[0]);
    std::vector<std::int64_t> over = reduced_dims_of(g, node);
    std::sort(over.begin(), over.end());
    if (form.heroes.empty()) {
      form.dims = dims;
      reduced = over;
    } else if (dims != form.dims || over != reduced) {
      return std::nullopt;
    }
    form.heroes.push_back(node);
  }
  if (form.heroes.empty()) return std::nullopt;
  const std::size_t first = form.dims.size() - reduced.size();
  for (std::size_t i = 0; i < reduced.size(); ++i) {
    if (reduced[i] != static_cast<std::int64_t>(first + i)) return std::nullopt;
  }
  form.kept.assign(form.dims.begin(), form.dims.begin() + static_cast<std::ptrdiff_t>(first));
  form.row.assign(form.dims.begin() + static_cast<std::ptrdiff_t>(first), form.dims.end());
  form.rows = num_elements(form.kept);
  form.length = num_elements(form.row);
  if (form.rows == 0 || form.length > kLongestRow) return std::nullopt;
  if (count_leaves(form.length) > 1 && form.rows < many_rows) return std::nullopt;
  return form;
}

/// Scalar ops below `node`, down to inputs and heroes.
std::size_t weight(const Group& g, int node) {
  if (!g.nodes[node].lowering || !is_inlinable(g, node)) return 0;
  std::size_t total = 0;
  if (const auto* map = g.as<low::Map>(node)) total = map->fn.nodes.size() - map->fn.args.size();
  for (int operand : g.nodes[node].operands) total += weight(g, operand);
  return std::min<std::size_t>(total, 1000);
}

bool is_read_again(const Group& g, int node, int by) {
  if (std::find(g.results.begin(), g.results.end(), node) != g.results.end()) return true;
  for (int other = 0; other < static_cast<int>(g.nodes.size()); ++other) {
    const auto& operands = g.nodes[other].operands;
    if (other != by && std::find(operands.begin(), operands.end(), node) != operands.end()) return true;
  }
  return false;
}

class RowTemplate {
 public:
  RowTemplate(const KernelBuilder& k, const RowForm& form, const std::vector<Target>& results)
      : k_(k), g_(k.group()), form_(form) {
    for (const Target& t : results) {
      (g_.nodes[t.node].type.num_elements() == form.rows ? per_row_ : per_element_).push_back(t);
    }
  }

  bool fits() const {
    return std::all_of(per_element_.begin(), per_element_.end(), [&](const Target& t) {
      return g_.nodes[t.node].type.num_elements() == form_.rows * form_.length;
    });
  }

  /// One row; false if some value is needed at another row or element than the one at hand.
  bool emit(PhaseBuilder& b, Index row) {
    b_ = &b;
    row_ = row;
    kept_at_ = unflatten(b.indices(), row, form_.kept);
    reduced_.clear();
    stored_.clear();
    is_ok_ = true;
    for (int hero : form_.heroes) {
      reduce(hero);
      if (!is_ok_) return false;
    }
    store_per_element();
    store_per_row();
    return is_ok_;
  }

 private:
  struct Stored {
    int node;
    BufferId row;
  };

  Position element_at(Index r) const {
    Position at = kept_at_;
    for (Index i : unflatten(b_->indices(), r, form_.row)) at.push_back(i);
    return at;
  }

  /// A reader for a body at element r, or for a body outside the row loops when r is null.
  Reader reader(const Index* r) const {
    Reader reader(*b_, g_, k_.buffers);
    for (const auto& [hero, value] : reduced_) reader.bind(hero, kept_at_, value);
    if (!r) return reader;
    for (const Stored& s : stored_) reader.bind(s.node, element_at(*r), b_->load(s.row, *r));
    return reader;
  }

  void reduce(int hero) {
    const int operand = g_.nodes[hero].operands[0];
    const Reduction reduction = reduction_of(g_, hero);
    const bool is_stored = std::any_of(stored_.begin(), stored_.end(), [&](const Stored& s) { return s.node == operand; });
    const bool must_store = !is_stored && weight(g_, operand) >= kWorthStoring && is_read_again(g_, operand, hero);
    const BufferId row = must_store ? b_->scratch(g_.dtype(operand), form_.length) : -1;
    const State state = reduce_row(*b_, reduction, form_.length, [&](Index r) -> State {
      Reader at_r = reader(&r);
      const ValueId value = at_r.read(operand, element_at(r));
      is_ok_ &= at_r.ok();
      if (!is_ok_) return reduction.identity(*b_);
      if (must_store) b_->store(row, r, value);
      State contribution{b_->convert(value, reduction.parts[0])};
      if (reduction.parts.size() > 1) contribution.push_back(b_->index_value(r, reduction.parts[1]));
      return contribution;
    });
    if (must_store) stored_.push_back({operand, row});
    reduced_.emplace_back(hero, b_->convert(state.back(), g_.dtype(hero)));
  }

  void store_per_element() {
    if (per_element_.empty()) return;
    IndexPool& pool = b_->indices();
    const Index r = b_->axis(b_->begin_for("e", form_.length, LoopKind::vector));
    const Index flat = pool.add(pool.scale(row_, form_.length), r);
    Reader at_r = reader(&r);
    std::vector<ValueId> values;
    for (const Target& t : per_element_) {
      const Position at = g_.dims(t.node) == form_.dims ? element_at(r) : unflatten(pool, flat, g_.dims(t.node));
      values.push_back(at_r.read(t.node, at));
    }
    is_ok_ &= at_r.ok();
    for (std::size_t i = 0; i < values.size() && is_ok_; ++i) b_->store(per_element_[i].buffer, flat, values[i]);
    b_->end();
  }

  void store_per_row() {
    Reader per_row = reader(nullptr);
    for (const Target& t : per_row_) {
      const ValueId value = per_row.read(t.node, unflatten(b_->indices(), row_, g_.dims(t.node)));
      is_ok_ &= per_row.ok();
      if (is_ok_) b_->store(t.buffer, row_, value);
    }
  }

  const KernelBuilder& k_;
  const Group& g_;
  const RowForm& form_;
  std::vector<Target> per_row_, per_element_;
  PhaseBuilder* b_ = nullptr;
  Index row_;
  Position kept_at_;
  std::vector<std::pair<int, ValueId>> reduced_;
  std::vector<Stored> stored_;
  bool is_ok_ = true;
};

}  // namespace

bool row_template(KernelBuilder& k, const std::vector<Target>& results) {
  const std::optional<RowForm> form = row_form(k.group(), k.schedule().many_rows);
  if (!form) return false;
  RowTemplate rows(k, *form, results);
  if (!rows.fits()) return false;
  PhaseBuilder sketch = k.begin_phase(form->rows);
  if (!rows.emit(sketch, sketch.unit())) return false;
  const auto row_ps = static_cast<double>(estimate_unit_ps(KernelBuilder::sketch(sketch)));
  const Blocking blocking = choose_blocking(k.schedule(), form->rows, row_ps);
  PhaseBuilder b = k.begin_phase(blocking.units());
  bool is_ok = true;
  for_each_item(b, blocking, b.unit(), "o", [&](Index row) { is_ok &= rows.emit(b, row); });
  if (!is_ok) return false;  // the blocked row index hid an equality that the plain one showed
  k.end_phase(b);
  return true;
}

}  // namespace sheaf::kir
