// IR -> text. Binders on the left with their types, operands by name, rank-0 constants in place, regions inline,
// callees as functions of the module. One function's values are numbered in canonical order, so equal programs print
// equally.
#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "ir/lexer.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/text.h"

namespace sheaf::ir {

Literal literal_of(const Eqn& e) {
  const auto& c = e.attrs<ops::Constant>();
  Literal value(Type(c.dtype, c.dims));
  const auto digit = [](char h) { return static_cast<unsigned>(h <= '9' ? h - '0' : h - 'a' + 10); };
  for (std::size_t i = 0; i < value.bytes(); ++i)
    value.data()[i] = static_cast<std::byte>(digit(c.hex[2 * i]) << 4 | digit(c.hex[2 * i + 1]));
  return value;
}

namespace {

// "1.5:f32": the shortest text that reads back as the same bits; NaNs with a payload as their bits.
std::string number_text(const Literal& v) {
  const DType t = v.dtype();
  std::string s;
  if (is_bool(t)) s = v.bits(0) ? "true" : "false";
  else if (is_int(t)) s = is_signed_int(t) ? fmt::format("{}", v.get_int(0)) : fmt::format("{}", v.bits(0));
  else {
    const double d = v.get(0);
    if (std::isnan(d) && to_bits(t, std::nan("")) != v.bits(0)) s = fmt::format("bits({:x})", v.bits(0));
    else if (!std::isfinite(d) || t == DType::f64) s = attr_text::print_double(d);
    else {
      s = fmt::format("{}", static_cast<float>(d));
      if (s.find_first_of(".e") == std::string::npos) s += ".0";
    }
  }
  return s + ":" + std::string(name(t));
}

// "mlp.cpp:9"; a file name that is not one word of the grammar is quoted.
std::string loc_text(Loc loc) {
  const std::string place = to_string(loc);
  const std::size_t colon = place.rfind(':');
  const std::string file = place.substr(0, colon);
  return std::all_of(file.begin(), file.end(), is_word) ? place : attr_text::quote(file) + place.substr(colon);
}

bool is_name(std::string_view s) {
  return !s.empty() && std::isdigit(static_cast<unsigned char>(s[0])) == 0 && std::all_of(s.begin(), s.end(), is_word);
}

// ", jvp, transpose"; from the first that is not one word on, such as a reason, one string.
std::string how_text(std::string_view how) {
  std::string text;
  while (!how.empty()) {
    const std::size_t end = how.find(", ");
    if (!is_name(how.substr(0, end))) return text + ", " + attr_text::quote(how);
    text += fmt::format(", {}", how.substr(0, end));
    how = end == std::string_view::npos ? "" : how.substr(end + 2);
  }
  return text;
}

bool prints_in_place(const Eqn& e) {
  return e.op == &ops::constant && e.out().rank() == 0 && !is_complex(e.out().dtype());
}

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  void add(const FunctionRef& f) {
    if (named_.contains(f.get())) return;
    std::string base = options_.names ? f->name() : "f";
    if (base.empty()) base = "f";
    std::string unique = base;
    for (int i = 1; !used_names_.insert(unique).second; ++i) unique = fmt::format("{}_{}", base, i);
    named_[f.get()] = unique;
    queue_.push_back(f);
  }

  std::string module(const Module& m) {
    for (const Module::NamedMesh& named : m.meshes) mesh(named.name, named.mesh);
    for (const FunctionRef& f : m.functions)
      if (f->mesh() && !meshes_.contains(f->mesh()))
        mesh(meshes_.empty() ? "mesh" : fmt::format("mesh_{}", meshes_.size()), f->mesh());
    for (const FunctionRef& f : m.functions) add(f);
    for (std::size_t i = 0; i < queue_.size(); ++i) {  // grows as callees are met
      const FunctionRef f = queue_[i];
      if (!text_.empty()) text_ += "\n";
      function(*f, named_.at(f.get()));
    }
    return std::move(text_);
  }

  std::string equation(const Eqn& e) {
    Names names;
    for (Value v : e.operands) names.name(v, v.is_param() && !v.name().empty() ? v.name() : fmt::format("v{}", v.id()));
    for (Value v : e.outs()) names.name(v, fmt::format("v{}", v.id()));
    statement(e, names, "");
    return text_.substr(0, text_.size() - 1);
  }

