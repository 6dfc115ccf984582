// Text -> IR, by recursive descent over tokens; it builds through the Builder, so what parses is well-typed. Functions
// are parsed when first called, so their order in the text is free; recursion is an error.
#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <set>

#include "ir/builder.h"
#include "ir/lexer.h"
#include "ir/manual.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/sample.h"
#include "ir/sharding.h"
#include "ir/text.h"

namespace sheaf::ir {
namespace {

// Unwinds to the entry points below; never leaves this file.
struct ParseFailure {
  absl::Status status;
};

const char* intern_file(const std::string& file) {
  static auto& files = *new std::set<std::string>;
  static auto& mutex = *new std::mutex;
  std::lock_guard lock(mutex);
  return files.insert(file).first->c_str();
}

class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source) {
    auto tokens = tokenize(source);
    if (!tokens.ok()) throw ParseFailure{tokens.status()};
    tokens_ = *std::move(tokens);
  }

  Module module() {
    Module m;
    find_functions();
    while (!at_end()) {
      if (peek("mesh")) {
        meshes_.push_back(mesh());
        continue;
      }
      if (!accept("func")) fail("expected 'func' or 'mesh'");
      eat("@");
      const std::string name = word("a function name");
      m.functions.push_back(function(name));
      pos_ = functions_.at(name).end;
    }
    m.meshes = std::move(meshes_);
    return m;
  }

  Type type() {
    const auto dtype = parse_dtype(peek_kind(Token::Kind::word) ? token().text : "");
    if (!dtype) fail("expected a dtype");
    ++pos_;
    TypeData t{.dtype = *dtype};
    eat("[");
    while (!peek("]")) {
      t.dims.push_back(integer());
      if (t.dims.back() < 0) fail("a dim cannot be negative", pos_ - 1);
      t.dim_axes.emplace_back();
      if (accept("@")) t.dim_axes.back() = axes();
      if (!accept(",")) break;
    }
    eat("]");
    if (num_elements(t.dims) >= kMaxElements) fail(sheaf::to_string(t.dims) + " has too many elements", pos_ - 1);
    while (peek("{") && ahead(2).text == "@") annotation(t);
    if (peek("<")) {
      eat("<");
      eat("host");
      eat(">");
      t.space = MemorySpace::host;
    }
    return Type(std::move(t));
  }

  Sample sample() {
    Builder b("sample");
    Sample s;
    const std::size_t at = pos_;
    const Op op = this->op();
    Values operands;
    while (peek_kind(Token::Kind::word)) {
      operands.push_back(b.param(type()));
      SampleRange range;
      if (accept("in") && !(range.is_definite = accept("definite"))) {
        eat("(");
        const double low = number();
        eat(",");
        range.range = {low, number()};
        eat(")");
      }
      s.ranges.push_back(range);
      if (!accept(",")) break;
    }
    std::shared_ptr<const void> attributes = peek("{") ? attrs(op) : nullptr;
    if (!at_end()) fail("expected the end of the sample");
    auto results = b.try_emit(op, std::move(operands), std::move(attributes));
    if (!results.ok()) fail(std::string(op->name) + ": " + std::string(results.status().message()), at);
    s.function = b.finish(*results);
    return s;
  }

  bool at_end() const { return token().kind == Token::Kind::end; }
  [[noreturn]] void fail(const std::string& what) const { fail(what, pos_); }
  [[noreturn]] void fail(const std::string& what, std::size_t pos) const {
    throw ParseFailure{error_at(source_, tokens_[pos].at, what)};
  }

 private:
  using Scope = absl::flat_hash_map<std::string, Value>;
  struct Named {
    std::size_t begin = 0, end = 0;
    FunctionRef function;
    bool open = false;
  };

