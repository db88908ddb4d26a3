#include "io/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/json_events.h"
#include "tests/io/support.h"

namespace sluice::io {
namespace {

using namespace std::string_literals;
using test::TempDir;
using testing::AllOf;
using testing::HasSubstr;

TensorFile read(const TempDir& dir, std::string_view bytes) {
  std::filesystem::remove(dir / "f.safetensors");  // ext4 flushes a file that is overwritten
  test::write_file(dir / "f.safetensors", bytes);
  return read_safetensors_header(dir / "f.safetensors", "f.safetensors");
}

TEST(Safetensors, ReadsAnyOrderOfNames) {
  TempDir dir;
  std::string header = R"({"b":{"shape":[2,3],"data_offsets":[4,16],"dtype":"I16"},)"
                       R"("__metadata__":{"format":"pt","x":"y"},)"
                       R"("empty":{"dtype":"F32","shape":[7,0],"data_offsets":[4,4]},)"
                       R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )";
  TensorFile file = read(dir, safetensors(header, std::string(16, 'd')));
  EXPECT_EQ(file.file.size, 8 + header.size() + 16);
  ASSERT_EQ(file.tensors.size(), 3u);
  EXPECT_EQ(file.tensors[0].name, "a");
  EXPECT_EQ(file.tensors[0].shape, Shape());
  EXPECT_EQ(file.tensors[0].offset, 8 + header.size());
  EXPECT_EQ(file.tensors[1].name, "empty");
  EXPECT_EQ(file.tensors[1].bytes, 0u);
  EXPECT_EQ(file.tensors[2].name, "b");
  EXPECT_EQ(file.tensors[2].dtype, DType::i16);
  EXPECT_EQ(file.tensors[2].shape, (Shape{2, 3}));
  EXPECT_EQ(file.tensors[2].offset, 8 + header.size() + 4);
  EXPECT_EQ(file.tensors[2].bytes, 12u);
}

TEST(Safetensors, IgnoresFieldsThatTheReferenceIgnores) {
  TempDir dir;
  std::string header =
      R"({"a":{"note":{"shape":[1.5,{"dtype":3}]},"dtype":"U8","shape":[3],"data_offsets":[0,3],)"
      R"("more":[[1],-2,null,true]},"__metadata__":{}})";
  EXPECT_EQ(read(dir, safetensors(header, "123")).tensors.at(0).shape, Shape{3});
  EXPECT_TRUE(read(dir, safetensors("{}", "")).tensors.empty());
}

struct HostileSafetensors {
  std::string fault;  // part of the message
  std::string bytes;
};

std::string one(std::string_view fields, std::string_view data = "1234") {
  return safetensors(fmt::format(R"({{"w.x":{{{}}}}})", fields), data);
}

std::vector<HostileSafetensors> hostile_entries() {
  auto shape = [](std::string_view dims) {
    return one(fmt::format(R"("dtype":"U8","shape":{},"data_offsets":[0,4])", dims));
  };
  auto offsets = [](std::string_view values) {
    return one(fmt::format(R"("dtype":"U8","shape":[4],"data_offsets":{})", values));
  };
  return {
      {"negative", shape("[-4]")},
      {"negative", shape("[-2,-2]")},
      {"not an integer", shape("[4.0]")},
      {"not an integer", shape("[1e2]")},
      {"not an integer", shape("[18446744073709551616]")},
      {"overflows", shape("[9223372036854775808]")},
      {"overflows", shape("[4294967296,4294967296]")},
      {"overflows", shape("[4294967296,4294967296,0]")},
      {"list of integers", shape("[[4]]")},
      {"list of integers", shape("[\"4\"]")},
      {"list of integers", shape("[null]")},
      {"shape must be", shape("4")},
      {"shape must be", shape("{}")},
      {"shape must be", shape("null")},
      {"too many dimensions", shape("[4,1,1,1,1,1,1,1,1]")},
      {"needs 3 bytes, but 4", shape("[3]")},
      {"needs 0 bytes, but 4", shape("[4,0]")},
      {"negative", offsets("[-1,3]")},
      {"not an integer", offsets("[0,4.5]")},
      {"not an integer", offsets("[0,99999999999999999999]")},
      {"two numbers", offsets("[0]")},
      {"two numbers", offsets("[]")},
      {"more than two", offsets("[0,4,4]")},
      {"data_offsets must be", offsets("\"0,4\"")},
      {"list of integers", offsets("[[0,4]]")},
      {"before they begin", offsets("[4,0]")},
      {"beyond the end", offsets("[1,5]")},
      {"needs 4 bytes, but 18446744073709551615", offsets("[0,18446744073709551615]")},
      {"beyond the end", offsets("[18446744073709551611,18446744073709551615]")},
      {"no dtype", one(R"("shape":[4],"data_offsets":[0,4])")},
      {"no shape", one(R"("dtype":"U8","data_offsets":[0,4])")},
      {"no data_offsets", one(R"("dtype":"U8","shape":[4])")},
      {"no dtype", one("")},
      {"dtype twice", one(R"("dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4])")},
      {"shape twice", one(R"("dtype":"U8","shape":[4],"shape":[4],"data_offsets":[0,4])")},
      {"data_offsets twice",
       one(R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"data_offsets":[0,4])")},
      {"unknown dtype U9", one(R"("dtype":"U9","shape":[4],"data_offsets":[0,4])")},
      {"unknown dtype u8", one(R"("dtype":"u8","shape":[4],"data_offsets":[0,4])")},
      {"unknown dtype ", one(R"("dtype":"","shape":[4],"data_offsets":[0,4])")},
      {"unknown dtype Q4_K", one(R"("dtype":"Q4_K","shape":[256],"data_offsets":[0,4])")},
      {"needs 2 bytes, but 4", one(R"("dtype":"F4","shape":[4],"data_offsets":[0,4])")},
      {"not a whole number of blocks: F4",
       one(R"("dtype":"F4","shape":[3,3],"data_offsets":[0,4])")},
      {"not a whole number of blocks: F6_E2M3",
       one(R"("dtype":"F6_E2M3","shape":[],"data_offsets":[0,4])")},
      {"dtype must be", one(R"("dtype":8,"shape":[4],"data_offsets":[0,4])")},
      {"dtype must be", one(R"("dtype":["U8"],"shape":[4],"data_offsets":[0,4])")},
  };
}

TEST(Safetensors, RefusesHostileEntries) {
  TempDir dir;
  for (const HostileSafetensors& h : hostile_entries()) {
    std::string message = error_of(ErrorKind::refused, [&] { read(dir, h.bytes); });
    EXPECT_THAT(message, AllOf(HasSubstr("f.safetensors"), HasSubstr("w.x"), HasSubstr(h.fault)))
        << h.bytes;
  }
}

std::string with_length(uint64_t length, std::string_view rest) {
  std::string bytes = safetensors("", rest);
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  return bytes;
}

std::vector<HostileSafetensors> hostile_safetensors() {
  std::string a = entry("a", 0, 2), b = entry("b", 2, 4);
  std::string good = object({a, b});
  std::string deep(5000, '[');
  return {
      {"0 bytes", ""},
      {"7 bytes", "1234567"},
      {"is empty", safetensors("", "")},
      {"larger than the file", with_length(good.size() + 5, good + "1234")},
      {"larger than the file", with_length(UINT64_MAX, good + "1234")},
      {"larger than the file", with_length(UINT64_MAX - 7, good + "1234")},
      {"larger than the file", with_length(uint64_t{1} << 63, good + "1234")},
      {"HTML", "<!DOCTYPE html><html><body>404</body></html>"},
      {"HTML", "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>"},
      {"Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"},
      {"JSON text", R"({"error":"Repository not found"})"},
      {"ZIP", "PK\x03\x04 0123456789"},
      {"pickle", "\x80\x02}q\x01(X\x05"},
      {"begin with '{'", safetensors(" " + good, "1234")},
      {"begin with '{'", safetensors("[]", "")},
      {"begin with '{'", safetensors("\xef\xbb\xbf" + good, "1234")},
      {"not valid JSON", safetensors(good.substr(0, good.size() - 1), "1234")},
      {"not valid JSON", safetensors(good + "x", "1234")},
      {"not valid JSON", safetensors(good + "{}", "1234")},
      {"contains a NUL", safetensors(good + std::string("\0\0{}", 4), "1234")},
      {"not valid JSON", safetensors("{/**/" + good.substr(1), "1234")},
      {"not valid JSON", safetensors("{'a':1}", "")},
      {"not valid JSON", safetensors(R"({"a":NaN})", "")},
      {"must be a JSON object", safetensors(R"({"a":1e999})", "")},
      {"must be a JSON object",
       safetensors(fmt::format(R"({{"a":{}}})", std::string(5000, '7')), "")},
      {"UTF-8", safetensors("{\"\xff\":1}", "")},
      {"UTF-8", safetensors("{\"\xc0\x80\":1}", "")},
      {"surrogate", safetensors(R"({"\ud800":1})", "")},
      {"must be a JSON object", safetensors(R"({"a":17})", "")},
      {"must be a JSON object", safetensors(R"({"a":[]})", "")},
      {"must be a JSON object", safetensors(R"({"a":null})", "")},
      {"nested too deeply", safetensors("{\"a\":{\"x\":" + deep, "")},
      {"nested too deeply",
       safetensors(fmt::format(R"({{"a":{{"x":{}}}}})", deep.substr(0, 40)), "")},
      {"map strings to strings", safetensors(R"({"__metadata__":{"a":1}})", "")},
      {"map strings to strings", safetensors(R"({"__metadata__":{"a":{}}})", "")},
      {"object of strings", safetensors(R"({"__metadata__":"a"})", "")},
      {"twice", safetensors(R"({"__metadata__":{},"__metadata__":{}})", "")},
      {"a: the name is there twice", safetensors(object({a, a}), "12")},
      {"a: the name is there twice", safetensors(object({a, entry("a", 2, 4)}), "1234")},
      {"twice", safetensors(object({a, entry(R"(\u0061)", 2, 4)}), "1234")},
      {"control character", safetensors(object({entry(R"(a\u0000b)", 0, 2)}), "12")},
      {"control character", safetensors(object({entry(R"(a\u001b[2J)", 0, 2)}), "12")},
      {"overlaps", safetensors(object({a, entry("b", 1, 4)}), "1234")},
      {"overlaps", safetensors(object({entry("a", 0, 4), b}), "1234")},
      {"overlaps", safetensors(object({a, entry("b", 0, 2)}), "12")},
      {"overlaps", safetensors(object({entry("a", 0, 4), entry("b", 2, 2)}), "1234")},
      {"hole of 1 bytes", safetensors(object({a, entry("b", 3, 4)}), "1234")},
      {"hole of 1 bytes", safetensors(object({entry("a", 1, 2)}), "12")},
      {"1 bytes after the last", safetensors(good, "12345")},
      {"4 bytes after the last", safetensors("{}", "1234")},
      {"not downloaded completely", safetensors(good, "123")},
      {"not downloaded completely", safetensors(good, "")},
  };
}

TEST(Safetensors, RefusesHostileFiles) {
  TempDir dir;
  for (const HostileSafetensors& h : hostile_safetensors()) {
    std::string message = error_of(ErrorKind::refused, [&] { read(dir, h.bytes); });
    EXPECT_THAT(message, AllOf(HasSubstr("f.safetensors"), HasSubstr(h.fault))) << h.bytes;
    bool clean = std::none_of(message.begin(), message.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e;
    });
    EXPECT_TRUE(clean && message.size() < 1000) << message;
  }
}

TEST(Safetensors, RefusesAHugeHeaderWithoutReadingIt) {
  TempDir dir;
  test::write_file(dir / "f", with_length(100'000'001, "{"));
  std::filesystem::resize_file(dir / "f", 200'000'000);  // a hole: costs no disk
  EXPECT_THAT(error_of(ErrorKind::refused, [&] { read_safetensors_header(dir / "f", "f"); }),
              HasSubstr("above the format's limit"));
}

// Reads a text in pieces of so many bytes, and writes its events: kind, depth, name, text, number.
std::string events_of(std::string_view text, size_t piece) {
  std::string events;
  auto next = [&] {
    const std::string_view first = text.substr(0, piece);
    text.remove_prefix(first.size());
    return first;
  };
  read_json_events(next, "text", 4, [&](const JsonEvent& e) {
    events += fmt::format("{} {} {}={}{}; ", static_cast<int>(e.kind), e.depth, e.key, e.text,
                          e.kind == JsonEvent::Kind::natural ? fmt::to_string(e.number) : "");
  });
  return events;
}

TEST(JsonEvents, AreThoseOfTheText) {
  const std::vector<std::pair<std::string, std::string>> texts{
      {R"( {"a" : [1, -2, 0.5, 1e2, "x"], "b":{} , "":null}
)",
       "0 0 =; 1 1 a=; 4 2 =1; 5 2 =; 6 2 =; 6 2 =; 3 2 =x; 2 1 =; 0 1 b=; 2 1 =; 7 1 =; 2 0 =; "},
      {"[18446744073709551615,18446744073709551616,-9223372036854775808,-9223372036854775809,-0]",
       "1 0 =; 4 1 =18446744073709551615; 6 1 =; 5 1 =; 6 1 =; 4 1 =0; 2 0 =; "},
      {"[1E+2,1e-2,true,false,[[[]]]]",
       "1 0 =; 6 1 =; 6 1 =; 7 1 =; 7 1 =; 1 1 =; 1 2 =; 1 3 =; 2 3 =; 2 2 =; 2 1 =; 2 0 =; "},
      {R"("\"\\\/\t\u00e9\ud83d\ude00)"
       "\xc3\xa9\xf4\x8f\xbf\xbf\"",
       "3 0 =\"\\/\t\xc3\xa9\xf0\x9f\x98\x80\xc3\xa9\xf4\x8f\xbf\xbf; "}};
  for (const auto& [text, events] : texts)
    for (size_t piece : {1, 3, 1000}) EXPECT_EQ(events_of(text, piece), events);
}

