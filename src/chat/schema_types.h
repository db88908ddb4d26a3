// Types of JSON that a schema lets be, as far as it says so where it stands. Models write strings
// between tags as they are and everything else as JSON, so that only this tells a string from a
// number.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

class SchemaTypes {
 public:
  static constexpr unsigned kString = 1, kNull = 2, kNumber = 4, kBoolean = 8, kArray = 16,
                            kObject = 32;

  // `root`: what a $ref of the schema points into.
  template <class SomeJson>
  static SchemaTypes of(const SomeJson& schema, const SomeJson& root) {
    return SchemaTypes(read(schema, root, 0));
  }
  template <class SomeJson>
  static unsigned type_of(const SomeJson& value) {
    if (value.is_string()) return kString;
    if (value.is_null()) return kNull;
    if (value.is_number()) return kNumber;
    if (value.is_boolean()) return kBoolean;
    return value.is_array() ? kArray : kObject;
  }

  SchemaTypes() = default;  // nothing is said
  bool has(unsigned type) const { return (types_ & type) != 0; }
  // A value is a string as it stands: it must be one, or null, or nothing is said.
  bool is_text() const {
    return has(kUnsaid) || (has(kString) && !has(kNumber | kBoolean | kArray | kObject));
  }
  bool may_be_null() const { return has(kNull) && !has(kUnsaid); }

 private:
  static constexpr unsigned kUnsaid = 64, kAny = 127;
  static constexpr int kMostLevels = 16;

  explicit SchemaTypes(unsigned types) : types_(types) {}

  static unsigned named(std::string_view name) {
    if (name == "string") return kString;
    if (name == "null") return kNull;
    if (name == "number" || name == "integer") return kNumber;
    if (name == "boolean") return kBoolean;
    return name == "array" ? kArray : name == "object" ? kObject : 0;
  }

  // The union of what `each` gives for the items of a list.
  template <class SomeJson, class Each>
  static unsigned any_of(const SomeJson& list, Each each) {
    unsigned types = 0;
    if (list.is_array())
      for (const SomeJson& item : list) types |= each(item);
    return types == 0 ? kAny : types;
  }

  template <class SomeJson>
  static unsigned read(const SomeJson& schema, const SomeJson& root, int level) {
    if (!schema.is_object() || level > kMostLevels) return kAny;
    auto within = [&](const SomeJson& other) { return read(other, root, level + 1); };
    auto name = [](const SomeJson& type) {
      return type.is_string() ? named(type.template get<std::string>()) : 0;
    };
    unsigned types = kAny;
    if (schema.contains("type")) {
      const SomeJson& type = schema.at("type");
      types = type.is_array() ? any_of(type, name) : name(type);
    } else if (schema.contains("properties")) {
      types = kObject;
    } else if (schema.contains("items")) {
      types = kArray;
    }
    for (const char* keyword : {"anyOf", "oneOf"})
      if (schema.contains(keyword)) types &= any_of(schema.at(keyword), within);
    if (schema.contains("allOf") && schema.at("allOf").is_array())
      for (const SomeJson& each : schema.at("allOf")) types &= within(each);
    if (schema.contains("enum")) types &= any_of(schema.at("enum"), type_of<SomeJson>);
    if (schema.contains("const")) types &= type_of(schema.at("const"));
    if (const SomeJson* target = referred(schema, root)) types &= within(*target);
    const bool nullable = schema.contains("nullable") && schema.at("nullable") == true;
    return nullable && (types & kUnsaid) == 0 ? types | kNull : types;
  }

 public:
  // Finds the target of a $ref; null: there is none, or it points nowhere.
  template <class SomeJson>
  static const SomeJson* referred(const SomeJson& schema, const SomeJson& root) {
    if (!schema.contains("$ref") || !schema.at("$ref").is_string()) return nullptr;
    const std::string text = schema.at("$ref").template get<std::string>();
    if (!text.starts_with("#/")) return nullptr;
    try {
      const typename SomeJson::json_pointer at(text.substr(1));
      return root.contains(at) ? &root.at(at) : nullptr;
    } catch (const typename SomeJson::exception&) {
      return nullptr;  // no pointer
    }
  }

 private:
  unsigned types_ = kAny;
};

}  // namespace sluice
