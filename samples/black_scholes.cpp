// Black-Scholes: the price of a European call, its Greeks by differentiating the price, and all of them for a whole
// book of strikes by vmap. Checked against the textbook numbers.
#include <sheaf/sheaf.h>

#include <cmath>
#include <cstdio>

using namespace sheaf;

struct Market {
  Array spot, rate, volatility, years;
};

Array normal_cdf(const Array& x) { return 0.5 * erfc(x * -std::sqrt(0.5)); }

Array call_price(const Market& m, const Array& strike) {
  const Array deviation = m.volatility * sqrt(m.years);
  const Array d1 = (log(m.spot / strike) + (m.rate + 0.5 * square(m.volatility)) * m.years) / deviation;
  return m.spot * normal_cdf(d1) - strike * exp(-m.rate * m.years) * normal_cdf(d1 - deviation);
}

struct Greeks {
  Array price, delta, gamma, vega, theta, rho;
};

Greeks greeks(const Market& m, const Array& strike) {
  const auto [price, d] = value_and_grad(call_price)(m, strike);
  const auto delta = [&](Array spot) { return grad(call_price)({spot, m.rate, m.volatility, m.years}, strike).spot; };
  return {price, d.spot, grad(delta)(m.spot), d.volatility, -d.years, d.rate};
}

int main() {
  const auto f = [](double v) { return full({}, v, f64); };
  const Market market{f(100), f(0.05), f(0.2), f(1)};
  const Array strikes = linspace(80, 120, 41, f64);

  auto book = jit(vmap(greeks, {.in = {none, 0}}), {.name = "book", .args = {"market", "strike"}});
  const Greeks all = book(market, strikes);

  const std::pair<const char*, std::pair<Array, double>> rows[] = {
      {"price", {all.price, 10.4505836}}, {"delta", {all.delta, 0.6368307}},  {"gamma", {all.gamma, 0.0187620}},
      {"vega", {all.vega, 37.5240347}},   {"theta", {all.theta, -6.4140275}}, {"rho", {all.rho, 53.2324815}}};
  double worst = 0;
  for (const auto& [name, row] : rows) {
    const double v = row.first[20].item<double>();  // strike 100
    std::printf("%-6s %12.7f   textbook %12.7f\n", name, v, row.second);
    worst = std::fmax(worst, std::fabs(v - row.second));
  }
  std::printf("41 strikes, compiled %lld program, largest difference %.1e: %s\n",
              static_cast<long long>(compiles(book)), worst, worst < 1e-6 ? "ok" : "WRONG");
  return worst < 1e-6 ? 0 : 1;
}