 private:
  struct Names {
    absl::flat_hash_map<Value, std::string> of;
    absl::flat_hash_set<std::string> used;
    int next = 0;
    void name(Value v, std::string wanted) {
      std::string unique = wanted;
      for (int i = 1; !used.insert(unique).second; ++i) unique = fmt::format("{}.{}", wanted, i);
      of[v] = "%" + unique;
    }
  };

  void mesh(std::string name, Mesh mesh) {
    text_ += fmt::format("mesh @{} = [{}]\n", name, to_string(mesh));
    meshes_.try_emplace(mesh, std::move(name));
  }

  static std::string clean(const std::string& name) {
    std::string s;
    for (char c : name) s += is_word(c) ? c : '_';
    return s.empty() || std::isdigit(static_cast<unsigned char>(s[0])) ? "_" + s : s;
  }

  std::string params(const Function& f, Names& names) {
    std::string s = "(";
    for (std::size_t i = 0; i < f.params().size(); ++i) {
      const Value p = f.params()[i];
      names.name(p, options_.names && !p.name().empty() ? clean(p.name()) : fmt::format("a{}", i));
      s += (i ? ", " : "") + names.of[p] + ": " + to_string(p.type());
    }
    return s + ")";
  }

  void body(const Function& f, Names& names, const std::string& indent) {
    for (const Eqn* e : f.eqns()) {
      if (prints_in_place(*e)) continue;
      for (Value v : e->outs()) names.name(v, fmt::format("{}", names.next++));
      statement(*e, names, indent + "  ");
    }
    text_ += indent + "  return";
    for (std::size_t i = 0; i < f.results().size(); ++i) text_ += (i ? ", " : " ") + operand(f.results()[i], names);
    text_ += "\n" + indent + "}";
  }

  void function(const Function& f, const std::string& name) {
    Names names;
    text_ += "func @" + name + params(f, names) + " -> ";
    for (std::size_t i = 0; i < f.results().size(); ++i) text_ += (i ? ", " : "") + to_string(f.results()[i].type());
    if (f.results().empty()) text_ += "()";
    if (f.mesh()) text_ += " on @" + meshes_.at(f.mesh());
    text_ += " {\n";
    body(f, names, "");
    text_ += "\n";
  }

  static std::string operand(Value v, const Names& names) {
    if (v.eqn() && prints_in_place(*v.eqn())) return number_text(literal_of(*v.eqn()));
    return names.of.at(v);
  }

  void statement(const Eqn& e, Names& names, const std::string& indent) {
    text_ += indent;
    for (int j = 0; j < e.num_out(); ++j)
      text_ += (j ? ", " : "") + names.of[e.out(j)] + ": " + to_string(e.out(j).type());
    if (e.num_out()) text_ += " = ";
    text_ += e.op->name;
    if (e.op->callee_by_name) {
      add(e.regions[0]);
      text_ += " @" + named_.at(e.regions[0].get());
    }
    for (int k = 0; k < e.num_in(); ++k) text_ += (k ? ", " : " ") + operand(e.in(k), names);
    if (e.attributes)
      if (const std::string attrs = e.op->attrs.print(e.attributes.get()); !attrs.empty()) text_ += " " + attrs;
    if (!e.op->callee_by_name)
      for (const FunctionRef& r : e.regions) {
        Names inner;
        text_ += " " + params(*r, inner) + " {\n";
        body(*r, inner, indent);
      }
    if (options_.locs && e.loc) text_ += "  loc(" + loc_text(e.loc) + how_text(e.how) + ")";
    text_ += "\n";
  }

  const PrintOptions options_;
  std::string text_;
  absl::flat_hash_map<const Function*, std::string> named_;
  absl::flat_hash_set<std::string> used_names_;
  std::vector<FunctionRef> queue_;
  absl::flat_hash_map<Mesh, std::string> meshes_;
};

}  // namespace

std::string print(const Module& module, const PrintOptions& options) { return Printer(options).module(module); }

std::string print(const FunctionRef& f, const PrintOptions& options) {
  return print(Module{.meshes = {}, .functions = {f}}, options);
}

std::string print(const Eqn& e) { return Printer({}).equation(e); }

std::string canonical_text(const FunctionRef& f) { return print(f, {.locs = false, .names = false}); }

}  // namespace sheaf::ir