  const Token& token() const { return tokens_[pos_]; }
  const Token& ahead(std::size_t n) const { return tokens_[std::min(pos_ + n, tokens_.size() - 1)]; }
  bool peek(std::string_view text) const { return token().text == text && token().kind != Token::Kind::string; }
  bool peek_kind(Token::Kind kind) const { return token().kind == kind; }
  bool accept(std::string_view text) { return peek(text) && ++pos_; }
  void eat(std::string_view text) {
    if (!accept(text)) fail(fmt::format("expected '{}'", text));
  }
  std::string word(const char* what) {
    if (!peek_kind(Token::Kind::word) && !peek_kind(Token::Kind::number)) fail(std::string("expected ") + what);
    return tokens_[pos_++].text;
  }
  double number() {
    const std::string text = word("a number");
    char* end = nullptr;
    const double v = std::strtod(text.c_str(), &end);
    if (*end != 0) fail("expected a number", pos_ - 1);
    return v;
  }
  std::int64_t integer() {
    const std::string text = word("an integer");
    std::int64_t v = 0;
    const auto [p, ec] = std::from_chars(text.data(), text.data() + text.size(), v);
    if (ec != std::errc() || p != text.data() + text.size()) fail("expected an integer", pos_ - 1);
    return v;
  }

  void find_functions() {
    for (std::size_t i = 0; i + 2 < tokens_.size(); ++i) {
      if (tokens_[i].text != "func" || tokens_[i].kind != Token::Kind::word || tokens_[i + 1].text != "@") continue;
      if (!functions_.emplace(tokens_[i + 2].text, Named{.begin = i, .end = i, .function = nullptr}).second)
        fail(fmt::format("a second function named @{}", tokens_[i + 2].text), i + 2);
    }
  }

  Module::NamedMesh mesh() {
    eat("mesh");
    eat("@");
    const std::size_t at = pos_;
    std::string name = word("a mesh name");
    eat("=");
    eat("[");
    std::vector<MeshAxis> axes;
    while (!peek("]")) {
      std::string axis = word("an axis name");
      eat("=");
      axes.push_back({std::move(axis), integer()});
      if (!accept(",")) break;
    }
    eat("]");
    const absl::StatusOr<Mesh> mesh = Mesh::make(std::move(axes));
    if (!mesh.ok()) fail(fmt::format("@{}: {}", name, std::string(mesh.status().message())), at);
    return {.name = std::move(name), .mesh = *mesh};
  }

  Mesh mesh_named(const std::string& name) {
    for (const Module::NamedMesh& m : meshes_)
      if (m.name == name) return m.mesh;
    fail(fmt::format("no mesh named @{}", name), pos_ - 1);
  }

  FunctionRef function(const std::string& name) {
    const auto it = functions_.find(name);
    if (it == functions_.end()) fail(fmt::format("no function named @{}", name), pos_ - 1);
    if (it->second.function) return it->second.function;
    if (it->second.open) fail(fmt::format("@{} calls itself", name), pos_ - 1);
    it->second.open = true;
    const std::size_t back = pos_;
    pos_ = it->second.begin + 3;
    Builder b(name);
    Scope scope = params(b);
    eat("->");
    std::vector<Type> types;
    if (accept("(")) eat(")");
    else do
        types.push_back(type());
      while (accept(","));
    Mesh on;
    if (accept("on")) {
      eat("@");
      on = mesh_named(word("a mesh name"));
    }
    const std::size_t at = pos_;
    Values results = block(b, scope);
    if (results.size() != types.size())
      fail(fmt::format("@{} returns {} values, not {}", name, results.size(), types.size()), at);
    for (std::size_t j = 0; j < types.size(); ++j)
      if (results[j].type() != types[j])
        fail(fmt::format("@{} returns {}, not {}", name, to_string(results[j].type()), to_string(types[j])), at);
    FunctionRef f = b.finish(std::move(results));
    if (on) f = f->on_mesh(on);
    if (on) check_layouts(*f, MeshAtoms(on), at);
    Named& named = functions_.at(name);  // nested calls may have rehashed
    named.function = f;
    named.open = false;
    named.end = pos_;
    pos_ = back;
    return f;
  }

  void check_layouts(const Function& f, const MeshAtoms& mesh, std::size_t at) const {
    const auto check = [&](Value v) {
      if (const absl::Status s = check_layout(v.type(), mesh); !s.ok()) fail(std::string(s.message()), at);
    };
    for (const Value p : f.params()) check(p);
    for (const Eqn* e : f.eqns()) {
      for (const Value v : e->outs()) check(v);
      for (const FunctionRef& r : e->regions) check_layouts(*r, mesh, at);
    }
  }

  Scope params(Builder& b) {
    Scope scope;
    eat("(");
    while (!peek(")")) {
      const std::string name = value_name();
      eat(":");
      if (!scope.emplace(name, Value()).second) fail(fmt::format("a second parameter named %{}", name));
      scope[name] = b.param(type(), name);
      if (!accept(",")) break;
    }
    eat(")");
    return scope;
  }

