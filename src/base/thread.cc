#include "src/base/thread.h"

#include "src/base/error.h"

namespace sluice {

void fail_thread(const ThreadUse& use, const std::system_error& fault) {
  fail(ErrorKind::runtime,
       "cannot start thread {} of {} for {}: {}; lower --threads, or raise the limit (ulimit -u, "
       "pids.max of the cgroup; ulimit -v for their stacks)",
       use.made + 1, use.wanted, use.what, errno_text(fault.code().value()));
}

}  // namespace sluice
