# What `cmake --install` puts under a prefix, all of it movable as a whole:
#   bin/kvgraft                 the program
#   lib/libkvgraft.so           every module but the command line, for kvgraft::kvgraft
#   lib/libllama*, libggml*     the engine, unless it is a system package
#   include/kvgraft/            headers
#   lib/cmake/kvgraft/, lib/pkgconfig/kvgraft.pc
#   share/kvgraft/              models.py and models.lock; man page and completions when present
include(CMakePackageConfigHelpers)
if(APPLE)
  set(here "@loader_path")
else()
  set(here "$ORIGIN")
endif()
file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})

# ---- the library: the modules' objects in one shared library. Its public headers need only the
# standard library, so that what it links (engine, SQLite, OpenSSL, ...) is nobody else's business.
set(objects "")
set(external "")
foreach(module IN LISTS KVGRAFT_MODULES)
  if(module STREQUAL "cli")
    continue()
  endif()
  get_target_property(type kvgraft_${module} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND objects $<TARGET_OBJECTS:kvgraft_${module}>)
  endif()
  list(APPEND external ${KVGRAFT_EXTERNAL_${module}})
endforeach()
if(objects)
  add_library(kvgraft_library SHARED ${objects})
  add_library(kvgraft::kvgraft ALIAS kvgraft_library)
  set_target_properties(kvgraft_library PROPERTIES OUTPUT_NAME kvgraft EXPORT_NAME kvgraft
                        LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                        INSTALL_RPATH "${here}")
  target_link_libraries(kvgraft_library PRIVATE ${external})
  target_compile_features(kvgraft_library PUBLIC cxx_std_20)
  target_include_directories(kvgraft_library PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(TARGETS kvgraft_library EXPORT kvgraft
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT kvgraft NAMESPACE kvgraft:: FILE kvgraftTargets.cmake
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvgraft)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/kvgraft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.h" PATTERN "*internal.h" EXCLUDE PATTERN "*_test*" EXCLUDE
          PATTERN "cli" EXCLUDE)
endif()
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/kvgraftConfig.cmake.in ${PROJECT_BINARY_DIR}/kvgraftConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvgraft)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvgraftConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvgraftConfig.cmake
              ${PROJECT_BINARY_DIR}/kvgraftConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvgraft)
file(RELATIVE_PATH prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/cmake/kvgraft.pc.in ${PROJECT_BINARY_DIR}/kvgraft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kvgraft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# ---- the program
if(TARGET kvgraft_program)
  set_target_properties(kvgraft_program PROPERTIES INSTALL_RPATH "${here}/${lib_from_bin}")
  install(TARGETS kvgraft_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# ---- the engine
if(KVGRAFT_BUNDLE_ENGINE)
  install(DIRECTORY ${KVGRAFT_ENGINE_LIB_DIR}/ DESTINATION ${CMAKE_INSTALL_LIBDIR}
          FILES_MATCHING PATTERN "libllama.*" PATTERN "libggml*" PATTERN "cmake" EXCLUDE
          PATTERN "pkgconfig" EXCLUDE)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/licences/llama.cpp.txt
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/kvgraft/licences)
endif()

# ---- data and documents
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/models.py DESTINATION ${CMAKE_INSTALL_DATADIR}/kvgraft)
install(FILES ${PROJECT_SOURCE_DIR}/models.lock DESTINATION ${CMAKE_INSTALL_DATADIR}/kvgraft)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/kvgraft)
install(FILES ${PROJECT_SOURCE_DIR}/docs/kvgraft.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
if(TARGET kvgraft_program)
  # The program writes its own completions; one that cannot leaves the install without them.
  set(completions_bash ${CMAKE_INSTALL_DATADIR}/bash-completion/completions/kvgraft)
  set(completions_zsh ${CMAKE_INSTALL_DATADIR}/zsh/site-functions/_kvgraft)
  set(completions_fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d/kvgraft.fish)
  foreach(shell bash zsh fish)
    install(CODE "
      execute_process(COMMAND $<TARGET_FILE:kvgraft_program> completions ${shell}
                      OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE failed)
      if(NOT failed AND text)
        set(path \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${completions_${shell}}\")
        file(WRITE \"\${path}\" \"\${text}\")
        message(STATUS \"Installing: \${path}\")
      endif()")
  endforeach()
endif()
