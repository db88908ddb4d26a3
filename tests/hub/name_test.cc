// Names of the hub's models, in every form that people paste.
#include "src/hub/name.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(HubName, EachFormMeansTheSame) {
  struct Form {
    const char* text;
    const char* meant;
  };
  for (const Form& form :
       {Form{"acme/tiny", "acme/tiny"},
        {"acme/tiny@main", "acme/tiny"},
        {"acme/tiny/", "acme/tiny"},
        {"hf.co/acme/tiny", "acme/tiny"},
        {"hf://acme/tiny", "acme/tiny"},
        {"https://huggingface.co/acme/tiny", "acme/tiny"},
        {"acme/tiny@v1.0", "acme/tiny@v1.0"},
        {"acme/tiny@refs/pr/3", "acme/tiny@refs/pr/3"},
        {"https://huggingface.co/acme/tiny/tree/dev", "acme/tiny@dev"},
        {"acme/tiny:Q4_K_M", "acme/tiny:Q4_K_M"},
        {"hf.co/acme/tiny:q8_0", "acme/tiny:q8_0"},
        {"acme/tiny@dev:Q8_0", "acme/tiny@dev:Q8_0"},
        {"https://huggingface.co/acme/tiny/resolve/main/tiny-Q8_0.gguf?download=true",
         "acme/tiny:tiny-Q8_0.gguf"},
        {"https://huggingface.co/acme/tiny/blob/main/config.json", "acme/tiny"},
        {"https://huggingface.co/acme/tiny/blob/dev/model.safetensors", "acme/tiny@dev"},
        {"https://huggingface.co/acme/tiny/blob/dev/sub/tiny.gguf",
         "acme/tiny@dev:sub/tiny.gguf"}}) {
    const std::optional<HubName> name = parse_hub_name(form.text);
    ASSERT_TRUE(name) << form.text;
    EXPECT_EQ(name->text(), form.meant) << form.text;
  }
}

TEST(HubName, PathsAndOtherTextsAreNone) {
  for (const char* text : {"",
                           "tiny",
                           "/",
                           "acme/",
                           "/tiny",
                           "./tiny",
                           "../tiny",
                           "acme/../tiny",
                           "a/b/c",
                           "~/tiny",
                           "/srv/models/tiny",
                           "acme/tiny@",
                           "acme/tiny:",
                           "acme/tiny@../x",
                           "acme/tiny:../x",
                           "acme/ti ny",
                           "ac--me/tiny",
                           "-acme/tiny",
                           "acme/tiny.",
                           "acme/ti\xC3\xA4y",
                           "acme/tiny@a//b",
                           "https://example.org/acme/tiny",
                           "https://huggingface.co/acme/tiny/discussions/1",
                           "https://huggingface.co/acme/tiny/resolve/../../x",
                           "C:\\models\\tiny"})
    EXPECT_FALSE(parse_hub_name(text)) << text;
  EXPECT_FALSE(parse_hub_name("acme/" + std::string(97, 'a')));
}

}  // namespace
}  // namespace sluice
