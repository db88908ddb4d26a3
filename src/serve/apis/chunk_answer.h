// Answers of OpenAI's older APIs: their streams are chunks with some choices each.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/serve/apis/answer.h"

namespace sluice {

class ChunkAnswer : public Answer {
 protected:
  // `object` names a chunk.
  ChunkAnswer(Completion asked, CompletionHead head, const Tokenizer* tokenizer, const char* object)
      : Answer(std::move(asked), std::move(head), tokenizer), object_(object) {}

  // Appends a chunk with the choices that write(json) makes.
  template <class Choices>
  void chunk(std::string& out, Choices write) const {
    chunk(out, write, nullptr);
  }

  // Appends the end: what the request took, if it asked for that, and the mark behind all chunks.
  void finish_stream(std::string& out) const {
    if (asked_.include_usage) {
      const Usage whole = usage();
      chunk(out, [](JsonWriter&) {}, &whole);
    }
    out += kStreamDone;
  }

  void write_head(JsonWriter& json, const char* object) const {
    json.member("id", head_.id);
    json.member("object", object);
    json.member("created", head_.created);
    json.member("model", head_.model);
  }

  static void write_ids(JsonWriter& json, const char* key, const std::vector<int32_t>& ids) {
    json.key(key);
    json.array(ids);
  }

 private:
  template <class Choices>
  void chunk(std::string& out, Choices write, const Usage* whole) const {
    append_event(out, [&](JsonWriter& json) {
      json.begin_object();
      write_head(json, object_);
      json.key("choices");
      json.array([&] { write(json); });
      if (asked_.include_usage) {
        json.key("usage");
        if (whole != nullptr) {
          write_usage(json, *whole);
        } else {
          json.value(nullptr);
        }
      }
      json.end_object();
    });
  }

  const char* object_;
};

}  // namespace sluice
