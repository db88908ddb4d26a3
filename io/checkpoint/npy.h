// Arrays of numpy: .npy files, and .npz archives of them.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "io/checkpoint/index.h"
#include "io/checkpoint/zip_directory.h"

namespace sluice::io {

// Types: little-endian integers and floats, and <V2, as bfloat16 is saved. An array of two
// dimensions in Fortran's order is column-major (StoredTensor::column_major). Throws Error(refused)
// naming file, array and fault; an object array, which would be a pickle, is one.
TensorFile read_npy(const std::filesystem::path& path, std::string name);

// True for the directory of an archive of numpy.savez.
bool is_npz(std::span<const ZipMember> members);
// The arrays of an archive, under their names there without ".npy".
std::vector<StoredTensor> read_npz(const Fd& fd, const CheckpointFile& file,
                                   std::span<const ZipMember> members, const std::string& where);

}  // namespace sluice::io
