// Whether a declaration of ours passes for the real one: compared by what is passed, since the types have two names.
#pragma once

#include <string_view>
#include <type_traits>

namespace sheaf::tests {

/// "CUctx_st" for sheaf::cuda::CUctx_st and for ::CUctx_st.
template <class T>
constexpr std::string_view tag() {
  std::string_view text = __PRETTY_FUNCTION__;
  text = text.substr(text.find("T = ") + 4);
  text = text.substr(0, text.find_first_of(";]"));
  return text.substr(text.rfind(':') == text.npos ? 0 : text.rfind(':') + 1);
}

template <class T>
constexpr bool is_number = std::is_integral_v<T> || std::is_enum_v<T>;

template <class T>
constexpr bool is_complete = requires { sizeof(T); };

/// A as ours passes for B: integers of one size, pointers to what is alike, structs of one size and no less aligned;
/// handles point to types of one name, which no header completes.
template <class A, class B>
struct Alike {
  static constexpr bool value = [] {
    if constexpr (std::is_same_v<A, B>) return true;
    else if constexpr (is_number<A> && is_number<B>) return sizeof(A) == sizeof(B);
    else if constexpr (!std::is_class_v<A> || !std::is_class_v<B>) return false;
    else if constexpr (is_complete<A> && is_complete<B>) return sizeof(A) == sizeof(B) && alignof(A) >= alignof(B);
    else return !is_complete<A> && !is_complete<B> && tag<A>() == tag<B>();
  }();
};
template <class A, class B>
struct Alike<A*, B*> {
  static constexpr bool value =
      std::is_const_v<A> == std::is_const_v<B> && Alike<std::remove_const_t<A>, std::remove_const_t<B>>::value;
};
template <class RA, class... A, class RB, class... B>
struct Alike<RA(A...), RB(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) == sizeof...(B)) return Alike<RA, RB>::value && (Alike<A, B>::value && ...);
    else return false;
  }();
};
static_assert(!Alike<int(float), int(int)>::value && !Alike<int(int), int(long)>::value &&
              !Alike<int(int*), int(const int*)>::value && !Alike<int(int), int(int, int)>::value);

}  // namespace sheaf::tests
