#include "src/plan/dummy.h"

#include "io/dummy.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/models/registry.h"
#include "src/plan/bind.h"

namespace sluice {

io::CheckpointIndex dummy_index(const ModelSource& source) {
  constexpr uint64_t kAlignment = 64, kMostBytes = uint64_t{1} << 62;
  Model model = read_model(source);
  if (!model.files.config.value("quantization_config", Json()).is_null())
    fail(ErrorKind::refused,
         "{}: quantization_config: dummy weights are BF16; leave it out, and quantize them with "
         "--quantization",
         source.config_name());
  build_root(model, {}, nullptr);
  uint64_t end = 0;
  std::vector<io::StoredTensor> tensors;
  for (WantedTensor& wanted : wanted_tensors(model)) {
    const std::optional<uint64_t> bytes = stored_bytes(DType::bf16, wanted.shape);
    if (!bytes || *bytes > kMostBytes - end)
      fail(ErrorKind::refused, "{}: {} would have the shape {}, which is too large",
           source.config_name(), wanted.name, wanted.shape.str());
    tensors.push_back({.name = std::move(wanted.name),
                       .dtype = DType::bf16,
                       .shape = std::move(wanted.shape),
                       .offset = end,
                       .bytes = *bytes});
    end = round_to(end + *bytes, kAlignment);
  }
  std::vector<io::CheckpointFile> files{io::dummy_file(end)};
  return {std::move(files), std::move(tensors), {}};
}

}  // namespace sluice
