// Libraries that are loaded when they are needed, and not with the program: a machine may lack
// them, and mapped into every process they take MiB of its budget.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"

namespace sluice {

// Stays until the process ends: what a library has started cannot be undone.
class SharedLibrary {
 public:
  // The first of `names` that is found. `what`: its name in errors.
  SharedLibrary(std::string what, const std::vector<std::string>& names) : what_(std::move(what)) {
    for (const std::string& name : names) {
      handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
    }
  }
  bool found() const { return handle_ != nullptr; }

  // Sets `function` to the one of this name. Throws Error(runtime) where the library has none.
  template <class Function>
  void load(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (function == nullptr)
      fail(ErrorKind::runtime, "{}: the library that was found lacks {}", what_, name);
  }

 private:
  std::string what_;
  void* handle_ = nullptr;
};

}  // namespace sluice
