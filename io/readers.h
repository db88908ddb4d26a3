// The kinds of reader that open_reader chooses from; parameters are open_reader's.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "io/reader.h"

namespace sluice::io {

// Null where io_uring cannot be used here; `refusal` then says why.
std::unique_ptr<Reader> open_uring_reader(std::span<const CheckpointFile> files,
                                          std::span<std::byte> staging,
                                          const ReaderOptions& options, const SystemCalls& calls,
                                          std::string& refusal);

// `remark`, if any, goes into the description.
std::unique_ptr<Reader> open_pread_reader(std::span<const CheckpointFile> files,
                                          std::span<std::byte> staging,
                                          const ReaderOptions& options, const SystemCalls& calls,
                                          const std::string& remark);

// Error(usage) where mappings cannot be copied from safely (system_calls.h: copy).
std::unique_ptr<Reader> open_mmap_reader(std::span<const CheckpointFile> files,
                                         std::span<std::byte> staging, const ReaderOptions& options,
                                         const SystemCalls& calls);

}  // namespace sluice::io
