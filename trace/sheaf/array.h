// `Array`: the one array type. A handle, cheap to copy, to an immutable n-dimensional value that is either concrete (it
// has bytes) or traced (a name for a value in a program being written down by jit, grad, vmap or another transform).
// Operators and functions never change an Array: `p -= g` makes a new value and rebinds `p`.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "sheaf/dtype.h"
#include "sheaf/error.h"
#include "sheaf/shape.h"
#include "sheaf/source.h"

namespace sheaf {

/// C++ numbers and bool. Characters and pointers are no numbers.
template <class T>
concept Scalar = std::is_arithmetic_v<T> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
                 !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

/// std::complex<float> and <double>, recognised by what they can do, so that <complex> need not be included.
template <class T>
concept ComplexScalar =
    requires(T z) {
      typename T::value_type;
      { z.real() } -> std::same_as<typename T::value_type>;
      { z.imag() } -> std::same_as<typename T::value_type>;
    } && (std::same_as<typename T::value_type, float> || std::same_as<typename T::value_type, double>) &&
    sizeof(T) == 2 * sizeof(typename T::value_type);

/// What elements are read as, and made from.
template <class T>
concept Element = Scalar<T> || ComplexScalar<T>;

/// Stands for "nothing": an argument that is not mapped, an open end of a slice, an empty tree.
struct None {
  bool operator==(const None&) const = default;
};
inline constexpr None none;

/// The dtype of a C++ element type: float -> f32, double -> f64, int -> i32, bool -> bool, complex<float> -> c64.
template <Element T>
constexpr DType dtype_of() {
  if constexpr (ComplexScalar<T>) return sizeof(T) == 8 ? c64 : c128;
  else if constexpr (std::same_as<T, bool>) return bool_;
  else if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? f32 : f64;
  else if constexpr (std::is_signed_v<T>)
    return sizeof(T) == 1 ? i8 : sizeof(T) == 2 ? i16 : sizeof(T) == 4 ? i32 : i64;
  else return sizeof(T) == 1 ? u8 : sizeof(T) == 2 ? u16 : sizeof(T) == 4 ? u32 : u64;
}

class Array;
struct ArrayNode;  // what the handle holds; the library's own
struct NamedSharding;  // sheaf/mesh.h
struct Shard;  // sheaf/sharding.h

/// A C++ number on its way into an operation. It is weak: it takes the dtype of the arrays it meets (`2.0 * x` is bf16
/// where x is; an integer stays integer among integers, and must fit there), and alone it is f32, i32 or bool.
class Number {
 public:
  enum class Kind : std::uint8_t { boolean, integer, floating };
  template <Scalar T>
  constexpr Number(T v)  // NOLINT: implicit on purpose
      : kind_(std::same_as<T, bool>         ? Kind::boolean
              : std::is_floating_point_v<T> ? Kind::floating
                                            : Kind::integer) {
    if constexpr (std::is_floating_point_v<T>) {
      floating_ = static_cast<double>(v);
    } else {
      integer_ = static_cast<std::int64_t>(v);
      is_above_i64_ = v > T{0} && integer_ < 0;
    }
  }
  constexpr Kind kind() const { return kind_; }
  constexpr double as_double() const {
    if (kind_ == Kind::floating) return floating_;
    return is_above_i64_ ? static_cast<double>(static_cast<std::uint64_t>(integer_)) : static_cast<double>(integer_);
  }
  /// The low 64 bits of an integer.
  constexpr std::int64_t as_int() const {
    return kind_ == Kind::floating ? static_cast<std::int64_t>(floating_) : integer_;
  }
  /// An integer too large for i64; u64 holds it.
  constexpr bool is_above_i64() const { return is_above_i64_; }
  /// f32, i32 (i64 or u64 where the value needs it) or bool.
  DType dtype() const;

 private:
  union {
    double floating_;
    std::int64_t integer_;
  };
  Kind kind_;
  bool is_above_i64_ = false;
};

/// An argument of an operation: an Array or a number, and the user's line. Made implicitly; never stored.
class Operand {
 public:
  Operand(const Array& array, Loc loc = Loc::current()) : array_(&array), number_(0), loc_(loc) {}  // NOLINT
  template <Scalar T>
  Operand(T value, Loc loc = Loc::current()) : number_(value), loc_(loc) {}  // NOLINT
  Operand(Number value, Loc loc = Loc::current()) : number_(value), loc_(loc) {}  // NOLINT

