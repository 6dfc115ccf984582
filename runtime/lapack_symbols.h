// The Fortran routines that are used, by dtype: matrices are column-major, everything is passed by address, and the
// hidden lengths of strings come last. LAPACK's users' guide documents them: https://netlib.org/lapack/explore-html
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
using fortran_int = std::int32_t;

void spotrf_(const char*, const fortran_int*, float*, const fortran_int*, fortran_int*, std::size_t);
void dpotrf_(const char*, const fortran_int*, double*, const fortran_int*, fortran_int*, std::size_t);
void strsm_(const char*, const char*, const char*, const char*, const fortran_int*, const fortran_int*, const float*,
            const float*, const fortran_int*, float*, const fortran_int*, std::size_t, std::size_t, std::size_t,
            std::size_t);
void dtrsm_(const char*, const char*, const char*, const char*, const fortran_int*, const fortran_int*, const double*,
            const double*, const fortran_int*, double*, const fortran_int*, std::size_t, std::size_t, std::size_t,
            std::size_t);
void sgetrf_(const fortran_int*, const fortran_int*, float*, const fortran_int*, fortran_int*, fortran_int*);
void dgetrf_(const fortran_int*, const fortran_int*, double*, const fortran_int*, fortran_int*, fortran_int*);
void sgeqrf_(const fortran_int*, const fortran_int*, float*, const fortran_int*, float*, float*, const fortran_int*,
             fortran_int*);
void dgeqrf_(const fortran_int*, const fortran_int*, double*, const fortran_int*, double*, double*, const fortran_int*,
             fortran_int*);
void sorgqr_(const fortran_int*, const fortran_int*, const fortran_int*, float*, const fortran_int*, const float*,
             float*, const fortran_int*, fortran_int*);
void dorgqr_(const fortran_int*, const fortran_int*, const fortran_int*, double*, const fortran_int*, const double*,
             double*, const fortran_int*, fortran_int*);
void sgesdd_(const char*, const fortran_int*, const fortran_int*, float*, const fortran_int*, float*, float*,
             const fortran_int*, float*, const fortran_int*, float*, const fortran_int*, fortran_int*, fortran_int*,
             std::size_t);
void dgesdd_(const char*, const fortran_int*, const fortran_int*, double*, const fortran_int*, double*, double*,
             const fortran_int*, double*, const fortran_int*, double*, const fortran_int*, fortran_int*, fortran_int*,
             std::size_t);
void ssyevd_(const char*, const char*, const fortran_int*, float*, const fortran_int*, float*, float*,
             const fortran_int*, fortran_int*, const fortran_int*, fortran_int*, std::size_t, std::size_t);
void dsyevd_(const char*, const char*, const fortran_int*, double*, const fortran_int*, double*, double*,
             const fortran_int*, fortran_int*, const fortran_int*, fortran_int*, std::size_t, std::size_t);
}

namespace sheaf::runtime {

/// One name for both precisions.
template <class T>
struct Lapack;
template <>
struct Lapack<float> {
  static constexpr auto potrf = spotrf_;
  static constexpr auto trsm = strsm_;
  static constexpr auto getrf = sgetrf_;
  static constexpr auto geqrf = sgeqrf_;
  static constexpr auto orgqr = sorgqr_;
  static constexpr auto gesdd = sgesdd_;
  static constexpr auto syevd = ssyevd_;
};
template <>
struct Lapack<double> {
  static constexpr auto potrf = dpotrf_;
  static constexpr auto trsm = dtrsm_;
  static constexpr auto getrf = dgetrf_;
  static constexpr auto geqrf = dgeqrf_;
  static constexpr auto orgqr = dorgqr_;
  static constexpr auto gesdd = dgesdd_;
  static constexpr auto syevd = dsyevd_;
};

}  // namespace sheaf::runtime
