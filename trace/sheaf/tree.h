// Pytrees: any aggregate, pair, tuple, array, vector, optional, variant or string-keyed map of Arrays, nested at will,
// is a tree of leaves with the user's field names as paths. Arrays are leaves; numbers, enums, strings and the sizes of
// containers are structure: static, compared by value, part of every key.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

#include "sheaf/array.h"
#include "sheaf/reflect.h"

namespace sheaf {
namespace detail {

template <class T>
inline constexpr bool is_variant = false;
template <class... T>
inline constexpr bool is_variant<std::variant<T...>> = true;

template <class T>
concept ArrayLeaf = std::same_as<T, Array>;
template <class T>
concept Number_ = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <class T>
concept FunctionPointer = std::is_pointer_v<T> && std::is_function_v<std::remove_pointer_t<T>>;
template <class T>
concept Text = std::same_as<T, std::string> || std::same_as<T, std::string_view> || std::same_as<T, const char*>;
template <class T>
concept OptionalLike = requires(T& t) {
  t.has_value();
  t.reset();
  *t;
};
template <class T>
concept MapLike = requires(T& t) {
  typename T::key_type;
  typename T::mapped_type;
  t.begin();
  t.size();
};
template <class T>
concept SequenceLike = requires(T& t) {
  typename T::value_type;
  t.begin();
  t.size();
  t.push_back(std::declval<typename T::value_type>());
};
template <class T>
concept TupleLike = requires { std::tuple_size<T>::value; };
template <class T>
concept WithFields = requires(T& t) { tree_fields(t); };

template <class T, class V>
void visit_value(const T& t, V& v) {
  if constexpr (requires { v.value(t); }) {
    v.value(t);
  } else if constexpr (Text<T>) {
    const std::string_view s(t);
    const std::size_t n = s.size();
    v.bytes(&n, sizeof n);
    v.bytes(s.data(), n);
  } else {
    v.bytes(&t, sizeof t);
  }
}
/// Calls the visitor for every part of the tree, in declaration order:
///   leaf(Array&), bytes(const void*, size) for what is static, enter(name, index) and leave() around children.
/// A visitor that has value(x) gets static numbers, texts and functions by it, and by bytes only the sizes of
/// containers and which alternative a variant holds.
template <class T, class V>
void walk(T& t, V& v) {
  using U = std::remove_const_t<T>;
  if constexpr (ArrayLeaf<U>) {
    v.leaf(t);
  } else if constexpr (Number_<U> || FunctionPointer<U> || Text<U>) {
    visit_value(t, v);
  } else if constexpr (std::same_as<U, Number>) {
    const std::size_t which = 2 * static_cast<std::size_t>(t.kind()) + t.is_above_i64();
    v.bytes(&which, sizeof which);
    if (t.kind() == Number::Kind::floating) visit_value(t.as_double(), v);
    else visit_value(t.as_int(), v);
  } else if constexpr (std::is_empty_v<U>) {
    // none, a stateless lambda: its type says it all
  } else if constexpr (is_variant<U>) {
    const std::size_t which = t.index();
    v.bytes(&which, sizeof which);
    std::visit([&](auto& e) { walk(e, v); }, t);
  } else if constexpr (OptionalLike<U>) {
    const bool has = t.has_value();
    v.bytes(&has, sizeof has);
    if (has) walk(*t, v);
  } else if constexpr (MapLike<U>) {
    const std::size_t n = t.size();
    v.bytes(&n, sizeof n);
    for (auto& [key, value] : t) {
      walk(key, v);
      if constexpr (Text<std::remove_cvref_t<decltype(key)>>) v.enter(std::string_view(key), 0);
      else v.enter(std::string_view(), static_cast<std::size_t>(key));
      walk(value, v);
      v.leave();
    }
  } else if constexpr (SequenceLike<U>) {
    const std::size_t n = t.size();
    v.bytes(&n, sizeof n);
    if constexpr (std::same_as<typename U::value_type, bool>) {
      for (const bool b : t) visit_value(b, v);
    } else {
      std::size_t i = 0;
      for (auto& e : t) {
        v.enter(std::string_view(), i++);
        walk(e, v);
        v.leave();
      }
    }
  } else if constexpr (TupleLike<U>) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((v.enter(std::string_view(), I), walk(std::get<I>(t), v), v.leave()), ...);
    }(std::make_index_sequence<std::tuple_size_v<U>>{});
  } else if constexpr (WithFields<U>) {
    auto fields = tree_fields(t);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((v.enter(std::string_view(), I), walk(std::get<I>(fields), v), v.leave()), ...);
    }(std::make_index_sequence<std::tuple_size_v<decltype(fields)>>{});
  } else if constexpr (std::is_aggregate_v<U> && !std::is_array_v<U>) {
    auto fields = reflect::tie(t);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((v.enter(reflect::field_names<U>[I], 0), walk(std::get<I>(fields), v), v.leave()), ...);
    }(std::make_index_sequence<reflect::field_count<U>>{});
  } else {
    static_assert(std::is_empty_v<U>,
                  "not a tree: use Array, numbers, strings, standard containers and aggregates of them, or give the "
                  "class a friend function `auto tree_fields(T& t) { return std::tie(t.a, t.b); }`");
  }
}

