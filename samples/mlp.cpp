// The main job: a classifier with one hidden layer for Fashion-MNIST, trained in one compiled program per step:
// forward, backward and optimizer (classifier.h). Ends with one line: accuracy, kernels, images per second.
#include "classifier.h"

using namespace sheaf;

struct Mlp {
  Dense in, out;
};

Mlp make_mlp(const Array& key) {
  const Array keys = random::split(key, 2);
  return {dense(keys[0], 784, 256), dense(keys[1], 256, 10)};
}

Array forward(const Mlp& m, const Array& images) {
  const Array x = reshape(convert(images, f32), {-1, 784}) / 255.0;  // [batch, pixels]
  return m.out(relu(m.in(x)));  // [batch, classes]
}

int main(int argc, char** argv) {
  return classifier::run<Mlp, forward>({.name = "mlp", .epochs = 10, .rate = 1e-3, .wanted = 0.87}, make_mlp, argc,
                                       argv);
}
