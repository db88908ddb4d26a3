#!/usr/bin/env python3
"""Writes schemas.jsonl, rules.jsonl and patterns.jsonl beside itself: make_golden.py [SEED].

Random JSON schemas with texts that they accept and refuse, by the package jsonschema (rules.jsonl:
of keywords that are said in terms of others); random regular expressions with texts that match and
do not, by Python's re. Texts that are accepted are written as
src/grammar writes JSON: members in declared order, bounded white space.
"""

import json
import pathlib
import random
import re
import sys

import jsonschema

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ["a", "ab", "name", "größe", "x y", 'q"t', "id", "items", "b", "abc"]
WORDS = ["", "a", "b", "ab", "hello", "é", "日本", 'q"', "\\", "tab\t", "😀x", "aaaaaaaa", "2024"]
PATTERNS = ["^[a-c]{2,3}$", "^\\d+$", "x", "^(foo|ba[rz])+$", "^[^\"a]*$", "^\\w+@\\w+\\.com$"]
TYPES = ["string", "integer", "number", "boolean", "null", "object", "array"]


def random_schema(r, depth, defs):
    kind = r.random()
    if kind < 0.08:
        return {"enum": r.sample([1, "a", None, True, "ab", 2.5, [1, "x"], {"k": 1}], r.randint(1, 4))}
    if kind < 0.12:
        return {"const": r.choice(["x", 3, None, {"a": [1]}])}
    if kind < 0.2 and depth > 0:
        return {r.choice(["anyOf", "oneOf"]): [
            {"type": "string", "maxLength": 3}, {"type": r.choice(["integer", "null", "array"])}]}
    if kind < 0.26 and defs:
        return {"$ref": "#/$defs/" + r.choice(defs)}
    if kind < 0.3:
        return {"type": r.sample(["string", "integer", "null", "boolean"], 2)}
    if kind < 0.34 and depth > 0:
        return {"allOf": [random_object(r, depth - 1, defs, ["a", "b"]), {"required": ["b"]}]}
    return of_type(r, r.choice(TYPES if depth > 0 else TYPES[:5]), depth, defs)


def random_object(r, depth, defs, names=None):
    names = names or r.sample(NAMES, r.randint(0, 4))
    schema = {"type": "object", "properties": {n: random_schema(r, depth - 1, defs) for n in names}}
    required = [n for n in names if r.random() < 0.5]
    if required:
        schema["required"] = required
    return schema


def of_type(r, kind, depth, defs):
    schema = {"type": kind}
    if kind == "string":
        choice = r.random()
        if choice < 0.3:
            low = r.randint(0, 4)
            schema |= {"minLength": low} if r.random() < 0.6 else {}
            schema |= {"maxLength": low + r.randint(0, 5)} if r.random() < 0.8 else {}
        elif choice < 0.5:
            schema["pattern"] = r.choice(PATTERNS)
        elif choice < 0.6:
            schema["format"] = r.choice(["date", "ipv4", "uuid"])
    elif kind in ("integer", "number"):
        low = r.randint(-1200, 1200)
        high = low + r.choice([0, 1, 7, 60, 2500])
        strict = kind == "integer" or high > low
        if r.random() < 0.6:
            schema["exclusiveMinimum" if strict and r.random() < 0.3 and high > low + 1 else "minimum"] = low
        if r.random() < 0.6:
            schema["exclusiveMaximum" if strict and r.random() < 0.3 and high > low + 1 else "maximum"] = high
    elif kind == "array":
        if r.random() < 0.3:
            schema["prefixItems"] = [random_schema(r, depth - 1, defs) for _ in range(r.randint(1, 3))]
            schema["items"] = r.choice([False, {"type": "integer"}])
        else:
            schema["items"] = random_schema(r, depth - 1, defs)
            low = r.randint(0, 3)
            schema |= {"minItems": low} if r.random() < 0.5 else {}
            schema |= {"maxItems": low + r.randint(0, 3)} if r.random() < 0.5 else {}
    elif kind == "object":
        if r.random() < 0.2:
            return {"type": "object", "additionalProperties": random_schema(r, depth - 1, defs)}
        schema = random_object(r, depth, defs)
        schema["additionalProperties"] = r.choice([False, False, True, {"type": "integer"}])
    return schema


