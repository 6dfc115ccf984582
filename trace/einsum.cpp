// Einstein's summation: a spec is labels for the dims of each operand, and everything is diagonals, sums and
// dot_general. Invariant of the work loop: each term's labels are different, and every one is in the result or in
// another term.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <utility>

#include "sheaf/ops.h"
#include "trace/apply.h"
#include "trace/messages.h"
#include "trace/precision.h"
#include "trace/promotion.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

/// One label per dim: a letter, or kEllipsis + how far from the last dim of the ellipsis.
using Labels = std::vector<int>;
constexpr int kEllipsis = 1000;

bool has(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }
std::int64_t position(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) - labels.begin();
}

struct Spec {
  std::vector<Labels> inputs;
  Labels output;
};

/// Reads a spec against the ranks of the operands.
class SpecReader {
 public:
  SpecReader(const std::string& text, std::span<const Operand> operands, Loc loc)
      : text_(text), operands_(operands), loc_(loc) {}

  Spec read() {
    const std::size_t arrow = text_.find("->");
    const std::vector<std::string> terms = split(text_.substr(0, arrow));
    if (terms.size() != operands_.size())
      fail(fmt::format("{} operands are named and {} given", terms.size(), operands_.size()));
    Spec spec;
    for (std::size_t k = 0; k < terms.size(); ++k) {
      spec.inputs.push_back(input(terms[k], operands_[k].shape()));
      for (int label : spec.inputs.back())
        if (label >= kEllipsis) longest_ = std::max(longest_, label - kEllipsis + 1);
    }
    spec.output = arrow == std::string::npos ? implicit(spec) : output(without_spaces(text_.substr(arrow + 2)), spec);
    check_extents(spec);
    return spec;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ShapeError(UserLine::or_own(loc_), fmt::format("einsum: {} in \"{}\"", what, text_));
  }

  static std::string without_spaces(std::string s) {
    std::erase(s, ' ');
    return s;
  }

  static std::vector<std::string> split(const std::string& left) {
    std::vector<std::string> terms(1);
    for (const char c : without_spaces(left)) {
      if (c == ',') terms.emplace_back();
      else terms.back() += c;
    }
    return terms;
  }

  /// The labels of a term whose ellipsis stands for `hidden` dims.
  Labels labels(const std::string& term, int hidden) const {
    Labels all;
    bool seen = false;
    for (std::size_t i = 0; i < term.size(); ++i) {
      if (term.compare(i, 3, "...") == 0 && !seen) {
        for (int d = hidden; d-- > 0;) all.push_back(kEllipsis + d);
        seen = true;
        i += 2;
      } else if (std::isalpha(static_cast<unsigned char>(term[i]))) {
        all.push_back(term[i]);
      } else {
        fail(fmt::format("unexpected '{}'", term[i]));
      }
    }
    return all;
  }

  Labels input(const std::string& term, const Shape& shape) const {
    const int named = static_cast<int>(labels(term, 0).size()), rank = static_cast<int>(shape.size());
    const bool has_ellipsis = term.find("...") != std::string::npos;
    if (named > rank || (named < rank && !has_ellipsis))
      fail(fmt::format("\"{}\" names {} dims of {}", term, named, to_string(shape)));
    return labels(term, rank - named);
  }

  Labels implicit(const Spec& spec) const {
    std::map<int, int> count;
    for (const Labels& in : spec.inputs)
      for (int label : in) ++count[label];
    Labels out;
    for (int d = longest_; d-- > 0;) out.push_back(kEllipsis + d);
    for (const auto& [label, times] : count)
      if (label < kEllipsis && times == 1) out.push_back(label);
    return out;
  }

  Labels output(const std::string& term, const Spec& spec) const {
    if (longest_ > 0 && term.find("...") == std::string::npos) fail("the result lacks the ellipsis of an operand");
    const Labels out = labels(term, longest_);
    for (std::size_t d = 0; d < out.size(); ++d) {
      const auto c = static_cast<char>(out[d]);
      if (position(out, out[d]) != static_cast<std::int64_t>(d)) fail(fmt::format("'{}' is repeated in the result", c));
      const bool is_known =
          std::any_of(spec.inputs.begin(), spec.inputs.end(), [&](const Labels& in) { return has(in, out[d]); });
      if (!is_known) fail(fmt::format("'{}' is not among the operands", c));
    }
    return out;
  }

