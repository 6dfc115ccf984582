// A mark is a checkpoint_name of a kind that no policy names, with the number of the function that is to be told.
#include "trace/inspect.h"

#include <absl/container/flat_hash_set.h>
#include <fmt/format.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/words.h"
#include "sheaf/sharding.h"
#include "trace/apply.h"
#include "trace/array_node.h"
#include "trace/mesh.h"

namespace sheaf {
namespace {

using Report = std::function<void(const NamedSharding&)>;
constexpr std::string_view kMark = "inspect_sharding:";

struct Reports {
  std::mutex mutex;
  std::map<std::tuple<std::string, int, int>, std::size_t> numbers;  // by line, and which of the line in its trace
  std::deque<Report> all;  // for ever, as programs are
};
Reports& reports() {
  static auto& known = *new Reports;
  return known;
}

// The same number whenever the same code is traced, as equal programs are to be equal.
std::size_t add_report(Report report, const std::shared_ptr<TraceInfo>& trace, Loc loc) {
  struct Seen {
    std::weak_ptr<const TraceInfo> trace;
    int count = 0;
  };
  thread_local std::map<std::pair<std::string, int>, Seen> lines;
  const std::string file = loc.file ? loc.file : "";
  Seen& seen = lines[{file, loc.line}];
  if (seen.trace.lock() != trace) seen = {trace, 0};
  std::lock_guard lock(reports().mutex);
  Reports& known = reports();
  const auto [at, is_new] = known.numbers.try_emplace({file, loc.line, seen.count++}, known.all.size());
  if (is_new) known.all.push_back(std::move(report));
  else known.all[at->second] = std::move(report);
  return at->second;
}

std::optional<std::int64_t> number_of(const ir::Eqn& e) {
  if (e.op != &ir::ops::checkpoint_name) return {};
  const std::string_view name = e.attrs<ir::ops::CheckpointName>().name;
  if (!name.starts_with(kMark)) return {};
  return ir::parse_int(name.substr(kMark.size()));
}

// Derivatives have marks of their own: the first is the value's.
void report_in(const ir::Function& f, const Mesh& mesh, absl::flat_hash_set<std::int64_t>& told) {
  for (const ir::Eqn* e : f.eqns()) {
    for (const ir::FunctionRef& region : e->regions) report_in(*region, mesh, told);
    const std::optional<std::int64_t> number = number_of(*e);
    if (!number || !told.insert(*number).second) continue;
    Report report;
    {
      std::lock_guard lock(reports().mutex);
      report = reports().all.at(static_cast<std::size_t>(*number));
    }
    const ir::MeshAtoms& atoms = atoms_of(mesh);
    report({mesh, spec_of(ir::sharding_of(e->out().type(), atoms), atoms)});
  }
}

}  // namespace

void report_shardings(const ir::Function& settled, const Mesh& mesh) {
  absl::flat_hash_set<std::int64_t> told;
  report_in(settled, mesh ? mesh : Mesh({}, std::vector<Device>{{}}), told);
}

Array inspect_sharding(const Array& x, Report report, Loc loc) {
  if (!x.is_traced()) {
    report(x.sharding(loc));
    return x;
  }
  const std::string name = fmt::format("{}{}", kMark, add_report(std::move(report), x.node()->trace, loc));
  return apply1("inspect_sharding", RuleKey().add(name), {x}, loc, [&](ir::Builder& b, const ir::Values& in) {
    return ir::Values{emit1(b, ir::ops::checkpoint_name, in, ir::ops::CheckpointName{name})};
  });
}

}  // namespace sheaf
