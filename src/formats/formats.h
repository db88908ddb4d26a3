// The stored formats of one checkpoint.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "src/formats/stored_format.h"

namespace sluice {

// Returns whether `quantization_config` of config.json names a method that is read here.
bool names_stored_format(const JsonFields& quantization);
// Corrects config.json where the tensors show that they are stored in another way, with a warning.
void settle_stored_formats(Json& config, const io::CheckpointIndex& index);

class StoredFormats {
 public:
  // Both outlive this. Error(refused) for what the config names and is not supported.
  StoredFormats(const Json& config, const io::CheckpointIndex& index);

  struct Found {
    const StoredFormat* format = nullptr;
    const io::StoredTensor* codes = nullptr;  // null: the checkpoint lacks the piece
  };
  Found find(const Piece& piece) const;
  // Returns whether the checkpoint, or one of its files that is missing, has the weight, or codes
  // of it under another name.
  bool has(const std::string& weight) const;
  bool has_codes(const std::string& weight) const;  // under another name
  // The matrix that find() has found for a piece. Null, with its faults, where it does not fit.
  std::shared_ptr<const StoredMatrix> describe(const Found& found, const WantedMatrix& wanted,
                                               std::vector<std::string>& faults);
  // Reads the small tensors of the matrices described. Error(refused).
  void finish();

  // Returns whether a matrix that was described has a tensor beside its codes.
  bool claims(const std::string& tensor) const { return claimed_.contains(tensor); }
  // Returns whether a tensor that no part of the model has changes nothing.
  bool ignores(const io::StoredTensor& tensor) const;
  // Throws Error(refused) where a file that ought to have the weight is missing.
  void refuse_absent(const std::string& weight) const;
  bool are_input_major() const;  // some may be

 private:
  struct Described {
    const StoredFormat* format = nullptr;
    std::shared_ptr<StoredMatrix> matrix;
  };

  void read_orders(std::span<const Described> some);
  void read_small();

  const io::CheckpointIndex& index_;
  std::vector<std::unique_ptr<StoredFormat>> formats_;
  std::unordered_set<std::string> claimed_;
  std::vector<Described> to_order_;
  std::vector<Described> small_;
};

}  // namespace sluice
