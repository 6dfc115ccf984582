// Trees of arrays in safetensors files: the bytes of the format, round trips, and what each other file is told.
#include "sheaf/tree_file.h"

#include <doctest/doctest.h>

#include <optional>

#include "sheaf/sheaf.h"
#include "tests/folder.h"
#include "tests/full_disk.h"
#include "tests/message.h"

using namespace sheaf;
using tests::file_text;
using tests::Folder;
using tests::message_here;
using tests::write_file;

namespace {

struct Layer {
  Array w, b;
};
struct Model {
  Layer in;
  std::vector<Layer> hidden;
  std::map<std::string, Array> tables;
  std::optional<Array> scale;
  int steps = 0;
};

template <class T>
T zeros_like_tree(const T& tree) {
  return tree_map([](const Array& x) { return zeros(x.shape(), x.dtype()); }, tree);
}

/// A file with this header and these bytes behind it.
std::string safetensors(const std::string& header, const std::string& bytes) {
  std::string count(8, '\0');
  count[0] = static_cast<char>(header.size() & 255), count[1] = static_cast<char>(header.size() >> 8);
  return count + header + bytes;
}

}  // namespace

TEST_CASE(
    "a tree comes back from its file with its values, dtypes and shapes, and what is no array as it is in the like") {
  const Folder folder;
  const Model model{.in = {random::normal(random::key(1), {3, 4}), convert(arange(4), bf16)},
                    .hidden = {{arange(6, f64), array({true, false})}, {zeros({0, 2}), full({}, 7, i64)}},
                    .tables = {{"a \"b\"\n", arange(3, u8)}, {"ä", convert(arange(2), DType::f8e5m2)}},
                    .scale = complex(ones({2}), arange(2, f32)),
                    .steps = 5};
  save_tree(folder / "new/m", model);
  Model like = zeros_like_tree(model);
  like.steps = 9;
  const Model back = load_tree(folder / "new/m", like);
  const std::vector<Array> was = tree_leaves(model), is = tree_leaves(back);
  for (std::size_t i = 0; i < was.size(); ++i) {
    INFO("leaf ", tree_paths(model)[i]);
    CHECK(is[i].dtype() == was[i].dtype());
    CHECK(is[i].shape() == was[i].shape());
    CHECK(to_host(is[i]).bytes == to_host(was[i]).bytes);
  }
  CHECK(back.steps == 9);
}

TEST_CASE("a file is a count, names with dtypes, shapes and places, and the bytes") {
  const Folder folder;
  save_tree(folder / "m", Layer{.w = array({1, 2}, i8), .b = array({3}, i32)});
  const std::string header =
      R"({"w":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I32","shape":[1],"data_offsets":[2,6]}})";
  const std::string text = file_text(folder / "m");
  CHECK(text == safetensors(header + std::string((8 - header.size() % 8) % 8, ' '), std::string("\1\2\3\0\0\0", 6)));
}

TEST_CASE("the arrays of a file may come in any order, between what others write") {
  const Folder folder;
  write_file(
      folder / "m",
      safetensors(R"( { "__metadata__" : {"format":"pt"}, "b": {"shape":[], "dtype":"F32" , "data_offsets":[2, 6]},
  "\u0077":{"data_offsets":[0,2],"dtype":"BOOL","shape":[2,1]}} )",
                  std::string("\0\5\0\0\x80\x3f", 6)));
  const Layer back = load_tree(folder / "m", Layer{.w = abstract({2, 1}, bool_), .b = abstract({})});
  CHECK(back.w.to_vector<bool>() == std::vector<bool>{false, true});
  CHECK(back.b.item<float>() == 1);
}

TEST_CASE("loaded arrays lie as those they take the place of, and a step that was compiled takes them") {
  const Folder folder;
  ensure_devices(2);
  const Mesh mesh({{"data", 2}});
  const Layer model{.w = device_put(arange(8, f32), mesh, P("data")), .b = ones({3})};
  const auto step = jit([](Layer m) { return Layer{m.w * 2, m.b + m.w[1]}; });
  step(model);
  save_tree(folder / "m", model);
  const Layer back = load_tree(folder / "m", model);
  CHECK(back.w.sharding().spec == P("data"));
  CHECK(back.w.to_vector<float>() == model.w.to_vector<float>());
  CHECK(step(back).b.to_vector<float>() == std::vector<float>{2, 2, 2});
  CHECK(compiles(step) == 1);
}

