#!/usr/bin/env python3
"""Writes units.jsonl: small templates, and what transformers' environment makes of each.

Needs transformers and jinja2. A row is {template, variables, rendered} or {template, variables,
error}, where error is the name of Python's exception.
"""

import json
import pathlib

from transformers.utils import chat_template_utils

VARIABLES = {
    "s": "Hello, World", "t": "  two  words\tand\nlines\n ", "u": "Stra\u00dfe \u00c9t\u00e9 \u01c5 \u4e2d\U0001f642",
    "n": 42, "neg": -7, "f": 3.14159, "big": 1e20, "tiny": 1.5e-7, "yes": True, "no": False, "nil": None,
    "l": [3, 1, 2], "e": [], "m": [["a", 1], ["b", 2]], "words": ["pear", "Apple", "fig", "apple"],
    "d": {"b": 2, "a": 1, "c": {"x": [1, {"y": "z"}]}}, "ed": {},
    "p": [{"name": "Ann", "age": 31, "tags": ["x", "y"], "at": {"k": 2}},
          {"name": "bob", "age": 25, "tags": [], "at": {"k": 1}},
          {"name": "Cy", "age": 31, "tags": ["z"], "at": {"k": 3}, "extra": None}],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": [{"v": 3}]}, {"v": 4}]}, {"v": 5}],
    "large": 2**64 - 1, "huge": 10**25, "near": 2**53 + 1,
    "html": "<a href=\"x\">it's & more</a>",
}

