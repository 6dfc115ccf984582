// A printer with one rule for races: around every statement that stores to memory which the phase also loads, the block
// meets, unless each element is only ever touched by one thread. Invariant: every barrier stands where all threads of
// the block arrive, because conditions and loop bounds outside vector loops are the same for all of them.
#include "codegen/cuda/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "codegen/cuda/attention.h"
#include "codegen/cuda/contract.h"
#include "codegen/cuda/prelude.h"
#include "ir/check.h"

namespace sheaf::codegen {
namespace {

using kir::Atom;
using kir::AxisId;
using kir::Block;
using kir::BufferId;
using kir::Index;
using kir::ValueId;

/// Of the 48 KiB that a block has without asking for more; the rest is for the lanes of reductions.
constexpr std::int64_t kSharedScratch = 40 * 1024;
constexpr int kMapThreads = 256;

bool has_vectors(const Block& block) {
  return std::any_of(block.begin(), block.end(), [](const kir::Stmt& s) {
    if (const auto* loop = std::get_if<kir::For>(&s))
      return loop->kind == kir::LoopKind::vector || has_vectors(loop->body);
    if (const auto* branch = std::get_if<kir::If>(&s)) return has_vectors(branch->then);
    return false;
  });
}

bool is_shared(const kir::Phase& phase) { return kir::scratch_bytes(phase) <= kSharedScratch; }

/// How the phase touches one buffer.
struct Traffic {
  bool is_loaded = false, is_stored = false;
  bool is_private = true;  // only in vector loops, each element always by the same thread
  bool is_communicated() const { return is_loaded && is_stored && !is_private; }
};

class TrafficScan {
 public:
  TrafficScan(const kir::Phase& phase, int threads, std::vector<Traffic>& traffic)
      : pool_(phase.indices), threads_(threads), traffic_(traffic) {}

  void scan(const Block& block, AxisId vector_axis) {
    for (const kir::Stmt& s : block) {
      if (const auto* let = std::get_if<kir::Let>(&s)) {
        if (const auto* load = std::get_if<kir::Load>(&let->expr)) {
          traffic_[load->buffer].is_loaded = true;
          touch(load->buffer, load->index, vector_axis);
        }
      } else if (const auto* store = std::get_if<kir::Store>(&s)) {
        traffic_[store->buffer].is_stored = true;
        touch(store->buffer, store->index, vector_axis);
      } else if (const auto* loop = std::get_if<kir::For>(&s)) {
        scan(loop->body, loop->kind == kir::LoopKind::vector ? loop->axis : vector_axis);
      } else if (const auto* branch = std::get_if<kir::If>(&s)) {
        scan(branch->then, vector_axis);
      }
    }
  }

 private:
  // Iteration i of a vector loop belongs to thread i mod threads. An index that is i plus multiples of the number of
  // threads therefore gives element e to thread e mod threads, in whatever loop.
  void touch(BufferId buffer, Index index, AxisId vector_axis) {
    bool is_own = vector_axis >= 0 && pool_.offset(index) % threads_ == 0;
    bool has_axis = false;
    for (const kir::Term& t : pool_.terms(index)) {
      const Atom& a = pool_.atom(t.atom);
      const bool is_lane = a.kind == Atom::Kind::axis && a.id == vector_axis && t.coefficient == 1;
      has_axis |= is_lane;
      is_own &= is_lane ||
                (t.coefficient % threads_ == 0 && (a.operand.node < 0 || !pool_.depends_on(a.operand, vector_axis)));
    }
    traffic_[buffer].is_private &= is_own && has_axis;
  }

  const kir::IndexPool& pool_;
  int threads_;
  std::vector<Traffic>& traffic_;
};

class PhasePrinter {
 public:
  PhasePrinter(const kir::Kernel& kernel, const kir::Phase& phase, std::string entry, bool has_scratch_param)
      : kernel_(kernel),
        phase_(phase),
        entry_(std::move(entry)),
        has_scratch_param_(has_scratch_param),
        traffic_(kernel.params.size() + phase.scratch.size()) {
    // Lanes of a reduction are threads, so a block that holds any has exactly as many.
    const bool has_lanes = std::any_of(phase.locals.begin(), phase.locals.end(),
                                       [](const kir::Local& l) { return l.lanes == kir::kLanes; });
    const int of_vectors = has_lanes || !phase.scratch.empty() ? kir::kLanes : kMapThreads;
    threads_ = has_vectors(phase.body) ? of_vectors : 1;  // all would compute the same
    TrafficScan(phase, threads_, traffic_).scan(phase.body, -1);
  }

