#include "src/base/thread.h"

#include "src/base/error.h"

namespace sluice {

void fail_thread(const ThreadUse& use, const std::system_error& fault) {
  fail(ErrorKind::runtime,
       "threads cannot be made: {} {} wanted for {}, and after {} the system refused ({}); lower "
       "--threads or raise the limit (ulimit -u, or pids.max of the cgroup; ulimit -v for their "
       "stacks)",
       use.wanted, use.wanted == 1 ? "was" : "were", use.what, use.made,
       errno_text(fault.code().value()));
}

}  // namespace sluice