TEST(JsonEvents, RefuseWhatIsNoJson) {
  std::vector<std::string> texts{"", " ", "[1 2]", "\"\n\"", "\"\xc3", "\"\\"};
  std::istringstream words(
      R"({ [1,] [,1] {"a"} {"a":} {"a":1,} {a:1} 01 - 1. .5 1e +1 tru nulls [1}
      "\x" "\u12g4" "\ud800" "\ude00" "\ud800\u0041" [[[[[]]]]] )"
      "\"\x80\" \"\xc3\" \"\xe0\x80\x80\" \"\xed\xa0\x80\" \"\xf5\x80\x80\x80\"");
  for (std::string word; words >> word;) texts.push_back(word);
  for (const std::string& text : texts)
    EXPECT_THAT(error_of(ErrorKind::refused, [&] { events_of(text, 2); }), HasSubstr("text: "));
}

// Only the beginning of a longer string is kept; wherever it is cut, the rest is a string.
TEST(JsonEvents, KeepTheBeginningOfALongString) {
  const std::vector<std::string> units{
      "a",   "\u00e9", "\xc3\xa9", "\xf0\x9f\x98\x80", "\\ud83d\\ude00",
      "\\n", "\\\\",   "\\\"",     "\\u00e9x"};
  for (const std::string& unit : units) {
    for (size_t before : {0, 1, 2, 3, 4, 5}) {
      std::string value = std::string(before, 'b');
      while (value.size() < 3 * kLongestJsonString) value += unit;
      const std::string text = fmt::format(R"({{"{0}":"{0}","k":1}} )", value);
      size_t at = 0;
      auto pieces = [&] {  // as a file gives it
        std::string_view piece = std::string_view(text).substr(at, 1000);
        at += piece.size();
        return piece;
      };
      size_t longest = 0;
      std::vector<std::string> keys;
      read_json_events(pieces, "text", 4, [&](const JsonEvent& e) {
        longest = std::max({longest, e.key.size(), e.text.size()});
        if (e.kind == JsonEvent::Kind::natural) keys.emplace_back(e.key);
      });
      EXPECT_LE(longest, kLongestJsonString + 16);
      EXPECT_GE(longest, kLongestJsonString / 6);
      EXPECT_EQ(keys, std::vector<std::string>{"k"}) << "what follows the string";
    }
  }
}

