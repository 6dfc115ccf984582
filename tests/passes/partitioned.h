// Programs of one device under test: run on every device of their mesh by the reference, against the whole program; and
// counted, collective by collective.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ir/eval.h"
#include "ir/eval_spmd.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/sharding.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/sharding/partition.h"
#include "tests/passes/parts.h"

namespace sheaf::tests {

/// "all_reduce model 256": op, axes, bytes of the whole payload on those axes.
inline std::string collective(const ir::Eqn& e) {
  const auto line = [&](const ir::Axes& axes, std::int64_t bytes) {
    return fmt::format("{} {} {}", e.op->name, fmt::join(axes, "+"), bytes);
  };
  const std::int64_t in = e.in(0).type().bytes(), out = e.out().type().bytes();
  if (e.op == &ir::ops::all_reduce) return line(e.attrs<ir::ops::AllReduce>().axes, in);
  if (e.op == &ir::ops::all_gather) return line(e.attrs<ir::ops::AllGather>().axes, out);
  if (e.op == &ir::ops::reduce_scatter) return line(e.attrs<ir::ops::ReduceScatter>().axes, in);
  if (e.op == &ir::ops::all_to_all) return line(e.attrs<ir::ops::AllToAll>().axes, in);
  return line(e.attrs<ir::ops::Ppermute>().axes, in);
}

inline bool is_collective(const ir::Eqn& e) {
  return e.op == &ir::ops::all_reduce || e.op == &ir::ops::all_gather || e.op == &ir::ops::reduce_scatter ||
         e.op == &ir::ops::all_to_all || e.op == &ir::ops::ppermute;
}

/// Those of f and of its regions, each region once, sorted.
inline std::vector<std::string> collectives(const ir::Function& f) {
  std::vector<std::string> all;
  for (const ir::Eqn* e : f.eqns()) {
    if (is_collective(*e)) all.push_back(collective(*e));
    for (const ir::FunctionRef& r : e->regions)
      for (std::string& line : collectives(*r)) all.push_back(std::move(line));
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// Whether a local program holds what only whole ones do.
inline std::string left_over(const ir::Function& f) {
  for (const ir::Value p : f.params())
    if (p.type() != ir::Type(p.dtype(), p.dims())) return ir::to_string(p.type());
  for (const ir::Eqn* e : f.eqns()) {
    for (const ir::Value v : e->outs())
      if (v.type() != ir::Type(v.dtype(), v.dims())) return ir::to_string(v.type());
    if (e->op == &ir::ops::with_sharding || e->op == &ir::ops::shard_map || e->op == &ir::ops::pcast)
      return std::string(e->op->name);
    for (const ir::FunctionRef& r : e->regions)
      if (std::string s = left_over(*r); !s.empty()) return s;
  }
  return "";
}

/// Whole arguments for f: a fixed irregular sequence, another for each parameter: in (-1, 1), integers from 0 to 7.
inline ir::Literals numbers(const ir::Function& f) {
  ir::Literals in;
  for (const ir::Value p : f.params()) {
    ir::Literal x{ir::without_sharding(p.type())};
    for (std::int64_t i = 0; i < x.size(); ++i)
      if (is_float(x.dtype())) x.set(i, std::sin(1.7 * static_cast<double>(i) + 0.3 * p.index()));
      else x.set_int(i, is_bool(x.dtype()) ? i % 2 : (7 * i + 3 + p.index()) % 8);
    in.push_back(std::move(x));
  }
  return in;
}

/// The local program on all devices: the inputs of each, and its results.
using RunOnDevices = std::function<std::vector<ir::Literals>(const ir::FunctionRef&, std::span<const ir::Literals>)>;

inline ir::Literals run_partitioned(const ir::FunctionRef& whole, const ir::FunctionRef& local, const ir::Literals& in,
                                    const RunOnDevices& run = ir::eval_spmd) {
  const ir::MeshAtoms mesh(whole->mesh());
  const std::vector<ir::Type> results = whole->result_types();
  const std::vector<ir::Literals> inputs = parts_of(in, layouts_of(whole->param_types(), mesh), mesh);
  return whole_of(run(local, inputs), results, layouts_of(results, mesh), mesh);
}

/// The largest difference of a float result, relative to its largest element; 1 where an integer differs.
inline double difference(const ir::Literal& x, const ir::Literal& y) {
  if (x.dtype() != y.dtype() || x.dims() != y.dims()) return 1;
  if (is_complex(x.dtype())) return difference(x.as_parts(), y.as_parts());
  double most = 0, scale = 1;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    if (!is_float(x.dtype())) {
      if (x.get_int(i) != y.get_int(i)) return 1;
      continue;
    }
    const double a = x.get(i), b = y.get(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b) continue;
    scale = std::max(scale, std::abs(a));
    most = std::max(most, std::abs(a - b));
    if (std::isnan(most) || std::isnan(a) != std::isnan(b)) return 1;
  }
  return most / scale;
}

/// f, with layouts in its types, gives on all devices what it gives on one; its local program.
inline ir::FunctionRef check_partitioned(const ir::FunctionRef& f, const ir::Literals& in, double tolerance) {
  const ir::FunctionRef local = passes::partition(f, {.profile = passes::built_in_profile("flat")});
  const absl::Status s = ir::verify(*local);
  REQUIRE_MESSAGE(s.ok(), std::string(s.message()));
  CHECK(left_over(*local) == "");
  const ir::Literals want = ir::eval(*f, in), got = run_partitioned(f, local, in);
  for (std::size_t j = 0; j < want.size(); ++j) {
    INFO(ir::print(f), ir::print(local), "result ", j);
    CHECK(difference(want[j], got[j]) <= tolerance);
  }
  return local;
}

}  // namespace sheaf::tests