  const Array* array() const { return array_; }  // null: a number
  Number number() const { return number_; }
  Loc loc() const { return loc_; }

  // Read as the Array it would be.
  Shape shape() const;
  DType dtype() const;
  int rank() const;

 private:
  const Array* array_ = nullptr;
  Number number_;
  Loc loc_;
};

/// One end of a slice; `none` leaves it open.
struct Bound {
  Bound(None) {}  // NOLINT
  Bound(std::integral auto v) : value(v) {}  // NOLINT
  std::optional<std::int64_t> value;
};

/// start, stop and step of a slice, as in NumPy: negative positions count from the end, a negative step runs backwards.
struct Slice {
  Bound start = none, stop = none;
  std::int64_t step = 1;
};
inline Slice slice() { return {}; }  // the whole axis
inline Slice slice(Bound stop) { return {none, stop, 1}; }
inline Slice slice(Bound start, Bound stop, std::int64_t step = 1) { return {start, stop, step}; }

struct NewAxis {};
struct Ellipsis {};
inline constexpr NewAxis newaxis;
inline constexpr Ellipsis ellipsis;

struct Index;
class At;

class Array {
 public:
  Array() = default;  // no value: any use throws TypeError
  /// A weak rank-0 number.
  template <Scalar T>
  Array(T value, Loc loc = Loc::current()) : Array(Number(value), loc) {}  // NOLINT
  Array(Number value, Loc loc = Loc::current());  // NOLINT
  Array(const Array&) = default;
  Array(Array&&) noexcept = default;
  ~Array() = default;
  Array& operator=(const Array&) & = default;
  Array& operator=(Array&&) & noexcept = default;
  // x[0] = v would rebind what nobody holds: x.at(0).set(v) is x with it.
  void operator=(const Array&) && = delete;

  const Shape& shape() const;
  DType dtype() const;
  int rank() const;
  std::int64_t size() const;  // number of elements
  std::int64_t shape(int dim) const;  // negative dims count from the end
  bool is_traced() const;
  bool has_value() const { return node_ != nullptr; }
  /// The line that made it.
  Loc made_at() const;

  /// The only element, converted to T. Throws ShapeError unless size() is 1, TracedBoolError while tracing, TypeError
  /// where one of T and the dtype is complex and the other is not.
  template <Element T>
  T item(Loc loc = Loc::current()) const {
    T v{};
    read(dtype_of<T>(), &v, 1, true, loc);
    return v;
  }
  /// All elements in row-major order, converted to T (floats to integers saturate).
  template <Element T>
  std::vector<T> to_vector(Loc loc = Loc::current()) const {
    const auto n = static_cast<std::size_t>(size());
    if constexpr (std::same_as<T, bool>) {
      const std::unique_ptr<bool[]> v(new bool[n + 1]);
      read(bool_, v.get(), static_cast<std::int64_t>(n), false, loc);
      return std::vector<bool>(v.get(), v.get() + n);
    } else {
      std::vector<T> v(n);
      read(dtype_of<T>(), v.data(), static_cast<std::int64_t>(n), false, loc);
      return v;
    }
  }
  /// Whether the only element is not zero; for `if`. Throws TracedBoolError while tracing: use where().
  explicit operator bool() const;
  /// Waits until the value has been computed, and throws the error of the computation if it failed.
  const Array& wait(Loc loc = Loc::current()) const;

  /// Where it lies (sheaf/sharding.h); of one device, a mesh without axes. Throws TypeError while tracing, when that is
  /// not known.
  NamedSharding sharding(Loc loc = Loc::current()) const;
  /// The parts that devices of this process hold, in the order of the mesh.
  std::vector<Shard> addressable_shards(Loc loc = Loc::current()) const;
  bool is_fully_replicated(Loc loc = Loc::current()) const;  // every device holds the whole
  bool is_fully_addressable(Loc loc = Loc::current()) const;

