// The one main of the test program; every tests/**/*_test.cpp adds its cases to it.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
