// References, in long double, for the scalar functions the C library lacks. Slow and obvious: they are what tests and
// the interpreter compare the DAGs with. Invariant: good to well below an ulp of double, save near a zero of digamma.
#pragma once

namespace sheaf::ir {

long double logistic_reference(long double x);
long double rsqrt_reference(long double x);
long double erf_inv_reference(long double x);
long double lgamma_reference(long double x);  // the C library's, without its global sign
long double digamma_reference(long double x);

}  // namespace sheaf::ir
