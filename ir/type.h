// The type of a value: dtype x logical dims x where each dim is split x what is still to be reduced x manual-axis
// sets x memory space. Types are interned, so equality is pointer equality and a type costs eight bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sheaf/dtype.h"
#include "sheaf/shape.h"

namespace sheaf::ir {

enum class ReduceKind : std::uint8_t { sum, prod, max, min, and_, or_ };
enum class MemorySpace : std::uint8_t { device, host };

using Axes = std::vector<std::string>;  // mesh axis names, major to minor

/// What a value is along manual axes (sheaf/along.h): the same on all devices but for the axes of these sets, which are
/// disjoint and sorted by name.
struct Manual {
  Axes varying = {};  // V: it may differ
  Axes unreduced = {};  // U: it is the sum of what the devices hold
  Axes reduced = {};  // R: its cotangent is unreduced
  bool operator==(const Manual&) const = default;
};

struct TypeData {
  DType dtype = DType::f32;
  Shape dims = {};  // logical extents
  std::vector<Axes> dim_axes = {};  // per dim, or empty when no dim is split
  Axes unreduced = {};  // axes over which the value is a partial result ...
  ReduceKind unreduced_kind = ReduceKind::sum;  // ... of this reduction (sum, max or min)
  Manual manual = {};
  MemorySpace space = MemorySpace::device;
  bool operator==(const TypeData&) const = default;
};

class Type {
 public:
  Type() = default;  // no type; only to be assigned to
  Type(DType dtype, Shape dims);  // NOLINT: the plain type reads as `Type{f32, {2, 3}}`
  explicit Type(TypeData data);

  DType dtype() const { return data_->dtype; }
  const Shape& dims() const { return data_->dims; }
  std::int64_t dim(int i) const { return data_->dims[i]; }
  int rank() const { return static_cast<int>(data_->dims.size()); }
  std::int64_t num_elements() const { return num_elements_; }
  std::int64_t bytes() const { return num_elements_ * size_bytes(data_->dtype); }
  const TypeData& data() const { return *data_; }

  Type with_dtype(DType dtype) const;
  Type with_dims(Shape dims) const;  // drops sharding, whose dims these were
  Type with_manual(Manual manual) const;
  Type with_varying(Axes axes) const;  // sorted by name; it is not reduced along them any more

  explicit operator bool() const { return data_ != nullptr; }
  const Manual& manual() const { return data_->manual; }
  const Axes& varying() const { return data_->manual.varying; }
  bool operator==(const Type& other) const { return data_ == other.data_; }
  template <typename H>
  friend H AbslHashValue(H h, const Type& t) {
    return H::combine(std::move(h), t.data_);
  }

 private:
  const TypeData* data_ = nullptr;
  std::int64_t num_elements_ = 0;
};

/// Reals that lie in memory as a complex type does: f32[n, 2] for c64[n]. Of other types, the type itself.
Type parts_type(Type type);

/// "f32[64@data, 512@(model, pod)]{sum@x}{V@i}{U@j}{R@k}<host>".
std::string to_string(Type type);

}  // namespace sheaf::ir
