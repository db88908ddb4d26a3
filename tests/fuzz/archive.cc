// A zip archive of torch.save or numpy.savez, or an array of numpy; the first byte says which.
#include "io/checkpoint/index.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(archive) {
  std::string_view text = test::text_of(data, size);
  if (text.empty()) return 0;
  const bool is_array = text[0] == 'a';
  text.remove_prefix(1);
  static const test::TempDir archives, arrays;
  if (!is_array) {
    test::write_file(archives / "pytorch_model.bin", text);
    return test::taken_or_refused([&] { io::open_checkpoint(archives.path(), {}); });
  }
  std::filesystem::create_directories(arrays / "np");
  test::write_file(arrays / "np/weight_names.json", R"(["x"])");
  test::write_file(arrays / "np/x.npy", text);
  return test::taken_or_refused([&] { io::open_checkpoint(arrays.path(), {}); });
}
