// All stored formats, in the order in which a checkpoint is compared with them.
#pragma once

#include "src/formats/stored_format.h"

namespace sluice {

extern const FormatKind kGptqFormat, kAwqFormat, kPackedIntsFormat, kEightBitIntsFormat,
    kBitsAndBytesFormat, kTernaryFormat, kStaticRangeFormat, kMlxFormat, kTorchAoFormat, kHqqFormat,
    kNvfp4Format, kMxfp4Format, kMxfp8Format, kFp8Format, kBlocksFormat, kPlainFormat;

inline constexpr const FormatKind* kStoredFormats[] = {
    &kGptqFormat,         &kAwqFormat,     &kPackedIntsFormat,  &kEightBitIntsFormat,
    &kBitsAndBytesFormat, &kTernaryFormat, &kStaticRangeFormat, &kMlxFormat,
    &kTorchAoFormat,      &kHqqFormat,     &kNvfp4Format,       &kMxfp4Format,
    &kMxfp8Format,        &kFp8Format,     &kBlocksFormat,      &kPlainFormat};

}  // namespace sluice
