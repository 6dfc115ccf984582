// The references a careful programmer would write: plain loops over the Team's threads that the C++ compiler vectorises
// for this machine (-O3 -march=native, FMA allowed), with the textbook polynomials for exp and tanh.
#pragma once

#include <cstdint>
#include <span>

#include "measure.h"

namespace bench {

void copy(const Floats& x, Floats& out);
/// The chain of ten with exp and tanh of bench/loops.cpp.
void transcendental_chain(const Floats& x, const Floats& y, Floats& out);
/// Of each row; columns is a multiple of 64.
void softmax_rows(const Floats& x, std::size_t columns, Floats& out);
void layer_norm_rows(const Floats& x, const Floats& scale, const Floats& shift, Floats& out);
/// The mean over rows of -log softmax(x)[label], and its gradient.
float cross_entropy_rows(const Floats& x, std::span<const std::int32_t> labels, Floats& gradient);

// What an MLP step needs beside its matrix products. Matrices are row-major with `bias.size()` columns.
void add_bias(Floats& x, const Floats& bias);
void add_bias_relu(Floats& x, const Floats& bias);
void mse_gradient(const Floats& x, const Floats& target, Floats& out);
/// 0 where the activation is 0.
void mask(Floats& gradient, const Floats& activation);
/// bias -= rate * column sums of the gradient.
void step_bias(Floats& bias, const Floats& gradient, float rate);
void step_weights(Floats& weights, const Floats& gradient, float rate);

/// Adam's update number `step` of all parameters, which lie behind each other.
void adam(Floats& weights, Floats& m, Floats& v, const Floats& gradient, int step, float rate);

}  // namespace bench
