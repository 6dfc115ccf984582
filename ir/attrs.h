// Attributes of ops: plain structs whose print, parse, ==, hash and clone come from reflection. Fields that speak
// about tensor dims have types that say so, because batching and partitioning rewrite them by kind alone
// (docs/design-notes.md); the kinds are a closed set.
#pragma once

#include <absl/hash/hash.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <charconv>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/type.h"
#include "sheaf/along.h"
#include "sheaf/reflect.h"

namespace sheaf::ir {

// Which tensor a dim belongs to: operand k is k, result k is out(k).
constexpr int in(int k) { return k; }
constexpr int out(int k) { return -1 - k; }

/// The entry of a per-dim field that leaves a dim of the given size alone.
enum class Neutral : std::uint8_t { size, zero, one };
constexpr std::int64_t neutral_value(Neutral n, std::int64_t size) {
  return n == Neutral::size ? size : n == Neutral::one ? 1 : 0;
}

struct Ints : std::vector<std::int64_t> {
  using std::vector<std::int64_t>::vector;
  Ints(std::vector<std::int64_t> v) : std::vector<std::int64_t>(std::move(v)) {}  // NOLINT: a list is a list
};

/// A list of dims of one tensor. `sorted` lists stay ascending (gather offsets, scatter windows).
template <int Of, bool Sorted = false>
struct Dims : Ints {
  using Ints::Ints;
};
/// One entry per dim of one tensor.
template <int Of, Neutral N>
struct PerDim : Ints {
  using Ints::Ints;
};
/// One entry per dim of `From`, each a dim of `To`.
template <int From, int To>
struct DimMap : Ints {
  using Ints::Ints;
};

enum class FieldKind : std::uint8_t { plain, dims, sorted_dims, per_dim, dim_map };

/// A field as the generic rules see it; `values` is null for plain fields.
struct Field {
  std::string_view name;
  FieldKind kind = FieldKind::plain;
  int of = 0, to = 0;
  Neutral neutral = Neutral::zero;
  std::vector<std::int64_t>* values = nullptr;
};

/// A parsed attribute value: word, number, quoted string or list.
struct AttrText {
  bool is_list = false;
  std::string word;
  std::vector<AttrText> items;
};

struct AttrsDef {
  std::shared_ptr<void> (*make)() = nullptr;
  std::shared_ptr<void> (*clone)(const void*) = nullptr;
  std::string (*print)(const void*) = nullptr;  // "{dims=[1], ...}", or "" when every field has its default
  absl::Status (*parse)(void*, std::string_view field, const AttrText&) = nullptr;
  bool (*equal)(const void*, const void*) = nullptr;
  std::size_t (*hash)(const void*) = nullptr;
  void (*visit)(void*, const std::function<void(const Field&)>&) = nullptr;
  const void* (*tag)() = nullptr;  // identity of the C++ type, for checked access
};

// Enums as attributes: specialise with the words in declaration order.
template <class E>
inline constexpr std::span<const std::string_view> enum_words = {};
inline constexpr std::string_view kReduceKindWords[] = {"sum", "prod", "max", "min", "and", "or"};
template <>
inline constexpr std::span<const std::string_view> enum_words<ReduceKind> = kReduceKindWords;

inline constexpr std::string_view kAlongWords[] = {"invarying", "varying", "unreduced", "reduced"};
template <>
inline constexpr std::span<const std::string_view> enum_words<Along> = kAlongWords;

namespace attr_text {

template <class T>
concept IntList = std::derived_from<T, std::vector<std::int64_t>> || std::same_as<T, std::vector<std::int64_t>>;

std::string quote(std::string_view s);
std::string print_double(double v);
absl::Status bad(std::string_view field, const AttrText& text, std::string_view wanted);
absl::Status parse_ints(std::string_view field, const AttrText& text, std::vector<std::int64_t>& out);
/// "one of add, set, min".
std::string one_of(std::span<const std::string_view> words);

template <class T>
std::string print_value(const T& v) {
  if constexpr (IntList<T>) {
    return sheaf::to_string(static_cast<const std::vector<std::int64_t>&>(v));
  } else if constexpr (std::same_as<T, bool>) {
    return v ? "true" : "false";
  } else if constexpr (std::same_as<T, DType>) {
    return std::string(name(v));
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(enum_words<T>[static_cast<std::size_t>(v)]);
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(v);
  } else if constexpr (std::is_floating_point_v<T>) {
    return print_double(v);
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    std::string s = "[";
    for (std::size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + quote(v[i]);
    return s + "]";
  } else {
    return quote(v);
  }
}

template <class T>
absl::Status parse_value(std::string_view field, const AttrText& text, T& v) {
  if constexpr (IntList<T>) {
    return parse_ints(field, text, v);
  } else if constexpr (std::same_as<T, bool>) {
    if (text.word != "true" && text.word != "false") return bad(field, text, "true or false");
    v = text.word == "true";
  } else if constexpr (std::same_as<T, DType>) {
    auto t = parse_dtype(text.word);
    if (!t) return bad(field, text, "a dtype");
    v = *t;
  } else if constexpr (std::is_enum_v<T>) {
    for (std::size_t i = 0; i < enum_words<T>.size(); ++i)
      if (enum_words<T>[i] == text.word) {
        v = static_cast<T>(i);
        return absl::OkStatus();
      }
    return bad(field, text, one_of(enum_words<T>));
  } else if constexpr (std::is_integral_v<T>) {
    const char* end = text.word.data() + text.word.size();
    if (auto [p, ec] = std::from_chars(text.word.data(), end, v); ec != std::errc() || p != end)
      return bad(field, text, "an integer");
  } else if constexpr (std::is_floating_point_v<T>) {
    const char* end = text.word.data() + text.word.size();
    if (auto [p, ec] = std::from_chars(text.word.data(), end, v); ec != std::errc() || p != end)
      return bad(field, text, "a number");
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    if (!text.is_list) return bad(field, text, "a list of strings");
    v.clear();
    for (const AttrText& item : text.items) {
      if (item.is_list) return bad(field, item, "a list of strings");
      v.push_back(item.word);
    }
  } else {
    if (text.is_list) return bad(field, text, "a string");
    v = text.word;
  }
  return absl::OkStatus();
}

template <class T>
struct FieldOf {
  static constexpr Field value{};
};
template <int Of, bool S>
struct FieldOf<Dims<Of, S>> {
  static constexpr Field value{.name = "", .kind = S ? FieldKind::sorted_dims : FieldKind::dims, .of = Of};
};
template <int Of, Neutral N>
struct FieldOf<PerDim<Of, N>> {
  static constexpr Field value{.name = "", .kind = FieldKind::per_dim, .of = Of, .neutral = N};
};
template <int From, int To>
struct FieldOf<DimMap<From, To>> {
  static constexpr Field value{.name = "", .kind = FieldKind::dim_map, .of = From, .to = To};
};

// Calls f(name, field) for every field of attrs.
template <class T, class F>
void for_each(T& attrs, F f) {
  using U = std::remove_const_t<T>;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    auto fields = reflect::tie(attrs);
    (f(reflect::field_names<U>[I], std::get<I>(fields)), ...);
  }(std::make_index_sequence<reflect::field_count<U>>{});
}

template <class T>
const void* tag() {
  static constexpr char here = 0;
  return &here;
}

}  // namespace attr_text

/// Everything the IR needs to know about the attribute struct T.
template <class T>
constexpr AttrsDef attrs_of() {
  using namespace attr_text;
  return {
      .make = []() -> std::shared_ptr<void> { return std::make_shared<T>(); },
      .clone = [](const void* a) -> std::shared_ptr<void> { return std::make_shared<T>(*static_cast<const T*>(a)); },
      .print =
          [](const void* a) {
            const T& attrs = *static_cast<const T*>(a);
            const T defaults{};
            std::string s;
            auto d = reflect::tie(defaults);
            auto v = reflect::tie(attrs);
            [&]<std::size_t... I>(std::index_sequence<I...>) {
              ((std::get<I>(v) == std::get<I>(d)
                    ? void()
                    : void(s += (s.empty() ? "" : ", ") + std::string(reflect::field_names<T>[I]) + "=" +
                                print_value(std::get<I>(v)))),
               ...);
            }(std::make_index_sequence<reflect::field_count<T>>{});
            return s.empty() ? s : "{" + s + "}";
          },
      .parse =
          [](void* a, std::string_view field, const AttrText& text) {
            absl::Status status = absl::InvalidArgumentError("no attribute named '" + std::string(field) + "'");
            for_each(*static_cast<T*>(a), [&](std::string_view name, auto& v) {
              if (name == field) status = parse_value(field, text, v);
            });
            return status;
          },
      .equal =
          [](const void* a, const void* b) {
            return reflect::tie(*static_cast<const T*>(a)) == reflect::tie(*static_cast<const T*>(b));
          },
      .hash =
          [](const void* a) {
            std::size_t h = 0;
            for_each(*static_cast<const T*>(a), [&](std::string_view, const auto& v) {
              using V = std::remove_cvref_t<decltype(v)>;
              if constexpr (std::is_enum_v<V>) h = absl::HashOf(h, static_cast<int>(v));
              else if constexpr (IntList<V>) h = absl::HashOf(h, static_cast<const std::vector<std::int64_t>&>(v));
              else h = absl::HashOf(h, v);
            });
            return h;
          },
      .visit =
          [](void* a, const std::function<void(const Field&)>& f) {
            for_each(*static_cast<T*>(a), [&](std::string_view name, auto& v) {
              using V = std::remove_cvref_t<decltype(v)>;
              Field field = FieldOf<V>::value;
              field.name = name;
              if constexpr (IntList<V>) field.values = &v;
              f(field);
            });
          },
      .tag = &tag<T>,
  };
}

}  // namespace sheaf::ir
