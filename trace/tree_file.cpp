// A safetensors file: a count, so many bytes of JSON that say the dtype, the shape and the place of each array, and the
// bytes of all of them without gaps. The JSON is parsed, not searched: what the format does not have is refused.
#include "sheaf/tree_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>
#include <set>

#include "runtime/private_file.h"
#include "sheaf/data.h"
#include "sheaf/error.h"
#include "trace/array_node.h"
#include "trace/file_reader.h"
#include "trace/placement.h"

namespace sheaf {
namespace {

static_assert(std::endian::native == std::endian::little, "the bytes of a file are those in memory");

constexpr std::string_view kMetadata = "__metadata__";  // not an array, but strings by name

constexpr std::int64_t kMaxHeaderBytes = 100'000'000;  // as other readers of the format have it

struct NamedType {
  std::string_view name;
  DType dtype;
};
constexpr NamedType kTypes[] = {
    {"BOOL", bool_},
    {"I8", i8},
    {"I16", i16},
    {"I32", i32},
    {"I64", i64},
    {"U8", u8},
    {"U16", u16},
    {"U32", u32},
    {"U64", u64},
    {"F16", f16},
    {"F32", f32},
    {"F64", f64},
    {"BF16", bf16},
    {"C64", c64},
    {"F8_E4M3", DType::f8e4m3},
    {"F8_E5M2", DType::f8e5m2},
};

struct Entry {
  std::string name;
  DType dtype = f32;
  Shape dims = {};
  std::vector<std::int64_t> place = {};  // [begin, end) among the bytes
};

// Recursive descent; every function returns false where the text is not as expected.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  bool parse(std::vector<Entry>& out) {
    const auto one = [&](const std::string& name) {
      if (name == kMetadata) return members([&](const std::string&) { return string().has_value(); });
      out.emplace_back().name = name;
      return entry(out.back());
    };
    return members(one) && peek() == '\0';
  }

 private:
  bool entry(Entry& e) {
    std::set<std::string> seen;
    const auto member = [&](const std::string& key) {
      if (!seen.insert(key).second) return false;
      if (key == "shape") return numbers(e.dims);
      if (key == "data_offsets") return numbers(e.place) && e.place.size() == 2;
      const std::optional<std::string> type = key == "dtype" ? string() : std::nullopt;
      const auto* known = std::ranges::find(kTypes, type.value_or(""), &NamedType::name);
      if (known == std::end(kTypes)) return false;
      e.dtype = known->dtype;
      return true;
    };
    return members(member) && seen.size() == 3;
  }

  template <class Member>
  bool members(Member member) {
    if (!accept('{')) return false;
    for (bool is_first = true; !accept('}'); is_first = false) {
      if (!is_first && !accept(',')) return false;
      const std::optional<std::string> key = string();
      if (!key || !accept(':') || !member(*key)) return false;
    }
    return true;
  }
  bool numbers(std::vector<std::int64_t>& out) {
    if (!accept('[')) return false;
    for (bool is_first = true; !accept(']'); is_first = false) {
      if (!is_first && !accept(',')) return false;
      peek();
      std::int64_t& n = out.emplace_back();
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), n);
      if (error != std::errc{} || n < 0) return false;
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    }
    return true;
  }
  std::optional<std::string> string() {
    if (!accept('"')) return std::nullopt;
    std::string out;
    while (!text_.empty()) {
      const char c = text_.front();
      text_.remove_prefix(1);
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < ' ' || (c == '\\' && !escaped(out))) return std::nullopt;
      if (c != '\\') out += c;
    }
    return std::nullopt;
  }
  bool escaped(std::string& out) {
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    const std::size_t at = text_.empty() ? kFrom.npos : kFrom.find(text_.front());
    if (at != kFrom.npos) {
      out += kTo[at];
      text_.remove_prefix(1);
      return true;
    }
    unsigned code = 0;  // of names that need no pair of them
    if (text_.size() < 5 || text_.front() != 'u') return false;
    const auto [end, error] = std::from_chars(text_.data() + 1, text_.data() + 5, code, 16);
    if (error != std::errc{} || end != text_.data() + 5 || (code >= 0xD800 && code < 0xE000)) return false;
    text_.remove_prefix(5);
    const auto put = [&](unsigned byte) { out += static_cast<char>(byte); };
    if (code < 0x80) return put(code), true;
    if (code < 0x800) put(0xC0 | code >> 6);
    else put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F));
    return put(0x80 | (code & 0x3F)), true;
  }
  char peek() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
    return text_.empty() ? '\0' : text_.front();
  }
  bool accept(char c) {
    if (peek() != c || text_.empty()) return false;
    text_.remove_prefix(1);
    return true;
  }

  std::string_view text_;
};

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text)
    if (c == '"' || c == '\\') out += {'\\', c};
    else if (static_cast<unsigned char>(c) < ' ') out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else out += c;
  return out + '"';
}

// ".out.W": "out.W".
std::string name_of(std::string_view path) { return std::string(path.substr(path.starts_with('.') ? 1 : 0)); }

