# Tests that cross modules. Those of one module are x_test.cc beside x.cc (modules.cmake).
#   tests/<folder>/*_test.cc   one test program a folder, linked with every module
#   tests/<folder>/*_test.py   unittest programs
#   tests/<folder>/*_test.sh   scripts; 77: skipped
# A folder's label is "golden" for tests/golden and tests/format, "model" for tests/models (real
# models: they run one at a time, and skip what is not in the models folder), else "e2e".
set(test_modules ${KVGRAFT_MODULES})
list(TRANSFORM test_modules PREPEND kvgraft_)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(test_environment KVGRAFT_PROGRAM=${PROJECT_BINARY_DIR}/bin/kvgraft KVGRAFT_SOURCE_DIR=${PROJECT_SOURCE_DIR}
    KVGRAFT_BINARY_DIR=${PROJECT_BINARY_DIR} PYTHONDONTWRITEBYTECODE=1
    OMP_WAIT_POLICY=passive)  # tests run side by side: waiting threads must not spin

# Tiny models with random weights, one for each kind of state: build/tiny/tiny-<kind>.gguf.
set(tiny_script ${PROJECT_SOURCE_DIR}/tests/models/tiny_gguf.py)
if(EXISTS ${tiny_script})
  add_custom_command(
    OUTPUT ${PROJECT_BINARY_DIR}/tiny/stamp
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/tiny
    COMMAND ${Python3_EXECUTABLE} ${tiny_script} ${PROJECT_BINARY_DIR}/tiny
    COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/tiny/stamp
    DEPENDS ${tiny_script} VERBATIM COMMENT "Writing tiny models")
  add_custom_target(kvgraft_tiny_models ALL DEPENDS ${PROJECT_BINARY_DIR}/tiny/stamp)
endif()

file(GLOB folders CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*)
foreach(folder IN LISTS folders)
  get_filename_component(name ${folder} NAME)
  set(lock "")
  if(name MATCHES "^(golden|format)$")
    set(label golden)
  elseif(name STREQUAL "models")
    set(label model)
    set(lock RESOURCE_LOCK model)
  else()
    set(label e2e)
  endif()
  file(GLOB cc_tests CONFIGURE_DEPENDS ${folder}/*_test.cc)
  if(cc_tests)
    add_executable(${name}_tests ${cc_tests})
    target_compile_options(${name}_tests PRIVATE ${KVGRAFT_WARNINGS})
    if(TARGET kvgraft_tiny_models)
      add_dependencies(${name}_tests kvgraft_tiny_models)
    endif()
    target_link_libraries(${name}_tests PRIVATE ${test_modules} GTest::gtest_main GTest::gmock)
    target_compile_definitions(${name}_tests PRIVATE
                               KVGRAFT_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                               KVGRAFT_BINARY_DIR="${PROJECT_BINARY_DIR}")
    gtest_discover_tests(${name}_tests TEST_PREFIX "${name}."
                         PROPERTIES LABELS ${label} ${lock} TIMEOUT 1200
                                    ENVIRONMENT "${test_environment}"
                         DISCOVERY_TIMEOUT 60)
  endif()
  file(GLOB scripts CONFIGURE_DEPENDS ${folder}/*_test.py ${folder}/*_test.sh)
  foreach(script IN LISTS scripts)
    get_filename_component(script_name ${script} NAME_WE)
    if(script MATCHES "\\.py$")
      set(runner ${Python3_EXECUTABLE})
    else()
      set(runner bash)
    endif()
    add_test(NAME ${name}.${script_name} COMMAND ${runner} ${script})
    set_tests_properties(${name}.${script_name} PROPERTIES LABELS ${label} ${lock} SKIP_RETURN_CODE 77
                         ENVIRONMENT "${test_environment}" TIMEOUT 1200)
  endforeach()
endforeach()
