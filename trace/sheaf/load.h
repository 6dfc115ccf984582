// Compiled programs from files that Compiled::save wrote: called like the function they were made of, in a process that
// neither traces nor compiles.
//   auto step = load<State(State, Array)>("step.sheaf");   state = step(state, x);
// Arguments are checked as those of any compiled program are; docs/warm.md.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sheaf/aot.h"

namespace sheaf {
namespace detail {

/// The static bytes of a tree, as walk gives them, to be read again.
class StaticBytes {
 public:
  explicit StaticBytes(std::string_view bytes) : bytes_(bytes) {}
  void read(void* to, std::size_t n) {
    is_good_ &= n <= bytes_.size();
    if (!is_good_) return;
    std::memcpy(to, bytes_.data(), n);
    bytes_.remove_prefix(n);
  }
  /// A size, which bytes can be of: at most as many as there are left or leaves.
  std::size_t read_size(std::size_t most_leaves) {
    std::size_t n = 0;
    read(&n, sizeof n);
    is_good_ &= n <= bytes_.size() + most_leaves;
    return is_good_ ? n : 0;
  }
  void refuse() { is_good_ = false; }
  bool is_good() const { return is_good_; }
  bool is_done() const { return is_good_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool is_good_ = true;
};

/// The reverse of walk: sizes and static values from the bytes, arrays as they are. `leaves`: how many there are in
/// all.
template <class T>
void restore(T& t, StaticBytes& in, std::size_t leaves) {
  if constexpr (std::is_const_v<T> || FunctionPointer<T>) {
    in.refuse();  // there is no such thing in another process
  } else if constexpr (ArrayLeaf<T>) {
  } else if constexpr (Number_<T>) {
    in.read(&t, sizeof t);
  } else if constexpr (std::same_as<T, std::string>) {
    t.resize(in.read_size(0));
    in.read(t.data(), t.size());
  } else if constexpr (Text<T>) {
    in.refuse();
  } else if constexpr (std::is_empty_v<T>) {
  } else if constexpr (is_variant<T>) {
    std::size_t which = 0;
    in.read(&which, sizeof which);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      if (!((which == I && (restore(t.template emplace<I>(), in, leaves), true)) || ...)) in.refuse();
    }(std::make_index_sequence<std::variant_size_v<T>>{});
  } else if constexpr (OptionalLike<T>) {
    bool has = false;
    in.read(&has, sizeof has);
    t.reset();
    if (has) restore(t.emplace(), in, leaves);
  } else if constexpr (MapLike<T>) {
    t.clear();
    for (std::size_t n = in.read_size(leaves); n > 0 && in.is_good(); --n) {
      typename T::key_type key{};
      restore(key, in, leaves);
      restore(t[std::move(key)], in, leaves);
    }
  } else if constexpr (SequenceLike<T>) {
    t.clear();
    for (std::size_t n = in.read_size(leaves); n > 0 && in.is_good(); --n) {
      typename T::value_type element{};
      restore(element, in, leaves);
      t.push_back(std::move(element));
    }
  } else if constexpr (TupleLike<T>) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (restore(std::get<I>(t), in, leaves), ...);
    }(std::make_index_sequence<std::tuple_size_v<T>>{});
  } else {
    const auto all = [&](auto fields) { std::apply([&](auto&... f) { (restore(f, in, leaves), ...); }, fields); };
    if constexpr (WithFields<T>) all(tree_fields(t));
    else all(reflect::tie(t));
  }
}

}  // namespace detail

namespace aot::detail {

struct Saved;  // a file, read and checked
/// Throws RuntimeError where it is damaged, of another version of Sheaf, or for other machines or devices than there
/// are here, and TypeError where it takes another number of arguments.
Ptr<Saved> read_saved(std::span<const std::byte> bytes, const std::string& name, std::size_t arguments, Loc loc);
std::vector<std::byte> read_file(const std::string& path, Loc loc);
std::string_view result_statics(const Saved& s);
std::size_t result_leaves(const Saved& s);
/// `tree`: the result's, or null where it cannot be made of the file's bytes.
Ptr<Code> load_saved(const Ptr<Saved>& s, sheaf::detail::Structure tree, Loc loc);

template <class Signature>
struct LoadAs;
template <class R, class... A>
struct LoadAs<R(A...)> {
  using Result = std::remove_cvref_t<R>;
  static auto load(std::span<const std::byte> bytes, const std::string& name, Loc loc) {
    const Ptr<Saved> saved = read_saved(bytes, name, sizeof...(A), loc);
    Result tree{};
    sheaf::detail::StaticBytes statics(result_statics(*saved));
    sheaf::detail::restore(tree, statics, result_leaves(*saved));
    sheaf::detail::Structure structure;
    if (statics.is_done()) {
      structure.paths = sheaf::detail::paths_of(tree);
      structure.statics = result_statics(*saved);
      structure.tree = std::make_shared<const Result>(std::move(tree));
    }
    return Compiled<Result, sheaf::detail::Stored<A>...>(load_saved(saved, std::move(structure), loc));
  }
};

}  // namespace aot::detail

/// The compiled program in the file, of a function of this signature. Throws RuntimeError for what is no such file, is
/// damaged, or is for another version of Sheaf, another machine or devices that are not here; TypeError where it takes
/// another number of arguments, or its result has other leaves. The arguments' own leaves are checked by each call.
template <class Signature>
auto load(const std::string& path, Loc loc = Loc::current()) {
  return aot::detail::LoadAs<Signature>::load(aot::detail::read_file(path, loc), path, loc);
}
/// The same from what Compiled::serialize gave.
template <class Signature>
auto load(std::span<const std::byte> bytes, Loc loc = Loc::current()) {
  return aot::detail::LoadAs<Signature>::load(bytes, "the bytes", loc);
}

}  // namespace sheaf
