// One walk in the order of execution that knows what was touched since the team last met. What the end of a loop's body
// leaves unmet meets its beginning, so loops are walked until that adds nothing.
#include "codegen/cuda/barriers.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace sheaf::codegen {
namespace {

using kir::Block;
using kir::BufferId;

/// By buffer, of those that threads share.
struct Touched {
  std::vector<bool> read, written;

  explicit Touched(const Team& team) : read(team.is_communicated.size()), written(team.is_communicated.size()) {}
  void add(const Touched& more) {
    for (std::size_t b = 0; b < read.size(); ++b) {
      read[b] = read[b] || more.read[b];
      written[b] = written[b] || more.written[b];
    }
  }
  /// A buffer that must not be touched by `next` before the team has met.
  std::optional<std::size_t> conflict(const Touched& next) const {
    for (std::size_t b = 0; b < read.size(); ++b)
      if ((next.read[b] && written[b]) || (next.written[b] && (read[b] || written[b]))) return b;
    return std::nullopt;
  }
  bool operator==(const Touched&) const = default;
};

/// By a statement that is neither a serial loop nor a branch: such a vector loop is one step of all threads.
Touched touched_by(const kir::Stmt& s, const Team& team) {
  Touched touched(team);
  if (const auto* loop = std::get_if<kir::For>(&s)) {
    for (const kir::Stmt& inner : loop->body) touched.add(touched_by(inner, team));
  } else if (const auto* store = std::get_if<kir::Store>(&s)) {
    touched.written[store->buffer] = team.is_communicated[store->buffer];
  } else if (const auto* let = std::get_if<kir::Let>(&s)) {
    if (const auto* load = std::get_if<kir::Load>(&let->expr))
      touched.read[load->buffer] = team.is_communicated[load->buffer];
  }
  return touched;
}

bool is_serial(const kir::For& loop) { return loop.kind != kir::LoopKind::vector; }

/// A block adds up lanes through its memory, and meets on the way. A warp's shuffles order nothing.
bool meets(const kir::Stmt& s, const Team& team) {
  return std::holds_alternative<kir::Barrier>(s) ||
         (std::holds_alternative<kir::LaneReduce>(s) && team.threads > kWarp);
}

Block placed(const Block& block, const Team& team, Touched& since) {
  Block out;
  for (const kir::Stmt& s : block) {
    const auto* loop = std::get_if<kir::For>(&s);
    if (loop && is_serial(*loop)) {
      Touched entry = since;
      while (true) {
        since = entry;
        kir::For with{loop->axis, loop->kind, loop->width, placed(loop->body, team, since), loop->limit};
        Touched both = entry;
        both.add(since);
        if (both == entry) {
          out.push_back(std::move(with));
          break;
        }
        entry = std::move(both);
      }
      if (loop->limit >= 0) since.add(entry);  // the body may not run at all
    } else if (const auto* branch = std::get_if<kir::If>(&s)) {
      const Touched before = since;
      out.push_back(kir::If{branch->condition, placed(branch->then, team, since)});
      since.add(before);
    } else {
      const Touched next = touched_by(s, team);
      if (since.conflict(next)) {
        out.push_back(kir::Barrier{});
        since = Touched(team);
      }
      if (meets(s, team)) since = Touched(team);
      since.add(next);
      out.push_back(s);
    }
  }
  return out;
}

class Checker {
 public:
  explicit Checker(const Team& team) : team_(team), since_(team) {}

  std::string error;

  void check(const Block& block) {
    for (const kir::Stmt& s : block) {
      if (!error.empty()) return;
      const auto* loop = std::get_if<kir::For>(&s);
      if (loop && is_serial(*loop)) {
        check_loop(*loop);
      } else if (const auto* branch = std::get_if<kir::If>(&s)) {
        const Touched before = since_;
        check(branch->then);
        since_.add(before);
      } else {
        if (loop && any_of<kir::Barrier>(loop->body, [](const kir::Barrier&) { return true; }))
          error = "a barrier inside a vector loop, where threads go their own ways";
        check_step(s);
      }
    }
  }

 private:
  /// Twice: once as it is entered, once behind itself.
  void check_loop(const kir::For& loop) {
    const Touched before = since_;
    check(loop.body);
    const Touched once = since_;
    check(loop.body);
    since_.add(once);
    if (loop.limit >= 0) since_.add(before);
  }

  void check_step(const kir::Stmt& s) {
    if (meets(s, team_)) since_ = Touched(team_);
    const Touched next = touched_by(s, team_);
    if (const auto buffer = since_.conflict(next))
      error = fmt::format("p{} is touched by several threads, with no barrier between", *buffer);
    since_.add(next);
  }

  const Team& team_;
  Touched since_;
};

}  // namespace

Block with_barriers(const kir::Phase& phase, const Team& team) {
  Touched since(team);
  return placed(phase.body, team, since);
}

absl::Status check_barriers(const kir::Block& body, const Team& team) {
  Checker checker(team);
  checker.check(body);
  return checker.error.empty() ? absl::OkStatus() : absl::InternalError(checker.error);
}

}  // namespace sheaf::codegen
