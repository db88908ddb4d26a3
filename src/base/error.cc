#include "src/base/error.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace sluice {

std::string errno_text(int errno_value) { return std::generic_category().message(errno_value); }

void check_failed(std::string_view what, std::source_location where) {
  std::fprintf(stderr, "sluice: internal error: %.*s (%s:%u, %s). Please report this.\n",
               static_cast<int>(what.size()), what.data(), where.file_name(),
               static_cast<unsigned>(where.line()), where.function_name());
  std::abort();
}

}  // namespace sluice
