# Fails if an object file defines a weak or unique symbol outside of its instruction set's own namespace: a function
# or variable of which the linker keeps one copy out of several translation units. Sanitizers' own are not counted.
foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9a-f]+ [WVu] [^\n]+" shared "${symbols}")
  list(FILTER shared EXCLUDE REGEX "sluice3cpu[0-9]+${ISA}|asan|ubsan|tsan|DW.ref")
  if(shared)
    message(SEND_ERROR "${object} shares: ${shared}")
  endif()
endforeach()
