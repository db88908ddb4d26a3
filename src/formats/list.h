// All stored formats, in the order in which a checkpoint is compared with them.
#pragma once

#include "src/formats/stored_format.h"

namespace sluice {

extern const FormatKind kGptqFormat, kAwqFormat, kFp8Format, kMxfp4Format, kBlocksFormat,
    kPlainFormat;

inline constexpr const FormatKind* kStoredFormats[] = {
    &kGptqFormat, &kAwqFormat, &kFp8Format, &kMxfp4Format, &kBlocksFormat, &kPlainFormat};

}  // namespace sluice