/// A growing list with room for a few elements in place, so that a call of a small function allocates nothing.
template <class T, std::size_t N>
class SmallList {
 public:
  SmallList() = default;
  SmallList(const SmallList&) = delete;
  SmallList& operator=(const SmallList&) = delete;
  void push_back(T v) {
    if (size_ < N) {
      here_[size_++] = std::move(v);
      return;
    }
    if (size_ == N) more_.assign(here_.begin(), here_.end());
    more_.push_back(std::move(v));
    ++size_;
  }
  std::span<const T> span() const {
    return size_ <= N ? std::span<const T>(here_.data(), size_) : std::span<const T>(more_);
  }
  std::size_t size() const { return size_; }

 private:
  std::array<T, N> here_;
  std::vector<T> more_;
  std::size_t size_ = 0;
};

/// Of a call's result.
using Leaves = SmallList<Array, 4>;

struct Quiet {
  void enter(std::string_view, std::size_t) {}
  void leave() {}
  void bytes(const void*, std::size_t) {}
};

/// Leaves and static bytes of a tree; the hot path of every call.
struct Flat {
  SmallList<const Array*, 24> leaves;
  std::string statics;
  void leaf(const Array& a) { leaves.push_back(&a); }
  void bytes(const void* p, std::size_t n) { statics.append(static_cast<const char*>(p), n); }
  void enter(std::string_view, std::size_t) {}
  void leave() {}
};

/// Puts new leaves into a tree, in order; those it has no new ones for stay. `next` counts its leaves.
struct Fill : Quiet {
  std::span<const Array> from;
  std::size_t next = 0;
  explicit Fill(std::span<const Array> leaves) : from(leaves) {}
  void leaf(Array& a) {
    if (next < from.size()) a = from[next];
    ++next;
  }
};

/// Paths of the leaves: ".out.W", "[2]".
struct Paths {
  std::vector<std::string> leaves;
  std::string path;
  std::vector<std::size_t> lengths;
  void enter(std::string_view name, std::size_t index) {
    lengths.push_back(path.size());
    if (name.empty()) path.append("[").append(std::to_string(index)).append("]");
    else path.append(".").append(name);
  }
  void leave() {
    path.resize(lengths.back());
    lengths.pop_back();
  }
  void leaf(const Array&) { leaves.push_back(path); }
  void bytes(const void*, std::size_t) {}
};

template <class T>
std::vector<std::string> paths_of(const T& tree) {
  Paths p;
  walk(tree, p);
  return std::move(p.leaves);
}

std::string value_text(bool v);
std::string value_text(double v);
std::string value_text(float v);
std::string value_text(long long v);
std::string value_text(unsigned long long v);
std::string value_text(std::string_view v);
std::string value_text(const void* function);

