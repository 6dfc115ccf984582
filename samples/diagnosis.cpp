// Three programs that go wrong, and what Sheaf says of them: a gradient that is out of memory, a step that spends its
// time on communication, and a program whose runs differ.
#include <sheaf/sheaf.h>

#include <cstdio>
#include <cstdlib>
#include <string>

using namespace sheaf;

constexpr int kLayers = 16;

// ---- Out of memory: the forward pass keeps what each layer made. ----

Array layers(const Array& w, Array x, int count) {
  for (int k = 0; k < count; ++k) x = tanh(dot(x, w));  // 1 MiB each
  return x;
}
Array loss(const Array& w, const Array& x) { return mean(layers(w, x, kLayers)); }

Array loss_of_checkpoints(const Array& w, Array x) {
  const auto four = checkpoint([](Array v, Array y) { return layers(v, y, 4); });
  for (int k = 0; k < kLayers / 4; ++k) x = four(w, x);
  return mean(x);
}

bool runs_out_of_memory() {
  const Array w = 0.1 * ones({256, 256}), x = ones({1024, 256});
  std::string said;
  try {
    jit(grad(loss))(w, x).wait();
  } catch (const RuntimeError& error) { said = error.what(); }
  std::printf("-- out of memory --\n%s\n\n", said.c_str());
  jit(grad(loss_of_checkpoints))(w, x).wait();  // fits
  return said.find("out of memory") != std::string::npos && said.find("checkpoint(f)") != std::string::npos;
}

// ---- Slow communication: batch and weights are divided over the same devices, so each product sends. ----

bool names_the_collective() {
  const Mesh mesh({{"data", 4}});
  const Array w = device_put(0.01 * ones({512, 512}), mesh, P("data"));
  const Array x = device_put(ones({64, 512}), mesh, P("data"));
  const auto f = jit([](Array v, Array a) { return dot(tanh(dot(a, v)), v); }, {.name = "sends", .args = {"w", "x"}});
  const CollectiveReport report = f.trace(w, x).lower().collectives();
  Profile scope = profile();
  f(w, x).wait();
  scope.stop();
  std::printf("-- communication, as planned --\n%s\n-- and as it took time --\n", report.text.c_str());
  double collective_us = 0, device_us = 0;
  std::string slowest;
  double slowest_us = 0;
  for (const ProfileEvent& e : scope.events()) {
    if (e.kind != "collective" && e.kind != "launch" && e.kind != "copy") continue;
    device_us += e.us;
    if (e.kind != "collective") continue;
    collective_us += e.us;
    if (e.us > slowest_us) slowest_us = e.us, slowest = e.name + " at " + to_string(e.loc);
  }
  std::printf("collectives took %.0f%% of the devices' time, the longest was %s\n\n", 100 * collective_us / device_us,
              slowest.c_str());
  for (const Collective& c : report.entries)
    if (slowest.ends_with(to_string(c.loc))) return true;
  return false;
}

// ---- Runs that differ: a host function that is not one of its arguments alone. ----

bool finds_what_differs() {
  int calls = 0;
  const HostFunction noise("noise", [&](std::span<const HostTensor>, std::span<const HostTensor> out) {
    out[0].as<float>()[2] = static_cast<float>(++calls);
  });
  const auto f = [&](Array x) { return sum(x * noise({}, {abstract({4})})[0]); };
  const std::string said = find_nondeterminism(f, ones({4}));
  std::printf("-- runs that differ --\n%s\n", said.c_str());
  return said.find("callback at diagnosis.cpp:") != std::string::npos &&
         find_nondeterminism([](Array x) { return sum(x * x); }, ones({4})).empty();
}

int main() {
  setenv("SHEAF_MEMORY_LIMIT", "20M", 0);  // read when the first array is made
  setenv("SHEAF_GPU_MEMORY_LIMIT", "20M", 0);
  try {
    ensure_devices(4);
    const bool a = runs_out_of_memory(), b = names_the_collective(), c = finds_what_differs();
    return a && b && c ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
