// The body of a request for a completion.
#include "src/serve/completion.h"

#include "tests/fuzz/fuzz.h"

using namespace sluice;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = test::text_of(data, size);
  static Session session([] {
    SessionOptions options;
    options.model = SLUICE_SOURCE_DIR "/tools/demo-model";
    options.threads = 1;
    return options;
  }());
  return test::taken_or_refused(
      [&] { parse_completion(parse_json(text, "input"), "input", session); });
}