UNITS = r'''
{{ large }} {{ large + 1 }} {{ large - 2 ** 64 }} {{ huge * huge }} {{ huge // 7 }} {{ huge % 7 }} {{ -huge // 7 }} {{ -huge % 7 }} {{ huge // -large }} {{ large / 2 }} {{ 2 ** 70 }} {{ 9223372036854775807 + 1 }} {{ -9223372036854775808 - 1 }} {{ -huge }} {{ huge ~ 'x' }}
{{ huge == huge + 1 }} {{ huge < huge + 1 }} {{ [huge + 1, huge, 1.5, -huge]|sort }} {{ {huge: 1, huge + 1: 2}|length }} {{ huge == 1e25 }} {{ near == 9007199254740992.0 }} {{ near > 9007199254740992.0 }} {{ huge in [huge + 1] }} {{ [huge, huge + 1]|unique|list|length }} {{ large == 18446744073709551615 }} {{ 0xFFFFFFFFFFFFFFFF }}
{{ '99999999999999999999'|int }} {{ '-0x1FFFFFFFFFFFFFFFFF'|int(base=16) }} {{ 1e20|int }} {{ huge|int }} {{ (-huge)|abs }} {{ huge|round }} {{ huge|float }} {{ [huge, 1]|sum }} {{ [large, 1]|max }} {{ huge is even }} {{ large is odd }} {{ large is divisibleby 5 }} {{ huge is number }} {{ huge|tojson }} {{ {'a': huge}|tojson }}
{{ '%d|%5d|%-25d|%x|%+d|%.1f|%s'|format(huge, 3, large, large, huge, huge, large) }} {{ '{}|{:d}|{:,}|{:x}|{:>30}|{:b}|{:.2e}'.format(huge, huge, huge, large, huge, large, huge) }}
{{ '{:d}'.format(1.5) }}
{{ '{:s}'.format(1) }}
{{ '{:.3}'.format(huge) }}
{{ huge // 0 }}
{{ 'The quick-brown fox--jumps over-the lazy dog.\n\nSupercalifragilistic x'|wordwrap(12) }}|{{ 'abcdefghij kl-mn'|wordwrap(4, false) }}|{{ 'well-known words'|wordwrap(7, break_on_hyphens=false) }}|{{ 'a b c'|wordwrap(1, wrapstring='/') }}|{{ ''|wordwrap }}|{{ '_a-_b  été'|wordwrap(3) }}
{{ 'a'|wordwrap(0) }}
{{ nil|wordwrap }}
<p{{ {'class': 'a "b"', 'id': none, 'n': 1, 'x': missing}|xmlattr }}>{{ {}|xmlattr }}|{{ {'a': 1}|xmlattr(false) }}
{{ {'a b': 1}|xmlattr }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 1 / 3 }}
{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 2 * 3 % 4 }} {{ 10 - 2 - 3 }} {{ 1 ~ 2 * 3 }} {{ not 1 == 2 }} {{ -n|abs }}
{{ 1e16 }} {{ 1e15 }} {{ 123456789012345678.0 }} {{ 0.0001 }} {{ 0.00001 }} {{ big }} {{ tiny }} {{ 1.0 }} {{ -0.0 }} {{ 1e22 }} {{ 1.1e-5 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ 0b101 }} {{ 0o17 }} {{ 0xFF }} {{ 1_0.5_0 }} {{ 1E3 }}
{{ true + 1 }} {{ true == 1 }} {{ 1.0 == 1 }} {{ 'a' * 3 }} {{ 3 * 'ab' }} {{ [0] * 3 }} {{ (1,) + (2,) }} {{ 'a' * -1 }}|
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ [1] + (2,) }}
{{ nil + 1 }}
{{ missing + 1 }}
{{ missing ~ 'x' }}|{{ missing }}|{{ missing|length }}|{{ missing|list }}|{{ missing|upper }}|{{ missing|string }}|
{{ missing.a }}
{{ missing['a'] }}
{{ d.missing }}|{{ d.missing.more }}
{{ d['missing'] }}|{{ nil.x }}|{{ nil['x'] }}|{{ n.x }}|{{ s.x }}|{{ l[10] }}|{{ l['a'] }}|{{ s[100] }}|{{ l[-4] }}|
{{ missing() }}
{{ n() }}
{{ s() }}
{{ d.a() }}
{{ missing == missing2 }} {{ missing == nil }} {{ missing != 1 }} {{ missing in l }} {{ 'a' in missing }}
{{ missing < 1 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }} {{ 3 > 2 >= 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1, 'a') < (1, 'b') }} {{ l == [3, 1, 2] }} {{ d == d }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1] == (1,) }}
{{ 1 < 'a' }}
{{ [1] < ['a'] }}
{{ {} < {} }}
{{ 'lo' in s }} {{ 'x' not in s }} {{ 3 in l }} {{ 'a' in d }} {{ 1 in d }} {{ '' in s }} {{ nil in [none] }} {{ 1.0 in l }} {{ true in l }}
{{ 1 in 'a' }}
{{ 1 in 5 }}
{{ 'a' if yes }}|{{ 'a' if no }}|{{ 'a' if no else 'b' if yes else 'c' }}
{{ ('a' if no).x }}
{{ yes and 'x' }} {{ no or 'y' }} {{ '' or [] or 0 or 'z' }} {{ 1 and 0 and 2 }} {{ not no and yes }} {{ not (no or yes) }}
{{ (1, 2, 3) }} {{ (1,) }} {{ () }} {{ 1, 2 }} {{ [1, [2, (3, {'k': none})]] }} {{ {'a': 'it\'s', "b": "q\"q", 'c': 'b\'"b'} }}
{{ ['\n\t\\', 'é', '\x01', '\u200b', '\U0001F642'] }}
{{ {1: 'a', 1.5: 'b', true: 'c', none: 'd', (1, 2): 'e'} }} {{ {1: 'a', 1.0: 'b'} }} {{ {'a': 1, 'a': 2} }}
{{ {[1]: 2} }}
{{ {1: 'one'}[1] }} {{ {1: 'one'}[true] }} {{ {(1, 2): 'x'}[1, 2] }} {{ d['c']['x'][1]['y'] }} {{ d.c.x.1.y }} {{ m[0][0] }} {{ m.1.0 }} {{ (1, 2)[0] }} {{ (1, 2).0 }}
{{ l[0:2] }} {{ l[:] }} {{ l[::-1] }} {{ l[::2] }} {{ l[-1:] }} {{ l[5:] }} {{ l[:-1] }} {{ l[2:0:-1] }} {{ l[-2:-1] }} {{ s[::3] }} {{ s[-5:] }} {{ u[::-1] }} {{ u[1:8:2] }} {{ (1, 2, 3)[1:] }} {{ s[none:3] }} {{ l[10:0:-2] }} {{ l[-10:10] }}
{{ l[::0] }}
{{ n[1:] }}
{{ d[1:] }}
{{ l['a':] }}
{{ nil[1:] }}
{{ u[0] }} {{ u[-1] }} {{ u[6] }} {{ u|length }} {{ u[4:6] }}
{{ 'a\tb\\n\'\x41\u00e9\U0001F642\101' }} {{ 'bad \q' }} {{ "\ud83d\ude42" is string }}
{{ '\x4' }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.swapcase() }} {{ 'hELLO wORLD'.capitalize() }} {{ u.upper() }} {{ u.lower() }} {{ u.title() }} {{ u.casefold() }} {{ 'ßa'.capitalize() }} {{ "they're bill's".title() }}
{{ s.split(',') }} {{ s.split(', ') }} {{ t.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c d'.split(none, 2) }} {{ ' a  b '.split(' ') }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'aXbX'.split('X') }} {{ 'a b c'.split(maxsplit=1) }} {{ 'a-b-c'.rsplit(sep='-') }}
{{ s.split('') }}
{{ s.split(1) }}
{{ 'a\nb\r\nc\rd\x0be'.splitlines() }} {{ 'a\nb\n'.splitlines(true) }} {{ 'a\n\nb'.splitlines() }}
{{ t.strip() }}| {{ t.lstrip() }}| {{ t.rstrip() }}| {{ 'xyhixy'.strip('yx') }} {{ 'xyhixy'.lstrip('x') }} {{ 'éhié'.rstrip('é') }} {{ ' x '.strip(none) }}|
{{ s.startswith('He') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('ld', 3) }} {{ s.startswith('lo', 3) }} {{ s.startswith('lo', 3, 4) }} {{ ''.startswith('') }} {{ s.endswith(('a', 'b')) }} {{ s.startswith('') }}
{{ s.startswith(1) }}
{{ s.find('o') }} {{ s.find('o', 5) }} {{ s.find('zz') }} {{ s.rfind('o') }} {{ s.rfind('l', 0, 4) }} {{ s.index('W') }} {{ s.count('l') }} {{ s.count('') }} {{ u.find('é') }} {{ s.find('') }} {{ s.find('', 50) }} {{ s.count('o', 5) }} {{ s.rindex('o') }}
{{ s.index('zz') }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.replace('', '-', 2) }} {{ 'aaa'.replace('aa', 'b') }} {{ 'é中'.replace('', '.') }} {{ s.replace('x', 'y') }}
{{ 'ab'.center(7, '*') }} {{ 'abc'.center(6, '*') }} {{ 'abc'.center(8, '*') }} {{ 'ab'.ljust(5, '.') }} {{ 'ab'.rjust(5) }} {{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ '+4'.zfill(1) }} {{ 'a\tb'.expandtabs(4) }} {{ 'abc'.zfill(-9223372036854775807 - 1) }} {{ '-a'.zfill(-9223372036854775807) }} {{ 'x'.ljust(-9223372036854775807) }} {{ '%*d' % (-9223372036854775807 - 1, 1) }}|
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'x'.removesuffix('') }}
{{ '-'.join(['a', 'b']) }} {{ ''.join('abc') }} {{ ','.join(d) }} {{ '-'.join([]) }}|
{{ '-'.join([1]) }}
{{ '12'.isdigit() }} {{ '²'.isdigit() }} {{ '½'.isnumeric() }} {{ 'ab'.isalpha() }} {{ ''.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'Ab'.istitle() }} {{ 'AB1'.isupper() }} {{ 'ab1'.islower() }} {{ '1'.isupper() }} {{ 'a_1'.isidentifier() }} {{ '1a'.isidentifier() }} {{ 'é'.isascii() }} {{ 'a\n'.isprintable() }} {{ '٣'.isdecimal() }}
{{ '{} {} {}'.format(1, 'a', none) }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}-{y!r}'.format(x=1, y='q') }} {{ '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }} {{ '{:05d} {:+d} {:x} {:#x} {:b} {:,}'.format(42, 7, 255, 255, 5, 1234567) }} {{ '{:.2f} {:8.3f} {:e} {:g} {:%}'.format(3.14159, 2.5, 12345.678, 0.00001, 0.25) }} {{ '{{}}'.format() }} {{ '{0[a]} {0[c][x][0]}'.format(d) }} {{ '{:.3}'.format('abcdef') }} {{ '{:{}}'.format('x', 4) }}|
{{ '{:d}'.format('a') }}
{{ '{}'.format() }}
{{ '{'.format() }}
{{ '{0.__class__}'.format(1) }}
{{ '%s %d %i %5.2f %x %o %e %g %r %%' % ('a', 1, 2.9, 3.14159, 255, 8, 1234.5, 0.0001, 'q') }} {{ '%(a)s-%(b)03d' % {'a': 1, 'b': 2} }} {{ '%-5s|%5s|%05d|%+d|% d' % ('a', 'b', 42, 7, 7) }} {{ '%.2s' % 'abc' }} {{ '%c%c' % ('A', 66) }} {{ '%s' % [1] }} {{ '%*d' % (5, 42) }} {{ '%#x' % 255 }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ '%s' % ('a', 'b') }}
{{ 'a' % 'b' }}
{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 0) }} {{ d.copy() == d }} {{ d.items()|list|length }} {{ d.keys()|join }} {{ d.items()|length }} {{ 'a' in d.keys() }} {{ {}.fromkeys([1, 2], 'x') }}
{{ d.pop('a') }}
{{ d.update({}) }}
{{ d.setdefault('q', 1) }}
{{ l.sort() }}
{{ l.count(1) }} {{ l.index(2) }} {{ (1, 2, 1).count(1) }} {{ l.copy() }} {{ 1.5.is_integer() }} {{ 2.0.is_integer() }} {{ 1e300.is_integer() }}
{{ l.index(99) }}
{{ l.pop }}|{{ l.append is defined }}|{{ s.__class__ is defined }}|{{ d.__class__ }}|{{ s._x }}|
{{ s.__class__.__name__ }}
{{ l.__len__() }}
{% set ns = namespace(a=1) %}{% set ns.b = 2 %}{{ ns.a + ns.b }} {{ ns.c is defined }} {{ ns['a'] }} {{ namespace({'x': 1}, y=2).y }}
{% set ns = namespace() %}{% set ns._x = 2 %}
{{ namespace(_x=1) }}
{% set q = {} %}{% set q.a = 1 %}
{% set missing.a = 1 %}
{{ s|upper }} {{ s|lower }} {{ s|capitalize }} {{ s|title }} {{ 'foo-bar (baz) [qux] {q} <z>'|title }} {{ u|upper }} {{ n|upper }} {{ 'HELLO it\'S'|title }}
{{ t|trim }}| {{ 'xxaxx'|trim('x') }} {{ n|trim }} {{ s|trim('Hd') }} {{ nil|trim }} {{ t|trim(none) }}|
{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ n|replace(4, 5) }} {{ s|replace(old='o', new='0') }}
{{ s|replace('l') }}
{{ l|join }} {{ l|join(', ') }} {{ p|join('-', attribute='name') }} {{ s|join('.') }} {{ d|join(',') }} {{ [1, none, 'x', 2.0]|join('|') }} {{ m|join(';') }} {{ p|join(',', 'at.k') }} {{ missing|join(',') }}|
{{ 5|join }}
{{ l|first }} {{ l|last }} {{ e|first }} {{ e|last }} {{ s|first }} {{ s|last }} {{ d|first }} {{ d|last }} {{ (e|first) is defined }} {{ l|map('string')|first }}
{{ 5|first }}
{{ s|length }} {{ l|count }} {{ d|length }} {{ u|length }} {{ ()|length }} {{ range(7)|length }}
{{ 5|length }}
{{ l|map('string')|length }}
{{ s|list }} {{ d|list }} {{ range(3)|list }} {{ d.items()|list }} {{ (1, 2)|list }} {{ m|list }}
{{ 5|list }}
{{ nil|list }}
{{ l|string }} {{ n|string ~ 'x' }} {{ nil|string }} {{ 1.50|string }} {{ d|string }}
{{ '42'|int }} {{ ' -7 '|int }} {{ 'abc'|int }} {{ 'abc'|int(5) }} {{ '3.9'|int }} {{ 3.99|int }} {{ -3.99|int }} {{ '0x1F'|int(0, 16) }} {{ '1F'|int(base=16) }} {{ '101'|int(0, 2) }} {{ '1_000'|int }} {{ nil|int }} {{ yes|int }} {{ ''|int }} {{ '1e3'|int }} {{ [1]|int(9) }} {{ 'inf'|int(3) }} {{ '0b11'|int(0, 0) }} {{ '+5'|int }} {{ '--5'|int }}
{{ '3.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ ' 1e3 '|float }} {{ 'nan'|float }} {{ '-inf'|float }} {{ nil|float }} {{ '1_0.5'|float }} {{ '.5'|float }} {{ '5.'|float }} {{ 'x'|float('d') }}
{{ -5|abs }} {{ (-5)|abs }} {{ -2.5|abs }} {{ yes|abs }}
{{ 'a'|abs }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 42.55|round(1) }} {{ 42.55|round(1, 'floor') }} {{ 42.51|round(1, 'ceil') }} {{ 42|round }} {{ 1234.5|round(-2) }} {{ 1250|round(-2) }} {{ -2.5|round }} {{ 0.5|round }} {{ 1.005|round(2) }} {{ 7|round(method='ceil') }} {{ 1e20|round(2) }}
{{ 'a'|round }}
{{ 1.5|round(1, 'up') }}
{{ [1, 2, 3]|sum }} {{ p|sum(attribute='age') }} {{ [1.5, 2]|sum }} {{ e|sum }} {{ [1]|sum(start=10) }} {{ [[1], [2]]|sum(start=[]) }}
{{ ['a']|sum }}
{{ l|min }} {{ l|max }} {{ words|min }} {{ words|max }} {{ e|max }} {{ p|max(attribute='age') }} {{ p|min(attribute='at.k') }} {{ words|min(case_sensitive=true) }} {{ s|max }} {{ d|min }}
{{ [1, 'a']|min }}
{{ l|sort }} {{ l|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ p|sort(attribute='age')|map(attribute='name')|list }} {{ p|sort(attribute='age,name', reverse=true)|map(attribute='name')|list }} {{ p|sort(attribute='at.k')|map(attribute='name')|join }} {{ d|sort }} {{ s|sort|join }} {{ m|sort(attribute=1, reverse=true) }} {{ [(2, 'b'), (1, 'c'), (2, 'a')]|sort }}
{{ [1, 'a']|sort }}
{{ d|dictsort(by='value') }}
{{ {'B': 2, 'a': 3, 'C': 1}|dictsort }} {{ {'B': 2, 'a': 3, 'C': 1}|dictsort(true) }} {{ {'B': 2, 'a': 3, 'C': 1}|dictsort(false, 'value') }} {{ {'B': 2, 'a': 3, 'C': 1}|dictsort(by='value', reverse=true) }} {{ ed|dictsort }}
{{ d|dictsort(by='x') }}
{{ l|dictsort }}
{{ words|unique|list }} {{ words|unique(case_sensitive=true)|list }} {{ [1, 1.0, true, 2]|unique|list }} {{ p|unique(attribute='age')|map(attribute='name')|list }} {{ e|unique|list }}
{% for age, people in p|groupby('age') %}{{ age }}:{% for x in people %}{{ x.name }},{% endfor %};{% endfor %} {% for g in p|groupby('age') %}{{ g.grouper }}={{ g.list|length }};{{ g[0] }}{% endfor %} {{ p[:2]|groupby('extra', default='none')|map('first')|list }} {{ [{'k': 'a'}, {'k': 'A'}, {'k': 'b'}]|groupby('k')|map(attribute='grouper')|list }} {{ [{'k': 'a'}, {'k': 'A'}]|groupby('k', case_sensitive=true)|length }}
{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3, 4, 5]|batch(2, 'x')|list }} {{ e|batch(3)|list }} {{ [1, 2, 3, 4, 5]|slice(3)|list }} {{ [1, 2, 3, 4, 5]|slice(3, 'x')|list }} {{ [1, 2]|slice(4)|list }} {{ [1, 2, 3, 4]|slice(2, 'x')|list }}
{{ l|reverse|list }} {{ s|reverse }} {{ d|reverse|list }} {{ range(3)|reverse|list }} {{ (1, 2)|reverse|list }}
{{ 5|reverse }}
{{ l|map('string')|list }} {{ p|map(attribute='name')|list }} {{ p|map(attribute='extra', default='-')|list }} {{ p|map(attribute='tags.0', default='?')|list }} {{ p|map(attribute='none.x.0', default='-')|list }} {{ p|groupby('none.x', default='q')|map('first')|list }} {{ words|map('upper')|join(',') }} {{ words|map('replace', 'p', 'b')|list }} {{ m|map('last')|list }} {{ m|map(attribute=0)|list }} {{ l|map('default', 0)|list }} {{ missing|map('upper')|list }} {{ p|map('attr', 'name')|list }} {{ words|map('length')|sum }} {{ s|map('upper')|join }}
{{ l|map('nope')|list }}
{{ l|map|list }}
{{ l|map(attribute='a', foo=1)|list }}
{{ [0, 1, '', 'a', none]|select|list }} {{ [0, 1, '', 'a', none]|reject|list }} {{ l|select('odd')|list }} {{ l|reject('gt', 1)|list }} {{ l|select('in', [1, 2])|list }} {{ p|selectattr('tags')|map(attribute='name')|list }} {{ p|selectattr('age', 'equalto', 31)|map(attribute='name')|list }} {{ p|rejectattr('extra', 'defined')|map(attribute='name')|list }} {{ p|selectattr('at.k', '>', 1)|list|length }} {{ p|rejectattr('age', 'lt', 30)|map(attribute='name')|list }} {{ d|select|list }} {{ missing|select|list }} {{ words|select('lower')|list }} {{ p|selectattr('name', 'in', ['Ann', 'Cy'])|map(attribute='age')|list }} {{ [1, 'a', none]|select('string')|list }}
{{ l|select('nope')|list }}
{{ p|selectattr|list }}
{% set it = l|map('string') %}{{ it|list }}{{ it|list }} {% set g = d.items() %}{{ g|list }}{{ g|list }}
{{ missing|default('x') }} {{ ''|default('x') }} {{ ''|default('x', true) }} {{ none|default('x') }} {{ none|default('x', true) }} {{ missing|d }}|{{ d.zz|d('y') }} {{ 0|d('z', boolean=true) }} {{ missing|default(default_value='q') }} {{ d.a|default('x') }}
{{ missing.x|default('x') }}
{{ d|items|list }} {{ missing|items|list }} {{ ed|items|list }} {% for k, v in d|items %}{{ k }}{% endfor %}
{{ 'a\nb\n\nc'|indent }}| {{ 'a\nb'|indent(2) }}| {{ 'a\nb'|indent(2, true) }}| {{ 'a\n\nb'|indent(2, blank=true) }}| {{ 'a\nb'|indent('> ') }}| {{ ''|indent }}| {{ 'a\n'|indent }}| {{ 'a\nb'|indent(width=3, first=true) }}| {{ 'x\r\ny'|indent(1) }}|
{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '...', 0) }} {{ 'foobarbaz'|truncate(5, leeway=0) }} {{ 'foo bar baz qux'|truncate(9, end='!', leeway=0) }} {{ s|truncate }} {{ u|truncate(5, true, '', 0) }}
{{ s|truncate(2) }}
{{ 'a b, c-d_e é'|wordcount }} {{ ''|wordcount }} {{ s|center(20) }}| {{ 'ab'|center(5) }}|
{{ '%s-%s'|format(1, 'a') }} {{ '%(x)s'|format(x=3) }} {{ '%.1f%%'|format(99.5) }} {{ 'plain'|format }}
{{ html|escape }} {{ html|e }} {{ html|forceescape }} {{ html|escape|escape }} {{ html|escape|forceescape }} {{ (html|e) + '<' }} {{ '<' + ('>'|e) }} {{ ('<'|e) ~ '<' }} {{ '<b>'|safe }} {{ ('<b>'|safe) + '<i>' }} {{ ('<'|e) is escaped }} {{ '<' is escaped }} {{ '<'|safe|length }} {{ ['<'|e] }} {{ ('a'|e) * 2 }}
{{ html|striptags }} {{ '<p>a\n  b</p> <!-- c --> d'|striptags }} {{ 'a b&c/d?é'|urlencode }} {{ {'a': 1, 'b c': 'x/y'}|urlencode }} {{ [('a', 'b')]|urlencode }}
{{ 100|filesizeformat }} {{ 1|filesizeformat }} {{ 13000|filesizeformat }} {{ 4100000|filesizeformat(true) }} {{ '5000'|filesizeformat }} {{ 0|filesizeformat }}
{{ s|attr('upper') is callable }} {{ d|attr('a') is defined }} {{ d|attr('items') is callable }} {{ s|attr('__class__') is defined }}|{{ s|attr('nope') }}|
{{ d|tojson }} {{ l|tojson }} {{ s|tojson }} {{ nil|tojson }} {{ yes|tojson }} {{ n|tojson }} {{ f|tojson }} {{ (1, 2)|tojson }} {{ u|tojson }} {{ u|tojson(ensure_ascii=true) }} {{ html|tojson }} {{ big|tojson }} {{ 1.0|tojson }} {{ '\x7f\x1f\b\f/'|tojson }} {{ '\x7f'|tojson(true) }}
{{ d|tojson(indent=2) }} {{ d|tojson(indent=0) }} {{ d|tojson(indent='--') }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(separators=(',', ':')) }} {{ d|tojson(indent=1, separators=[',', '=']) }} {{ {'b': {'z': 1, 'a': 2}, 'a': []}|tojson(sort_keys=true, indent=4) }} {{ [[], {}, [[]]]|tojson(indent=2) }} {{ d|tojson(indent=none) }}
{{ {1: 2, true: 3, none: 4, 1.5: 5}|tojson }} {{ 'nan'|float|tojson }} {{ '-inf'|float|tojson }}
{{ missing|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ d.items()|tojson }}
{{ l|map('string')|tojson }}
{{ {1: 2, 'a': 3}|tojson(sort_keys=true) }}
{{ range(3)|tojson }}
{{ s is string }} {{ n is number }} {{ yes is number }} {{ f is float }} {{ n is integer }} {{ yes is integer }} {{ d is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ l is iterable }} {{ n is iterable }} {{ nil is none }} {{ missing is none }} {{ yes is true }} {{ 1 is true }} {{ no is false }} {{ yes is boolean }} {{ s is callable }} {{ range is callable }} {{ s.upper is callable }} {{ range(3) is sequence }} {{ d.items() is sequence }} {{ d.items() is iterable }} {{ missing is sequence }} {{ missing is iterable }} {{ nil is iterable }} {{ missing is mapping }}
{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby(3) }} {{ 'a' is lower }} {{ 'A1' is upper }} {{ '1' is lower }} {{ l is sameas l }} {{ nil is sameas none }} {{ 1 is sameas true }} {{ 'a' is in 'abc' }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ 3 is eq 3 }} {{ 3 is ne 3 }} {{ 2 is lt 3 }} {{ 3 is ge 3 }} {{ 2 is greaterthan 1 }} {{ 3 is not odd }} {{ 3 is not even and yes }} {{ 'x' is eq('x') or no }} {{ 1 is lessthan 2 if yes else 3 }} {{ missing is defined or d.a is defined }}
{{ 'a' is odd }}
{{ 3.0 is odd }} {{ 2.5 is even }} {{ 1e3 is even }} {{ -3 is odd }} {{ 9.0 is divisibleby 3 }} {{ 7 is divisibleby(3.5) }} {% for x in l %}{{ loop }}{% endfor %}
{{ 3 is nope }}
{% if no %}{{ 3 is nope }}{{ 3|nope }}{% endif %}fine
{% for x in e %}{{ 3|nope }}{% endfor %}
{{ 3 is odd is even }}
{% for x in l %}{{ loop.index }}:{{ x }}{% if not loop.last %},{% endif %}{% else %}none{% endfor %}
{% for x in e %}a{% else %}none{% endfor %} {% for x in missing %}a{% else %}none{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for c in s %}{{ c }}.{% endfor %} {% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for a, b in m %}{{ a }}{{ b }}{% endfor %} {% for (a, b) in m %}{{ b }}{% endfor %} {% for i, (a, b) in [[1, [2, 3]]] %}{{ i }}{{ a }}{{ b }}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in nil %}{% endfor %}
{% for a, b in l %}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}-{% endfor %} {% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %} {% for x in range(10) if x is odd and x > 3 %}{{ x }}{{ loop.first }}{% endfor %}
{% for x in l %}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('o', 'e') }}{{ loop.changed(x > 1) }} {% endfor %}
{% for x in tree recursive %}[{{ x.v }}{{ loop.depth }}{% if x.kids %}{{ loop(x.kids) }}{% endif %}]{% endfor %}
{% for x in [1, 1, 2] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %} {% for x in l %}{{ loop.previtem is defined }}{{ (loop.nextitem|default('end')) }}{% endfor %}
{% for x in l %}{{ loop.nope is defined }}{{ loop.nope }}{% endfor %}|{{ loop is defined }}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %} {% for a in l %}{% for b in l %}{% if b == 1 %}{% break %}{% endif %}{{ a }}{{ b }} {% endfor %}{% endfor %}
{% break %}
{% for x in l %}{% set y = x %}{% endfor %}{{ y is defined }} {% set z = 1 %}{% for x in l %}{% set z = z + x %}{{ z }}{% endfor %}{{ z }} {% if yes %}{% set w = 5 %}{% endif %}{{ w }} {% for x in l %}{% if loop.first %}{% set q = x %}{% endif %}{{ q is defined }}{% endfor %}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }} {% set x %}block {{ n }}{% endset %}{{ x }} {% set y | upper %}block{% endset %}{{ y }} {% set z | replace('o', '0') | upper %}foo{% endset %}{{ z }} {% set t2 = 1, %}{{ t2 }}
{% set a, b = 1 %}
{% set a, b = [1, 2, 3] %}
{% set none = 1 %}
{% set 1 = 2 %}
{% macro m1(a, b=2, *c) %}{% endmacro %}
{% macro f(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(b=1, a=2) }} {{ f() }}| {{ f.name }} {{ f.arguments }} {{ f(*[7, 8]) }} {{ f(**{'a': 9}) }} {{ f(1)|upper }} {{ f is callable }}
{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{% endmacro %}{{ f(z=2) }}
{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}
{% macro f(a) %}{{ a.x }}{% endmacro %}{{ f() }}
{% macro f(a, b) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, 4, k=5) }} {% macro g(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ g(1) }}|{% macro h(x=l|length) %}{{ x }}{% endmacro %}{{ h() }}
{% macro outer(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) outer(3) %}{{ y }}{{ n }}{% endcall %} {% macro o2() %}{{ caller is defined }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ o2() }} {% call o2() %}in{% endcall %} {% macro o3(t) %}{% for i in t %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(a, b='z') o3(['p', 'q']) %}{{ a }}{{ b }}{% endcall %}
{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}
{% call n %}{% endcall %}
{% macro fact(k) %}{% if k > 1 %}{{ k }}*{{ fact(k - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }} {% macro a1() %}{{ later() }}{% endmacro %}{% macro later() %}L{% endmacro %}{{ a1() }} {% set g1 = 1 %}{% macro b1() %}{{ g1 }}{% endmacro %}{% set g1 = 2 %}{{ b1() }} {% for i in l %}{% macro c1() %}{{ i }}{% endmacro %}{{ c1() }}{% endfor %}
{% macro f(x) %}{% set x = x + 1 %}{{ x }}{% endmacro %}{% set x = 5 %}{{ f(1) }}{{ x }} {% macro lp() %}{% for i in l %}{{ i }}{% endfor %}{% endmacro %}{{ lp() }}
{% filter upper %}a{{ s }}{% endfilter %} {% filter replace('a', 'b')|upper %}banana{% endfilter %} {% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }} {% set a = 9 %}{% with a = 1, b = a %}{{ b }}{% endwith %} {% block b1 %}in{% endblock %} {% generation %}gen{{ n }}{% endgeneration %}
{% include 'a' %}
{% import 'a' as b %}
{% extends 'a' %}
{% nope %}
{% if yes %}
{% for x in l %}
{% endif %}
{% if yes %}{% endfor %}
{% if yes %}a{% else %}b{% elif no %}c{% endif %}
{{ }}
{{ 1 + }}
{{ (1 }}
{{ [1, 2 }}
{{ {'a' 1} }}
{{ a b }}
{{ 1 1 }}
{{ 'a
{{ a.1b }}
{{ a. }}
{{ f(a=1, 2) }}
{{ $ }}
{{ a ! b }}
{% set %}
{% for %}{% endfor %}
{% for x in %}{% endfor %}
{% macro %}{% endmacro %}
{{ l[ }}
{{ l[] }}
{# unclosed
{% raw %}x
{% raw %}{{ a }} {% if %} {# c #}{% endraw %} {% raw -%}  x  {%- endraw %}|
{{ f2 is not defined }} {{ l | sort | first }} {{ l|sort()|first }} {{ (l)[0] }} {{ [1, 2][0] }} {{ {'a': 5}.a }} {{ 'abc'[1] }} {{ 'abc'|upper|lower|title }} {{ -l[0] }} {{ - 3 }} {{ +3 }} {{ not not yes }}
{{ range(5)|list }} {{ range(2, 5)|list }} {{ range(5, 2, -1)|list }} {{ range(0) }} {{ range(3) }} {{ range(1, 9, 2) }} {{ range(3)[1] }} {{ 2 in range(3) }} {{ dict(a=1, b=[2]) }} {{ dict({'x': 1}, y=2) }} {{ dict([('k', 'v')]) }} {{ range(-3)|list }} {{ range(2, 20, 5)[-1] }}
{{ range(1, 2, 0) }}
{{ range('a') }}
{{ range(100001) }}
{{ dict(1) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }} {% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}
{{ raise_exception('no: ' ~ n) }}
{{ raise_exception() }}
{{ strftime_now('%Y')|length }} {{ strftime_now('%d %b %Y')|length }} {{ strftime_now('')|length }} {{ strftime_now is callable }}
{{ strftime_now(1) }}
{{ strftime_now() }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 1.0 // 0 }}
{{ -'a' }}
{{ n.real }}{{ s|nope }}
{{ caller is defined }}{{ varargs is defined }}
{{ 'a;b' }};{{ d['a'] ~ d["b"] }}{{ s | length + 1 }}{{ 2 * l | length }}{{ l | length * 2 }}{{ 'x' ~ l | join ~ 'y' }}{{ -1 | abs }}{{ 1 if n == 42 and s is string and l }}
{{ p[0].name }} {{ p[-1]['age'] }} {{ p[0].tags[1] }} {{ p[0]['at'].k }} {{ (p | selectattr('name', 'equalto', 'bob') | first).age }} {{ (p|first).tags|join('+') }} {{ p|map(attribute='at')|map(attribute='k')|sum }}
{% set ns = namespace(out='', n=0) %}{% for x in p %}{% set ns.out = ns.out ~ x.name[0] %}{% set ns.n = ns.n + x.age %}{% endfor %}{{ ns.out }} {{ ns.n }} {% set ns2 = namespace(found=false) %}{% for x in l %}{% if x == 1 %}{% set ns2.found = true %}{% endif %}{% endfor %}{{ ns2.found }}
'''


