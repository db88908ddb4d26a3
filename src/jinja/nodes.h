// A parsed template: a tree whose nodes know what they do. expressions.cc and statements.cc say it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/jinja/operators.h"
#include "src/jinja/value.h"

namespace sluice::jinja {

class Run;
struct Filter;
struct Test;

struct Node {
  int line = 1;
  virtual ~Node() = default;
};

struct Expression : Node {
  Value value(Run& run) const;

 protected:
  virtual Value evaluate(Run& run) const = 0;
};
using Expr = std::unique_ptr<Expression>;

enum class Flow : uint8_t { next, leave_loop, next_iteration };

struct Statement : Node {
  Flow execute(Run& run) const;

 protected:
  virtual Flow work(Run& run) const = 0;
};
using Body = std::vector<std::unique_ptr<Statement>>;

struct CallArguments {
  std::vector<Expr> positional;
  std::vector<std::pair<std::string, Expr>> named;
  Expr list;  // *args
  Expr dict;  // **kwargs
  Arguments values(Run& run) const;
};

struct Literal : Expression {
  Value constant;
  Value evaluate(Run&) const override { return constant; }
};

struct Name : Expression {
  std::string name;
  Value evaluate(Run& run) const override;
};

struct ListDisplay : Expression {
  std::vector<Expr> items;
  bool tuple = false;
  Value evaluate(Run& run) const override;
};

struct DictDisplay : Expression {
  std::vector<std::pair<Expr, Expr>> entries;
  Value evaluate(Run& run) const override;
};

struct Signed : Expression {
  Expr operand;
  bool minus = true;
  Value evaluate(Run& run) const override;
};

struct Operation : Expression {
  Arithmetic op = Arithmetic::add;
  Expr left, right;
  Value evaluate(Run& run) const override;
};

struct Concatenation : Expression {
  std::vector<Expr> parts;
  Value evaluate(Run& run) const override;
};

struct Not : Expression {
  Expr operand;
  Value evaluate(Run& run) const override;
};

struct Logic : Expression {
  bool is_or = false;
  Expr left, right;
  Value evaluate(Run& run) const override;
};

enum class Relation : uint8_t {
  equal,
  unequal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in
};

struct Comparison : Expression {
  Expr first;
  std::vector<std::pair<Relation, Expr>> rest;
  Value evaluate(Run& run) const override;
};

struct Conditional : Expression {
  Expr test, yes, no;  // no: may be null
  Value evaluate(Run& run) const override;
};

struct AttributeOf : Expression {
  Expr object;
  std::string name;
  Value evaluate(Run& run) const override;
};

struct ItemOf : Expression {
  Expr object, key;
  Value evaluate(Run& run) const override;
};

struct SliceOf : Expression {
  Expr object, start, stop, step;  // the bounds may be null
  Value evaluate(Run& run) const override;
};

struct Call : Expression {
  Expr callee;
  CallArguments arguments;
  Value evaluate(Run& run) const override { return call(run, nullptr); }
  Value call(Run& run, const Value* caller) const;
};

struct FilterUse : Expression {
  Expr subject;
  std::string name;
  const Filter* filter = nullptr;
  CallArguments arguments;
  Value evaluate(Run& run) const override;
};

struct TestUse : Expression {
  Expr subject;
  std::string name;
  const Test* test = nullptr;
  CallArguments arguments;
  Value evaluate(Run& run) const override;
};

// The text that the body of a block prints.
struct Capture : Expression {
  Body body;
  Value evaluate(Run& run) const override;
};

// The target of an assignment: a name, name.attribute of a namespace, or several of them.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> parts;
  bool tuple = false;
};

struct Output : Statement {
  std::string text;  // where there is no expression
  Expr expression;
  Flow work(Run& run) const override;
};

struct For : Statement {
  Target target;
  Expr source;
  Expr test;  // may be null
  bool recursive = false;
  Body body, otherwise;
  Flow work(Run& run) const override;
  // `depth`: how often the loop has called itself.
  void loop(Run& run, const Value& values, int depth) const;
};

struct If : Statement {
  std::vector<std::pair<Expr, Body>> branches;
  Body otherwise;
  Flow work(Run& run) const override;
};

struct Set : Statement {
  Target target;
  Expr value;
  Flow work(Run& run) const override;
};

// Parameters of a macro or a call block, and its body.
struct Callable {
  std::string name;
  std::vector<std::pair<std::string, Expr>> parameters;  // with defaults; null: none
  Body body;
  bool takes_list = false;    // the body reads varargs
  bool takes_dict = false;    // kwargs
  bool takes_caller = false;  // caller
};

struct MacroDefinition : Statement {
  Callable macro;
  Flow work(Run& run) const override;
};

struct CallBlock : Statement {
  std::unique_ptr<Call> call;
  Callable caller;
  Flow work(Run& run) const override;
};

// with, block, generation: a body with names of its own.
struct Block : Statement {
  std::vector<std::pair<Target, Expr>> names;
  Body body;
  Flow work(Run& run) const override;
};

struct Jump : Statement {
  Flow flow = Flow::next;
  Flow work(Run&) const override { return flow; }
};

}  // namespace sluice::jinja