def random_value(r, depth):
    """Any JSON."""
    kind = r.randint(0, 6 if depth > 0 else 4)
    if kind == 5:
        return [random_value(r, depth - 1) for _ in range(r.randint(0, 3))]
    if kind == 6:
        return {n: random_value(r, depth - 1) for n in r.sample(NAMES, r.randint(0, 3))}
    return [r.choice(WORDS), r.randint(-1500, 1500), r.random() * 100 - 50, r.random() < 0.5, None][kind]


def number_near(r, schema):
    low = schema.get("minimum", schema.get("exclusiveMinimum", -50))
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + 100))
    value = r.randint(min(low, high) - 2, max(low, high) + 2)
    return value if schema["type"] == "integer" or r.random() < 0.5 else value + round(r.random(), 3)


def string_for(r, schema):
    form = schema.get("format")
    if form:
        return {"date": f"{r.randint(1000, 2999)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}",
                "ipv4": ".".join(str(r.randint(0, 255)) for _ in range(4)),
                "uuid": "".join(r.choice("0123456789abcdefABCDEF") if c == "x" else c
                                for c in "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")}[form]
    if "pattern" in schema:
        return r.choice(["ab", "abc", "12", "x", "_x\ny", "foobar", "baz", "", "\\", "a1@b.com", "é\t"])
    text = r.choice(WORDS)
    while len(text) < schema.get("minLength", 0):
        text += r.choice(["z", "é", '"', "\n"])
    return text[:schema.get("maxLength", 99)]


