# What `#include <sheaf/sheaf.h>` costs every user's file. The budget is 1.5 s of compile time; time is only reported,
# and the lines left after preprocessing, which do not depend on the machine, are what is asserted.
# Run as cmake -D ROOT= -D COMPILER= -D WORK= -P header_cost_test.cmake.
cmake_minimum_required(VERSION 3.25)
set(max_lines 75000)

file(MAKE_DIRECTORY ${WORK})
file(WRITE ${WORK}/header.cpp "#include <sheaf/sheaf.h>\n")
set(compile ${COMPILER} -std=c++20 -I${ROOT}/trace -I${ROOT}/ir -I${ROOT}/runtime ${WORK}/header.cpp)

execute_process(COMMAND ${compile} -E -P -o ${WORK}/header.ii COMMAND_ERROR_IS_FATAL ANY)
file(READ ${WORK}/header.ii text)
string(REGEX MATCHALL "\n" newlines "${text}")
list(LENGTH newlines count)

string(TIMESTAMP begin "%s%f")
execute_process(COMMAND ${compile} -fsyntax-only COMMAND_ERROR_IS_FATAL ANY)
string(TIMESTAMP end "%s%f")
math(EXPR milliseconds "(${end} - ${begin}) / 1000")

message(STATUS "<sheaf/sheaf.h>: ${count} lines, ${milliseconds} ms")
if(count GREATER max_lines)
  message(FATAL_ERROR "<sheaf/sheaf.h> is ${count} lines after preprocessing; the budget is ${max_lines}")
endif()
