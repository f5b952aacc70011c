# The libllama versions that this project works with: the one place that says so.
# "0.5.0-dev", as development builds call themselves, counts as 0.5.0.
set(KVGRAFT_LLAMA_MINIMUM 0.5.0)  # tested
set(KVGRAFT_LLAMA_BELOW 0.6.0)    # the C API of a minor version before 1.0 may differ

# Sets `out` to TRUE when `version` is in the range.
function(kvgraft_llama_supported version out)
  string(REGEX REPLACE "[^0-9.].*$" "" plain "${version}")
  if(plain AND plain VERSION_GREATER_EQUAL KVGRAFT_LLAMA_MINIMUM
     AND plain VERSION_LESS KVGRAFT_LLAMA_BELOW)
    set(${out} TRUE PARENT_SCOPE)
  else()
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()
