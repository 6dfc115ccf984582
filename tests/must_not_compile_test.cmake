# One file that users must not be able to compile. Its comment `// says: REGEX` is what the compiler must say about it, so
# that it fails for the reason meant and no other. Run as
# cmake -D FILE= -D ROOT= -D COMPILER= -P must_not_compile_test.cmake.
cmake_minimum_required(VERSION 3.25)

file(STRINGS ${FILE} says REGEX "^// says: " LIMIT_COUNT 1)
string(REGEX REPLACE "^// says: " "" says "${says}")
if(says STREQUAL "")
  message(FATAL_ERROR "${FILE} has no line // says: REGEX")
endif()
execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${ROOT}/trace -I${ROOT}/ir -I${ROOT}/runtime ${FILE}
                RESULT_VARIABLE status ERROR_VARIABLE messages)
if(status EQUAL 0)
  message(FATAL_ERROR "${FILE} compiles")
endif()
string(REGEX MATCH "${says}" found "${messages}")
if(found STREQUAL "")
  message(FATAL_ERROR "${FILE} is refused, but not with \"${says}\":\n${messages}")
endif()