  std::string print() {
    for (std::size_t i = 0; i < phase_.locals.size(); ++i) line("{} l{};", cuda_type(phase_.locals[i].dtype), i);
    block(phase_.body);
    std::string params, shared;
    for (std::size_t i = 0; i < kernel_.params.size(); ++i) {
      const kir::Param& p = kernel_.params[i];
      const bool is_const = p.access == kir::Param::Access::read;
      params += fmt::format("{}{}{}* {}p{}", i ? ", " : "", is_const ? "const " : "", cuda_memory_type(p.dtype),
                            is_const ? "__restrict__ " : "", i);
    }
    if (has_scratch_param_) params += fmt::format("{}sf_u8* scratch", params.empty() ? "" : ", ");
    std::int64_t offset = 0;  // in the block's part of the scratch parameter
    for (std::size_t i = 0; i < phase_.scratch.size(); ++i) {
      const kir::Scratch& s = phase_.scratch[i];
      const std::string_view type = cuda_memory_type(s.dtype);
      const std::size_t id = kernel_.params.size() + i;
      if (is_shared(phase_)) {
        shared += fmt::format("  SF_SHARED({}, p{}, {});\n", type, id, s.count);
        shared_bytes_ += s.count * size_bytes(s.dtype);
      } else {
        shared += fmt::format("  {0}* p{1} = ({0}*)(scratch + blockIdx.x * {2}ll + {3}ll);\n", type, id,
                              kir::scratch_bytes(phase_), offset);
        offset += kir::aligned_bytes(s);
      }
    }
    shared += lane_arrays_;
    return fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({}) {}({}) {{\n{}  const {} a0 = blockIdx.x;\n{}}}\n", threads_,
        entry_, params, shared, index_type(), body_);
  }

  CudaLaunch launch() const { return {entry_, phase_.axes[0].extent, threads_, shared_bytes_}; }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    body_.append(static_cast<std::size_t>(indent_) * 2, ' ');
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
    body_ += '\n';
  }

  // --- indices -----------------------------------------------------------------------------------------------------

  /// 32 bits where no index of the phase can leave them.
  std::string_view index_type() {
    if (index_type_.empty()) {
      bool is_narrow = phase_.axes[0].extent <= INT32_MAX;
      for (const kir::Param& p : kernel_.params) is_narrow &= p.count <= INT32_MAX;
      for (const kir::Axis& a : phase_.axes) is_narrow &= a.extent <= INT32_MAX;
      index_type_ = is_narrow && all_narrow(phase_.body) ? "sf_i32" : "sf_i64";
    }
    return index_type_;
  }

  bool all_narrow(Index index) const {
    const kir::IndexPool& pool = phase_.indices;
    std::int64_t magnitude = std::abs(pool.offset(index));  // of partial sums, in whatever order
    for (const kir::Term& t : pool.terms(index)) {
      const Atom& a = pool.atom(t.atom);
      // Values are i64 in the text, and so is what is computed from them.
      if (a.operand.node >= 0 && !all_narrow(a.operand)) return false;
      const kir::Range r = pool.atom_range(t.atom);
      magnitude += std::abs(t.coefficient) * std::max(std::abs(r.lo), std::abs(r.hi));
    }
    return magnitude <= INT32_MAX;
  }

  bool all_narrow(const Block& block) const {
    return std::all_of(block.begin(), block.end(), [&](const kir::Stmt& s) {
      if (const auto* let = std::get_if<kir::Let>(&s)) {
        if (const auto* load = std::get_if<kir::Load>(&let->expr)) return all_narrow(load->index);
        if (const auto* value = std::get_if<kir::IndexValue>(&let->expr)) return all_narrow(value->index);
        if (const auto* range = std::get_if<kir::InRange>(&let->expr)) return all_narrow(range->index);
        return true;
      }
      if (const auto* store = std::get_if<kir::Store>(&s)) return all_narrow(store->index);
      if (const auto* loop = std::get_if<kir::For>(&s)) return all_narrow(loop->body);
      if (const auto* branch = std::get_if<kir::If>(&s)) return all_narrow(branch->then);
      return true;
    });
  }

  std::string index(Index i) {
    const kir::IndexPool& pool = phase_.indices;
    std::string out;
    for (const kir::Term& t : pool.terms(i)) {
      const Atom& a = pool.atom(t.atom);
      if (!out.empty()) out += " + ";
      if (t.coefficient != 1) out += fmt::format("{} * ", t.coefficient);
      switch (a.kind) {
        case Atom::Kind::axis: out += fmt::format("a{}", a.id); break;
        case Atom::Kind::value: out += fmt::format("v{}", a.id); break;
        case Atom::Kind::floor_div: out += division(a, "/", "sf_floor_div"); break;
        case Atom::Kind::mod: out += division(a, "%", "sf_floor_mod"); break;
      }
    }
    if (out.empty()) return std::to_string(pool.offset(i));
    return pool.offset(i) == 0 ? out : fmt::format("{} + {}", out, pool.offset(i));
  }

