// Ranks values by a walk from the effects, places them by rank, then renumbers in one walk of the text. A value never
// leaves its block; a read of what is written never passes an effect.
#include "codegen/kir/canonical.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace sheaf::kir {
namespace {

class Canonicaliser {
 public:
  Canonicaliser(Phase& phase, const std::vector<bool>& is_read_only)
      : phase_(phase),
        is_read_only_(is_read_only),
        definition_(phase.values.size(), nullptr),
        rank_(phase.values.size(), -1),
        waiting_(phase.values.size()),
        renamed_(phase.values.size(), -1) {}

  void run() {
    find_definitions(phase_.body);
    rank(phase_.body);
    place(phase_.body);
    rename(phase_.body);
    phase_.values = std::move(values_);
    phase_.indices = std::move(indices_);
  }

 private:
  void find_definitions(const Block& block) {
    for (const Stmt& s : block) {
      if (const auto* let = std::get_if<Let>(&s)) definition_[let->value] = &let->expr;
      if (const auto* loop = std::get_if<For>(&s)) find_definitions(loop->body);
      if (const auto* branch = std::get_if<If>(&s)) find_definitions(branch->then);
    }
  }

  // ---- operand first, from the effects ----

  void rank(const Block& block) {
    for (const Stmt& s : block) {
      if (std::holds_alternative<Let>(s)) continue;
      const std::size_t effect = ranks_of_effects_.size();
      ranks_of_effects_.emplace_back(next_rank_, next_rank_);
      if (const auto* assign = std::get_if<Assign>(&s)) {
        need(assign->value);
      } else if (const auto* store = std::get_if<Store>(&s)) {
        need(store->index);
        need(store->value);
        need(store->mask);
      } else if (const auto* loop = std::get_if<For>(&s)) {
        need(loop->limit);
        if (loop->rest) need(loop->rest->where);
        rank(loop->body);
      } else if (const auto* branch = std::get_if<If>(&s)) {
        need(branch->condition);
        rank(branch->then);
      }
      ranks_of_effects_[effect].second = next_rank_;
    }
  }

  void need(ValueId v) {
    if (v < 0 || rank_[v] >= 0 || !definition_[v]) return;  // a lane reduction's results are where it is
    for_each_operand(*definition_[v], [&](ValueId operand) { need(operand); });
    rank_[v] = next_rank_++;
  }
  void need(Index index) {
    for_each_value(index, [&](ValueId v) { need(v); });
  }

  template <class F>
  void for_each_value(Index index, F f) const {
    for (const Term& t : phase_.indices.terms(index)) {
      const Atom& a = phase_.indices.atom(t.atom);
      if (a.kind == Atom::Kind::value) f(a.id);
      if (a.operand.node >= 0) for_each_value(a.operand, f);
    }
  }

  template <class F>
  void for_each_operand(const Expr& e, F f) const {
    if (const auto* scalar = std::get_if<Scalar>(&e)) {
      for (ValueId v : scalar->in) f(v);
    } else if (const auto* load = std::get_if<Load>(&e)) {
      for_each_value(load->index, f);
      f(load->mask);
      f(load->other);
    } else if (const auto* value = std::get_if<IndexValue>(&e)) {
      for_each_value(value->index, f);
    } else if (const auto* range = std::get_if<InRange>(&e)) {
      for_each_value(range->index, f);
    }
  }

  // ---- each value before the first effect that needs it ----

  bool is_pure(const Expr& e) const {
    const auto* load = std::get_if<Load>(&e);
    if (!load) return !std::holds_alternative<Get>(e);
    return load->buffer < std::ssize(is_read_only_) && is_read_only_[load->buffer];
  }

