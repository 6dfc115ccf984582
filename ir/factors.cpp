// Factors: building, comparing and widening index structures.
#include "ir/factors.h"

#include <fmt/format.h>

namespace sheaf::ir {

Shape Factors::dims(const TensorFactors& tensor) const {
  Shape dims;
  for (const FactorList& list : tensor) {
    std::int64_t n = 1;
    for (int f : list) n *= factors[f].size;
    dims.push_back(n);
  }
  return dims;
}

absl::StatusOr<Factors> Factors::pointwise(const std::vector<Type>& operands, int results) {
  Factors r;
  const Type* full = nullptr;
  for (const Type& t : operands)
    if (!full || t.rank() > full->rank()) full = &t;
  TensorFactors all;
  if (full)
    for (std::int64_t n : full->dims()) all.push_back({r.add(n)});
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const Type& t = operands[k];
    if (t.rank() == 0) {
      r.in.emplace_back();
    } else if (t.dims() == full->dims()) {
      r.in.push_back(all);
    } else {
      const std::size_t other = static_cast<std::size_t>(full - operands.data());
      return absl::InvalidArgumentError(fmt::format("operands {} ({}) and {} ({}) must have the same shape",
                                                    std::min(k, other), to_string(operands[std::min(k, other)]),
                                                    std::max(k, other), to_string(operands[std::max(k, other)])));
    }
  }
  r.out.assign(results, all);
  return r;
}

namespace {

// Factors renumbered by first appearance, with everything that matters about each.
struct Canonical {
  explicit Canonical(const Factors& of) : f(of), number(of.factors.size(), -1) {
    for (const TensorFactors& t : f.in) add(t);
    for (const TensorFactors& t : f.out) add(t);
  }
  void add(const TensorFactors& t) {
    tensors.emplace_back();
    for (const FactorList& list : t) {
      FactorList renamed;
      for (int i : list) {
        if (number[i] < 0) {
          number[i] = static_cast<int>(seen.size());
          seen.push_back(f.factors[i]);
        }
        renamed.push_back(number[i]);
      }
      tensors.back().push_back(std::move(renamed));
    }
  }
  const Factors& f;
  std::vector<int> number;
  std::vector<Factor> seen;
  std::vector<TensorFactors> tensors;
};

}  // namespace

bool Factors::same_structure(const Factors& other) const {
  if (in.size() != other.in.size() || out.size() != other.out.size() || additive != other.additive) return false;
  const Canonical a(*this), b(other);
  return a.seen == b.seen && a.tensors == b.tensors;
}

Factors Factors::with_fresh(std::int64_t size, const std::vector<int>& in_pos, const std::vector<int>& out_pos) const {
  Factors r = *this;
  const int fresh = r.add(size);
  for (std::size_t k = 0; k < r.in.size(); ++k)
    if (in_pos[k] >= 0) r.in[k].insert(r.in[k].begin() + in_pos[k], {fresh});
  for (std::size_t j = 0; j < r.out.size(); ++j)
    if (out_pos[j] >= 0) r.out[j].insert(r.out[j].begin() + out_pos[j], {fresh});
  return r;
}

std::string to_string(const Factors& f) {
  const auto factor_name = [](int i) {
    std::string s(1, static_cast<char>('i' + i % 18));
    return i < 18 ? s : s + std::to_string(i / 18);
  };
  const auto tensors = [&](const std::vector<TensorFactors>& ts) {
    std::string s = "(";
    for (std::size_t k = 0; k < ts.size(); ++k) {
      if (k) s += ", ";
      for (std::size_t d = 0; d < ts[k].size(); ++d) {
        if (d) s += " ";
        if (ts[k][d].size() == 1) {
          s += factor_name(ts[k][d][0]);
          continue;
        }
        s += "(";
        for (std::size_t i = 0; i < ts[k][d].size(); ++i) s += (i ? " " : "") + factor_name(ts[k][d][i]);
        s += ")";
      }
    }
    return s + ")";
  };
  static constexpr std::string_view kCombine[] = {"", "sum", "prod", "max", "min", "and", "or", "custom"};
  std::string s = tensors(f.in) + " -> " + tensors(f.out);
  for (std::size_t i = 0; i < f.factors.size(); ++i) {
    const Factor& x = f.factors[i];
    if (x.cls == FactorClass::P && !x.absolute) continue;
    s += fmt::format("  {}:{}{}{}", factor_name(static_cast<int>(i)),
                     std::string_view("PRMN").substr(static_cast<int>(x.cls), 1),
                     x.combine == Combine::none ? "" : "-" + std::string(kCombine[static_cast<int>(x.combine)]),
                     x.absolute ? "!" : "");
  }
  return s;
}

}  // namespace sheaf::ir