std::string type_of(DType dtype, const Shape& dims) { return std::string(name(dtype)) + to_string(dims); }

// In the order of their bytes, which leave no gaps.
std::vector<Entry> read_header(FileReader& file) {
  std::int64_t bytes = 0;
  const std::vector<std::byte> count = file.take(8, "the length of its header");
  std::memcpy(&bytes, count.data(), count.size());
  if (bytes < 0 || bytes > kMaxHeaderBytes) file.fail(fmt::format("claims a header of {} bytes", bytes));
  const std::vector<std::byte> header = file.take(bytes, "the header");
  std::vector<Entry> entries;
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  if (text.find('\0') != text.npos || !HeaderParser(text).parse(entries))
    file.fail(fmt::format("has a header that is none of safetensors: {:.200}", text));
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.place[0], e.place[1]); });
  std::int64_t at = 0;
  for (const Entry& e : entries) {
    if (e.place[0] != at || e.place[1] - at != file.bytes_of(e.dims, e.dtype))
      file.fail(fmt::format("has {} bytes at {} for {}: {}", e.place[1] - e.place[0], e.place[0], e.name,
                            type_of(e.dtype, e.dims)));
    at = e.place[1];
  }
  return entries;
}

Array placed_as(const Array& like, const HostArray& data, Loc loc) {
  const ArrayNode& node = *like.node();
  const Array whole = array(data, loc);
  auto buffer = buffer_of(whole, node.type, loc);
  if (!node.placement) return concrete(std::move(buffer), node.type, node.is_weak, loc);
  return placed(node.placement, moved(whole, node.type, node.placement, loc), node.type, node.is_weak, loc);
}

}  // namespace

namespace detail {

void save_leaves(const std::string& path, std::span<const Array* const> leaves, const std::vector<std::string>& paths,
                 Loc loc) {
  std::string header = "{", bytes;
  std::set<std::string> names;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const HostArray data = to_host(*leaves[i], loc);
    const auto* type = std::ranges::find(kTypes, data.dtype, &NamedType::dtype);
    const std::string own = name_of(paths[i]);
    if (type == std::end(kTypes))
      throw TypeError(
          loc, fmt::format("save_tree: {}: safetensors has no type for {}, which {} is", path, name(data.dtype), own));
    if (own == kMetadata)
      throw TypeError(loc, fmt::format("save_tree: {}: safetensors has another use for the name {}", path, own));
    if (!names.insert(own).second)
      throw TypeError(loc, fmt::format("save_tree: {}: two arrays of the tree are both {}", path, own));
    header +=
        fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", i ? "," : "", quoted(own),
                    type->name, fmt::join(data.dims, ","), bytes.size(), bytes.size() + data.bytes.size());
    bytes.append(reinterpret_cast<const char*>(data.bytes.data()), data.bytes.size());
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');  // so that the bytes lie well in memory
  const std::uint64_t count = header.size();
  std::string file(sizeof count, '\0');
  std::memcpy(file.data(), &count, sizeof count);
  const absl::Status status = runtime::write_whole_file(path, file + header + bytes, 0644);
  if (!status.ok()) throw RuntimeError(loc, fmt::format("save_tree: {}: {}", path, std::string(status.message())));
}

std::vector<Array> load_leaves(const std::string& path, std::span<const Array* const> like,
                               const std::vector<std::string>& paths, Loc loc) {
  FileReader file("load_tree", path, loc);
  std::vector<std::optional<Array>> found(like.size());
  for (const Entry& e : read_header(file)) {
    const auto i = static_cast<std::size_t>(std::ranges::find(paths, e.name, name_of) - paths.begin());
    if (i == paths.size()) file.fail(fmt::format("holds {}, which the tree has not", e.name));
    if (!like[i]->has_value())
      throw TypeError(loc, fmt::format("load_tree: {}: {} of the tree was never given a value, and so has no shape: "
                                       "abstract() gives it one",
                                       path, e.name));
    const ir::Type type = like[i]->node()->type;
    if (type.dtype() != e.dtype || type.dims() != e.dims)
      file.fail(fmt::format("holds {} as {}, and in the tree it is {}", e.name, type_of(e.dtype, e.dims),
                            type_of(type.dtype(), type.dims())));
    if (found[i]) file.fail(fmt::format("holds {} twice", e.name));
    HostArray data{.dtype = e.dtype, .dims = e.dims, .bytes = file.take(e.place[1] - e.place[0], e.name.c_str())};
    if (is_bool(e.dtype))
      for (std::byte& b : data.bytes) b = std::byte{b != std::byte{0}};
    found[i] = placed_as(*like[i], data, loc);
  }
  file.expect_end();
  std::vector<Array> leaves;
  for (std::size_t i = 0; i < like.size(); ++i) {
    if (!found[i]) file.fail(fmt::format("does not hold {}, which the tree has", name_of(paths[i])));
    leaves.push_back(*std::move(found[i]));
  }
  return leaves;
}

}  // namespace detail
}  // namespace sheaf
