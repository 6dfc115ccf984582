// A convolutional classifier for Fashion-MNIST: two convolutions with pooling, then two dense layers, trained as the
// multilayer perceptron is (classifier.h). Ends with one line: accuracy, kernels, images per second.
#include "classifier.h"

using namespace sheaf;

struct Cnn {
  Convolution first, second;
  Dense hidden, out;
};

Cnn make_cnn(const Array& key) {
  const Array keys = random::split(key, 4);
  return {convolution(keys[0], {3, 3}, 1, 16), convolution(keys[1], {3, 3}, 16, 32), dense(keys[2], 7 * 7 * 32, 128),
          dense(keys[3], 128, 10)};
}

Array forward(const Cnn& m, const Array& images) {
  Array x = reshape(convert(images, f32), {-1, 28, 28, 1}) / 255.0;  // [batch, height, width, channels]
  x = max_pool(relu(m.first(x)));  // [batch, 14, 14, 16]
  x = max_pool(relu(m.second(x)));  // [batch, 7, 7, 32]
  return m.out(relu(m.hidden(reshape(x, {-1, 7 * 7 * 32}))));  // [batch, classes]
}

int main(int argc, char** argv) {
  return classifier::run<Cnn, forward>({.name = "cnn", .epochs = 6, .rate = 2e-3, .wanted = 0.90}, make_cnn, argc,
                                       argv);
}
