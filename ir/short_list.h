// A list of plain small things, the first few of which lie in the list itself: the operands of most equations take no
// memory of their own. Otherwise it is as std::vector. (absl::InlinedVector would do, had not GCC 12 warned wherever one
// of plain things is moved, in files of users too.)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <utility>

namespace sheaf::ir {

template <class T, std::uint32_t few>
class ShortList {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  ShortList() = default;
  explicit ShortList(std::size_t count, const T& value = T()) { resize(count, value); }
  ShortList(std::initializer_list<T> list) : ShortList(list.begin(), list.end()) {}
  template <std::forward_iterator It>
  ShortList(It first, It last) {
    insert(end(), first, last);
  }
  ShortList(const ShortList& other) : ShortList(other.begin(), other.end()) {}
  ShortList(ShortList&& other) noexcept { take(other); }
  ShortList& operator=(const ShortList& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  ShortList& operator=(ShortList&& other) noexcept {
    if (this == &other) return *this;
    drop();
    take(other);
    return *this;
  }
  ~ShortList() { drop(); }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void reserve(std::size_t count) {
    if (count > capacity_) grow(count);
  }
  void push_back(T value) {
    if (size_ == capacity_) grow(size_ + 1);
    data_[size_++] = value;
  }
  template <class... A>
  T& emplace_back(A&&... args) {
    push_back(T(std::forward<A>(args)...));
    return back();
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  void resize(std::size_t count, T value = T()) {
    reserve(count);
    if (count > size_) std::fill(data_ + size_, data_ + count, value);
    size_ = static_cast<std::uint32_t>(count);
  }
  void assign(std::size_t count, T value) {
    clear();
    resize(count, value);
  }
  template <std::forward_iterator It>
  void assign(It first, It last) {
    clear();
    insert(end(), first, last);
  }
  T* insert(const T* at, T value) { return insert(at, &value, &value + 1); }
  /// Of things that are not in this list.
  template <std::forward_iterator It>
  T* insert(const T* at, It first, It last) {
    const auto place = at - data_, count = static_cast<std::ptrdiff_t>(std::distance(first, last));
    reserve(size_ + static_cast<std::size_t>(count));
    std::copy_backward(data_ + place, data_ + size_, data_ + size_ + count);
    std::copy(first, last, data_ + place);
    size_ += static_cast<std::uint32_t>(count);
    return data_ + place;
  }
  T* erase(const T* at) {
    T* const place = data_ + (at - data_);
    std::copy(place + 1, end(), place);
    --size_;
    return place;
  }

  friend bool operator==(const ShortList& a, const ShortList& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  template <typename H>
  friend H AbslHashValue(H h, const ShortList& list) {
    return H::combine(H::combine_contiguous(std::move(h), list.data_, list.size_), list.size_);
  }

 private:
  // Out of line, or compilers think of what the list would be had it not grown, and warn.
  [[gnu::noinline]] void grow(std::size_t count) {
    const std::size_t capacity = std::max<std::size_t>(count, 2 * capacity_);
    T* const more = new T[capacity];
    std::copy(begin(), end(), more);
    drop();
    data_ = more;
    capacity_ = static_cast<std::uint32_t>(capacity);
  }
  void drop() {
    if (data_ != few_) delete[] data_;
  }
  // After which the other is empty; what was here has been dropped.
  void take(ShortList& other) noexcept {
    std::copy(other.few_, other.few_ + few, few_);
    data_ = other.data_ == other.few_ ? few_ : std::exchange(other.data_, other.few_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, few);
  }

  T* data_ = few_;
  std::uint32_t size_ = 0, capacity_ = few;
  T few_[few] = {};
};

}  // namespace sheaf::ir
