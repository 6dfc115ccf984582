// Reflection over aggregates: number of fields, a tie of references, and the field names as written in the source.
// It serves user pytrees and op attributes alike, so that neither needs a macro. Not for C arrays, bases or private
// members. The name parser reads __PRETTY_FUNCTION__, which is pinned by the static_assert at the end.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace sheaf::reflect {

inline constexpr std::size_t kMaxFields = 24;

// Converts to any field type; only ever used unevaluated.
struct Any {
  template <class T>
  operator T() const noexcept;
};

template <class T, std::size_t... I>
constexpr bool braces(std::index_sequence<I...>) {
  return requires { T{(void(I), Any{})...}; };
}

template <class T>
consteval std::size_t count_fields() {
  std::size_t best = 0;
  [&]<std::size_t... N>(std::index_sequence<N...>) {
    ((braces<T>(std::make_index_sequence<N>{}) ? void(best = N) : void()), ...);
  }(std::make_index_sequence<kMaxFields + 1>{});
  return best;
}

/// Number of fields of the aggregate T.
template <class T>
inline constexpr std::size_t field_count = count_fields<std::remove_const_t<T>>();

/// std::tie of all fields, in declaration order.
template <class T>
constexpr auto tie(T& v) {
  constexpr std::size_t n = field_count<T>;
  static_assert(n <= kMaxFields);
  // clang-format off
  if constexpr (n == 0) { return std::tie(); }
  else if constexpr (n == 1) { auto& [a] = v; return std::tie(a); }
  else if constexpr (n == 2) { auto& [a, b] = v; return std::tie(a, b); }
  else if constexpr (n == 3) { auto& [a, b, c] = v; return std::tie(a, b, c); }
  else if constexpr (n == 4) { auto& [a, b, c, d] = v; return std::tie(a, b, c, d); }
  else if constexpr (n == 5) { auto& [a, b, c, d, e] = v; return std::tie(a, b, c, d, e); }
  else if constexpr (n == 6) { auto& [a, b, c, d, e, f] = v; return std::tie(a, b, c, d, e, f); }
  else if constexpr (n == 7) { auto& [a, b, c, d, e, f, g] = v; return std::tie(a, b, c, d, e, f, g); }
  else if constexpr (n == 8) { auto& [a, b, c, d, e, f, g, h] = v; return std::tie(a, b, c, d, e, f, g, h); }
  else if constexpr (n == 9) { auto& [a, b, c, d, e, f, g, h, i] = v; return std::tie(a, b, c, d, e, f, g, h, i); }
  else if constexpr (n == 10) { auto& [a, b, c, d, e, f, g, h, i, j] = v; return std::tie(a, b, c, d, e, f, g, h, i, j); }
  else if constexpr (n == 11) { auto& [a, b, c, d, e, f, g, h, i, j, k] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k); }
  else if constexpr (n == 12) { auto& [a, b, c, d, e, f, g, h, i, j, k, l] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l); }
  else if constexpr (n == 13) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m); }
  else if constexpr (n == 14) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o); }
  else if constexpr (n == 15) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p); }
  else if constexpr (n == 16) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q); }
  else if constexpr (n == 17) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r); }
  else if constexpr (n == 18) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s); }
  else if constexpr (n == 19) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t); }
  else if constexpr (n == 20) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u); }
  else if constexpr (n == 21) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, w] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, w); }
  else if constexpr (n == 22) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, w, x] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, w, x); }
  else if constexpr (n == 23) { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, w, x, y] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, w, x, y); }
  else { auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, w, x, y, z] = v; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, w, x, y, z); }
  // clang-format on
}

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"  // a type in an anonymous namespace
#endif
template <class T>
struct Wrap { T value; };
template <class T>
extern const Wrap<T> fake;  // never defined: only addresses of its fields are named

template <class T>
struct Ptr { T* p; };
template <class T>
Ptr(T*) -> Ptr<T>;

template <auto P>
consteval std::string_view pretty() { return __PRETTY_FUNCTION__; }

template <auto P>
consteval std::string_view name_of() {
  constexpr std::string_view s = pretty<P>();
#if defined(__clang__)
  std::size_t end = s.rfind('}');
  if (end == std::string_view::npos) end = s.rfind(']');
  const std::size_t begin = s.rfind('.', end);
#else
  const std::size_t end = s.find(")}");
  const std::size_t begin = s.rfind(':', end);
#endif
  return s.substr(begin + 1, end - begin - 1);
}

template <class T, std::size_t I>
consteval auto field_ptr() { return Ptr{&std::get<I>(tie(fake<T>.value))}; }

/// The field names of T, in declaration order.
template <class T>
inline constexpr auto field_names = []<std::size_t... I>(std::index_sequence<I...>) {
  return std::array<std::string_view, sizeof...(I)>{name_of<field_ptr<T, I>()>()...};
}(std::make_index_sequence<field_count<T>>{});

namespace self_test {
struct Probe { int first; double second; };
static_assert(field_count<Probe> == 2 && field_names<Probe>[1] == "second");
}  // namespace self_test
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

}  // namespace sheaf::reflect
