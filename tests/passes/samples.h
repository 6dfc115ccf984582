// What tests of every op on parts share: samples in more dtypes, their gradients, and how close parts must come.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/sample.h"
#include "tests/passes/partitioned.h"
#include "tests/passes/programs.h"

namespace sheaf::tests {

/// Whether the equation combines what devices have in an order of its own.
inline bool adds_up(const ir::Eqn& e) {
  const ir::ReduceKind* kind = nullptr;
  if (e.op == &ir::ops::all_reduce) kind = &e.attrs<ir::ops::AllReduce>().kind;
  if (e.op == &ir::ops::reduce_scatter) kind = &e.attrs<ir::ops::ReduceScatter>().kind;
  return kind && (*kind == ir::ReduceKind::sum || *kind == ir::ReduceKind::prod);
}

/// Of what a local program gives: nothing where no reduced dim is split, else by the lowest precision.
inline double tolerance(const ir::Function& f, const ir::Function& local) {
  bool is_exact = true;
  for (const ir::Eqn* e : local.eqns()) is_exact = is_exact && !adds_up(*e);
  // Sums along a split dim, made by the op's own rule.
  for (const ir::Eqn* e : f.eqns())
    for (const ir::Op op :
         {&ir::ops::cumulative, &ir::ops::recurrence, &ir::ops::attention, &ir::ops::attention_backward})
      is_exact = is_exact && e->op != op;
  if (is_exact) return 0;
  double worst = 1e-12;
  for (const ir::Eqn* e : f.eqns())
    for (const ir::Value v : e->outs())
      if (is_float(v.dtype()) || is_complex(v.dtype()))
        worst = std::max(worst, size_bytes(v.dtype()) <= 2                     ? 3e-2
                                : v.dtype() == f64 || v.dtype() == DType::c128 ? 1e-12
                                                                               : 1e-5);
  return worst;
}

/// Of a sample whose op has a derivative: the cotangents of the differentiable operands, from operands and cotangents.
/// Null where there are none.
inline ir::FunctionRef gradient(const ir::Sample& sample) {
  const ir::FunctionRef& f = sample.function;
  passes::Mask wrt;
  for (const ir::Value p : f->params()) wrt.push_back(is_differentiable(p.dtype()));
  if (passes::count(wrt) == 0) return nullptr;
  const passes::Vjp v = passes::vjp(f, wrt);
  if (passes::count(v.out) == 0) return nullptr;
  ir::Builder b(f->name() + ".vjp");
  const ir::Values operands = passes::clone_params(b, *f, passes::Mask(f->params().size(), true));
  const ir::Values forward = passes::inline_into(b, *v.forward, operands);
  ir::Values in(forward.end() - v.num_residuals, forward.end());
  for (std::size_t j = 0; j < f->results().size(); ++j)
    if (v.out[j]) in.push_back(b.param(f->results()[j].type()));
  return passes::inline_calls(b.finish(passes::inline_into(b, *v.backward, in)));
}

/// The sample in other dtypes, those of the same kind that its op takes.
inline std::vector<std::string> in_other_dtypes(std::string_view sample) {
  static const std::map<std::string, std::vector<std::string>> kOthers{
      {"f32", {"bf16", "f16", "f64"}}, {"f64", {"bf16"}}, {"i32", {"i8", "u16", "i64", "bool"}}};
  std::vector<std::string> all;
  for (const auto& [from, others] : kOthers)
    for (const std::string& to : others) {
      std::string text(sample);
      for (std::size_t at = 0; (at = text.find(from + "[", at)) != std::string::npos;)
        text.replace(at, from.size(), to);
      if (text != sample && ir::parse_sample(text).ok()) all.push_back(std::move(text));
    }
  return all;
}

}  // namespace sheaf::tests