/// What is static in a tree, as text: "3", or ".times = 3, .names has 1, .names[0] = "a"".
struct StaticTexts : Paths {
  std::string text;
  void add(const std::string& value);
  void add_size(std::size_t size);
  template <class T>
  void value(const T& v) {
    if constexpr (std::same_as<T, bool>) add(value_text(v));
    else if constexpr (std::floating_point<T>)
      add(value_text(static_cast<std::conditional_t<std::same_as<T, float>, float, double>>(v)));
    else if constexpr (std::is_enum_v<T> || std::signed_integral<T>) add(value_text(static_cast<long long>(v)));
    else if constexpr (std::unsigned_integral<T>) add(value_text(static_cast<unsigned long long>(v)));
    else if constexpr (Text<T>) add(value_text(std::string_view(v)));
    else add(value_text(reinterpret_cast<const void*>(v)));
  }
  void leaf(const Array&) {}
  void bytes(const void* p, std::size_t n) {
    std::size_t size = 0;
    std::memcpy(&size, p, std::min(n, sizeof size));
    add_size(size);
  }
};

/// What a call with static arguments was called with, as text.
template <class T>
std::string static_text(const T& v) {
  if constexpr (ArrayLeaf<T>) return type_text(v);
  StaticTexts texts;
  walk(v, texts);
  return std::move(texts.text);
}

/// Throws TypeError unless both counts of leaves are the same: "Adam: 1 leaf in the gradients and 2 in the
/// parameters".
void check_leaves(const char* who, std::size_t count, const std::string& where, std::size_t expected,
                  const std::string& as_in, Loc loc);

}  // namespace detail

/// Leaves of a tree, in declaration order.
template <class T>
std::vector<Array> tree_leaves(const T& tree) {
  detail::Flat flat;
  detail::walk(tree, flat);
  std::vector<Array> out;
  for (const Array* a : flat.leaves.span()) out.push_back(*a);
  return out;
}

/// Their paths: ".out.W", "[2]".
template <class T>
std::vector<std::string> tree_paths(const T& tree) {
  return detail::paths_of(tree);
}

/// The tree with other leaves. Throws TypeError unless there are as many as it has.
template <class T>
T tree_with_leaves(T tree, std::span<const Array> leaves, Loc loc = Loc::current()) {
  detail::Fill fill(leaves);
  detail::walk(tree, fill);
  detail::check_leaves("tree_with_leaves", leaves.size(), "the list", fill.next, "the tree", loc);
  return tree;
}

/// A tree of f(leaf, corresponding leaves of the rest...). Throws TypeError unless all have as many leaves.
template <class F, class T, class... R>
T tree_map(F f, const T& tree, const R&... rest) {
  detail::Flat flat;
  detail::walk(tree, flat);
  std::array<detail::Flat, sizeof...(R)> others;
  std::size_t k = 0;
  ((detail::walk(rest, others[k++])), ...);
  for (k = 0; k < sizeof...(R); ++k)
    detail::check_leaves("tree_map", others[k].leaves.size(), "tree " + std::to_string(k + 1), flat.leaves.size(),
                         "tree 0", Loc{});
  std::vector<Array> leaves;
  for (std::size_t i = 0; i < flat.leaves.size(); ++i) {
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      leaves.push_back(f(*flat.leaves.span()[i], *others[K].leaves.span()[i]...));
    }(std::make_index_sequence<sizeof...(R)>{});
  }
  return tree_with_leaves(tree, leaves);
}

/// Whether two arrays or trees have the same structure, dtypes, shapes and elements (NaN equals nothing).
template <class T>
bool same(const T& a, const T& b);

namespace detail {
bool same_leaf(const Array& a, const Array& b);
}
template <class T>
bool same(const T& a, const T& b) {
  detail::Flat fa, fb;
  detail::walk(a, fa);
  detail::walk(b, fb);
  if (fa.statics != fb.statics || fa.leaves.size() != fb.leaves.size()) return false;
  for (std::size_t i = 0; i < fa.leaves.size(); ++i)
    if (!detail::same_leaf(*fa.leaves.span()[i], *fb.leaves.span()[i])) return false;
  return true;
}

}  // namespace sheaf
