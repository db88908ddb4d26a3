// A pickle by itself, and as what follows the head of a file of torch.save as it was before 1.6.
#include "io/checkpoint/pickle.h"

#include "io/checkpoint/index.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

namespace {

// The magic number, version 1001, and {"little_endian": True}.
using namespace std::string_view_literals;
constexpr std::string_view kHead =
    "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}X\r\0\0\0"
    "little_endian\x88s."sv;

}  // namespace

FUZZ_TARGET(pickle) {
  const std::string_view text = test::text_of(data, size);
  test::taken_or_refused([&] {
    constexpr std::string_view kGlobals[] = {"torch._utils._rebuild_tensor_v2", "torch.Size"};
    const io::Pickle pickle(text, kGlobals, "input");
    check(pickle.bytes() <= text.size(), "no more than is there");
    size_t parts = 0;
    for (const io::PickleValue& id : pickle.persistent()) parts += pickle.items(id).size();
    check(parts == pickle.persistent().size(), "an id each");
  });
  static const test::TempDir dir;
  test::write_file(dir / "pytorch_model.bin", std::string(kHead) + std::string(text));
  return test::taken_or_refused([&] { io::open_checkpoint(dir.path(), {}); });
}