def value_for(r, schema, defs, depth):
    """A value that is meant to be valid, in the canonical form; it may fail to be."""
    if depth < -6 or schema is True:
        return None
    if "$ref" in schema:
        return value_for(r, defs[schema["$ref"].rsplit("/", 1)[1]], defs, depth - 1)
    if "allOf" in schema:
        whole = dict(schema["allOf"][0])
        whole["required"] = whole.get("required", []) + ["b"]
        return value_for(r, whole, defs, depth)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return value_for(r, r.choice(schema[key]), defs, depth - 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return r.choice(schema["enum"])
    kind = schema["type"]
    if isinstance(kind, list):
        return value_for(r, {"type": r.choice(kind)}, defs, depth)
    if kind == "string":
        return string_for(r, schema)
    if kind in ("integer", "number"):
        return number_near(r, schema)
    if kind == "boolean":
        return r.random() < 0.5
    if kind == "null":
        return None
    if kind == "array":
        prefix = [value_for(r, s, defs, depth - 1) for s in schema.get("prefixItems", [])]
        items = schema.get("items", {"type": "integer"})
        if items is False:
            return prefix
        low = schema.get("minItems", 0)
        count = r.randint(low, schema.get("maxItems", low + 3))
        return prefix + [value_for(r, items, defs, depth - 1) for _ in range(count)]
    made = {}
    for name, inner in schema.get("properties", {}).items():
        if name in schema.get("required", []) or r.random() < 0.5:
            made[name] = value_for(r, inner, defs, depth - 1)
    more = schema.get("additionalProperties", False)
    if more is not False and r.random() < 0.5:
        for name in ("other", "abcd", "na"):
            made[name] = random_value(r, 1) if more is True else value_for(r, more, defs, depth - 1)
    return made


def changed(r, value):
    """Some other value, near to this one."""
    if isinstance(value, dict) and value and r.random() < 0.8:
        value = dict(value)
        name = r.choice(list(value))
        if r.random() < 0.3:
            del value[name]
        else:
            value[name] = changed(r, value[name])
        return value
    if isinstance(value, list) and value and r.random() < 0.8:
        value = list(value)
        at = r.randrange(len(value))
        value[at:at + 1] = r.choice([[], [changed(r, value[at])], [value[at], value[at]]])
        return value
    if isinstance(value, str):
        return r.choice([value + "x", value[1:], value * 3, 1, None])
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return r.choice([value + 1000, -value, value + 0.5, str(value), value - 1])
    return random_value(r, 1)


def written(r, value):
    how = r.choice([{}, {"separators": (",", ":")}, {"indent": 2}, {"indent": "\t"}])
    return json.dumps(value, ensure_ascii=False, **how)


def golden_schema(r):
    defs = {}
    for name in ("node", "leaf"):
        defs[name] = of_type(r, r.choice(TYPES[:5]), 1, [])
    if r.random() < 0.5:
        defs["node"] = {"type": "object", "properties": {
            "v": {"type": "integer"},
            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["v", "next"], "additionalProperties": False}
    schema = random_schema(r, 3, list(defs))
    schema["$defs"] = defs
    check = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    accepted, refused = set(), set()
    for _ in range(30):
        value = value_for(r, schema, defs, 3)
        if check.is_valid(value):
            accepted.add(written(r, value))
        for other in (value, changed(r, value), changed(r, changed(r, value)), random_value(r, 2)):
            if not check.is_valid(other):
                refused.add(written(r, other))
    return {"schema": json.dumps(schema, ensure_ascii=False),
            "accepted": sorted(accepted, key=len)[:5], "refused": sorted(refused, key=len)[:6]}


def small_rule(r):
    """A schema of small values, often of several keywords."""
    kind = r.randint(0, 8)
    if kind == 0:
        return {"type": "string", "pattern": r.choice(PATTERNS + ["^[a-c]+$", "b", "^(?=.*b)[a-c]{2,}$"]),
                "minLength": r.randint(0, 2), "maxLength": r.randint(2, 5)}
    if kind == 1:
        return {"type": "string", "not": r.choice([{"enum": ["a", "ab", 1]}, {"pattern": "^a"}, {"const": "b"},
                                                   {"minLength": 2}, {"maxLength": 1}])}
    if kind == 2:
        return {"type": "integer", "multipleOf": r.choice([2, 7, 25]), **r.choice([{}, {"minimum": -30, "maximum": 60}])}
    if kind == 3:
        return {"type": "number", "minimum": r.choice([0.5, -2.25, 10]), "exclusiveMaximum": r.choice([12.5, 99.125]),
                **r.choice([{}, {"multipleOf": 0.5}])}
    if kind == 4:
        return {"type": ["integer", "string", "null"], "not": {"type": r.choice(["integer", "string", "null"])}}
    if kind == 5:
        return {"enum": [1, 2, "a", "ab", None, True, [1], {"a": 1}],
                **r.choice([{"minLength": 2}, {"not": {"type": "string"}}, {"minimum": 2}, {"required": ["a"]}])}
    if kind == 6:
        return {"type": "array", "items": {"enum": r.sample(["a", "b", 1, None, True], 3)}, "uniqueItems": True,
                "minItems": r.randint(0, 2)}
    if kind == 7:
        return {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 20},
                "contains": {"minimum": 10}, "minContains": r.randint(0, 2),
                **r.choice([{}, {"maxContains": 2}, {"maxItems": 3}])}
    return r.choice([{"type": "boolean"}, {"const": "a"}, {"type": "null"}, {"type": "integer", "not": {"const": 3}}])


def object_rule(r):
    names = ["kind", "a", "b", "c"]
    schema = {"type": "object", "properties": {"kind": {"enum": ["x", "y"]}, **{n: small_rule(r) for n in names[1:]}},
              "required": r.sample(names, r.randint(0, 2)), "additionalProperties": False}
    if not schema["required"]:
        del schema["required"]
    one = r.choice(names[1:])
    schema |= r.choice([
        {"if": {"properties": {"kind": {"const": "x"}}, "required": ["kind"]}, "then": {"required": [one]},
         "else": {"properties": {one: False}}},
        {"dependentRequired": {one: ["kind"]}},
        {"dependentSchemas": {one: {"properties": {"kind": {"const": "y"}}}}},
        {"not": {"required": [one, "kind"]}},
        {"minProperties": r.randint(0, 3), "maxProperties": 3},
        {"anyOf": [{"required": [one]}, {"not": {"required": ["kind"]}}]},
        {"not": {"properties": {"kind": {"const": "x"}}}}])
    return schema


def keys_rule(r):
    return r.choice([
        {"type": "object", "patternProperties": {"^a": small_rule(r), "b$": {"type": ["string", "integer", "null"]}},
         "additionalProperties": False},
        {"type": "object", "propertyNames": {"enum": ["a", "b", "ab"]}, "additionalProperties": small_rule(r)},
        {"type": "object", "propertyNames": {"pattern": "^[ab]+$", "maxLength": 2}, "additionalProperties": small_rule(r)},
        {"allOf": [{"type": "object", "properties": {"a": small_rule(r)}, "required": ["a"]},
                   {"properties": {"b": small_rule(r)}}], "unevaluatedProperties": False}])


def rule_value(r, schema):
    """A small value; of an object, members in an order that is declared."""
    if schema.get("type") == "object" or "allOf" in schema:
        return {n: rule_value(r, {}) for n in ["kind", "a", "b", "c", "ab", "aab"] if r.random() < 0.4}
    value = r.choice(["x", "y", "a", "b", "ab", "bb", "abc", "cab", "", 1, 2, 3, 7, 14, 25, 50, -14, 0.5, 10.5, 12, 12.25,
                      None, True, False, [1], {"a": 1}, [], "array"])
    return [r.choice(["a", "b", 1, None, True, 5, 12, 15]) for _ in range(r.randint(0, 4))] if value == "array" else value


def golden_rule(r):
    schema = r.choice([small_rule, object_rule, object_rule, keys_rule])(r)
    check = jsonschema.Draft202012Validator(schema)
    accepted, refused = set(), set()
    for _ in range(1500):
        value = rule_value(r, schema)
        (accepted if check.is_valid(value) else refused).add(written(r, value))
    return {"schema": json.dumps(schema), "accepted": sorted(accepted, key=lambda t: r.random())[:7],
            "refused": sorted(refused, key=lambda t: r.random())[:7]}


def random_pattern(r, depth):
    kind = r.randint(0, 9 if depth > 0 else 4)
    if kind <= 2:
        return r.choice(["a", "b", "c", "é", "\\.", "-", "0"])
    if kind == 3:
        return r.choice(["[ab]", "[^a]", "[a-c0-9]", "\\d", "\\w", ".", "[^\\d]", "\\S", "[é-ü-]"])
    if kind == 4:
        return ""
    inner = random_pattern(r, depth - 1)
    if kind == 5:
        return f"({inner}|{random_pattern(r, depth - 1)})"
    if kind == 6:
        return f"(?:{inner}){r.choice('*+?')}"
    if kind == 7:
        low = r.randint(0, 3)
        return f"(?:{inner}){{{low},{low + r.randint(0, 3)}}}"
    if kind == 8:
        return f"(?:{inner}){{{r.randint(0, 3)}{r.choice(['', ','])}}}"
    return inner + random_pattern(r, depth - 1)


def golden_pattern(r):
    pattern = random_pattern(r, 4)
    compiled = re.compile(pattern, re.ASCII)
    accepted, refused = set(), set()
    for _ in range(120):
        text = "".join(r.choice("abc0é.-") for _ in range(r.randint(0, 6)))
        (accepted if compiled.fullmatch(text) else refused).add(text)
    return {"pattern": pattern, "accepted": sorted(accepted, key=len)[:6],
            "refused": sorted(refused, key=len)[:6]}


def main():
    r = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for name, make, count in (("schemas", golden_schema, 160), ("rules", golden_rule, 120), ("patterns", golden_pattern, 150)):
        lines = {}
        while len(lines) < count:
            made = make(r)
            if made["accepted"] and len(json.dumps(made)) < 1500:
                lines[json.dumps(made, ensure_ascii=False)] = None
        (HERE / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
