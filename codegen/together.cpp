// In the order of the program, greedily: the updates of all of an optimizer's arrays stand in a row, and each alone
// would be too small to share out over threads.
#include "codegen/together.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "codegen/kir/kir.h"

namespace sheaf::codegen {
namespace {

using Space = BufferRef::Space;
using Access = kir::Param::Access;

constexpr int kMostSteps = 256;

// What the steps of one launch touch.
class Touched {
 public:
  explicit Touched(std::span<const int> alias) : alias_(alias) {}

  /// The step neither writes what those added touch, nor reads what they write.
  bool admits(const Step& step, const kir::Kernel& kernel) const {
    for (std::size_t i = 0; i < step.buffers.size(); ++i)
      if (meets(step.buffers[i], kernel.params[i].access != Access::read)) return false;
    return true;
  }
  void add(const Step& step, const kir::Kernel& kernel) {
    for (std::size_t i = 0; i < step.buffers.size(); ++i) {
      const BufferRef& ref = step.buffers[i];
      const bool is_written = kernel.params[i].access != Access::read;
      if (ref.bytes == 0) continue;
      if (ref.space == Space::arena) arena_.push_back({ref.index, ref.index + ref.bytes, is_written});
      else whole_[place(ref)] |= is_written;
    }
  }

 private:
  struct Interval {
    std::int64_t begin, end;
    bool is_written;
  };

  bool meets(const BufferRef& ref, bool is_written) const {
    if (ref.bytes == 0) return false;
    if (ref.space == Space::arena)
      return std::any_of(arena_.begin(), arena_.end(), [&](const Interval& i) {
        return ref.index < i.end && i.begin < ref.index + ref.bytes && (is_written || i.is_written);
      });
    const auto known = whole_.find(place(ref));
    return known != whole_.end() && (is_written || known->second);
  }

  // An output in the memory of an input is that input.
  std::pair<Space, std::int64_t> place(const BufferRef& ref) const {
    const auto o = static_cast<std::size_t>(ref.index);
    if (ref.space == Space::output && o < alias_.size() && alias_[o] >= 0) return {Space::input, alias_[o]};
    return {ref.space, ref.index};
  }

  std::span<const int> alias_;
  std::vector<Interval> arena_;
  absl::flat_hash_map<std::pair<Space, std::int64_t>, bool> whole_;  // is it written
};

}  // namespace

void join_steps(std::vector<Step>& steps, std::span<const KernelCode> kernels, std::span<const int> alias) {
  Touched touched(alias);
  int joined = 0;
  const auto begin = [&] {
    touched = Touched(alias);
    joined = 0;
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const KernelCode* code = steps[i].control ? nullptr : &kernels[static_cast<std::size_t>(steps[i].kernel)];
    if (!code || code->phases.size() != 1 || code->kir->contract) {
      begin();
      continue;
    }
    if (joined == kMostSteps || !touched.admits(steps[i], *code->kir)) begin();
    if (joined > 0) steps[i - 1].joins_next = true;
    touched.add(steps[i], *code->kir);
    ++joined;
  }
}

}  // namespace sheaf::codegen
