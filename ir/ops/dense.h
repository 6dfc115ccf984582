// One matrix of f64 for the reference algorithms of linear algebra, which are the textbook's and slow. Rounding to the
// op's dtype happens once, when a matrix is written back.
#pragma once

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "ir/literal.h"

namespace sheaf::ir::ops {

class Dense {
 public:
  Dense(std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns), data_(static_cast<std::size_t>(rows * columns)) {}
  /// Matrix `index` of a batch of them.
  Dense(const Literal& from, std::int64_t rows, std::int64_t columns, std::int64_t index) : Dense(rows, columns) {
    for (std::int64_t i = 0; i < rows * columns; ++i) data_[i] = from.get(index * rows * columns + i);
  }
  void write(Literal& to, std::int64_t index) const {
    for (std::int64_t i = 0; i < rows_ * columns_; ++i) to.set(index * rows_ * columns_ + i, data_[i]);
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  double& operator()(std::int64_t i, std::int64_t j) { return data_[i * columns_ + j]; }
  double operator()(std::int64_t i, std::int64_t j) const { return data_[i * columns_ + j]; }

  void swap_rows(std::int64_t i, std::int64_t j) {
    for (std::int64_t k = 0; k < columns_; ++k) std::swap((*this)(i, k), (*this)(j, k));
  }
  void fill(double value) { data_.assign(data_.size(), value); }
  bool is_finite() const {
    for (double x : data_)
      if (!std::isfinite(x)) return false;
    return true;
  }
  Dense transposed() const {
    Dense t(columns_, rows_);
    for (std::int64_t i = 0; i < rows_; ++i)
      for (std::int64_t j = 0; j < columns_; ++j) t(j, i) = (*this)(i, j);
    return t;
  }

 private:
  std::int64_t rows_, columns_;
  std::vector<double> data_;
};

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace sheaf::ir::ops
