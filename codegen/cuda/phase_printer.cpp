// Statements. Every barrier stands where all threads of the team arrive, because conditions and loop bounds outside
// vector loops are the same for all of them.
#include "codegen/cuda/phase_printer.h"

#include <algorithm>

#include "codegen/cuda/barriers.h"
#include "codegen/cuda/parameters.h"
#include "codegen/cuda/prelude.h"
#include "ir/check.h"

namespace sheaf::codegen {

using kir::Block;
using kir::BufferId;
using kir::Index;
using kir::LoopKind;

PhasePrinter::PhasePrinter(const kir::Kernel& kernel, const kir::Phase& phase, Team team, std::string entry,
                           bool has_scratch_param)
    : kernel_(kernel),
      phase_(phase),
      entry_(std::move(entry)),
      has_scratch_param_(has_scratch_param),
      team_(std::move(team)) {}

std::string PhasePrinter::print() {
  for (std::size_t i = 0; i < phase_.locals.size(); ++i) {
    const kir::Local& l = phase_.locals[i];
    const int own = l.lanes / team_.threads;  // lanes of each thread
    line("{} l{}{};", cuda_type(l.dtype), i, own > 1 && team_.threads > 1 ? fmt::format("[{}]", own) : "");
  }
  const Block body = with_barriers(phase_, team_);
  const absl::Status status = check_barriers(body, team_);
  SHEAF_CHECK(status.ok(), std::string(status.message()));
  block(body);
  std::string unit = fmt::format("  const {} a0 = blockIdx.x;\n", index_type());
  if (team_.units > 1) {
    unit = fmt::format("  const {0} a0 = ({0})blockIdx.x * {1} + threadIdx.x / {2};\n", index_type(), team_.units,
                       team_.threads);
    if (phase_.axes[0].extent % team_.units != 0)
      unit += fmt::format("  if (a0 >= {}) return;\n", phase_.axes[0].extent);
  }
  if (team_.threads > 1) {
    unit += team_.units > 1 ? fmt::format("  const {} t = threadIdx.x % {};\n", index_type(), team_.threads)
                            : fmt::format("  const {} t = threadIdx.x;\n", index_type());
  }
  const std::string bounds = fmt::to_string(team_.block_threads());
  return cuda_head(kernel_, entry_, bounds, has_scratch_param_) + unit + declarations() + lane_arrays_ + body_ + "}\n";
}

std::string PhasePrinter::print_element(std::span<const std::string> at, BufferId bound, const std::string& value) {
  team_.threads = 1;
  is_element_ = true;
  bound_ = bound;
  bound_value_ = value;
  for (std::size_t i = 0; i < at.size(); ++i) line("const {} a{} = {};", index_type(), i, at[i]);
  block(phase_.body);
  return std::move(body_);
}

std::string PhasePrinter::print_elements(std::span<const std::string> at, int width, BufferId bound,
                                         const std::string& value) {
  element_width_ = width;
  line("const {} b{} = {};", index_type(), at.size() - 1, at.back());
  return print_element(at.first(at.size() - 1), bound, value + ".v[j]");
}

std::vector<PhasePrinter::Run> PhasePrinter::runs(int width) {
  const kir::For& loop = vector_loop_of(phase_.body);
  std::vector<Run> all;
  for (const kir::Stmt& s : loop.body) {
    const auto* let = std::get_if<kir::Let>(&s);
    const auto* load = let ? std::get_if<kir::Load>(&let->expr) : nullptr;
    if (!load || load->mask >= 0 || phase_.indices.depends_on_value(load->index)) continue;
    if (phase_.axes[loop.axis - 1].extent > 1 && !phase_.indices.depends_on(load->index, loop.axis - 1)) continue;
    const int bytes = width * size_bytes(phase_.values[let->value]);
    const bool is_copied = bytes == 4 || bytes == 8 || bytes == 16;
    if (is_copied && team_.lies_in_runs(load->buffer, load->index, loop, width))
      all.push_back({let->value, *load, bytes});
  }
  return all;
}

std::string PhasePrinter::print_copies(std::span<const std::string> at, int width, std::span<const std::string> to) {
  vector_axis_ = vector_loop_of(phase_.body).axis;
  is_group_ = true;
  for (std::size_t i = 0; i < at.size(); ++i)
    line("const {} {}{} = {};", index_type(), i + 1 == at.size() ? "b" : "a", i, at[i]);
  const std::vector<Run> all = runs(width);
  for (std::size_t i = 0; i < all.size(); ++i)
    line("sf_cp_async<{}>({}, p{} + (is_there ? {} : 0), is_there);", all[i].bytes, to[i], all[i].load.buffer,
         index(all[i].load.index));
  return std::move(body_);
}

void PhasePrinter::read_copies(int width, std::span<const std::string> from) {
  const std::vector<Run> all = runs(width);
  for (std::size_t i = 0; i < all.size(); ++i)
    copies_[all[i].value] = fmt::format("(const {}*)({})", cuda_memory_type(phase_.values[all[i].value]), from[i]);
}

/// Of scratch, wherever it lies.
std::string PhasePrinter::declarations() {
  std::string out;
  std::int64_t offset = 0;  // in the unit's part of the scratch parameter
  for (std::size_t i = 0; i < phase_.scratch.size(); ++i) {
    const kir::Scratch& s = phase_.scratch[i];
    const std::string_view type = cuda_memory_type(s.dtype);
    const std::size_t id = kernel_.params.size() + i;
    const std::int64_t stride = kir::aligned_bytes(s) / size_bytes(s.dtype);  // from unit to unit of a block
    switch (team_.places[i]) {
      case Team::Place::registers:
        out += fmt::format("  {} p{}[{}];\n", type, id, (s.count + team_.threads - 1) / team_.threads);
        break;
      case Team::Place::shared:
        if (team_.units == 1) {
          out += fmt::format("  SF_SHARED({}, p{}, {});\n", type, id, s.count);
          shared_bytes_ += s.count * size_bytes(s.dtype);
          break;
        }
        out += fmt::format("  SF_SHARED({0}, s{1}, {2});\n  {0}* const p{1} = s{1} + threadIdx.x / {3} * {4};\n", type,
                           id, team_.units * stride, team_.threads, stride);
        shared_bytes_ += team_.units * kir::aligned_bytes(s);
        break;
      case Team::Place::global:
        out += fmt::format("  {0}* const p{1} = ({0}*)(scratch + a0 * {2}ll + {3}ll);\n", type, id,
                           kir::scratch_bytes(phase_), offset);
        break;
    }
    offset += kir::aligned_bytes(s);
  }
  return out;
}

void PhasePrinter::block(const Block& b) {
  for (const kir::Stmt& s : b) {
    std::visit([&](const auto& node) { statement(node); },
               static_cast<const std::variant<kir::Let, kir::Assign, kir::Store, kir::For, kir::LaneReduce, kir::If,
                                              kir::Barrier>&>(s));
  }
}

void PhasePrinter::open(const std::string& head) {
  line("{}{{", head);
  ++indent_;
}

void PhasePrinter::close() {
  --indent_;
  line("}}");
}

void PhasePrinter::nested(const Block& b) {
  block(b);
  close();
}

// ---- statements ----

void PhasePrinter::statement(const kir::Let& s) {
  const DType t = phase_.values[s.value];
  line("const {} v{} = {};", cuda_type(t), s.value,
       std::visit([&](const auto& e) { return expression(t, e); }, s.expr));
}

void PhasePrinter::statement(const kir::Assign& s) { line("{} = v{};", local(s.local), s.value); }

void PhasePrinter::statement(const kir::Store& s) {
  if (s.buffer == bound_) return line("{} = v{};", bound_value_, s.value);
  std::string guard = s.mask < 0 ? "" : fmt::format("v{}", s.mask);
  // Outside vector loops one thread stores for all.
  if (vector_axis_ < 0 && team_.threads > 1) guard = guard.empty() ? "t == 0" : "t == 0 && " + guard;
  if (!guard.empty()) guard = fmt::format("if ({}) ", guard);
  if (s.update) return update(s, guard);
  line("{}{} = v{};", guard, element(s.buffer, s.index), s.value);
}

/// By the instruction that there is for it, or else again and again until nobody came between.
void PhasePrinter::update(const kir::Store& s, const std::string& guard) {
  const DType t = phase_.values[s.value];
  const std::string at = element(s.buffer, s.index);
  if (const std::string_view name = cuda_atomic(*s.update, t); !name.empty())
    return line("{}{}(&{}, v{});", guard, name, at, s.value);
  open(fmt::format("{}sf_update(&{}, [&]({} before) ", guard, at, cuda_type(t)));
  call(ir::scalar_primitive(*s.update, t), {"before", fmt::format("v{}", s.value)}, "after");
  line("return after;");
  --indent_;
  line("}});");
}

void PhasePrinter::statement(const kir::For& s) {
  SHEAF_CHECK(!s.rest, "a loop with a rest on a GPU");
  if (is_element_ && s.kind == LoopKind::vector && element_width_ > 0) return neighbours(s);
  if (is_element_) return block(s.body);
  if (s.kind == LoopKind::vector && team_.threads > 1) return vector_loop(s);
  serial_loop(s);
}

void PhasePrinter::neighbours(const kir::For& s) {
  vector_axis_ = s.axis;
  wide_body(s, element_width_);
  vector_axis_ = -1;
}

void PhasePrinter::serial_loop(const kir::For& s) {
  if (s.kind == LoopKind::unroll || counts_registers(s)) {
    line("#pragma unroll");
  } else if (adds_rows(s)) {
    line("#pragma unroll 8");
  }
  const std::string limit = s.limit < 0 ? "" : fmt::format(" && a{} < v{}", s.axis, s.limit);
  open(fmt::format("for ({0} a{1} = 0; a{1} < {2}{3}; ++a{1}) ", index_type(), s.axis, phase_.axes[s.axis].extent,
                   limit));
  nested(s.body);
}

void PhasePrinter::statement(const kir::If& s) {
  open(fmt::format("if (v{}) ", s.condition));
  nested(s.then);
}

void PhasePrinter::statement(const kir::Barrier&) {
  if (team_.threads > 1) line("{}", team_.threads == kWarp ? "__syncwarp();" : "__syncthreads();");
}

// ---- vector loops ----

bool PhasePrinter::is_in_registers(BufferId buffer) const {
  const auto scratch = static_cast<std::size_t>(buffer) - kernel_.params.size();
  return buffer >= std::ssize(kernel_.params) && team_.places[scratch] == Team::Place::registers;
}

bool PhasePrinter::keeps_registers(const Block& b) const {
  return touches(b, [&](BufferId buffer) { return is_in_registers(buffer); });
}

/// Which register it is depends on the loop's step, which must then be known when the text is compiled.
bool PhasePrinter::counts_registers(const kir::For& loop) const {
  const auto counts = [&](BufferId buffer, Index index) {
    return is_in_registers(buffer) && phase_.indices.depends_on(index, loop.axis);
  };
  return any_of<kir::Store>(loop.body, [&](const kir::Store& s) { return counts(s.buffer, s.index); }) ||
         any_of<kir::Let>(loop.body, [&](const kir::Let& s) {
           const auto* load = std::get_if<kir::Load>(&s.expr);
           return load && counts(load->buffer, load->index);
         });
}

bool PhasePrinter::has_lanes(const Block& b) const {
  return any_of<kir::Assign>(b, [&](const kir::Assign& s) { return phase_.locals[s.local].lanes == kir::kLanes; });
}

/// A step adds to every lane: the loads of several belong before the first addition.
bool PhasePrinter::adds_rows(const kir::For& loop) const {
  return std::any_of(loop.body.begin(), loop.body.end(), [&](const kir::Stmt& s) {
    const auto* vector = std::get_if<kir::For>(&s);
    return vector && vector->kind == LoopKind::vector && has_lanes(vector->body);
  });
}

void PhasePrinter::vector_loop(const kir::For& s) {
  vector_axis_ = s.axis;
  if (keeps_registers(s.body) || has_lanes(s.body)) {
    rounds(s);
  } else {
    wide_loop(s, team_.width(s));
  }
  vector_axis_ = -1;
}

/// The number of the round is known when the text is compiled, and so is the register.
void PhasePrinter::rounds(const kir::For& s) {
  const std::int64_t extent = phase_.axes[s.axis].extent, count = (extent + team_.threads - 1) / team_.threads;
  if (count > 1) {
    line("#pragma unroll");
    open(fmt::format("for (int k{0} = 0; k{0} < {1}; ++k{0}) ", s.axis, count));
    line("const {0} a{1} = t + {2} * k{1};", index_type(), s.axis, team_.threads);
  } else {
    open("");
    line("const {} a{} = t;", index_type(), s.axis);
  }
  const bool is_ragged = extent % team_.threads != 0;
  if (is_ragged) open(fmt::format("if (a{} < {}) ", s.axis, extent));
  nested(s.body);
  if (is_ragged) close();
}

/// Groups of `width` iterations, then one by one what is left of the extent.
void PhasePrinter::wide_loop(const kir::For& s, int width) {
  const std::int64_t extent = phase_.axes[s.axis].extent, groups = extent / width, rest = extent % width;
  const std::string name = width > 1 ? "q" : "a";
  if (groups == team_.threads) {
    open("");
    line("const {} {}{} = t;", index_type(), name, s.axis);
  } else if (groups < team_.threads) {
    open(fmt::format("if (t < {}) ", groups));
    line("const {} {}{} = t;", index_type(), name, s.axis);
  } else {
    open(fmt::format("for ({0} {1}{2} = t; {1}{2} < {3}; {1}{2} += {4}) ", index_type(), name, s.axis, groups,
                     team_.threads));
  }
  if (width > 1) {
    line("const {0} b{1} = q{1} * {2};", index_type(), s.axis, width);
    wide_body(s, width);
    close();
  } else {
    nested(s.body);
  }
  if (rest == 0) return;
  open(fmt::format("if (t < {}) ", rest));
  line("const {} a{} = t + {};", index_type(), s.axis, extent - rest);
  nested(s.body);
}

/// Loads what lies in runs before, and stores it after, the iterations of a group; what is the same for all of them
/// comes first.
void PhasePrinter::wide_body(const kir::For& s, int width) {
  const auto is_run = [&](BufferId buffer, Index index, kir::ValueId mask) {
    return mask < 0 && buffer != bound_ && team_.lies_in_runs(buffer, index, s, width);
  };
  const auto is_common = [&](const kir::Stmt& stmt) {
    const auto* let = std::get_if<kir::Let>(&stmt);
    return let && team_.is_uniform(let->value, s, width);
  };
  is_group_ = true;
  for (const kir::Stmt& stmt : s.body)
    if (is_common(stmt)) block({stmt});
  for (const kir::Stmt& stmt : s.body) {
    const auto* let = std::get_if<kir::Let>(&stmt);
    const auto* load = let ? std::get_if<kir::Load>(&let->expr) : nullptr;
    if (load && is_run(load->buffer, load->index, load->mask)) {
      const auto copy = copies_.find(let->value);
      line("const sf_vec<{}, {}> x{} = sf_load<{}>({});", cuda_memory_type(phase_.values[let->value]), width,
           let->value, width,
           copy == copies_.end() ? fmt::format("p{} + {}", load->buffer, index(load->index)) : copy->second);
    }
  }
  std::vector<std::pair<std::string, std::string>> stores;  // where, what
  const auto store_name = [&] { return fmt::format("y{}_{}", s.axis, stores.size()); };
  for (const kir::Stmt& stmt : s.body) {
    const auto* store = std::get_if<kir::Store>(&stmt);
    if (!store || !is_run(store->buffer, store->index, store->mask)) continue;
    line("sf_vec<{}, {}> {};", cuda_memory_type(phase_.values[store->value]), width, store_name());
    stores.emplace_back(fmt::format("p{} + {}", store->buffer, index(store->index)), store_name());
  }
  is_group_ = false;
  line("#pragma unroll");
  open(fmt::format("for (int j = 0; j < {}; ++j) ", width));
  line("const {0} a{1} = b{1} + j;", index_type(), s.axis);
  std::size_t next_store = 0;
  for (const kir::Stmt& stmt : s.body) {
    if (is_common(stmt)) continue;
    const auto* let = std::get_if<kir::Let>(&stmt);
    const auto* load = let ? std::get_if<kir::Load>(&let->expr) : nullptr;
    const auto* store = std::get_if<kir::Store>(&stmt);
    if (load && is_run(load->buffer, load->index, load->mask)) {
      const DType t = phase_.values[let->value];
      line("const {} v{} = x{}.v[j]{};", cuda_type(t), let->value, let->value, is_bool(t) ? " != 0" : "");
    } else if (store && is_run(store->buffer, store->index, store->mask)) {
      line("{}.v[j] = v{};", stores[next_store++].second, store->value);
    } else {
      block({stmt});
    }
  }
  close();
  for (const auto& [where, what] : stores) line("sf_store({}, {});", where, what);
}

}  // namespace sheaf::codegen