  void check_extents(const Spec& spec) const {
    std::map<int, std::int64_t> extents;
    for (std::size_t k = 0; k < operands_.size(); ++k) {
      const Shape shape = operands_[k].shape();
      for (std::size_t d = 0; d < shape.size(); ++d) {
        const int label = spec.inputs[k][d];
        if (label >= kEllipsis && shape[d] == 1) continue;  // stretched
        const auto [it, is_new] = extents.try_emplace(label, shape[d]);
        if (is_new || it->second == shape[d]) continue;
        if (label >= kEllipsis)
          fail(fmt::format("extents {} and {} of the ellipsis cannot be broadcast together", it->second, shape[d]));
        fail(fmt::format("'{}' is {} in one place and {} in another", static_cast<char>(label), it->second, shape[d]));
      }
    }
  }

  const std::string& text_;
  std::span<const Operand> operands_;
  Loc loc_;
  int longest_ = 0;  // dims an ellipsis stands for
};

struct Term {
  Array x;
  Labels labels;
};

std::int64_t extent(const Term& t, int label) { return t.x.shape()[position(t.labels, label)]; }

/// In the dtype of x, as products are; `sum` widens narrow integers.
Array sum_over(const Array& x, const std::vector<std::int64_t>& axes) {
  return axes.empty() ? x : convert(sum(x, {.axes = axes}), x.dtype());
}

/// The elements where the two dims agree, at the first of them.
Array take_diagonal(const Array& x, std::int64_t first, std::int64_t second) {
  Shape along_first(static_cast<std::size_t>(x.rank()), 1), along_second = along_first;
  along_first[first] = along_second[second] = x.shape()[first];
  const Array index = arange(x.shape()[first]);
  const Array agrees = reshape(index, along_first) == reshape(index, along_second);
  return sum_over(where(agrees, x, zeros_like(x)), {second});
}

/// Diagonals of repeated labels; stretched ellipsis dims of extent 1 are dropped, whoever has them in full gives them.
Term distinct(Array x, Labels labels) {
  for (std::size_t d = labels.size(); d-- > 0;) {
    const auto first = position(labels, labels[d]);
    if (first != static_cast<std::int64_t>(d)) x = take_diagonal(x, first, static_cast<std::int64_t>(d));
    else if (labels[d] >= kEllipsis && x.shape()[d] == 1) x = squeeze(x, {static_cast<std::int64_t>(d)});
    else continue;
    labels.erase(labels.begin() + static_cast<std::ptrdiff_t>(d));
  }
  return {x, labels};
}

/// Sums away the labels that nobody else has.
template <class IsWanted>
Term summed(Term t, IsWanted is_wanted) {
  std::vector<std::int64_t> axes;
  Labels left;
  for (std::size_t d = 0; d < t.labels.size(); ++d) {
    if (is_wanted(t.labels[d])) left.push_back(t.labels[d]);
    else axes.push_back(static_cast<std::int64_t>(d));
  }
  return {sum_over(t.x, axes), left};
}

Term multiplied(const Term& a, const Term& b, const Labels& wanted, const ProductOptions& options) {
  DotDims d{.precision = options.precision};
  Labels batch, free_a, free_b;
  for (std::size_t i = 0; i < a.labels.size(); ++i) {
    const int label = a.labels[i];
    if (!has(b.labels, label)) {
      free_a.push_back(label);
    } else if (has(wanted, label)) {
      d.lhs_batch.push_back(static_cast<std::int64_t>(i));
      d.rhs_batch.push_back(position(b.labels, label));
      batch.push_back(label);
    } else {
      d.lhs.push_back(static_cast<std::int64_t>(i));
      d.rhs.push_back(position(b.labels, label));
    }
  }
  for (int label : b.labels)
    if (!has(a.labels, label)) free_b.push_back(label);
  Labels labels = batch;
  labels.insert(labels.end(), free_a.begin(), free_a.end());
  labels.insert(labels.end(), free_b.begin(), free_b.end());
  return {dot_general(a.x, b.x, d), labels};
}