  /// x[i], x(i, slice(1, none), newaxis, ellipsis, indices): NumPy's indexing. Integer arrays gather; out-of-range
  /// positions in them are clamped (x.at(..).get() takes other modes), fixed ones throw ShapeError.
  // Not a variadic template: the conversion to Index has to happen in the user's line.
  Array operator[](const Index& i) const;
  Array operator()(const Index& i) const;
  Array operator()(const Index& i, const Index& j) const;
  Array operator()(const Index& i, const Index& j, const Index& k) const;
  Array operator()(const Index& i, const Index& j, const Index& k, const Index& l) const;
  Array operator()(const Index& i, const Index& j, const Index& k, const Index& l, const Index& m) const;
  Array operator()(const Index& i, const Index& j, const Index& k, const Index& l, const Index& m,
                   const Index& n) const;
  /// x.at(i).set(v): a copy of x with the indexed elements replaced; also add, mul, min, max, get.
  At at(const Index& i) const;
  At at(const Index& i, const Index& j) const;
  At at(const Index& i, const Index& j, const Index& k) const;
  At at(const Index& i, const Index& j, const Index& k, const Index& l) const;
  At at(const Index& i, const Index& j, const Index& k, const Index& l, const Index& m) const;
  At at(const Index& i, const Index& j, const Index& k, const Index& l, const Index& m, const Index& n) const;

  Array astype(DType dtype, Loc loc = Loc::current()) const;
  Array reshape(const Shape& shape, Loc loc = Loc::current()) const;

  friend Array operator+(Operand, Operand);
  friend Array operator-(Operand, Operand);
  friend Array operator*(Operand, Operand);
  /// True division of floats; integers truncate, as in C++.
  friend Array operator/(Operand, Operand);
  /// The remainder with the dividend's sign, as in C++. See `mod` for the other one.
  friend Array operator%(Operand, Operand);
  friend Array operator-(Operand);
  friend Array operator+(Operand);
  friend Array operator!(const Array& x);  // true where zero
  friend Array operator~(Operand);
  friend Array operator&(Operand, Operand);
  friend Array operator|(Operand, Operand);
  friend Array operator^(Operand, Operand);
  friend Array operator<<(Operand, Operand);
  friend Array operator>>(Operand, Operand);  // keeps the sign of signed integers
  friend Array operator==(Operand, Operand);  // elementwise, as all comparisons
  friend Array operator!=(Operand, Operand);
  friend Array operator<(Operand, Operand);
  friend Array operator<=(Operand, Operand);
  friend Array operator>(Operand, Operand);
  friend Array operator>=(Operand, Operand);
  Array& operator+=(Operand) &;
  Array& operator-=(Operand) &;
  Array& operator*=(Operand) &;
  Array& operator/=(Operand) &;
  Array& operator%=(Operand) &;
  Array& operator&=(Operand) &;
  Array& operator|=(Operand) &;
  Array& operator^=(Operand) &;
  Array& operator<<=(Operand) &;
  Array& operator>>=(Operand) &;

  // For the library.
  explicit Array(std::shared_ptr<const ArrayNode> node) : node_(std::move(node)) {}
  const std::shared_ptr<const ArrayNode>& node() const { return node_; }

 private:
  void read(DType as, void* to, std::int64_t count, bool one, Loc loc) const;
  Array index(std::initializer_list<Index> index) const;

  std::shared_ptr<const ArrayNode> node_;
};

/// One position of an indexing expression.
struct Index {
  enum class Kind : std::uint8_t { position, range, new_axis, rest, list };
  template <std::integral T>
  Index(T v, Loc at = Loc::current()) : kind(Kind::position), position(v), loc(at) {}  // NOLINT
  Index(Slice s, Loc at = Loc::current()) : kind(Kind::range), range(s), loc(at) {}  // NOLINT
  Index(NewAxis, Loc at = Loc::current()) : kind(Kind::new_axis), loc(at) {}  // NOLINT
  Index(Ellipsis, Loc at = Loc::current()) : kind(Kind::rest), loc(at) {}  // NOLINT
  Index(const Array& a, Loc at = Loc::current()) : kind(Kind::list), list(a), loc(at) {}  // NOLINT

