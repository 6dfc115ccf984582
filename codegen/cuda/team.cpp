// Widths first, since they say who owns what; then traffic, which says what has to be shared; then places for scratch.
#include "codegen/cuda/team.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "ir/check.h"

namespace sheaf::codegen {
namespace {

using kir::Atom;
using kir::AxisId;
using kir::Block;
using kir::BufferId;
using kir::Index;
using kir::LoopKind;
using kir::ValueId;

/// Of all the scratch that a thread keeps in registers.
constexpr std::int64_t kRegisterBytes = 4 * 96;
/// As many blocks keep every multiprocessor busy; with fewer units there are fewer of them in a block.
constexpr std::int64_t kManyBlocks = 512;
constexpr int kVectorBytes = 16;
constexpr int kMostHeldBytes = 512;  // of a thread, in half of its registers
constexpr std::int64_t kBanks = 32, kBankBytes = 4;  // of shared memory

int threads_of(const kir::Phase& phase) {
  if (phase.threads > 1) return phase.threads;
  const bool has_vectors = any_of<kir::For>(phase.body, [](const kir::For& l) { return l.kind == LoopKind::vector; });
  if (!has_vectors) return 1;
  const bool has_lanes =
      std::any_of(phase.locals.begin(), phase.locals.end(), [](const kir::Local& l) { return l.lanes == kir::kLanes; });
  return has_lanes ? kWarp : kBlockThreads;
}

bool is_lane_local(const kir::Phase& phase, kir::LocalId local) { return phase.locals[local].lanes == kir::kLanes; }

bool has_lanes(const kir::Phase& phase, const Block& block) {
  return any_of<kir::Assign>(block, [&](const kir::Assign& s) { return is_lane_local(phase, s.local); }) ||
         any_of<kir::Let>(block, [&](const kir::Let& s) {
           const auto* get = std::get_if<kir::Get>(&s.expr);
           return get && is_lane_local(phase, get->local);
         });
}

}  // namespace

const kir::For& vector_loop_of(const Block& block) {
  for (const kir::Stmt& s : block)
    if (const auto* loop = std::get_if<kir::For>(&s))
      return loop->kind == LoopKind::vector ? *loop : vector_loop_of(loop->body);
  SHEAF_CHECK(false, "a block without a vector loop");
}

Team::Team(const kir::Kernel& kernel, const kir::Phase& phase)
    : threads(threads_of(phase)),
      widths(phase.axes.size(), 1),
      kernel_(kernel),
      phase_(phase),
      indices_(phase.indices),
      first_axis_(static_cast<AxisId>(phase.axes.size())),
      defined_in_(phase.values.size(), -1),
      definitions_(phase.values.size(), nullptr),
      traffic_(kernel.params.size() + phase.scratch.size()) {
  find_definitions(phase.body, -1);
  if (threads > kWarp) choose_widths(phase.body);
  scan(phase.body, -1);
  for (const Traffic& t : traffic_)
    is_communicated.push_back(threads > 1 && t.is_loaded && t.is_stored && !t.is_private);
  place_scratch();
}

void Team::find_definitions(const Block& block, AxisId vector_axis) {
  for (const kir::Stmt& s : block) {
    if (const auto* let = std::get_if<kir::Let>(&s)) {
      defined_in_[let->value] = vector_axis;
      definitions_[let->value] = &let->expr;
    } else if (const auto* loop = std::get_if<kir::For>(&s)) {
      find_definitions(loop->body, loop->kind == LoopKind::vector ? loop->axis : vector_axis);
    } else if (const auto* branch = std::get_if<kir::If>(&s)) {
      find_definitions(branch->then, vector_axis);
    }
  }
}

// ---- widths ----

/// With the loop's axis as `width` times a group's number plus an iteration's within the group.
Index Team::in_groups(Index index, const kir::For& loop, int width) {
  const AxisId group = split_axis(loop.axis, width), within = group + 1;
  const std::int64_t groups = std::max<std::int64_t>(phase_.axes[loop.axis].extent / width, 1);
  const Index iteration =
      indices_.add(indices_.scale(indices_.axis(group, groups), width), indices_.axis(within, width));
  return indices_.substitute(index, [&](const Atom& a) -> std::optional<Index> {
    if (a.kind != Atom::Kind::axis || a.id != loop.axis) return std::nullopt;
    return iteration;
  });
}

bool Team::has_uniform_values(Index index, const kir::For& loop, int width) {
  for (const kir::Term& t : indices_.terms(index)) {
    const Atom a = indices_.atom(t.atom);
    if (a.kind == Atom::Kind::value && !is_uniform(a.id, loop, width)) return false;
    if (a.operand.node >= 0 && !has_uniform_values(a.operand, loop, width)) return false;
  }
  return true;
}

bool Team::is_uniform(Index index, const kir::For& loop, int width) {
  return has_uniform_values(index, loop, width) &&
         !indices_.depends_on(in_groups(index, loop, width), split_axis(loop.axis, width) + 1);
}

bool Team::is_uniform(ValueId value, const kir::For& loop, int width) {
  if (value < 0 || defined_in_[value] != loop.axis) return true;
  if (const auto known = uniform_.find({value, width}); known != uniform_.end()) return known->second;
  const auto of = [&](const auto& e) {
    using E = std::decay_t<decltype(e)>;
    if constexpr (std::is_same_v<E, kir::Scalar>) {
      return std::all_of(e.in.begin(), e.in.end(), [&](ValueId v) { return is_uniform(v, loop, width); });
    } else if constexpr (std::is_same_v<E, kir::Load>) {
      return is_uniform(e.index, loop, width) && is_uniform(e.mask, loop, width) && is_uniform(e.other, loop, width);
    } else if constexpr (std::is_same_v<E, kir::IndexValue> || std::is_same_v<E, kir::InRange>) {
      return is_uniform(e.index, loop, width);
    } else {
      return std::is_same_v<E, kir::Constant>;
    }
  };
  return uniform_[{value, width}] = std::visit(of, *definitions_[value]);
}

int Team::element_alignment(BufferId buffer) const {
  return buffer < std::ssize(kernel_.params) ? kernel_.params[buffer].alignment : kVectorBytes;
}

int Team::element_bytes(BufferId buffer) const {
  const auto params = std::ssize(kernel_.params);
  return size_bytes(buffer < params ? kernel_.params[buffer].dtype : phase_.scratch[buffer - params].dtype);
}

bool Team::lies_in_runs(BufferId buffer, Index index, const kir::For& loop, int width) {
  if (element_alignment(buffer) % (std::int64_t{width} * element_bytes(buffer)) != 0) return false;
  if (!has_uniform_values(index, loop, width)) return false;
  const AxisId within = split_axis(loop.axis, width) + 1;
  const Index at = in_groups(index, loop, width);
  bool is_run = indices_.offset(at) % width == 0, has_within = false;
  for (const kir::Term& t : indices_.terms(at)) {
    const Atom& a = indices_.atom(t.atom);
    const bool is_within = a.kind == Atom::Kind::axis && a.id == within;
    has_within |= is_within;
    is_run &= is_within ? t.coefficient == 1
                        : t.coefficient % width == 0 && (a.operand.node < 0 || !indices_.depends_on(a.operand, within));
  }
  return is_run && has_within;
}

void Team::choose_widths(const Block& block) {
  for (const kir::Stmt& s : block) {
    if (const auto* loop = std::get_if<kir::For>(&s)) {
      if (loop->kind == LoopKind::vector) widths[loop->axis] = width_of(*loop);
      choose_widths(loop->body);
    } else if (const auto* branch = std::get_if<kir::If>(&s)) {
      choose_widths(branch->then);
    }
  }
}

/// Whether the first threads' accesses to shared memory, `width` iterations apart and of `elements` each, meet in
/// banks.
bool Team::meets_in_banks(BufferId buffer, Index index, const kir::For& loop, int width, int elements) const {
  if (buffer < std::ssize(kernel_.params) || indices_.depends_on_value(index)) return false;
  const std::int64_t bytes = std::int64_t{elements} * element_bytes(buffer);
  const std::int64_t at_once = std::min<std::int64_t>(kWarp, kBankBytes * kBanks / bytes);
  std::vector<std::int64_t> words(kBanks, -1);
  for (std::int64_t t = 0; t < at_once; ++t) {
    const auto axis = [&](const Atom& a) { return a.id == loop.axis ? t * width : 0; };
    const std::int64_t first = indices_.evaluate(index, axis) * element_bytes(buffer);
    for (std::int64_t word = first / kBankBytes; word <= (first + bytes - 1) / kBankBytes; ++word) {
      std::int64_t& in_bank = words[static_cast<std::size_t>(word % kBanks)];
      if (in_bank >= 0 && in_bank != word) return true;
      in_bank = word;
    }
  }
  return false;
}

/// The most that keeps every thread busy and moves everything that lies in runs 16 bytes at once. Neighbours that
/// cannot be moved together are better left to neighbouring threads.
int Team::width_of(const kir::For& loop) {
  if (has_lanes(phase_, loop.body)) return 1;
  int width = 1;
  while (width < kVectorBytes && phase_.axes[loop.axis].extent >= std::int64_t{2} * width * threads) width *= 2;
  return run_width(loop, width);
}

int Team::run_width(const kir::For& loop, int most) {
  int width = most;
  std::vector<bool> is_stored(traffic_.size());
  bool has_runs = false;
  int held = 0;  // bytes of each iteration, which a thread holds of a whole group
  const auto see = [&](BufferId buffer, Index index, ValueId mask) {
    const bool is_run = lies_in_runs(buffer, index, loop, 2);
    if (!is_run && indices_.stride(index, loop.axis) != 1) {
      while (width > 1 && meets_in_banks(buffer, index, loop, width, 1)) width /= 2;
      return;
    }
    has_runs |= is_run;
    if (is_run) held += element_bytes(buffer);
    width = mask < 0 ? std::min(width, kVectorBytes / element_bytes(buffer)) : 1;
    while (width > 1 &&
           (!lies_in_runs(buffer, index, loop, width) || meets_in_banks(buffer, index, loop, width, width)))
      width /= 2;
  };
  for (const kir::Stmt& s : loop.body) {
    if (const auto* let = std::get_if<kir::Let>(&s)) {
      const auto* load = std::get_if<kir::Load>(&let->expr);
      if (!load) continue;
      if (is_stored[load->buffer]) return 1;  // the group's stores come after its loads
      see(load->buffer, load->index, load->mask);
    } else if (const auto* store = std::get_if<kir::Store>(&s)) {
      is_stored[store->buffer] = true;
      see(store->buffer, store->index, store->mask);
    }
  }
  while (width > 1 && width * held > kMostHeldBytes) width /= 2;
  return has_runs ? width : 1;
}

// ---- who touches what ----

void Team::scan(const Block& block, AxisId vector_axis) {
  for (const kir::Stmt& s : block) {
    if (const auto* let = std::get_if<kir::Let>(&s)) {
      if (const auto* load = std::get_if<kir::Load>(&let->expr)) {
        traffic_[load->buffer].is_loaded = true;
        touch(load->buffer, load->index, vector_axis);
      }
    } else if (const auto* store = std::get_if<kir::Store>(&s)) {
      traffic_[store->buffer].is_stored = true;
      if (store->update) traffic_[store->buffer].is_loaded = true;
      touch(store->buffer, store->index, vector_axis);
    } else if (const auto* loop = std::get_if<kir::For>(&s)) {
      scan(loop->body, loop->kind == LoopKind::vector ? loop->axis : vector_axis);
    } else if (const auto* branch = std::get_if<kir::If>(&s)) {
      scan(branch->then, vector_axis);
    }
  }
}

// An index that is the iteration plus multiples of what one round of all threads takes gives an element to the same
// thread in whatever loop of that width.
void Team::touch(BufferId buffer, Index index, AxisId vector_axis) {
  Traffic& traffic = traffic_[buffer];
  const int width = vector_axis < 0 ? 0 : widths[vector_axis];
  if (traffic.width == 0) traffic.width = width;
  const std::int64_t round = std::int64_t{threads} * width;
  bool is_own = vector_axis >= 0 && traffic.width == width && indices_.offset(index) % round == 0 &&
                phase_.axes[vector_axis].extent % width == 0;
  bool has_axis = false;
  if (is_own) {
    for (const kir::Term& t : indices_.terms(index)) {
      const Atom& a = indices_.atom(t.atom);
      const bool is_lane = a.kind == Atom::Kind::axis && a.id == vector_axis && t.coefficient == 1;
      has_axis |= is_lane;
      is_own &= is_lane ||
                (t.coefficient % round == 0 && (a.operand.node < 0 || !indices_.depends_on(a.operand, vector_axis)));
    }
  }
  traffic.is_private &= is_own && has_axis;
}

// ---- scratch ----

void Team::place_scratch() {
  const auto first = static_cast<std::ptrdiff_t>(kernel_.params.size());
  places.assign(phase_.scratch.size(), Place::shared);
  std::int64_t of_thread = 0, of_unit = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const kir::Scratch& s = phase_.scratch[i];
    const std::int64_t bytes = (s.count + threads - 1) / threads * std::max(4, size_bytes(s.dtype));
    const Traffic& traffic = traffic_[static_cast<std::size_t>(first) + i];
    if (threads > 1 && traffic.is_private && traffic.width == 1 && of_thread + bytes <= kRegisterBytes) {
      places[i] = Place::registers;
      of_thread += bytes;
    } else {
      of_unit += kir::aligned_bytes(s);
    }
  }
  units = std::max(1, kBlockThreads / threads);
  while (units > 1 && units * of_unit > kSharedScratch) units /= 2;
  if (threads == 1) units = static_cast<int>(std::min<std::int64_t>(units, phase_.axes[0].extent));
  while (units > 1 && threads > 1 && phase_.axes[0].extent < kManyBlocks * units) units /= 2;
  if (of_unit <= kSharedScratch && threads > 1) return;
  for (Place& p : places)
    if (p == Place::shared) p = Place::global;
}

bool Team::uses_global_scratch() const { return std::count(places.begin(), places.end(), Place::global) > 0; }

Index Team::own_element(Index index, AxisId vector_axis) {
  const std::int64_t rounds = (phase_.axes[vector_axis].extent + threads - 1) / threads;
  const AxisId round = round_axis(vector_axis);
  const Index iteration =
      indices_.add(indices_.scale(indices_.axis(round, rounds), threads), indices_.axis(round + 1, threads));
  const Index at = indices_.substitute(index, [&](const Atom& a) -> std::optional<Index> {
    if (a.kind != Atom::Kind::axis || a.id != vector_axis) return std::nullopt;
    return iteration;
  });
  return indices_.floor_div(at, threads);
}

}  // namespace sheaf::codegen
