// Arrays as nested, aligned lists, as NumPy prints them.
#include "sheaf/print.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <ostream>

#include "ir/literal.h"
#include "sheaf/mesh.h"
#include "trace/array_node.h"
#include "trace/messages.h"

namespace sheaf {
namespace {

class Printer {
 public:
  Printer(const ir::Literal& values, const PrintOptions& options)
      : values_(values),
        options_(options),
        strides_(ir::strides_of(values.dims())),
        shortens_(values.size() > options.threshold) {
    measure();
  }

  std::string text() {
    if (values_.dims().empty()) return element(0);
    list(0, 0);
    return out_;
  }

 private:
  // Indices of dim d that are shown; -1 stands for the gap.
  std::vector<std::int64_t> shown(std::size_t d) const {
    const std::int64_t n = values_.dims()[d], edge = options_.edge;
    std::vector<std::int64_t> v;
    for (std::int64_t i = 0; i < n; ++i) {
      if (shortens_ && n > 2 * edge && i == edge) {
        v.push_back(-1);
        i = n - edge;
      }
      v.push_back(i);
    }
    return v;
  }

  std::string element(std::int64_t i) const {
    const DType t = values_.dtype();
    if (is_bool(t)) return values_.bits(i) ? "true" : "false";
    if (is_unsigned_int(t)) return std::to_string(values_.bits(i));
    if (is_int(t)) return std::to_string(values_.get_int(i));
    if (is_complex(t)) return t == c64 ? complex_element<float>(i) : complex_element<double>(i);
    const double v = values_.get(i);
    if (!std::isfinite(v)) return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
    std::string s =
        scientific_ ? fmt::format("{:.{}e}", v, options_.precision) : fmt::format("{:.{}f}", v, options_.precision);
    if (scientific_) return s;
    // As many decimals as the array needs, like NumPy: 1. 2.5
    s.resize(s.size() - static_cast<std::size_t>(options_.precision - decimals_));
    return s;
  }

  template <class T>
  std::string complex_element(std::int64_t i) const {
    T parts[2];
    std::memcpy(parts, values_.data() + static_cast<std::size_t>(i) * sizeof parts, sizeof parts);
    return fmt::format("{:.{}g}{:+.{}g}i", parts[0], options_.precision, parts[1], options_.precision);
  }

  template <class F>
  void each(std::size_t d, std::int64_t offset, F f) const {
    if (d == values_.dims().size()) return f(offset);
    for (const std::int64_t i : shown(d))
      if (i >= 0) each(d + 1, offset + i * strides_[d], f);
  }

  void measure() {
    const DType t = values_.dtype();
    if (is_float(t)) {
      double largest = 0, smallest = std::numeric_limits<double>::infinity();
      each(0, 0, [&](std::int64_t i) {
        const double v = std::abs(values_.get(i));
        if (!std::isfinite(v) || v == 0) return;
        largest = std::max(largest, v), smallest = std::min(smallest, v);
      });
      scientific_ = largest >= 1e8 || (largest > 0 && (smallest < 1e-4 || largest / smallest > 1e7));
      decimals_ = options_.precision;
      if (!scientific_) {
        int needed = 0;
        each(0, 0, [&](std::int64_t i) {
          if (!std::isfinite(values_.get(i))) return;
          const std::string s = fmt::format("{:.{}f}", values_.get(i), options_.precision);
          needed = std::max(needed, options_.precision - static_cast<int>(s.size() - 1 - s.find_last_not_of('0')));
        });
        decimals_ = needed;
      }
    }
    each(0, 0, [&](std::int64_t i) { width_ = std::max(width_, element(i).size()); });
  }

  void list(std::size_t d, std::int64_t offset) {
    const std::size_t rank = values_.dims().size();
    out_ += "[";
    bool is_first = true;
    for (const std::int64_t i : shown(d)) {
      if (!std::exchange(is_first, false)) {
        out_ += d + 1 == rank ? " " : "\n" + std::string(rank - d - 2, '\n') + std::string(d + 1, ' ');
      }
      if (i < 0) out_ += "...";
      else if (d + 1 == rank) out_ += fmt::format("{:>{}}", element(offset + i * strides_[d]), width_);
      else list(d + 1, offset + i * strides_[d]);
    }
    out_ += "]";
  }

  const ir::Literal& values_;
  const PrintOptions options_;
  const std::vector<std::int64_t> strides_;
  bool shortens_, scientific_ = false;
  int decimals_ = 0;
  std::size_t width_ = 0;
  std::string out_;
};

}  // namespace

std::string to_string(const Array& x, const PrintOptions& options) {
  if (!x.has_value()) return "an Array without a value";
  const ArrayNode& node = *x.node();
  if (node.kind == ArrayNode::Kind::traced)
    return fmt::format("Traced {} at {}", type_text(node), to_string(node.made_at));
  if (node.kind == ArrayNode::Kind::abstract) return fmt::format("Abstract {}", type_text(node));
  ir::Literal values(node.type);
  check(buffer_of(x, node.type, node.made_at)->to_host(std::span(values.data(), values.bytes())), node.made_at);
  return Printer(values, options).text();
}

std::ostream& operator<<(std::ostream& out, const Array& x) { return out << to_string(x); }
std::ostream& operator<<(std::ostream& out, DType t) { return out << name(t); }
std::ostream& operator<<(std::ostream& out, Loc loc) { return out << to_string(loc); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }
std::ostream& operator<<(std::ostream& out, const Mesh& mesh) { return out << to_string(mesh); }
std::ostream& operator<<(std::ostream& out, const PartitionSpec& spec) { return out << to_string(spec); }
std::ostream& operator<<(std::ostream& out, const NamedSharding& sharding) { return out << to_string(sharding); }

}  // namespace sheaf
