// The tree of a reduction's 64 lanes, the same as everywhere: halves meet first. A warp holds two lanes in each thread;
// in a block the first two warps hold one each, and all others get the result through shared memory.
#include "codegen/cuda/phase_printer.h"
#include "codegen/cuda/prelude.h"
#include "ir/check.h"

namespace sheaf::codegen {

void PhasePrinter::statement(const kir::LaneReduce& s) {
  if (team_.threads == kWarp) return reduce_in_warp(s);
  SHEAF_CHECK(team_.threads >= kir::kLanes, "lanes in a team of another size");
  reduce_in_block(s);
}

void PhasePrinter::reduce_in_warp(const kir::LaneReduce& s) {
  open("");
  std::vector<std::string> right;
  for (kir::LocalId l : s.locals) right.push_back(fmt::format("l{}[1]", l));
  combine(s, "[0]", right);
  close();
  reduce_by_shuffles(s, "[0]");
  for (std::size_t p = 0; p < s.locals.size(); ++p) {
    line("const {} v{} = sf_first_lane(l{}[0]);", cuda_type(phase_.values[s.results[p]]), s.results[p], s.locals[p]);
  }
}

void PhasePrinter::reduce_in_block(const kir::LaneReduce& s) {
  const int id = next_reduce_++;
  const auto half = [&](std::size_t part, std::string_view at) { return fmt::format("r{}_{}[{}]", id, part, at); };
  std::vector<std::string> right;
  for (std::size_t p = 0; p < s.locals.size(); ++p) {
    const DType t = phase_.locals[s.locals[p]].dtype;
    lane_arrays_ += fmt::format("  SF_SHARED({}, r{}_{}, {});\n", cuda_type(t), id, p, kWarp + 1);
    shared_bytes_ += (kWarp + 1) * size_bytes(t);
    right.push_back(half(p, "t"));
    line("if (t >= {0} && t < {1}) {2} = l{3};", kWarp, 2 * kWarp, half(p, fmt::format("t - {}", kWarp)), s.locals[p]);
  }
  line("__syncthreads();");
  open(fmt::format("if (t < {}) ", kWarp));
  combine(s, "", right);
  reduce_by_shuffles(s, "");
  // Behind the halves, which the next such tree writes while others still read this.
  for (std::size_t p = 0; p < s.locals.size(); ++p)
    line("if (t == 0) {} = l{};", half(p, std::to_string(kWarp)), s.locals[p]);
  close();
  line("__syncthreads();");
  for (std::size_t p = 0; p < s.locals.size(); ++p) {
    line("const {} v{} = {};", cuda_type(phase_.values[s.results[p]]), s.results[p], half(p, std::to_string(kWarp)));
  }
}

void PhasePrinter::reduce_by_shuffles(const kir::LaneReduce& s, std::string_view own) {
  line("#pragma unroll");
  open(fmt::format("for (int h = {}; h > 0; h >>= 1) ", kWarp / 2));
  std::vector<std::string> right;
  for (std::size_t p = 0; p < s.locals.size(); ++p) {
    line("const {} d{} = sf_lane_above(l{}{}, h);", cuda_type(phase_.locals[s.locals[p]].dtype), p, s.locals[p], own);
    right.push_back(fmt::format("d{}", p));
  }
  combine(s, own, right);
  close();
}

/// The thread's own lane becomes that combined with `right`.
void PhasePrinter::combine(const kir::LaneReduce& s, std::string_view own, const std::vector<std::string>& right) {
  std::vector<std::string> args;
  for (kir::LocalId l : s.locals) args.push_back(fmt::format("l{}{}", l, own));
  args.insert(args.end(), right.begin(), right.end());
  for (std::size_t p = 0; p < s.locals.size(); ++p) call(s.combine[p], args, fmt::format("c{}", p));
  for (std::size_t p = 0; p < s.locals.size(); ++p) line("l{}{} = c{};", s.locals[p], own, p);
}

void PhasePrinter::call(const ir::ScalarFn& fn, const std::vector<std::string>& args, const std::string& result) {
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

}  // namespace sheaf::codegen