  std::string value_name() {
    if (!peek_kind(Token::Kind::value)) fail("expected a value");
    return tokens_[pos_++].text.substr(1);
  }

  // "{ statement* return operands }"; gives the returned values.
  Values block(Builder& b, Scope& scope) {
    eat("{");
    while (!peek("return")) statement(b, scope);
    eat("return");
    Values results;
    if (!peek("}")) do
        results.push_back(operand(b, scope));
      while (accept(","));
    eat("}");
    return results;
  }

  void statement(Builder& b, Scope& scope) {
    std::vector<std::pair<std::string, Type>> binders;
    if (peek_kind(Token::Kind::value)) {
      do {
        std::string name = value_name();
        eat(":");
        binders.emplace_back(std::move(name), type());
      } while (accept(","));
      eat("=");
    }
    const std::size_t at = pos_;
    const Op op = this->op();
    std::vector<FunctionRef> regions;
    if (op->callee_by_name) {
      eat("@");
      regions.push_back(function(word("a function name")));
    }
    Values operands;
    if (starts_operand()) do
        operands.push_back(operand(b, scope));
      while (accept(","));
    std::shared_ptr<const void> attributes = peek("{") ? attrs(op) : nullptr;
    while (peek("(")) regions.push_back(region());
    b.set_loc({});
    if (peek("loc")) loc(b);
    std::vector<Type> types;
    for (const auto& [name, type] : binders) types.push_back(type);
    auto results = b.try_emit_typed(op, std::move(operands), std::move(attributes), std::move(regions), types);
    if (!results.ok()) fail(std::string(op->name) + ": " + std::string(results.status().message()), at);
    for (std::size_t j = 0; j < binders.size(); ++j)
      if (!scope.emplace(binders[j].first, (*results)[j]).second)
        fail(fmt::format("%{} is defined twice", binders[j].first), at);
  }

  Op op() {
    const std::string name = word("an op");
    const Op found = find_op(name);
    if (!found) fail(fmt::format("no op named '{}'", name), pos_ - 1);
    return found;
  }

  FunctionRef region() {
    Builder b("region");
    Scope scope = params(b);
    Values results = block(b, scope);
    return b.finish(std::move(results));
  }

  bool starts_operand() const {
    if (peek_kind(Token::Kind::value) || peek_kind(Token::Kind::number)) return true;
    return peek_kind(Token::Kind::word) && (ahead(1).text == ":" || peek("bits"));
  }

  Value operand(Builder& b, const Scope& scope) {
    if (peek_kind(Token::Kind::value)) {
      const std::string name = value_name();
      const auto it = scope.find(name);
      if (it == scope.end()) fail(fmt::format("%{} is not defined", name), pos_ - 1);
      return it->second;
    }
    const std::size_t at = pos_;
    std::string text = word("a value or a number");
    if (text == "bits") {
      eat("(");
      text = "0x" + word("hexadecimal bits");
      eat(")");
    }
    eat(":");
    const auto dtype = parse_dtype(word("a dtype"));
    if (!dtype) fail("expected a dtype", pos_ - 1);
    Literal value{Type(*dtype, {})};
    if (!literal(text, value)) fail(fmt::format("'{}' is not a {} number", text, name(*dtype)), at);
    return b.constant(value);
  }

  // The integer was not cut off by its width.
  static bool holds(const Literal& value, const std::string& text) {
    const std::string back =
        is_signed_int(value.dtype()) ? fmt::format("{}", value.get_int(0)) : fmt::format("{}", value.bits(0));
    return back == text || "+" + back == text;
  }

  // False where the text is no number of the literal's dtype, or would lose bits in it.
  static bool literal(const std::string& text, Literal& value) {
    const DType t = value.dtype();
    if (is_complex(t) || t == DType::token) return false;
    if (text == "true" || text == "false") {
      value.set_bits(0, text == "true");
      return is_bool(t);
    }
    if (text.starts_with("0x")) {
      std::uint64_t bits = 0;
      const auto [p, ec] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
      value.set_bits(0, bits);
      return ec == std::errc() && p == text.data() + text.size() && value.bits(0) == bits;
    }
    char* end = nullptr;
    if (is_unsigned_int(t)) value.set_bits(0, std::strtoull(text.c_str(), &end, 10));
    else if (is_int(t)) value.set_int(0, std::strtoll(text.c_str(), &end, 10));
    else value.set(0, std::strtod(text.c_str(), &end));
    return *end == 0 && (!is_int(t) || holds(value, text));
  }