  void place(Block& block) {
    std::vector<std::pair<int, ValueId>> pure;  // by rank
    for (Stmt& s : block) {
      const auto* let = std::get_if<Let>(&s);
      if (!let || rank_[let->value] < 0 || !is_pure(let->expr)) continue;
      pure.emplace_back(rank_[let->value], let->value);
      waiting_[let->value] = *let;
    }
    std::sort(pure.begin(), pure.end());
    auto next = pure.begin();
    Block placed;
    std::vector<Let> reads;  // of what is written, since the last effect
    for (Stmt& s : block) {
      if (auto* let = std::get_if<Let>(&s)) {
        if (rank_[let->value] >= 0 && !is_pure(let->expr)) reads.push_back(std::move(*let));
        continue;
      }
      place_reads(reads, placed);
      const int end = ranks_of_effects_[next_effect_++].second;
      for (; next != pure.end() && next->first < end; ++next) place(next->second, placed);
      if (auto* loop = std::get_if<For>(&s)) place(loop->body);
      if (auto* branch = std::get_if<If>(&s)) place(branch->then);
      placed.push_back(std::move(s));
    }
    block = std::move(placed);
  }

  void place_reads(std::vector<Let>& reads, Block& placed) {
    std::sort(reads.begin(), reads.end(), [&](const Let& a, const Let& b) { return rank_[a.value] < rank_[b.value]; });
    for (Let& read : reads) {
      for_each_operand(read.expr, [&](ValueId v) { place(v, placed); });
      placed.push_back(std::move(read));
    }
    reads.clear();
  }

  void place(ValueId v, Block& placed) {
    if (v < 0 || !waiting_[v]) return;  // placed already, or of another block
    const Let let = *std::exchange(waiting_[v], std::nullopt);
    for_each_operand(let.expr, [&](ValueId operand) { place(operand, placed); });
    placed.push_back(let);
  }

  // ---- numbers, in the order of the text ----

  void define(ValueId& v) {
    renamed_[v] = static_cast<ValueId>(values_.size());
    values_.push_back(phase_.values[v]);
    v = renamed_[v];
  }
  void use(ValueId& v) const {
    if (v >= 0) v = renamed_[v];
  }
  void use(Index& index) {
    index = indices_.copy(phase_.indices, index, [&](ValueId v) { return renamed_[v]; });
  }
  void rename(Scalar& s) {
    for (ValueId& v : s.in) use(v);
  }
  void rename(Constant&) {}
  void rename(Load& l) {
    use(l.index);
    use(l.mask);
    use(l.other);
  }
  void rename(Get&) {}
  void rename(IndexValue& v) { use(v.index); }
  void rename(InRange& r) { use(r.index); }

  void rename(Block& block) {
    for (Stmt& s : block) {
      if (auto* let = std::get_if<Let>(&s)) {
        std::visit([&](auto& e) { rename(e); }, let->expr);
        define(let->value);
      } else if (auto* assign = std::get_if<Assign>(&s)) {
        use(assign->value);
      } else if (auto* store = std::get_if<Store>(&s)) {
        use(store->index);
        use(store->value);
        use(store->mask);
      } else if (auto* loop = std::get_if<For>(&s)) {
        use(loop->limit);
        if (loop->rest) use(loop->rest->where);
        rename(loop->body);
      } else if (auto* reduce = std::get_if<LaneReduce>(&s)) {
        for (ValueId& v : reduce->results) define(v);
      } else if (auto* branch = std::get_if<If>(&s)) {
        use(branch->condition);
        rename(branch->then);
      }
    }
  }

  Phase& phase_;
  const std::vector<bool>& is_read_only_;
  std::vector<const Expr*> definition_;  // by ValueId; null for a lane reduction's results
  std::vector<int> rank_;                // by ValueId; -1: not needed
  std::vector<std::optional<Let>> waiting_;  // by ValueId: pure values of open blocks that are still to be placed
  std::vector<ValueId> renamed_;
  std::vector<std::pair<int, int>> ranks_of_effects_;  // [first, last) that each was first to need, in the text's order
  int next_rank_ = 0;
  std::size_t next_effect_ = 0;
  std::vector<DType> values_;
  IndexPool indices_;
};

}  // namespace

void canonicalise(Phase& phase, const std::vector<bool>& is_read_only) { Canonicaliser(phase, is_read_only).run(); }

}  // namespace sheaf::kir
