// A walk over the equations, regions as often as they run.
#include "passes/sharding/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "passes/flights.h"
#include "passes/sharding/reasons.h"
#include "passes/sharding/reshard.h"

namespace sheaf::passes {
namespace {

using ir::Eqn;
using ir::lowering::Collective;
namespace ops = ir::ops;

/// How often the regions of e run each time that e does; -1: nothing says.
std::int64_t trips(const Eqn& e) {
  if (e.op == &ops::scan) return e.attrs<ops::Scan>().length;
  if (e.op == &ops::while_) return e.attrs<ops::While>().max_trips;
  return 1;
}

class Walk {
 public:
  Walk(ir::Mesh mesh, const Profile& profile) : atoms_(mesh), profile_(profile) {}

  void function(const ir::Function& f, std::int64_t times) {
    const std::vector<Flight> all = flights(f);
    for (std::size_t k = 0; k < all.size(); ++k) {
      const Eqn* e = f.eqns()[k];
      const std::size_t first = entries_.size();
      const std::int64_t inside = times < 0 || trips(*e) < 0 ? -1 : times * trips(*e);
      for (const ir::FunctionRef& r : e->regions) function(*r, inside);
      if (all[k].done > static_cast<int>(k) + 1) entries_[first].is_overlapped = true;
      if (!e->op->axes || !e->op->lower) continue;  // constants and regions have nothing to tell
      const ir::Lowering lowering = e->op->lower(*e);
      const auto* what = std::get_if<Collective>(&lowering);
      if (what && what->kind != CollectiveKind::axis_index) collective(*e, *what, times);
    }
  }
  std::vector<CollectiveEntry> take() { return std::move(entries_); }

 private:
  void collective(const Eqn& e, const Collective& what, std::int64_t times) {
    const ir::Atoms axes = atoms_.of(what.axes);
    const double payload = payload_of(e);
    const CommCost cost = cost_of(what.kind, payload, atoms_, axes, profile_);
    const std::string_view how(e.how);
    const std::string_view reason = reason_of(how);
    entries_.push_back({
        .id = static_cast<int>(entries_.size()),
        .kind = what.kind,
        .reduce = what.reduce,
        .axes = what.axes,
        .devices = atoms_.size(axes),
        .dtype = e.in(0).dtype(),
        .payload_bytes = payload,
        .wire_bytes = cost.bytes,
        .seconds = cost.seconds,
        .times = times,
        .is_implicit = !reason.empty(),
        .is_backward = is_of_derivative(how),
        .gathers_all = reason.find(kGathersAll) != std::string_view::npos,
        .is_greedy = reason.find(kNotSearched) != std::string_view::npos,
        .loc = e.loc,
        .reason = std::string(reason),
    });
  }

  const ir::MeshAtoms atoms_;
  const Profile& profile_;
  std::vector<CollectiveEntry> entries_;
};

struct Total {
  std::int64_t count = 0;
  double payload_bytes = 0, wire_bytes = 0, seconds = 0;
  void add(const CollectiveEntry& e) {
    const double times = static_cast<double>(std::max<std::int64_t>(e.times, 0) + (e.times < 0));
    ++count;
    payload_bytes += times * e.payload_bytes, wire_bytes += times * e.wire_bytes, seconds += times * e.seconds;
  }
  std::string text() const {
    return fmt::format("{} collective{}, {:.0f} bytes, {:.0f} on the wire, {:.1f} us", count, count == 1 ? "" : "s",
                       payload_bytes, wire_bytes, seconds * 1e6);
  }
};

std::string often(std::int64_t times) {
  if (times == 1) return "once";
  return times < 0 ? "in a loop without a bound" : fmt::format("{} times", times);
}

/// "; mlp.cpp:12: dot reduces a dim split on model".
std::string place(const CollectiveEntry& e) {
  return fmt::format("{}: {}", to_string(e.loc), e.reason.empty() ? "as written" : e.reason);
}

}  // namespace

std::string to_string(const CollectiveEntry& e) {
  static constexpr std::string_view kReductions[] = {"sum", "prod", "max", "min", "and", "or"};
  const bool is_reduction = e.kind == CollectiveKind::all_reduce || e.kind == CollectiveKind::reduce_scatter;
  return fmt::format("{}{} over {}", name(e.kind),
                     is_reduction ? fmt::format("({})", kReductions[static_cast<int>(e.reduce)]) : "",
                     fmt::join(e.axes, "+"));
}

std::string CollectiveReport::text() const {
  if (entries.empty()) return mesh.empty() ? "no mesh, no collectives\n" : fmt::format("no collectives on {}\n", mesh);
  std::string s = fmt::format("collectives on {}, times of {}:\n", mesh, profile);
  std::map<std::string, Total> per_axes;
  Total all;
  for (const CollectiveEntry& e : entries) {
    s += fmt::format("  #{} {}, {} devices: {} {:.0f} bytes, {:.0f} on the wire, {:.1f} us {}, {}{}; {}\n", e.id,
                     to_string(e), e.devices, sheaf::name(e.dtype), e.payload_bytes, e.wire_bytes, e.seconds * 1e6,
                     e.is_overlapped ? "overlapped" : "exposed", often(e.times), e.is_backward ? ", backward" : "",
                     place(e));
    per_axes[fmt::format("{}", fmt::join(e.axes, "+"))].add(e);
    all.add(e);
  }
  for (const auto& [axes, total] : per_axes) s += fmt::format("  over {}: {}\n", axes, total.text());
  return s + fmt::format("  in all: {}\n", all.text());
}

CollectiveReport report_collectives(const ir::Function& local, const Profile& profile) {
  if (!local.mesh()) return {};
  Walk walk(local.mesh(), profile);
  walk.function(local, 1);
  return {.mesh = to_string(local.mesh()), .profile = profile.name, .entries = walk.take()};
}

absl::Status check_limits(const CollectiveReport& report, const CommunicationLimits& limits) {
  const auto refused = [](const CollectiveEntry& e, std::string_view why) {
    return absl::FailedPreconditionError(
        fmt::format("{} of {:.0f} bytes {}; {}", to_string(e), e.payload_bytes, why, place(e)));
  };
  double sent = 0;
  for (const CollectiveEntry& e : report.entries) {
    if (limits.only_explicit && e.is_implicit) return refused(e, "is not what the program says");
    if (limits.no_full_gathers && e.gathers_all) return refused(e, "gathers what is split again");
    for (const CommunicationLimits::Rule& rule : limits.forbid) {
      const bool is_over = rule.axis.empty() || std::find(e.axes.begin(), e.axes.end(), rule.axis) != e.axes.end();
      if (is_over && (!rule.kind || *rule.kind == e.kind)) return refused(e, "is forbidden");
    }
    sent += e.wire_bytes * static_cast<double>(std::max<std::int64_t>(e.times, 0) + (e.times < 0));
    if (limits.max_wire_bytes && sent > *limits.max_wire_bytes)
      return refused(
          e, fmt::format("takes what a device sends to {:.0f} bytes, past {:.0f}", sent, *limits.max_wire_bytes));
  }
  return absl::OkStatus();
}

}  // namespace sheaf::passes
