# What samples/run says where packages are missing, or nothing can be written, in a world made of stand-ins: PATH holds a
# dpkg-query that knows everything but cmake and mold, an id, and an apt-get without network. Nothing is installed,
# whoever runs the test.
# Run as cmake -D ROOT=<source tree> -D WORK=<scratch folder> -P missing_packages_test.cmake.
cmake_minimum_required(VERSION 3.25)

function(stand_in tool script)
  file(WRITE ${WORK}/${tool} "#!/bin/sh\n${script}\n")
  file(CHMOD ${WORK}/${tool} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()

# fresh_world USER_ID: no sudo in it, and none of what this machine has but the tools the script itself needs.
function(fresh_world user_id)
  file(REMOVE_RECURSE ${WORK})
  file(MAKE_DIRECTORY ${WORK})
  foreach(tool IN ITEMS bash env dirname)
    find_program(path_of_${tool} ${tool} REQUIRED)
    file(CREATE_LINK ${path_of_${tool}} ${WORK}/${tool} SYMBOLIC)
  endforeach()
  stand_in(id "echo ${user_id}")
  stand_in(apt-get "exit 100")
  stand_in(dpkg-query "case $3 in cmake|mold) exit 1 ;; *) printf installed ;; esac")
endfunction()

function(says name expected)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PATH=${WORK} ${ARGN} ${WORK}/bash ${ROOT}/samples/run saxpy
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 1 OR NOT output STREQUAL expected)
    message(SEND_ERROR "${name}: exit ${result}, and it says\n${output}but was to say\n${expected}")
  endif()
endfunction()

set(packages "apt-get install -y --no-install-recommends cmake mold")

fresh_world(1000)
set(line "(as root, since there is no sudo)  apt-get update && ${packages}")
says("a user without sudo" "== missing packages, and this is not root; to install them:  ${line}
== stopped: there is no cmake; to install what is missing:  ${line}
")

stand_in(sudo "exit 1")
set(line "sudo apt-get update && sudo ${packages}")
says("a user whose sudo asks for a password" "== missing packages, and this is not root; to install them:  ${line}
== stopped: there is no cmake; to install what is missing:  ${line}
")

fresh_world(0)
set(line "apt-get update && ${packages}")
says("root without network" "== installing cmake mold
== apt-get update failed (no network?); going on with the lists there are
== the packages could not be installed; going on without. To try again:  ${line}
== stopped: there is no cmake; to install what is missing:  ${line}
")

fresh_world(1000)
file(REMOVE ${WORK}/dpkg-query)
string(CONCAT needed "g++ cmake ninja-build libabsl-dev libfmt-dev zlib1g-dev llvm-19-dev "
                     "libopenblas-serial-dev doctest-dev dataset-fashion-mnist")
says("another system" "== this is not Debian, so nothing is installed; Sheaf needs what Debian 12 calls: ${needed}
== stopped: there is no cmake
")

fresh_world(1000)
stand_in(dpkg-query "printf installed")
stand_in(cmake "exit 1")
find_program(path_of_mkdir mkdir REQUIRED)
file(CREATE_LINK ${path_of_mkdir} ${WORK}/mkdir SYMBOLIC)
says("a build folder that cannot be" "== configuring ${WORK}/id/build
== stopped: ${WORK}/id/build cannot be written; SHEAF_BUILD_DIR names another folder
" SHEAF_BUILD_DIR=${WORK}/id/build)
