// Files of torch.save: a zip archive of a pickle (data.pkl) and a member for each storage, or, as
// before PyTorch 1.6, pickles and then the storages one after another.
// https://docs.pytorch.org/docs/stable/notes/serialization.html
#pragma once

#include <span>
#include <string>

#include "io/checkpoint/index.h"
#include "io/checkpoint/zip_directory.h"

namespace sluice::io {

// True for the directory of an archive of torch.save.
bool is_torch_archive(std::span<const ZipMember> members);

// Both read the tensors of a dict of tensors, or of the one under "state_dict", "model_state_dict",
// "model" or "module" of a dict. Its other values are ignored. Nothing of the pickle is run
// (io/checkpoint/pickle.h). A tensor lies in its storage by rows, or with its last two dimensions
// exchanged (StoredTensor::column_major). Throws Error(refused) naming file, tensor and fault.
std::vector<StoredTensor> read_torch_archive(const Fd& fd, const CheckpointFile& file,
                                             std::span<const ZipMember> members,
                                             const std::string& where);
std::vector<StoredTensor> read_torch_stream(const Fd& fd, const CheckpointFile& file,
                                            const std::string& where);

}  // namespace sluice::io
