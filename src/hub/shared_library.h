// Libraries that are loaded when a model is fetched, and not with the program: mapped into every
// process they would take several MiB of its budget.
#pragma once

#include <dlfcn.h>

#include <string>

#include "src/base/error.h"

namespace sluice {

class SharedLibrary {
 public:
  // Stays until the process ends. Throws Error(runtime) that names the package.
  SharedLibrary(const char* name, const char* package)
      : name_(name), handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr)
      fail(ErrorKind::runtime, "{} cannot be loaded, which fetching models needs; install {}", name,
           package);
  }

  template <class Function>
  void find(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(dlsym(handle_, symbol));
    if (function == nullptr) fail(ErrorKind::runtime, "{} has no {}", name_, symbol);
  }

 private:
  std::string name_;
  void* handle_;
};

}  // namespace sluice
