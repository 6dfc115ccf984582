// Interning and printing of types. The table lives for the whole process and is never shrunk: a program has few
// distinct types, and handing out stable pointers is what makes comparison free.
#include "ir/type.h"

#include <absl/container/node_hash_set.h>
#include <absl/hash/hash.h>

#include <algorithm>
#include <mutex>

#include "ir/check.h"

namespace sheaf {

std::int64_t num_elements(const Shape& shape) {
  std::int64_t n = 1;
  for (std::int64_t d : shape) {
    if (d == 0) return 0;
    if (__builtin_mul_overflow(n, d, &n) || n > kMaxElements) n = kMaxElements;
  }
  return n;
}

std::string to_string(const Shape& shape) {
  std::string s = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

}  // namespace sheaf

namespace sheaf::ir {
namespace {

struct TypeHash {
  std::size_t operator()(const TypeData& t) const {
    return absl::HashOf(static_cast<int>(t.dtype), t.dims, t.dim_axes, t.unreduced, static_cast<int>(t.unreduced_kind),
                        t.manual.varying, t.manual.unreduced, t.manual.reduced, static_cast<int>(t.space));
  }
};

const TypeData* intern(TypeData data) {
  static auto& mutex = *new std::mutex;  // leaked: static Arrays may outlive any destructor order
  static auto& table = *new absl::node_hash_set<TypeData, TypeHash>;
  std::lock_guard lock(mutex);
  return &*table.insert(std::move(data)).first;
}

std::string axes_text(const Axes& axes) {
  if (axes.size() == 1) return axes[0];
  std::string s = "(";
  for (std::size_t i = 0; i < axes.size(); ++i) s += (i ? ", " : "") + axes[i];
  return s + ")";
}

}  // namespace

Type::Type(DType dtype, Shape dims) : Type(TypeData{.dtype = dtype, .dims = std::move(dims)}) {}

Type::Type(TypeData data) {
  bool split = false;
  for (const Axes& axes : data.dim_axes) split |= !axes.empty();
  if (!split) data.dim_axes.clear();
  SHEAF_CHECK(data.dim_axes.empty() || data.dim_axes.size() == data.dims.size());
  data_ = intern(std::move(data));
  num_elements_ = sheaf::num_elements(data_->dims);
}

Type Type::with_dtype(DType dtype) const {
  TypeData data = *data_;
  data.dtype = dtype;
  return Type(std::move(data));
}

Type Type::with_dims(Shape dims) const {
  return Type(TypeData{.dtype = dtype(), .dims = std::move(dims), .manual = data_->manual, .space = data_->space});
}

Type Type::with_manual(Manual manual) const {
  if (manual == data_->manual) return *this;
  TypeData data = *data_;
  data.manual = std::move(manual);
  return Type(std::move(data));
}

Type Type::with_varying(Axes axes) const {
  Manual m = data_->manual;
  std::erase_if(m.reduced, [&](const std::string& a) { return std::find(axes.begin(), axes.end(), a) != axes.end(); });
  m.varying = std::move(axes);
  return with_manual(std::move(m));
}

Type parts_type(Type type) {
  if (!is_complex(type.dtype())) return type;
  TypeData data = type.data();
  data.dtype = part_dtype(data.dtype);
  data.dims.push_back(2);
  if (!data.dim_axes.empty()) data.dim_axes.emplace_back();
  return Type(std::move(data));
}

std::string to_string(Type type) {
  const TypeData& t = type.data();
  std::string s = std::string(name(t.dtype)) + "[";
  for (std::size_t i = 0; i < t.dims.size(); ++i) {
    s += (i ? ", " : "") + std::to_string(t.dims[i]);
    if (!t.dim_axes.empty() && !t.dim_axes[i].empty()) s += "@" + axes_text(t.dim_axes[i]);
  }
  s += "]";
  if (!t.unreduced.empty()) {
    const char* kind = t.unreduced_kind == ReduceKind::sum   ? "sum"
                       : t.unreduced_kind == ReduceKind::max ? "max"
                                                             : "min";
    s += std::string("{") + kind + "@" + axes_text(t.unreduced) + "}";
  }
  if (!t.manual.varying.empty()) s += "{V@" + axes_text(t.manual.varying) + "}";
  if (!t.manual.unreduced.empty()) s += "{U@" + axes_text(t.manual.unreduced) + "}";
  if (!t.manual.reduced.empty()) s += "{R@" + axes_text(t.manual.reduced) + "}";
  if (t.space == MemorySpace::host) s += "<host>";
  return s;
}

}  // namespace sheaf::ir