  Kind kind;
  std::int64_t position = 0;
  Slice range = {};
  Array list = {};
  Loc loc;
};

/// What a position of an index array means that is out of range after negative ones were counted from the end:
///   clip     the nearest one in range, which is read or written, and gets the gradient
///   fill     reads give a fill value and writes are dropped; no gradient
///   promise  does not occur: then what is read or written is unspecified, but lies in the array
enum class OutOfRange : std::uint8_t { clip, fill, promise };
struct Indexing {
  using IsLeftOut = void;
  std::optional<OutOfRange> mode = {};  // none: reads clip, writes fill
  std::optional<Number> fill = {};  // what reads give in mode fill; none: NaN, the lowest integer, the largest unsigned
  // Promises of a write about the places themselves, after negative positions were counted from the end and, in mode
  // clip, moved inside; reads need none. SHEAF_DEBUG_INDEX=1 finds those that do not hold.
  bool unique = false;  // no place is written twice: derivatives are cheaper
  bool sorted = false;  // the places ascend in row-major order: so is that of mul
  // Of a write, and of the gradient of a read. False: a GPU may combine what meets in one place in any order, which is
  // quicker, and gives sums of floats that differ from run to run. set keeps the last all the same.
  bool deterministic = true;
};

/// What x.at(...) gives: an indexed place, to be read or replaced in a copy.
class At {
 public:
  At(Array x, std::vector<Index> index) : x_(std::move(x)), index_(std::move(index)) {}
  Array get(const Indexing& options = {}, Loc loc = Loc::current()) const;
  Array set(Operand v, const Indexing& options = {}) const;  // repeated positions of an index array: the last one stays
  Array add(Operand v, const Indexing& options = {}) const;  // ... here they add up
  Array mul(Operand v, const Indexing& options = {}) const;
  Array min(Operand v, const Indexing& options = {}) const;
  Array max(Operand v, const Indexing& options = {}) const;
  /// f of what is there, put back: once for a place, however often it is listed.
  template <class F>
  Array apply(F f, const Indexing& options = {}, Loc loc = Loc::current()) const {
    const Array old = get(options, loc);
    return set(Operand(f(old), loc), options);
  }