TEST_CASE("a file that is none, is damaged or holds another tree is an error that says so") {
  const Folder folder;
  const std::string path = folder / "m";
  const Layer like{.w = zeros({2}), .b = zeros({}, i32)};
  const auto said = [&](const std::string& text) {
    write_file(path, text);
    const std::string message = message_here<RuntimeError>([&] { load_tree(path, like); });
    const std::string begin = "HERE: load_tree: " + path + ": ";
    return message.starts_with(begin) ? message.substr(begin.size()) : message;
  };
  const std::string w = R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::string b = R"("b":{"dtype":"I32","shape":[],"data_offsets":[8,12]})";
  const std::string bytes(12, '\0');
  write_file(path, safetensors("{" + w + "," + b + "}", bytes));
  CHECK(load_tree(path, like).w.to_vector<float>() == std::vector<float>{0, 0});

  CHECK(message_here<RuntimeError>([&] { load_tree(path + ".not", like); }) ==
        "HERE: load_tree: " + path + ".not: cannot be opened: No such file or directory");
  CHECK(message_here<TypeError>([&] { load_tree(path, Layer{}); }) ==
        "HERE: load_tree: " + path +
            ": w of the tree was never given a value, and so has no shape: abstract() gives it one");
  CHECK(said("") == "ends after 0 of the 8 bytes of the length of its header");
  CHECK(said("no such file") == "claims a header of 2335225762885431150 bytes");
  CHECK(said(safetensors("{" + w + "," + b + "}", bytes).substr(0, 50)) ==
        "ends after 42 of the 107 bytes of the header");
  CHECK(said(safetensors("{" + w + "," + b + "}", bytes.substr(1))) == "ends after 3 of the 4 bytes of b");
  CHECK(said(safetensors("{" + w + "," + b + "}", bytes + "x")) == "holds more data than its header says");
  CHECK(said(safetensors("{" + w + "}", bytes.substr(4))) == "does not hold b, which the tree has");
  CHECK(said(safetensors("{" + w + "," + w + "}", bytes)) == "has 8 bytes at 0 for w: f32[2]");
  const std::string c = R"("c":{"dtype":"I32","shape":[],"data_offsets":[8,12]})";
  CHECK(said(safetensors("{" + w + "," + c + "}", bytes)) == "holds c, which the tree has not");
  const std::string wide = R"("w":{"dtype":"F64","shape":[1],"data_offsets":[0,8]})";
  CHECK(said(safetensors("{" + wide + "}", bytes)) == "holds w as f64[1], and in the tree it is f32[2]");
  const std::string early = R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,7]})";
  CHECK(said(safetensors("{" + early + "}", bytes)) == "has 7 bytes at 0 for w: f32[2]");
  const std::string huge = R"("w":{"dtype":"F32","shape":[9223372036854775807,8],"data_offsets":[0,8]})";
  CHECK(said(safetensors("{" + huge + "}", bytes)) == "the header gives more elements than memory can hold");
  const std::vector<std::string> headers = {"{",
                                            "{}}",
                                            "[]",
                                            "{" + w + ",}",
                                            "{" + w + " " + b + "}",
                                            R"({"w":3})",
                                            R"({"w":{"dtype":"F32","shape":[2]}})",
                                            R"({"w":{"dtype":"F7","shape":[],"data_offsets":[0,0]}})",
                                            R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
                                            R"({"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                                            R"({"\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"};
  for (const std::string& header : headers)
    CHECK(said(safetensors(header, bytes)) == "has a header that is none of safetensors: " + header);
}

TEST_CASE("what cannot be written is told, and leaves what was there") {
  const Folder folder;
  const std::string path = folder / "m";
  save_tree(path, ones({2}));
  const std::string before = file_text(path);
  CHECK(message_here<TypeError>([&] { save_tree(path, Layer{.w = ones({1}), .b = zeros({1}, c128)}); }) ==
        "HERE: save_tree: " + path + ": safetensors has no type for c128, which b is");
  CHECK(message_here<TypeError>([&] { save_tree(path, std::map<std::string, Array>{{"__metadata__", ones({1})}}); }) ==
        "HERE: save_tree: " + path + ": safetensors has another use for the name __metadata__");
  CHECK(message_here<RuntimeError>([&] { save_tree("/proc/m", ones({2})); }) ==
        "HERE: save_tree: /proc/m: No such file or directory");
  {
    const tests::FullDisk disk(100);
    CHECK(message_here<RuntimeError>([&] { save_tree(path, ones({64})); }) ==
          "HERE: save_tree: " + path + ": File too large");
  }
  CHECK(file_text(path) == before);
  const auto traced = jit([&](Array x) {
    save_tree(path, x);
    return x;
  });
  CHECK_THROWS_AS(traced(ones({2})), TracedBoolError);
}
