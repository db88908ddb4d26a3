// The values of a template: Python's, as far as templates use them. All but namespaces never
// change.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/jinja/fault.h"
#include "src/jinja/meter.h"

namespace sluice::jinja {

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  range,
  dict,
  view,      // keys(), values(), items() of a dict
  iterator,  // what can be passed through once
  object,    // what has attributes or can be called: macros, methods, loop, namespaces
};

// Base of the objects that values share. Its bytes are the meter's. `height`: how many values lie
// within each other; more than kMaxHeight are refused, so that walking through a value needs little
// stack.
class Object {
 public:
  static constexpr int kMaxHeight = 200;

  Object(Meter& meter, uint64_t bytes, int height = 0);
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  int height() const { return height_; }

 private:
  Charge charge_;
  int height_;
};

struct Text;
struct List;
struct Dict;
struct Iterator;
class Instance;
class Changing;

class Value {
 public:
  Value() = default;  // undefined
  static Value none() { return Value(Kind::none); }
  static Value boolean(bool b) {
    Value v(Kind::boolean);
    v.integer_ = b ? 1 : 0;
    return v;
  }
  static Value integer(int64_t i) {
    Value v(Kind::integer);
    v.integer_ = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::real);
    v.real_ = d;
    return v;
  }
  // An integer that 64 bits do not hold: its digits, and the real number nearest to it.
  static Value large_integer(double d, Value digits) {
    Value v = real(d);
    v.object_ = std::move(digits.object_);
    return v;
  }
  Value(Kind kind, std::shared_ptr<const Object> object)
      : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_integer() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integer() || kind_ == Kind::real; }
  bool is_sequence() const {
    return kind_ == Kind::list || kind_ == Kind::tuple || kind_ == Kind::range;
  }
  bool truth() const { return integer_ != 0; }  // of a boolean
  int64_t integer() const { return integer_; }  // of an integer or a boolean
  double real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  const std::string& text() const;
  const std::string* digits() const;  // of a large integer; null: is none
  const Text& text_object() const;
  const std::vector<Value>& items() const;  // of a sequence or a view
  const List& list() const;
  const Dict& dict() const;
  Iterator& iterator() const;
  Instance& instance() const;  // of an object
  const Object* object() const { return object_.get(); }
  std::shared_ptr<const Object> share() const { return object_; }
  int height() const { return object_ ? object_->height() : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::undefined;
  union {
    int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<const Object> object_;
};

using Values = std::vector<Value>;

// Why a value is undefined, for the error where it is used.
struct Missing : Object {
  Missing(Meter& meter, std::string why, FaultKind fault)
      : Object(meter, sizeof(Missing) + why.size()), message(std::move(why)), kind(fault) {}
  std::string message;
  FaultKind kind;
};

struct Text : Object {
  Text(Meter& meter, std::string text, bool is_markup);
  std::string bytes;  // valid UTF-8
  size_t characters;
  bool markup;  // HTML that has been escaped
  bool ascii() const { return characters == bytes.size(); }
};

struct List : Object {
  List(Meter& meter, Values values);
  Values items;
  std::string_view type;          // of a view: dict_items, say
  bool group = false;             // a pair of groupby(): grouper, list
  int64_t bounds[3] = {0, 0, 1};  // of a range
};

// Entries in the order in which their keys came first.
struct Dict : Object {
  using Entry = std::pair<Value, Value>;
  Dict(Meter& meter, std::vector<Entry> pairs);  // of equal keys the last value counts

  const Value* find(const Value& key) const;  // Fault where `key` cannot be a key
  const Value* find(std::string_view key) const;
  std::vector<Entry> entries;

 private:
  struct Less {
    using is_transparent = void;
    bool operator()(const Value& a, const Value& b) const;
    bool operator()(const Value& a, std::string_view b) const;
    bool operator()(std::string_view a, const Value& b) const;
  };
  std::map<Value, size_t, Less> index_;
};

struct Iterator : Object {
  Iterator(Meter& meter, Values values, std::string_view type_name);
  std::optional<Value> take();
  Values items;
  size_t next = 0;
  std::string_view type;
  std::optional<Fault> fault;  // met behind the items
};

// Arguments of a call.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A value with attributes, or one that can be called.
class Instance : public Object {
 public:
  using Object::Object;
  virtual std::string type() const = 0;  // for messages
  virtual std::string shown() const { return fmt::format("<{}>", type()); }
  virtual std::optional<Value> attribute(std::string_view) { return std::nullopt; }
  // The values of `namespace` under these names; null: is none.
  virtual Changing* names() { return nullptr; }
  virtual bool callable() const { return false; }
  virtual Value call(const Arguments&) { refuse(FaultKind::value, "{} is not callable", shown()); }
};

Value make_text(Meter& meter, std::string text, bool markup = false);
Value make_list(Meter& meter, Values items);
Value make_tuple(Meter& meter, Values items);
Value make_view(Meter& meter, Values items, std::string_view type);
Value make_range(Meter& meter, int64_t start, int64_t stop, int64_t step);
Value make_dict(Meter& meter, std::vector<Dict::Entry> entries);
Value make_iterator(Meter& meter, Values items, std::string_view type = "generator");
// `fill` makes the items. Its faults, but for limits, occur when the items are passed through.
template <class Fill>
Value make_lazy(Meter& meter, Fill fill) {
  Values items;
  std::optional<Fault> fault;
  try {
    fill(items);
  } catch (const Fault& met) {
    if (met.kind() == FaultKind::limit) throw;
    fault = met;
  }
  const Value made = make_iterator(meter, std::move(items));
  made.iterator().fault = std::move(fault);
  return made;
}
Value make_missing(Meter& meter, std::string why, FaultKind kind = FaultKind::undefined);

// Throws what an undefined value says where it is used.
[[noreturn]] void fail_undefined(const Value& value);
void need_defined(const Value& value);

// Total order of keys, in which equal ones are those of Python's dict: 1, 1.0 and True are. Fault
// for values that cannot be keys.
int compare_keys(const Value& a, const Value& b);

// The name of Python's type of a value: 'str', 'dict'.
std::string type_name(const Value& value);

}  // namespace sluice::jinja
