// Where the time of a training step goes: a profile for Perfetto and a flame graph, a table here, and the report of the
// compiled step as a page. Checks that the files are there and that the step's kernels and their lines are in them.
#include <sheaf/sheaf.h>

#include <cstdio>
#include <filesystem>
#include <string>

using namespace sheaf;
namespace fs = std::filesystem;

struct Network {
  Array W1, W2;  // [in, hidden], [hidden, out]
};

Array loss(const Network& n, const Array& x, const Array& y) { return mean(square(dot(tanh(dot(x, n.W1)), n.W2) - y)); }

Network train_step(const Network& n, const Array& x, const Array& y) {
  const Network slope = grad(loss)(n, x, y);
  return {n.W1 - 0.1 * slope.W1, n.W2 - 0.1 * slope.W2};
}

int main(int argc, char** argv) {
  const fs::path folder = argc > 1 ? fs::path(argv[1]) : fs::temp_directory_path() / "sheaf-profile";
  fs::create_directories(folder);
  const Array keys = random::split(random::key(1), 3);
  Network n{random::normal(keys[0], {64, 256}) / 8.0, random::normal(keys[1], {256, 8}) / 16.0};
  const Array x = random::normal(keys[2], {512, 64}), y = sin(dot(x, ones({64, 8})));
  const auto step = jit(train_step, {.name = "train_step", .args = {"network", "x", "y"}, .donate = {0}});

  n = step(n, x, y);  // compiled here
  synchronize();

  Profile scope = profile();
  for (int k = 0; k < 5; ++k) n = step(n, x, y);
  scope.stop();
  scope.write(folder / "step.json");
  scope.write(folder / "step.folded");
  const std::string table = scope.table();
  step.trace(n, x, y).lower().compile().report(folder / "step.html");

  std::printf("%s", table.substr(0, 1200).c_str());
  std::printf("...\nwritten: step.json (ui.perfetto.dev), step.folded (speedscope.app), step.html, in %s\n",
              folder.c_str());
  int kernels = 0;
  for (const ProfileEvent& e : scope.events()) kernels += e.kind == "launch" && e.loc && e.flops > 0 && e.call > 0;
  bool is_there = true;
  for (const char* name : {"step.json", "step.folded", "step.html"}) is_there &= fs::file_size(folder / name) > 100;
  return is_there && kernels >= 5 && table.find("jit train_step") != std::string::npos ? 0 : 1;
}
