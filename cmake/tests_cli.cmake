# End-to-end tests of the program on the built-in toy model; each file of tests/cli is one test.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
foreach(name capture_ask refusal store man)
  add_test(NAME cli.${name}
           COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/cli/${name}_test.py)
  set_tests_properties(cli.${name} PROPERTIES LABELS e2e TIMEOUT 600
                       ENVIRONMENT "KVGRAFT_PROGRAM=$<TARGET_FILE:kvgraft_program>;PYTHONDONTWRITEBYTECODE=1")
endforeach()