  std::shared_ptr<const void> attrs(Op op) {
    const std::size_t at = pos_;
    eat("{");
    if (!op->attrs.make) fail(fmt::format("{} has no attributes", op->name), at);
    std::shared_ptr<void> made = op->attrs.make();
    while (!peek("}")) {
      const std::size_t field_at = pos_;
      const std::string field = word("an attribute");
      eat("=");
      const AttrText value = attr_value();
      if (absl::Status s = op->attrs.parse(made.get(), field, value); !s.ok())
        fail(fmt::format("{}: {}", op->name, std::string(s.message())), field_at);
      if (!accept(",")) break;
    }
    eat("}");
    return made;
  }

  AttrText attr_value() {
    AttrText v;
    if (accept("[")) {
      v.is_list = true;
      while (!peek("]")) {
        v.items.push_back(attr_value());
        if (!accept(",")) break;
      }
      eat("]");
      return v;
    }
    if (token().kind == Token::Kind::punctuation || at_end()) fail("expected an attribute value");
    v.word = tokens_[pos_++].text;
    return v;
  }

  std::string axis() {
    std::string name = word("an axis name");
    if (!accept(":")) return name;
    eat("(");
    const std::int64_t before = integer();
    eat(")");
    return fmt::format("{}:({}){}", name, before, integer());
  }

  Axes axes() {
    if (!accept("(")) return {axis()};
    Axes axes;
    do axes.push_back(axis());
    while (accept(","));
    eat(")");
    return axes;
  }

  void annotation(TypeData& t) {
    eat("{");
    const std::string kind = word("sum, max, min, V, U or R");
    eat("@");
    Axes list = axes();
    eat("}");
    if (kind == "V" || kind == "U" || kind == "R") {
      for (const std::string& axis : list)
        if (along(t.manual, axis) != Along::invarying)
          fail(fmt::format("the axis \"{}\" is in two of V, U and R", axis), pos_ - 2);
      t.manual = with_axes(t.manual, list,
                           kind == "V"   ? Along::varying
                           : kind == "U" ? Along::unreduced
                                         : Along::reduced);
    } else if (kind == "sum" || kind == "max" || kind == "min") {
      t.unreduced = std::move(list);
      t.unreduced_kind = kind == "sum" ? ReduceKind::sum : kind == "max" ? ReduceKind::max : ReduceKind::min;
    } else fail("expected sum, max, min, V, U or R", pos_ - 4);
  }

  void loc(Builder& b) {
    eat("loc");
    eat("(");
    std::string file;
    while (tokens_[pos_].text != ":" && !at_end()) file += tokens_[pos_++].text;
    eat(":");
    const std::int64_t line = integer();
    if (line < 0 || line > std::numeric_limits<int>::max()) fail("expected a line number", pos_ - 1);
    const char* how = "";
    while (accept(","))
      how =
          extend_how(how, peek_kind(Token::Kind::string) ? tokens_[pos_++].text.c_str() : word("a transform").c_str());
    eat(")");
    b.set_loc({intern_file(file), static_cast<int>(line)}, how);
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  std::size_t pos_ = 0;
  absl::flat_hash_map<std::string, Named> functions_;
  std::vector<Module::NamedMesh> meshes_;
};

template <class F>
auto run(std::string_view text, F f) -> absl::StatusOr<decltype(f(std::declval<Parser&>()))> {
  try {
    Parser p(text);
    return f(p);
  } catch (const ParseFailure& failure) { return failure.status; }
}

}  // namespace

absl::StatusOr<Module> parse(std::string_view text) {
  return run(text, [](Parser& p) { return p.module(); });
}

absl::StatusOr<Type> parse_type(std::string_view text) {
  return run(text, [](Parser& p) {
    const Type t = p.type();
    if (!p.at_end()) p.fail("expected the end of the type");
    return t;
  });
}

absl::StatusOr<Sample> parse_sample(std::string_view text) {
  return run(text, [](Parser& p) { return p.sample(); });
}

}  // namespace sheaf::ir
