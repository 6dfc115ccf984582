// Interning and printing of types. The table lives for the whole process and is never shrunk: a program has few
// distinct types, and handing out stable pointers is what makes comparison free.
#include "ir/type.h"

#include <absl/container/node_hash_set.h>
#include <absl/hash/hash.h>

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
                        t.varying, t.reduced, static_cast<int>(t.space));
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
  return Type(TypeData{.dtype = dtype(),
                       .dims = std::move(dims),
                       .varying = data_->varying,
                       .reduced = data_->reduced,
                       .space = data_->space});
}

Type Type::with_varying(Axes axes) const {
  if (axes == data_->varying) return *this;
  TypeData data = *data_;
  data.varying = std::move(axes);
  return Type(std::move(data));
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
  if (!t.varying.empty()) s += "{V@" + axes_text(t.varying) + "}";
  if (!t.reduced.empty()) s += "{R@" + axes_text(t.reduced) + "}";
  if (t.space == MemorySpace::host) s += "<host>";
  return s;
}

}  // namespace sheaf::ir
