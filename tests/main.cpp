// The one main of the test program; every tests/**/*_test.cpp adds its cases to it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  setenv("SHEAF_CACHE_DIR", "off", 0);  // a test counts what is compiled, whatever ran on this machine before it
  return doctest::Context(argc, argv).run();
}
