// Pickles as data: what they say is read, what they would run is refused by its name.
#include "io/checkpoint/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/io/support.h"

namespace sluice::io {
namespace {

using namespace std::string_view_literals;
using testing::HasSubstr;
using Kind = PickleValue::Kind;

constexpr std::string_view kAccepted[] = {"torch.Size"};

std::string pickle_refusal(std::string_view text) {
  return error_of(ErrorKind::refused, [&] { Pickle(text, kAccepted, "f"); });
}

// pickle.dumps({"a": (1, -2, None, True), "b": [2.5, 1 << 70]}) of protocol 2, and two bytes more.
TEST(Pickle, ReadsValues) {
  constexpr std::string_view kText =
      "\x80\x02}q\0(X\1\0\0\0aq\1(K\1J\xfe\xff\xff\xffN\x88tq\2X\1\0\0\0bq\3]q\4(G@\4\0\0\0\0\0\0"
      "\x8a\t\0\0\0\0\0\0\0\0@eu.zz"sv;
  const Pickle pickle(kText, kAccepted, "f");
  EXPECT_EQ(pickle.bytes(), kText.size() - 2);
  ASSERT_EQ(pickle.top().kind, Kind::dict);
  const auto items = pickle.items(pickle.top());
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(pickle.text(items[0]), "a");
  const auto tuple = pickle.items(items[1]);
  ASSERT_EQ(tuple.size(), 4u);
  EXPECT_EQ(tuple[0].number, 1);
  EXPECT_EQ(tuple[1].number, -2);
  EXPECT_EQ(tuple[2].kind, Kind::none);
  EXPECT_EQ(tuple[3].kind, Kind::boolean);
  const auto list = pickle.items(items[3]);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].kind, Kind::real);
  EXPECT_EQ(list[1].kind, Kind::big_integer);
}

TEST(Pickle, NumbersMayHaveMoreBytesThanTheyNeed) {
  const auto number = [](std::string_view text) { return Pickle(text, kAccepted, "f").top(); };
  EXPECT_EQ(number("\x8a\0."sv).number, 0);
  EXPECT_EQ(number("\x8a\x09\x10\0\0\0\0\0\0\0\0."sv).number, 16);
  EXPECT_EQ(number("\x8a\x0a\xf8\xff\xff\xff\xff\xff\xff\xff\xff\xff."sv).number, -8);
  EXPECT_EQ(number("\x8a\x09\0\0\0\0\0\0\0\x80\0."sv).kind, Kind::big_integer);
  EXPECT_EQ(number("\x8a\x09\0\0\0\0\0\0\0\0\xff."sv).kind, Kind::big_integer);
}

TEST(Pickle, KeepsCallsAsData) {
  constexpr std::string_view kText =
      "\x80\2ctorch\nSize\nK\5\x85\x85R\x85"
      "ccollections\nOrderedDict\n)R}X\1\0\0\0mNsb\x86."sv;
  const Pickle pickle(kText, kAccepted, "f");
  const auto both = pickle.items(pickle.top());
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1].kind, Kind::dict);  // its state is not kept
  EXPECT_TRUE(pickle.items(both[1]).empty());
  const PickleValue call = pickle.items(both[0])[0];
  ASSERT_EQ(call.kind, Kind::call);
  EXPECT_EQ(pickle.items(call)[0].kind, Kind::global);
  EXPECT_EQ(pickle.items(pickle.items(call)[1]).size(), 1u);
}

TEST(Pickle, NamesWhatItDoesNotAccept) {
  EXPECT_THAT(pickle_refusal("cos\nsystem\n(S'x'\ntR."), HasSubstr("asks for os.system"));
  EXPECT_THAT(pickle_refusal("(S'x'\nios\nsystem\n."), HasSubstr("os.system"));
  EXPECT_THAT(pickle_refusal("\x80\4\x8c\5posix\x8c\6system\x93."sv), HasSubstr("posix.system"));
  EXPECT_THAT(pickle_refusal("\x80\2ctorch\nSize\n)\x81."sv), HasSubstr("torch.Size with NEWOBJ"));
  EXPECT_THAT(pickle_refusal("\x80\2ctorch\nSize\n}b."sv), HasSubstr("BUILD"));
  EXPECT_THAT(pickle_refusal("\x80\2\x82\1."sv), HasSubstr("EXT"));
  EXPECT_THAT(pickle_refusal("\x80\2K\1K\2R."sv), HasSubstr("arguments"));
  EXPECT_THAT(pickle_refusal("\x80\2K\1)R."sv), HasSubstr("no function"));
  EXPECT_THAT(pickle_refusal("\x80\6."sv), HasSubstr("protocol 6"));
  EXPECT_THAT(pickle_refusal("\xff."sv), HasSubstr("opcode 0xff"));
}

TEST(Pickle, RefusesWhatIsNotWhole) {
  EXPECT_THAT(pickle_refusal(""), HasSubstr("ends early"));
  EXPECT_THAT(pickle_refusal("N"), HasSubstr("ends early"));
  EXPECT_THAT(pickle_refusal("."), HasSubstr("empty stack"));
  EXPECT_THAT(pickle_refusal("(."), HasSubstr("empty stack"));
  EXPECT_THAT(pickle_refusal("t."), HasSubstr("mark"));
  EXPECT_THAT(pickle_refusal("\x80\2hc."sv), HasSubstr("memo 99"));
  EXPECT_THAT(pickle_refusal("\x80\2B\xff\xff\xff\xffx."sv), HasSubstr("ends early"));
  EXPECT_THAT(pickle_refusal("\x80\4\x95\xff\xff\xff\xff\xff\xff\xff\xff}."sv), HasSubstr("frame"));
  EXPECT_THAT(pickle_refusal("}K\1u."), HasSubstr("mark"));
  EXPECT_THAT(pickle_refusal("}(K\1u."), HasSubstr("no value"));
  EXPECT_THAT(pickle_refusal("I1\n(K\1K\2u."), HasSubstr("no dict"));
  EXPECT_THAT(pickle_refusal("I99999999999999999999\n."), HasSubstr("64 bits"));
}

// A list of lists of the list before, 2^60 leaves: each is there once.
TEST(Pickle, WhatTheMemoMultipliesIsThereOnce) {
  std::string text = "]q";
  text += '\0';
  for (char i = 1; i < 60; ++i) {
    text += "](h";
    text += static_cast<char>(i - 1);
    text += "h";
    text += static_cast<char>(i - 1);
    text += "eq";
    text += i;
  }
  const Pickle pickle(text + ".", kAccepted, "f");
  EXPECT_EQ(pickle.items(pickle.top()).size(), 2u);
  // And one that holds itself.
  const Pickle circle("]q\1h\1a."sv, kAccepted, "f");
  EXPECT_EQ(circle.items(circle.top()).size(), 1u);
  // The limits of what is there.
  const std::string many(size_t{9} << 20, 'N');
  EXPECT_THAT(pickle_refusal(many), HasSubstr("values"));
  EXPECT_THAT(pickle_refusal(std::string(size_t{3} << 20, ')')), HasSubstr("lists, tuples"));
}

}  // namespace
}  // namespace sluice::io