 private:
  Array x_;
  std::vector<Index> index_;
};

inline Array Array::operator[](const Index& i) const { return index({i}); }
inline Array Array::operator()(const Index& i) const { return index({i}); }
inline Array Array::operator()(const Index& i, const Index& j) const { return index({i, j}); }
inline Array Array::operator()(const Index& i, const Index& j, const Index& k) const { return index({i, j, k}); }
inline Array Array::operator()(const Index& i, const Index& j, const Index& k, const Index& l) const {
  return index({i, j, k, l});
}
inline Array Array::operator()(const Index& i, const Index& j, const Index& k, const Index& l, const Index& m) const {
  return index({i, j, k, l, m});
}
inline Array Array::operator()(const Index& i, const Index& j, const Index& k, const Index& l, const Index& m,
                               const Index& n) const {
  return index({i, j, k, l, m, n});
}
inline At Array::at(const Index& i) const { return {*this, {i}}; }
inline At Array::at(const Index& i, const Index& j) const { return {*this, {i, j}}; }
inline At Array::at(const Index& i, const Index& j, const Index& k) const { return {*this, {i, j, k}}; }
inline At Array::at(const Index& i, const Index& j, const Index& k, const Index& l) const {
  return {*this, {i, j, k, l}};
}
inline At Array::at(const Index& i, const Index& j, const Index& k, const Index& l, const Index& m) const {
  return {*this, {i, j, k, l, m}};
}
inline At Array::at(const Index& i, const Index& j, const Index& k, const Index& l, const Index& m,
                    const Index& n) const {
  return {*this, {i, j, k, l, m, n}};
}

/// An array of the given elements, row-major; lists of literals take the default dtypes f32, i32 (i64 or u64 where an
/// element needs it) and bool.
template <Element T>
Array array(std::initializer_list<T> values, std::optional<DType> dtype = {}, Loc loc = Loc::current());
template <Element T>
Array array(std::initializer_list<std::initializer_list<T>> values, std::optional<DType> dtype = {},
            Loc loc = Loc::current());
template <Element T>
Array array(std::initializer_list<std::initializer_list<std::initializer_list<T>>> values,
            std::optional<DType> dtype = {}, Loc loc = Loc::current());
/// Lists that mix kinds of numbers: f32 if one is a float.
Array array(std::initializer_list<Number> values, std::optional<DType> dtype = {}, Loc loc = Loc::current());
Array array(std::initializer_list<std::initializer_list<Number>> values, std::optional<DType> dtype = {},
            Loc loc = Loc::current());
/// From a contiguous container, whose element type gives the dtype. Without a shape: rank 1.
template <Element T>
Array array(const std::vector<T>& values, std::optional<Shape> shape = {}, std::optional<DType> dtype = {},
            Loc loc = Loc::current());
template <Element T>
Array array(std::span<const T> values, std::optional<Shape> shape = {}, std::optional<DType> dtype = {},
            Loc loc = Loc::current());
/// array(v, {rows, columns}); {} is no shape.
template <Element T>
Array array(const std::vector<T>& values, std::initializer_list<std::int64_t> shape, std::optional<DType> dtype = {},
            Loc loc = Loc::current()) {
  return array(values, shape.size() > 0 ? std::optional(Shape(shape)) : std::nullopt, dtype, loc);
}
template <Element T>
Array array(std::span<const T> values, std::initializer_list<std::int64_t> shape, std::optional<DType> dtype = {},
            Loc loc = Loc::current()) {
  return array(values, shape.size() > 0 ? std::optional(Shape(shape)) : std::nullopt, dtype, loc);
}

/// "f32[64, 784]".
std::string type_text(const Array& x);

namespace detail {

/// The elements at `data` (`from` says their type), converted to `to`.
Array from_host(const void* data, DType from, const Shape& shape, DType to, Loc loc);
[[noreturn]] void ragged_list(Loc loc);

/// What the largest of the literals is alone.
template <class T, class Range>
DType list_dtype([[maybe_unused]] const Range& values) {
  if constexpr (ComplexScalar<T>) {
    return dtype_of<T>();
  } else {
    DType dtype = std::same_as<T, bool> ? bool_ : std::is_floating_point_v<T> ? f32 : i32;
    for (const T v : values) {
      const Number n(v);
      if (n.is_above_i64() || size_bytes(n.dtype()) > size_bytes(dtype)) dtype = n.dtype();
    }
    return dtype;
  }
}

// std::vector<bool> packs its elements.
template <Element T, class Range>
Array from_range(const Range& values, const Shape& shape, DType to, Loc loc) {
  const std::unique_ptr<T[]> copy(new T[values.size() + 1]);
  std::size_t i = 0;
  for (T v : values) copy[i++] = v;
  return from_host(copy.get(), dtype_of<T>(), shape, to, loc);
}

}  // namespace detail

template <Element T>
Array array(std::initializer_list<T> values, std::optional<DType> dtype, Loc loc) {
  return detail::from_range<T>(values, {static_cast<std::int64_t>(values.size())},
                               dtype.value_or(detail::list_dtype<T>(values)), loc);
}

template <Element T>
Array array(std::initializer_list<std::initializer_list<T>> values, std::optional<DType> dtype, Loc loc) {
  std::vector<T> flat;
  const std::size_t inner = values.size() ? values.begin()->size() : 0;
  for (const auto& row : values) {
    if (row.size() != inner) detail::ragged_list(loc);
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return detail::from_range<T>(flat, {static_cast<std::int64_t>(values.size()), static_cast<std::int64_t>(inner)},
                               dtype.value_or(detail::list_dtype<T>(flat)), loc);
}

template <Element T>
Array array(std::initializer_list<std::initializer_list<std::initializer_list<T>>> values, std::optional<DType> dtype,
            Loc loc) {
  std::vector<T> flat;
  const std::size_t middle = values.size() ? values.begin()->size() : 0;
  const std::size_t inner = middle ? values.begin()->begin()->size() : 0;
  for (const auto& plane : values) {
    if (plane.size() != middle) detail::ragged_list(loc);
    for (const auto& row : plane) {
      if (row.size() != inner) detail::ragged_list(loc);
      flat.insert(flat.end(), row.begin(), row.end());
    }
  }
  const Shape shape{static_cast<std::int64_t>(values.size()), static_cast<std::int64_t>(middle),
                    static_cast<std::int64_t>(inner)};
  return detail::from_range<T>(flat, shape, dtype.value_or(detail::list_dtype<T>(flat)), loc);
}

template <Element T>
Array array(std::span<const T> values, std::optional<Shape> shape, std::optional<DType> dtype, Loc loc) {
  const Shape dims = shape ? *shape : Shape{static_cast<std::int64_t>(values.size())};
  if (num_elements(dims) != static_cast<std::int64_t>(values.size()))
    throw ShapeError(loc,
                     "array: " + std::to_string(values.size()) + " values do not fill the shape " + to_string(dims));
  return detail::from_host(values.data(), dtype_of<T>(), dims, dtype.value_or(dtype_of<T>()), loc);
}

template <Element T>
Array array(const std::vector<T>& values, std::optional<Shape> shape, std::optional<DType> dtype, Loc loc) {
  if constexpr (std::same_as<T, bool>) {
    const std::unique_ptr<bool[]> copy(new bool[values.size() + 1]);
    for (std::size_t i = 0; i < values.size(); ++i) copy[i] = values[i];
    return array(std::span<const bool>(copy.get(), values.size()), std::move(shape), dtype, loc);
  } else {
    return array(std::span<const T>(values), std::move(shape), dtype, loc);
  }
}

}  // namespace sheaf