def units():
    templates = UNITS.strip("\n").split("\n")  # one a line
    blocks = [
        'a\n    {%- if yes %}\n    b\n    {%- endif %}\nc\n', '  {% raw %}\n x\n  {% endraw %}\ny\n',
        'a {#- c -#} b {# c #} c\n{# c #}\nd {#+ c +#} e\n', '  {%+ if yes %} x {% endif +%}\n y\n\n',
        '    {{ n }}\n\t{% if yes %}\tt\n\t{% endif %}\n  a {% if yes %}\nb{% endif %}\n  {{- n }}\n',
        '{% if yes -%}\n\n   x\n\n{%- endif %}\n   {# comment #}   \n z', 'a\r\nb\r{{ "x\r\ny" }}\r\n',
        '{% for x in l %}\n  {{ x }}\n{% endfor %}\n', '{% for x in l -%}\n  {{ x }}\n{%- endfor %}\n\n',
        '  {%- set x = 1 %}\n  {{ x }}  \n', "{{ 'a'\n 'b' }}{{ [1,\n2, ] }}", '\n\n{{ n }}\n\n', '{%if yes%}a{%endif%}',
        '{{n}}{{-n}}{{ n-}} x', '{{ "{{" }}{{ "}}" }}{{ "%}" }}{% if "%}" %}y{% endif %}', '{{ {"a": {"b": 1}}.a.b }}',
        '{% set x = {"a": {"b": [1]}} %}{{ x["a"]["b"][0] }}', '{ % } } { {{ n }} }', '{{ d["a"]}}{#}#}{##}x',
        '{%- macro f(x) -%}\n  [{{ x }}]\n{%- endmacro -%}\n{{ f(1) }}\n{{ f(2) }}', '', '\n', ' ', 'plain',
        '{% set x %}\n  a\n{% endset %}[{{ x }}]', '   {{ n }}\n   {#- x #}\n   y', "{% if yes %}\n\n{% endif %}\n",
        '{% filter indent(4) %}\na\nb\n{% endfilter %}|', '{% for x in l %}{{ x }}{{ "," if not loop.last }}{% endfor %}',
        'x{% for a in l %}\n\n- {{ a }}\n{% endfor %}y', '{%- if no %}a{%- elif yes %}\n b{%- endif %}\n c',
    ]
    return templates + blocks


def main():
    render = chat_template_utils._compile_jinja_template
    rows = []
    for template in units():
        row = {"template": template}
        try:
            row["rendered"] = render(template).render(**json.loads(json.dumps(VARIABLES)))
        except Exception as error:  # whatever Python raises
            row["error"] = type(error).__name__
        used = {k: v for k, v in VARIABLES.items() if k in template}
        row = {"template": template, "variables": used} | {k: row[k] for k in row if k != "template"}
        rows.append(json.dumps(row, ensure_ascii=True))
    path = pathlib.Path(__file__).with_name("units.jsonl")
    path.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