/// The result's labels and those of all terms but two.
Labels wanted_beside(const std::vector<Term>& terms, std::size_t i, std::size_t j, const Labels& output) {
  Labels wanted = output;
  for (std::size_t k = 0; k < terms.size(); ++k)
    if (k != i && k != j) wanted.insert(wanted.end(), terms[k].labels.begin(), terms[k].labels.end());
  return wanted;
}

/// How many elements the product of two terms has more than they.
double growth(const Term& a, const Term& b, const Labels& wanted) {
  double product = 1, before_a = 1, before_b = 1;
  for (int label : a.labels) {
    const auto n = static_cast<double>(extent(a, label));
    before_a *= n;
    if (has(wanted, label)) product *= n;
  }
  for (int label : b.labels) {
    const auto n = static_cast<double>(extent(b, label));
    before_b *= n;
    if (has(wanted, label) && !has(a.labels, label)) product *= n;
  }
  return product - before_a - before_b;
}

/// Replaces the two terms whose product is smallest by it, until one is left (greedy, as opt_einsum's).
Term contracted(std::vector<Term> terms, const Labels& output, const ProductOptions& options) {
  while (terms.size() > 1) {
    std::size_t first = 0, second = 1;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < terms.size(); ++i) {
      for (std::size_t j = i + 1; j < terms.size(); ++j) {
        const double g = growth(terms[i], terms[j], wanted_beside(terms, i, j, output));
        if (g < least) least = g, first = i, second = j;
      }
    }
    const Labels wanted = wanted_beside(terms, first, second, output);
    Term product = multiplied(terms[first], terms[second], wanted, options);
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(second));
    terms[first] = std::move(product);
  }
  return std::move(terms[0]);
}

/// The term with its dims in the order of the result, which may have ellipsis dims of extent 1 that were dropped.
Array arranged(const Term& t, const Labels& output) {
  std::vector<std::int64_t> perm;
  Shape shape;
  for (int label : output) {
    const bool is_there = has(t.labels, label);
    if (is_there) perm.push_back(position(t.labels, label));
    shape.push_back(is_there ? extent(t, label) : 1);
  }
  return reshape(transpose(t.x, perm), shape);
}

Array evaluate(const Spec& spec, std::span<const Array> in, const ProductOptions& options) {
  std::vector<Term> terms;
  for (std::size_t k = 0; k < in.size(); ++k) terms.push_back(distinct(in[k], spec.inputs[k]));
  for (std::size_t k = 0; k < terms.size(); ++k) {
    const Labels wanted = wanted_beside(terms, k, k, spec.output);
    terms[k] = summed(terms[k], [&](int label) { return has(wanted, label); });
  }
  return arranged(contracted(std::move(terms), spec.output, options), spec.output);
}

Array einsum_of(const std::string& text, std::span<const Operand> operands, const ProductOptions& options, Loc loc) {
  const Spec spec = SpecReader(text, operands, loc).read();
  return compose("einsum", std::move(key_of(options).add(text)), operands, loc,
                 [&](std::span<const Array> in) { return std::vector{evaluate(spec, in, options)}; })[0];
}

}  // namespace

Array einsum(const std::string& spec, Operand x) { return einsum_of(spec, std::span(&x, 1), {}, x.loc()); }

Array einsum(const std::string& spec, Operand x, Operand y, const ProductOptions& options) {
  const Operand operands[] = {x, y};
  return einsum_of(spec, operands, options, x.loc());
}

Array einsum(const std::string& spec, const std::vector<Array>& operands, const ProductOptions& options, Loc loc) {
  if (operands.empty()) throw ShapeError(UserLine::or_own(loc), fmt::format("einsum: no operands for \"{}\"", spec));
  std::vector<Operand> all;
  for (const Array& x : operands) all.emplace_back(x, loc);
  return einsum_of(spec, all, options, loc);
}

}  // namespace sheaf