TEST(JsonEvents, RefuseALongStringWithoutAnEnd) {
  const std::string endless = "{\"k\":\"" + std::string(2 * kLongestJsonString, 'a');
  for (const std::string& text : {endless, endless + "\\\"", endless + "\0\"}"s,
                                  "[" + std::string(kLongestJsonString * 2, '1') + "]"})
    EXPECT_THAT(error_of(ErrorKind::refused,
                         [&] { read_json_events(text, "text", 4, [](const JsonEvent&) {}); }),
                HasSubstr("not valid JSON"));
}

// Any change of a byte gives the same tensors as before, other tensors that fit the file, or an
// Error.
TEST(Safetensors, SurvivesRandomDamage) {
  TempDir dir;
  test::Random random("damaged headers");
  std::string good = safetensors(
      object({entry("a", 0, 2), entry("b", 2, 4), R"("__metadata__":{"format":"pt"})"}), "1234");
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string bytes = good;
    for (int64_t n = random.between(1, 3); n > 0; --n) {
      auto at = static_cast<size_t>(random.between(0, static_cast<int64_t>(bytes.size()) - 1));
      switch (random.between(0, 2)) {
        case 0:
          bytes[at] = static_cast<char>(random.between(0, 255));
          break;
        case 1:
          bytes.erase(at, 1);
          break;
        default:
          bytes.insert(at, 1, "0129-+.eE[]{},:\"\\"[random.between(0, 16)]);
      }
    }
    try {
      for (const StoredTensor& t : read(dir, bytes).tensors) {
        ASSERT_LE(t.offset + t.bytes, bytes.size());
      }
    } catch (const Error& e) {
      ASSERT_EQ(e.kind(), ErrorKind::refused) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 250);
}

}  // namespace
}  // namespace sluice::io