  std::string division(const Atom& a, std::string_view op, std::string_view floored) {
    if (phase_.indices.range(a.operand).lo >= 0) return fmt::format("(({}) {} {})", index(a.operand), op, a.divisor);
    return fmt::format("{0}<{1}>({2}, {3})", floored, index_type(), index(a.operand), a.divisor);
  }

  // --- expressions -------------------------------------------------------------------------------------------------

  static std::string value(ValueId v) { return fmt::format("v{}", v); }

  std::string scalar(ir::ScalarOp op, DType in, DType out, const std::array<ValueId, 3>& operands) const {
    std::string in_text[3];
    for (int k = 0; k < ir::arity(op); ++k) in_text[k] = value(operands[k]);
    return cuda_expression(op, in, out, in_text);
  }

  std::string expression(DType t, const kir::Scalar& s) {
    return scalar(s.op, phase_.values[s.op == ir::ScalarOp::select ? s.in[1] : s.in[0]], t, s.in);
  }
  std::string expression(DType t, const kir::Constant& c) { return cuda_constant(t, c.bits); }
  std::string expression(DType t, const kir::Load& l) {
    std::string element = fmt::format("p{}[{}]", l.buffer, index(l.index));
    if (is_bool(t)) element += " != 0";
    if (l.mask < 0) return element;
    return fmt::format("v{} ? {} : {}", l.mask, element, l.other < 0 ? cuda_constant(t, 0) : value(l.other));
  }
  std::string expression(DType, const kir::Get& g) { return fmt::format("l{}", g.local); }
  std::string expression(DType t, const kir::IndexValue& i) {
    return fmt::format("({})({})", cuda_type(t), index(i.index));
  }
  std::string expression(DType, const kir::InRange& r) {
    const std::string i = index(r.index);
    return fmt::format("{} <= {} && {} < {}", r.lo, i, i, r.hi);
  }

  // --- statements --------------------------------------------------------------------------------------------------

  void block(const Block& b) {
    for (const kir::Stmt& s : b) {
      std::visit([&](const auto& node) { statement(node); },
                 static_cast<const std::variant<kir::Let, kir::Assign, kir::Store, kir::For, kir::LaneReduce, kir::If,
                                                kir::Barrier>&>(s));
    }
  }

  void statement(const kir::Let& s) {
    const DType t = phase_.values[s.value];
    line("const {} v{} = {};", cuda_type(t), s.value,
         std::visit([&](const auto& e) { return expression(t, e); }, s.expr));
  }
  void statement(const kir::Assign& s) { line("l{} = v{};", s.local, s.value); }

  void statement(const kir::Store& s) {
    const bool meets = !in_vector_ && traffic_[s.buffer].is_communicated();
    if (meets) line("__syncthreads();");
    std::string guard;
    if (!in_vector_)
      guard = s.mask < 0 ? "if (threadIdx.x == 0) " : fmt::format("if (threadIdx.x == 0 && v{}) ", s.mask);
    else if (s.mask >= 0) guard = fmt::format("if (v{}) ", s.mask);
    line("{}p{}[{}] = v{};", guard, s.buffer, index(s.index), s.value);
    if (meets) line("__syncthreads();");
  }

  bool communicates(const Block& b) const {
    return std::any_of(b.begin(), b.end(), [&](const kir::Stmt& s) {
      const auto* store = std::get_if<kir::Store>(&s);
      return store && traffic_[store->buffer].is_communicated();
    });
  }

  void statement(const kir::For& s) {
    const std::int64_t extent = phase_.axes[s.axis].extent;
    if (s.kind != kir::LoopKind::vector) {
      if (s.kind == kir::LoopKind::unroll) line("#pragma unroll");
      line("for ({0} a{1} = 0; a{1} < {2}; ++a{1}) {{", index_type(), s.axis, extent);
      nested(s.body);
      return;
    }
    const bool meets = communicates(s.body);
    if (meets) line("__syncthreads();");
    if (extent == threads_) {
      line("{{ const {} a{} = threadIdx.x;", index_type(), s.axis);
    } else if (extent < threads_) {
      line("if (threadIdx.x < {}) {{ const {} a{} = threadIdx.x;", extent, index_type(), s.axis);
    } else {
      line("for ({0} a{1} = threadIdx.x; a{1} < {2}; a{1} += {3}) {{", index_type(), s.axis, extent, threads_);
    }
    in_vector_ = true;
    nested(s.body);
    in_vector_ = false;
    if (meets) line("__syncthreads();");
  }

