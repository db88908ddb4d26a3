# The kernels, for the two that compile them: nvcc, and for the emulator the C++ compiler (tests/support). Most of what that
# one does for a small kernel is to read headers. Those of one line are compiled together: a name of their unnamed namespaces
# is in one of them only.
function(sluice_cuda_units units)
  set(together
    "activate add block_scales causal_conv embed"
    "decode_rows finish_columns gemv_f32 index rope scale"
    "finish_sums likeliest linear norm route"
    "expert_lists round_rows scan selective_scan"
    "pool store_kv streams top_logits unpack"
    attention_combine attention_decode attention_prefill attention_wide choose_positions encode experts_few experts_grouped
    experts_many gemv_grouped gemv_panels gemv_units grouped multiply_heads)
  set(all "")
  foreach(sources ${together})
    separate_arguments(sources)
    list(LENGTH sources count)
    list(TRANSFORM sources REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/kernels/cuda/\\1.cu")
    sluice_units(unit ${count} ${sources})
    list(APPEND all ${unit})
  endforeach()
  set(${units} ${all} PARENT_SCOPE)
endfunction()
