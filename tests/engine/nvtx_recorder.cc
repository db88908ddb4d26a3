// Takes a profiler's place for NVTX: a library that a process loads, here to write down the ranges.
#include <nvtx3/nvToolsExt.h>

#include <string>

namespace {

std::string text;  // of one thread, the test's

int push(const char* name) {
  text += std::string("(") + name + " ";
  return 0;
}
int pop() {
  text += ")";
  return 0;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) const char* recorded_ranges() { return text.c_str(); }

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePop) {
    return 0;
  }
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

}  // extern "C"
