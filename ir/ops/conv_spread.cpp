// A convolution of a spread lhs, as convolutions of the lhs itself: results a few places apart meet the same taps, and
// every other tap meets only the zeros between elements. This is the gradient of a strided convolution, and the
// convolution that undoes one. Invariant: each result sums the terms it has in the same order.
#include <numeric>

#include "ir/ops/conv.h"

namespace sheaf::ir::ops {
namespace {

// More kernels than this cost more than the zeros.
constexpr std::int64_t kMostPhases = 16;

// The results at places phase, phase + step, ... along one spatial dim, and the taps that meet elements there.
struct Phase {
  std::int64_t first_tap = 0, tap_step = 1, taps = 0;
  Slide slide = {};  // of those taps over the lhs as it is
};

std::int64_t phases_of(const Slide& s) { return s.base_dilation / std::gcd(s.stride, s.base_dilation); }

std::int64_t results_of_phase(const Slide& s) { return (s.count() + phases_of(s) - 1) / phases_of(s); }

// Result phase + n * q and tap first + m * j meet the element stride * q + dilation * j - low of the new slide.
Phase phase_of(const Slide& s, std::int64_t phase) {
  Phase p{.tap_step = s.base_dilation / std::gcd(s.dilation, s.base_dilation)};
  const auto place = [&](std::int64_t tap) { return phase * s.stride + tap * s.dilation - s.low; };
  while (p.first_tap < s.size && p.first_tap < p.tap_step && place(p.first_tap) % s.base_dilation != 0) ++p.first_tap;
  if (p.first_tap >= std::min(s.size, p.tap_step)) return p;
  p.taps = (s.size - 1 - p.first_tap) / p.tap_step + 1;
  p.slide = {.dim = s.dim,
             .extent = s.extent,
             .size = p.taps,
             .stride = s.stride / std::gcd(s.stride, s.base_dilation),
             .low = -place(p.first_tap) / s.base_dilation,
             .dilation = s.dilation / std::gcd(s.dilation, s.base_dilation)};
  p.slide.high = (results_of_phase(s) - 1) * p.slide.stride + p.slide.span() - p.slide.extent - p.slide.low;
  return p;
}

class Spread {
 public:
  Spread(Builder& b, const Eqn& e, Value lhs, Value rhs)
      : b_(b), e_(e), a_(e.attrs<Conv>()), lhs_(lhs), rhs_(rhs), slides_(slides_of(a_, lhs.type(), rhs.type())) {}

  Value run() {
    std::vector<Phase> phases(slides_.size());
    collect(phases, 0);
    return is_alone() ? alone() : interleaved();
  }

 private:
  // One value for each choice of a phase along each dim, in row-major order; null: all zeros.
  void collect(std::vector<Phase>& phases, std::size_t i) {
    if (i == slides_.size()) return parts_.push_back(part(phases));
    for (std::int64_t r = 0; r < phases_of(slides_[i]); ++r) {
      phases[i] = phase_of(slides_[i], r);
      collect(phases, i + 1);
    }
  }

  Value part(const std::vector<Phase>& phases) {
    Slice taps{.start = DimList(rhs_.rank(), 0), .limit = rhs_.dims(), .stride = DimList(rhs_.rank(), 1)};
    Slides slides;
    for (std::size_t i = 0; i < phases.size(); ++i) {
      if (phases[i].taps == 0) return Value();
      taps.start[a_.rhs_spatial[i]] = phases[i].first_tap;
      taps.stride[a_.rhs_spatial[i]] = phases[i].tap_step;
      slides.push_back(phases[i].slide);
    }
    Conv attrs = a_;
    set_slides(attrs, slides);
    return b_.emit(conv, {lhs_, b_.emit(slice, {rhs_}, std::move(taps))}, std::move(attrs));
  }

  bool is_alone() const { return std::count(parts_.begin(), parts_.end(), Value()) + 1 == std::ssize(parts_); }

  // The only part that is not zero, with zeros between its elements.
  Value alone() {
    const auto place = std::find_if(parts_.begin(), parts_.end(), [](Value v) { return bool(v); }) - parts_.begin();
    const Value some = parts_[place];
    const DimList zeros(some.rank(), 0);
    Pad pads{.low = zeros, .high = zeros, .interior = zeros};
    std::int64_t rest = place;  // the phases of dim i and those outside, in row-major order
    for (std::size_t i = slides_.size(); i-- > 0;) {
      const std::int64_t n = phases_of(slides_[i]), d = a_.out_spatial[i];
      pads.low[d] = rest % n;
      pads.interior[d] = n - 1;
      pads.high[d] = slides_[i].count() - pads.low[d] - Slide::spread_by(some.dims()[d], n);
      rest /= n;
    }
    return b_.emit(pad, {some, b_.constant(some.dtype(), 0)}, std::move(pads));
  }

  // All parts along a new dim, which becomes one of phases inside each spatial dim.
  Value interleaved() {
    Shape part = e_.out().dims();
    for (std::size_t i = 0; i < slides_.size(); ++i) part[a_.out_spatial[i]] = results_of_phase(slides_[i]);
    Shape stacked = part, split;
    stacked.insert(stacked.begin(), 1);
    Values all;
    for (Value v : parts_) all.push_back(v ? reshape_to(v, stacked) : b_.zeros(Type(e_.out().dtype(), stacked)));
    for (const Slide& s : slides_) split.push_back(phases_of(s));
    const auto count = static_cast<int>(split.size());
    split.insert(split.end(), part.begin(), part.end());
    DimList perm = dim_range(count, e_.out().rank());
    for (int i = 0; i < count; ++i) perm.insert(std::find(perm.begin(), perm.end(), count + a_.out_spatial[i]) + 1, i);
    const Value v = permute(reshape_to(b_.emit(concatenate, std::move(all), Concatenate{.dim = {0}}), split), perm);
    Shape merged = part;
    for (std::size_t i = 0; i < slides_.size(); ++i) merged[a_.out_spatial[i]] *= phases_of(slides_[i]);
    Value whole = reshape_to(v, merged);
    for (const std::int64_t d : a_.out_spatial) whole = slice_dim(whole, static_cast<int>(d), 0, e_.out().dims()[d]);
    return whole;
  }

  Builder& b_;
  const Eqn& e_;
  const Conv& a_;
  Value lhs_, rhs_;
  Slides slides_;
  Values parts_;
};

}  // namespace

bool is_spread(const Eqn& e) {
  std::int64_t phases = 1;
  bool any = false;
  for (const Slide& s : slides_of(e.attrs<Conv>(), e.in(0).type(), e.in(1).type())) {
    any = any || (s.base_dilation > 1 && s.extent > 1);
    if (phases <= kMostPhases) phases *= std::min(phases_of(s), kMostPhases + 1);
  }
  return any && phases <= kMostPhases && e.out().type().num_elements() > 0;
}

Value expand_spread(Builder& b, const Eqn& e, Value lhs, Value rhs) { return Spread(b, e, lhs, rhs).run(); }

}  // namespace sheaf::ir::ops