  void statement(const kir::If& s) {
    line("if (v{}) {{", s.condition);
    nested(s.then);
  }

  void nested(const Block& b) {
    ++indent_;
    block(b);
    --indent_;
    line("}}");
  }

  /// Through shared memory, one half of the lanes after the other; the tree is the same as everywhere.
  void statement(const kir::LaneReduce& s) {
    const int id = next_reduce_++;
    const auto lane = [&](std::size_t part, const char* at) { return fmt::format("r{}_{}[{}]", id, part, at); };
    for (std::size_t p = 0; p < s.locals.size(); ++p) {
      const DType t = phase_.locals[s.locals[p]].dtype;
      lane_arrays_ += fmt::format("  SF_SHARED({}, r{}_{}, {});\n", cuda_type(t), id, p, kir::kLanes);
      shared_bytes_ += kir::kLanes * size_bytes(t);
      line("{} = l{};", lane(p, "threadIdx.x"), s.locals[p]);
    }
    line("__syncthreads();");
    line("for (int h = {}; h > 0; h >>= 1) {{", kir::kLanes / 2);
    ++indent_;
    line("if (threadIdx.x < h) {{");
    ++indent_;
    std::vector<std::string> args;
    for (const char* at : {"threadIdx.x", "threadIdx.x + h"}) {
      for (std::size_t p = 0; p < s.locals.size(); ++p) args.push_back(lane(p, at));
    }
    for (std::size_t p = 0; p < s.locals.size(); ++p) combine(s.combine[p], args, fmt::format("c{}", p));
    for (std::size_t p = 0; p < s.locals.size(); ++p) line("{} = c{};", lane(p, "threadIdx.x"), p);
    --indent_;
    line("}}");
    line("__syncthreads();");
    --indent_;
    line("}}");
    for (std::size_t p = 0; p < s.locals.size(); ++p) {
      line("const {} v{} = {};", cuda_type(phase_.values[s.results[p]]), s.results[p], lane(p, "0"));
    }
    line("__syncthreads();");
  }

  void combine(const ir::ScalarFn& fn, const std::vector<std::string>& args, const std::string& result) {
    const auto node_name = [&](int n) { return fmt::format("{}_{}", result, n); };
    for (std::size_t i = 0; i < fn.nodes.size(); ++i) {
      const ir::ScalarNode& n = fn.nodes[i];
      std::string text;
      if (n.op == ir::ScalarOp::arg) {
        text = args[n.index];
      } else if (n.op == ir::ScalarOp::constant) {
        text = cuda_constant(n.dtype, n.bits);
      } else {
        std::string in[3];
        for (int k = 0; k < ir::arity(n.op); ++k) in[k] = node_name(n.in[k]);
        text = cuda_expression(n.op, fn.nodes[n.in[n.op == ir::ScalarOp::select ? 1 : 0]].dtype, n.dtype, in);
      }
      line("const {} {} = {};", cuda_type(n.dtype), node_name(static_cast<int>(i)), text);
    }
    line("const {} {} = {};", cuda_type(fn.result_dtype()), result, node_name(fn.result));
  }

  void statement(const kir::Barrier&) { line("__syncthreads();"); }

  const kir::Kernel& kernel_;
  const kir::Phase& phase_;
  std::string entry_;
  bool has_scratch_param_;
  std::vector<Traffic> traffic_;
  int threads_ = 1;
  std::string body_, lane_arrays_;
  std::string index_type_;
  int indent_ = 1, next_reduce_ = 0;
  bool in_vector_ = false;
  std::int64_t shared_bytes_ = 0;
};

}  // namespace

CudaText emit_cuda(const kir::Kernel& kernel, const std::string& symbol, const Target& target) {
  CudaText out;
  if (kernel.contract) {
    emit_cuda_contract(kernel, symbol, target, out);
    return out;
  }
  if (kernel.attention) {
    emit_cuda_attention(kernel, symbol, out);
    return out;
  }
  for (const kir::Phase& phase : kernel.phases)
    if (!is_shared(phase))
      out.scratch_bytes = std::max(out.scratch_bytes, kir::scratch_bytes(phase) * phase.axes[0].extent);
  for (std::size_t i = 0; i < kernel.phases.size(); ++i) {
    PhasePrinter printer(kernel, kernel.phases[i], fmt::format("{}_{}", symbol, i), out.scratch_bytes > 0);
    out.functions += printer.print();
    out.launches.push_back(printer.launch());
  }
  return out;
}

std::string cuda_program(std::string_view functions) { return cuda_prelude_for(functions) + std::string(functions); }

}  // namespace sheaf::codegen
