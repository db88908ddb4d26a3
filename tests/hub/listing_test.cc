// A repository's files as the hub lists them: hostile ones are refused, and copies for other
// programs are left out.
#include "src/hub/listing.h"

#include <gtest/gtest.h>

#include "src/base/error.h"

namespace sluice {
namespace {

const std::string kCommit(40, 'a');

Json file(const std::string& name, const Json& size = 10) {
  return {{"rfilename", name}, {"size", size}, {"blobId", std::string(40, 'b')}};
}

HubListing listing_of(const Json& siblings) {
  return parse_listing({{"sha", kCommit}, {"siblings", siblings}}, "the answer");
}

TEST(HubListing, FilesOutsideAndFieldsThatAreWrongAreRefused) {
  const std::string longest(255, 'A');
  EXPECT_EQ(listing_of(Json::array({file(longest + "/" + longest)})).files.size(), 1U);
  for (const std::string& name : {std::string("../x"), std::string("/x"), std::string("a/../../x"),
                                  std::string(), std::string("."), std::string("a/./b"),
                                  std::string("a/"), longest + "A", "a/A" + longest + "/b"})
    EXPECT_THROW(listing_of(Json::array({file(name)})), Error) << name;
  for (const Json& size : {Json(-1), Json("10"), Json(1e99), Json(int64_t{1} << 60), Json()})
    EXPECT_THROW(listing_of(Json::array({file("x", size)})), Error) << size;
  Json no_hash = file("x");
  no_hash["blobId"] = "../../etc/passwd";
  EXPECT_THROW(listing_of(Json::array({no_hash})), Error);
  EXPECT_THROW(parse_listing({{"sha", "../x"}, {"siblings", Json::array()}}, "the answer"), Error);
  EXPECT_THROW(listing_of({{"x", 1}}), Error);
  EXPECT_THROW(parse_listing(Json::array(), "the answer"), Error);
}

std::vector<std::string> chosen(const std::vector<std::string>& names, const std::string& model,
                                const std::vector<std::string>& include = {}) {
  Json siblings = Json::array();
  for (const std::string& name : names) siblings.push_back(file(name));
  std::vector<std::string> files;
  for (const HubFile& each :
       files_to_fetch(listing_of(siblings), *parse_hub_name(model), include, {"*.md"}))
    files.push_back(each.file);
  return files;
}

TEST(HubListing, WhatAModelIsRunFromIsFetched) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(
      chosen({"config.json", "model.safetensors", "pytorch_model.bin", "onnx/model.safetensors",
              "original/consolidated.safetensors", "1_Pooling/config.json", "README.md"},
             "acme/tiny"),
      (Names{"config.json", "model.safetensors", "1_Pooling/config.json"}));
  // Without safetensors files of torch; without those Meta's.
  const Names torch{"config.json", "pytorch_model-00001-of-00002.bin",
                    "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"};
  Names more = torch;
  more.insert(more.end(),
              {"training_args.bin", "consolidated.00.pth", "original/model.safetensors"});
  EXPECT_EQ(chosen(more, "acme/tiny"), torch);
  const Names meta{"consolidated.00.pth", "consolidated.01.pth", "params.json", "tokenizer.model"};
  EXPECT_EQ(chosen(meta, "acme/tiny"), meta);
  EXPECT_EQ(chosen({"config.json", "consolidated.safetensors"}, "acme/tiny"),
            (Names{"config.json", "consolidated.safetensors"}));
  EXPECT_EQ(chosen({"t-Q4_K_M.gguf", "t-Q8_0-00001-of-00002.gguf", "t-Q8_0-00002-of-00002.gguf"},
                   "acme/tiny:Q8_0"),
            (Names{"t-Q8_0-00001-of-00002.gguf", "t-Q8_0-00002-of-00002.gguf"}));
  // Names are no patterns.
  const Names odd{"[v2] t-Q8_0.gguf"};
  EXPECT_EQ(chosen({"v t-Q4_0.gguf", odd[0]}, "acme/tiny:Q8_0"), odd);
  EXPECT_EQ(chosen({"[a].json", "a.json.md", "*.safetensors"}, "acme/tiny"),
            (Names{"[a].json", "*.safetensors"}));
  EXPECT_EQ(chosen({"a.bin", "b.md", "c.txt"}, "acme/tiny", {"*.bin", "*.md"}), Names{"a.bin"});
  EXPECT_THROW(chosen({"a.bin"}, "acme/tiny"), Error);
  EXPECT_THROW(chosen({"t-Q5_0.gguf", "t-Q8_0.gguf"}, "acme/tiny"),
               Error);  // a choice is to be made
}

}  // namespace
}  // namespace sluice
