"""Writes language.json: small templates and what Jinja2 makes of them.

    pip install jinja2==3.1.6 && python3 language.py > language.json

The environment is the one in which transformers renders chat templates.
"""

import datetime
import json

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2025, 3, 14, 15, 9, 26)
CONTEXT = {
    "a": 3, "b": 2.5, "neg": -7, "big": 12345678901234567890,
    "n": None, "t": True, "f": False,
    "s": "Hello World", "e": "", "u": "Zürich ☃ 😀 <&>\"'", "ws": "  pad\n",
    "l": [3, 1, 2], "nested": [[1, [2, 3]], {"k": [None, True]}], "words": ["pear", "Apple", "fig", "apple", ""],
    "d": {"x": 1, "y": [1, 2], "z": {"k": "v"}},
    "msgs": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yo",
         "tool_calls": [{"name": "f", "args": {"p": 1.0, "q": None, "r": [True, False]}}]},
        {"role": "user", "content": "bye"},
    ],
}

# One template a line.
LINES = r'''
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 % -2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 1 / 3 }} {{ 10 / 5 }}
{{ big }} {{ big + 1 }} {{ big * big }} {{ -neg }} {{ +a }} {{ big // 7 }} {{ big % 1000 }}
{{ 1e16 }} {{ 1e15 }} {{ 1.5e-5 }} {{ 0.0001 }} {{ 1e300*1e10 }} {{ 123456789.123456789 }} {{ 1.0 }} {{ 100000000000000000000.0 }}
{{ true + 1 }} {{ true and 5 }} {{ false or 'x' }} {{ none or 0 }} {{ '' and 1 }} {{ [] or {} }}
{{ 'abc' < 'abd' < 'b' }} {{ [1,2] < [1,3] }} {{ (1,2) == (1,2) }} {{ [1] == (1,) }} {{ {'a':1,'b':2} == {'b':2,'a':1} }} {{ 1 == true }} {{ none == false }}
{{ ('a', 1, none, true, 2.5, [1], {'k': 'v'}, (1,), ()) }}
{{ "it's" | list }} {{ ["it's", 'q"q', 'both\'"', 'nl\n', 'tab\t', 'bs\\', 'é☃', '\x00\x7f', '\u200b'] }}
{{ u }} {{ u | upper }} {{ u | length }} {{ u[7] }} {{ u[::-1] }} {{ u[1:9:2] }} {{ u | list }}
{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ d.get('x') }} {{ d.get('nope') }} {{ d.get('nope', 'dflt') }} {{ d['x'] }}
{{ d | dictsort }} {{ {'b':1,'A':2,'c':0} | dictsort }} {{ {'b':1,'A':2,'c':0} | dictsort(true) }} {{ {'b':1,'A':2,'c':0} | dictsort(by='value') }} {{ {'b':1,'A':2} | dictsort(false, 'key', true) }}
{{ [3,1,2] | sort(reverse=true) }} {{ ['b','A','c'] | sort }} {{ ['b','A','c'] | sort(case_sensitive=true) }} {{ msgs | sort(attribute='role') | map(attribute='content') | list }}
{{ msgs | map(attribute='role') | join(',') }} {{ msgs | map(attribute='nope', default='d') | list }} {{ l | map('string') | list }} {{ ['a','b'] | map('upper') | join }} {{ msgs | map('length') | list }}
{{ msgs | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }} {{ msgs | rejectattr('role', 'eq', 'user') | list | length }} {{ msgs | selectattr('role','in',['user']) | list | length }}
{{ l | select('gt', 1) | list }} {{ l | reject('odd') | list }} {{ [none, 1, 0, ''] | select | list }} {{ [none, 1] | reject('none') | list }}
{{ [1,2,3,4,5,6,7] | batch(3, 'x') | list }} {{ [1,2,3,4,5] | slice(3, 'f') | list }}
{{ 'a b c' | replace(' ', '-') }} {{ 'aaa' | replace('a','b',2) }} {{ 'abc' | replace('', '-') }} {{ 'aaa'.replace('a','b',1) }} {{ 5 | replace('5','6') }}
{{ '  x  ' | trim }}| {{ 'xxhixx' | trim('x') }} {{ '--a--'.strip('-') }} {{ '--a--'.lstrip('-') }} {{ '--a--'.rstrip('-') }} {{ 5 | trim }}
{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split(' ') }} {{ ' a  b '.split() }} {{ ' a b c '.split(none, 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ 'abc'.split('') }}
{{ ''.split(',') }} {{ ''.split() }} {{ 'a\r\nb\nc\r'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }}
{{ 'abc'.find('c') }} {{ 'abc'.find('z') }} {{ 'abcabc'.find('b', 2) }} {{ 'abc'.index('z') }}
{{ 'abc'.startswith(('x','a')) }} {{ 'abc'.endswith('bc', 1) }} {{ 'abc'.startswith('b', 1) }} {{ 'é☃x'.find('x') }}
{{ 'hello world'.title() }} {{ "they're bill's" | title }} {{ "they're bill's".title() }} {{ 'hELLO' | capitalize }} {{ 'ß' | upper }} {{ 'ﬁx' | title }} {{ 'ΑΣ' | lower }} {{ 'foo-bar (baz)' | title }}
{{ '%5d|%-5d|%05d|%-05d|%d|%x|%5x|%05x|%x' % (42,42,42,42,-42,255,255,-255,big) }} {{ '%d %x' % (true, false) }} {{ '%05d|%5d|%-5d|' % (-7, -7, -7) }}
{{ '%s %%' % 'a' }} {{ '%.3f %f %5.1f|%-8.2f|%08.2f %.0f' % (3.14159, 12345.678, 2.25, -1.5, -1.5, 2.5) }} {{ '%f %6.1f %06.1f' % (1, true, 1e999) }} {{ '%5s|%-5s|%05s' % ('ab','ab','ab') }}
{{ '%d' % 3.7 }} {{ '%s' % [1,2] }} {{ '%s' % none }} {{ '%s %s' % 'a' }}
{{ '%d' % 'x' }}
{{ '{} {}'.format(a, s) }} {{ '{0}{1}{0}'.format('a', none) }} {{ '{}'.format(1, 2) }}|{{ '{}'.format([1, 'b']) }}
{{ '{{}} {}'.format(1) }} {{ '{}}}'.format(1) }}
{{ '{}'.format() }}
{{ l | join(', ') }} {{ l | join }} {{ msgs | join('|', attribute='role') }} {{ 'abc' | join('-') }}
{{ [[1,'a'],[2,'b']] | map('first') | list }} {{ [[1,2],[3,4]] | map('last') | list }} {{ [] | first }}| {{ [] | last }}| {{ '' | first }}| {{ 'abc' | last }} {{ d | first }}
{{ l | map('nope') | list }}
{{ l | unique | list }} {{ ['a','A','b'] | unique | list }} {{ ['a','A','b'] | unique(true) | list }} {{ [1,1.0,true,2] | unique | list }}
{{ l | max }} {{ ['b','A'] | min }} {{ [] | max }}| {{ msgs | max(attribute='content') }}
{{ l | sum }} {{ msgs | sum(attribute='nope') }}
{{ [1.5,2] | sum }} {{ [[1],[2]] | sum(start=[]) }} {{ l | sum(start=10) }}
{{ 3.7 | int }} {{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ '3.9' | int }} {{ none | int }} {{ ' 7 ' | int }} {{ '0b11' | int(0, 2) }} {{ 'ff' | int(0,16) }} {{ '1_000' | int }} {{ true | int }} {{ '1e3' | int }}
{{ '3.5' | float }} {{ 'x' | float }} {{ 'x' | float(1.5) }} {{ none | float }} {{ 5 | float }} {{ 'nan' | float }} {{ 'inf' | float }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 42 | round }} {{ 42.55 | round(1) }} {{ 42.55 | round(1, 'floor') }} {{ 42.51 | round(1, 'ceil') }} {{ 1234 | round(-2) }} {{ 1234.5 | round(-2) }} {{ 42 | round(0,'floor') }}
{{ 'a\nb\n\nc' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent(2, blank=true) }} {{ 'a\nb' | indent('>> ') }} {{ 'a\n' | indent(2) }}| {{ '' | indent }}|
{{ 'The quick brown fox jumps' | truncate(10) }} {{ 'The quick brown fox jumps' | truncate(10, true) }} {{ 'The quick brown fox' | truncate(9, false, '…', 0) }} {{ 'short' | truncate(10) }}
{{ 'the quick brown fox jumps over' | wordwrap(10) }}|{{ 'abcdefghijklmnop' | wordwrap(5) }}|{{ 'a bb ccc dddd' | wordwrap(4, wrapstring='/') }}|{{ 'abcdefgh ij' | wordwrap(5, false) }}|{{ 'a abcdefghij' | wordwrap(4) }}
{{ '<b>x</b> &amp; <!-- c --> y' | striptags }} {{ '<a href="q">' | e }} {{ '<' | escape | escape }}
{{ '<b>' | safe }} {{ ('<b>' | safe) + '<i>' }} {{ '<i>' + ('<b>' | safe) }} {{ ('<b>' | safe) ~ '<i>' }} {{ ('<b>' | safe).upper() + '<' }} {{ ('<b>'|safe) * 2 + '<' }}
{{ 1024 | filesizeformat }} {{ 1 | filesizeformat }} {{ 500 | filesizeformat }} {{ 1000000 | filesizeformat }} {{ 1048576 | filesizeformat(true) }} {{ 1e30 | filesizeformat }}
{{ nope }} {{ nope is defined }} {{ nope is undefined }} {{ nope | default('d') }} {{ '' | default('d') }} {{ '' | default('d', true) }} {{ none | default('d') }} {{ nope | length }} {{ nope | list }} {{ nope == nope2 }} {{ nope == none }} {{ nope ~ 'x' }} {{ nope | upper }} {{ nope | join }} {{ [nope] }}
{{ nope + 1 }}
{{ nope() }}
{{ nope.a.b }}
{{ d.nope.b }}
{{ d.nope is defined }} {{ d.nope.b is defined }}
{{ nope < 1 }}
{{ nope | tojson }}
{{ nope in l }} {{ 1 in nope }}
{{ nope[0] }}
{{ none.x }}| {{ none['x'] }}|
{{ none.x.y }}
{{ none | length }}
{{ none | list }}
{{ 5 | list }}
{{ 5 in 5 }}
{{ 1 in 'abc' }}
{{ 'a' in none }}
{{ 'a' ~ 1 ~ none ~ true ~ [1] ~ 2.0 }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }}{{ loop.index }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for c in 'héy' %}{{ c }}.{% endfor %}
{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}
{% for x in l %}{{ loop.cycle('a','b') }}{{ loop.changed(x > 1) }}{% endfor %}
{% for x in [1,2,3,4] if x is even %}{{ loop.index }}/{{ loop.length }}/{{ loop.last }}/{{ loop.revindex }} {% else %}none{% endfor %}
{% set ns = namespace(found=false) %}{% for x in [1,2,3,4] if not ns.found %}{{ x }}{% if x == 2 %}{% set ns.found = true %}{% endif %}{% endfor %}
{% for x in none %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in nope %}a{% else %}empty{% endfor %}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}{% for i in [1] %}{% set x = 3 %}{{ x }}{% endfor %}{{ x }}
{% for i in [1,2,3] %}{% if loop.first %}{% set y = 'q' %}{% endif %}{{ y }}|{% endfor %}
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=5) }} {{ m(b=3, a=4) }} {{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, z=2) }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }} {{ m.name }} {{ m.arguments }}
{% macro m(x) %}[{{ x }}:{{ caller() }}]{% endmacro %}{% call m(1) %}body{% endcall %}{{ m(2) }}
{% macro m() %}{{ outer }}{% endmacro %}{% set outer = 5 %}{{ m() }}
{% macro m() %}{% set inner = 1 %}{{ inner }}{% endmacro %}{{ m() }}{{ inner is defined }}
{% macro even(n) %}{% if n == 0 %}T{% else %}{{ odd(n-1) }}{% endif %}{% endmacro %}{% macro odd(n) %}{% if n == 0 %}F{% else %}{{ even(n-1) }}{% endif %}{% endmacro %}{{ even(4) }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, %}{{ t }}{% set (p, q) = [3, 4] %}{{ p }}{{ q }}
{% set x %}abc{{ a }}{% endset %}{{ x }}{{ x | length }}{% set y | upper %}abc{% endset %}{{ y }} {% set z | replace('a', 'b') | trim %} aa {% endset %}{{ z }}
{% set ns = namespace() %}{% set ns.x = 1 %}{{ ns.x }}{{ ns.y }}|{{ ns['x'] }}|{{ ns.y is defined }}
{% set ns = namespace(d) %}{{ ns.x }}
{% set d.x = 1 %}
{% set nope.x = 1 %}
{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}
{% filter upper | replace('A', 'b') %}a{{ s }}{% endfilter %}
{% raw %}{{ x }} {% if %}{% endraw %} {%- raw -%}  a  {%- endraw -%}  b
{# comment #}a{#- c -#}  b {# multi
line #}c
a {%- if true %} b {%+ endif %} c
  {% if true %}
  x
  {% endif %}
y
line {% if true -%}   z   {%- endif +%}
end
{{ 'x' -}}   
  y {{- 'z' }}
    {# c #}
  a
    {%+ if true %}q{% endif %}
{% if false %}a{% elif none %}b{% elif l %}c{% else %}d{% endif %}
{% if a == 3 and (b or c) and not nope %}yes{% endif %}
{% if 'x' is string is defined %}{% endif %}
{{ a is divisibleby(3) }} {{ a is divisibleby 2 }} {{ a is not none }} {{ not a is none }} {{ a is eq 3 }} {{ a is in [1,3] }} {{ a is sameas a }} {{ true is sameas true }} {{ 'A' is upper }} {{ 'a' is lower }} {{ a is gt 2 }} {{ a is number and b is number }} {{ t is number }} {{ t is integer }} {{ l is callable }} {{ range is callable }} {{ n is iterable }} {{ nope is iterable }} {{ nope is sequence }} {{ d.keys() is sequence }} {{ d.keys() is iterable }} {{ d is sequence }} {{ ('x'|safe) is escaped }} {{ t is true }} {{ f is false }} {{ 1 is true }} {{ 2.0 is float }}
{{ l is nosuchtest }}
{{ l | nosuchfilter }}
{{ range(3) | list }} {{ range(1,4) | list }} {{ range(5,0,-2) | list }} {{ range(0) | list }} {{ range(3)[1] }} {{ range(3) | length }}
{{ dict(a=1, b=2) }} {{ dict([['k', 1]]) }} {{ dict({'a': 1}, b=2) }}
{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}
{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}
{{ [1,2,3][::-1] }} {{ [1,2,3,4,5][1:-1] }} {{ [1,2,3,4,5][-3::2] }} {{ [1,2,3][10:] }} {{ (1,2,3)[1:] }} {{ 'abc'[5:] }}| {{ 'abc'[-10:2] }} {{ 'abcdef'[4:1:-1] }}
{{ l['0'] }}| {{ l[1.0] }}| {{ d[0] }}| {{ s['upper']() }} {{ d['items']() | list | length }} {{ l[true] }} {{ l.0 }} {{ l.1 }}
{{ l.append(1) }}
{{ d.update({}) }}
{{ d.pop('x') }}
{{ d.pop }}| {{ l.append }}|{{ l.append is defined }}
{{ ''.__class__ }}|{{ ''.__class__ is defined }}
{{ ''.__class__.__mro__ }}
{{ ''['__class__'] }}|
{{ 'a' if false }}| {{ 'a' if true else 'b' if true else 'c' }} {{ ('a' if false) is defined }}
{{ not true == false }} {{ not (true == false) }} {{ 1 if not false else 2 }}
{{ 1 < 2 == true }} {{ 3 > 2 > 1 }} {{ 1 in [1] == true }} {{ 1 not in [2] }} {{ not 1 in [2] }}
{{ -5.abs }}| {{ '5' * 3 }} {{ 3 * '5' }} {{ [0] * 2 }} {{ -'a' }}
{{ "a" "b" 'c' }} {{ 'tab\there' }} {{ '\q' }} {{ '\101' }} {{ '\U0001F600' }} {{ "é" }} {{ '\u00e9' }}
{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_0.5 }} {{ 1.5e3 }} {{ 5.e }}
{{ {'a': {'b': {}}} }} {{ {} }} {{ [] }} {{ () }} {{ {1: 'a', 'b': 2, none: 3, true: 4} }} {{ {'a':1,} }} {{ [1,] }} {{ (1,) }}
{{ {'a': 1, 'b': [1, 2.0, none, true], 'c': 'é"\n'} | tojson }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ {1: 2, none: 3, true: 4, 1.5: 6} | tojson }} {{ (1,2) | tojson }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ [] | tojson(indent=2) }} {{ {} | tojson(indent=2) }} {{ '\x01\x7f\u2028/' | tojson }} {{ 1e20 | tojson }} {{ big | tojson }}
{{ {'a': [1, {'b': 2}]} | tojson(indent=2) }} {{ [1,2] | tojson(indent='--') }} {{ {'a':1} | tojson(indent=2, separators=(', ', ' : ')) }} {{ {'a':1} | tojson(separators=[',', ':']) }}
{{ d.items() | tojson }}
{{ l | map('string') | tojson }}
{{ d.items() | list | tojson }}
{{ msgs | groupby('role') | map(attribute='grouper') | list }} {% for g in msgs | groupby('role') %}{{ g.grouper }}{{ g.list | length }}{{ g[0] }}{% endfor %}
{{ d | items | list }} {{ nope | items | list }}
{{ 'abc' | reverse }} {{ l | reverse | list }} {{ (1,2) | reverse | join }} {{ 5 | string + 'x' }} {{ l | string }} {{ s | count }} {{ d | count }}
{{ 'a' | center(5) }}| {{ 'ab' | center(5) }}| {{ 'ab'.center(5, '*') }} {{ 'abc'.zfill(5) }} {{ '-5'.zfill(4) }} {{ 'a\tb'.expandtabs(4) }}
{{ 'abc'.isalpha() }} {{ ''.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'Ab'.istitle() }} {{ '٣'.isdigit() }} {{ '½'.isnumeric() }} {{ 'a_1'.isidentifier() }} {{ 'AB'.isupper() }} {{ 'aB'.swapcase() }} {{ 'aß'.casefold() }}
{{ l.index(2) }} {{ l.count(3) }} {{ l.index(9) }}
{{ (1,2,2).count(2) }} {{ [1,2].copy() }} {{ d.copy() == d }}
{{ s.split(sep='o', maxsplit=1) }}
{{ strftime_now('%-d %B %Y %I:%M %p %j %y %a %b %e|%H %U %w %Z%z %%') }} {{ strftime_now('%Q') }} {{ strftime_now('%-m/%-d/%y %-I %-H') }} {{ strftime_now('%c|%x|%X|%D|%F|%T|%R|%r|%G-%V|%u|%C|%k|%l|%s') }}
{{ raise_exception('no') }}
{% break %}
{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}{{ x }}{% if x == 1 %}{% continue %}{% endif %}.{% endfor %}
{% generation %}gen {{ a }}{% endgeneration %}
{% include 'x' %}
{% if a %}
{{ a
{{ a }
{{ (a }}
{{ [1, 2 }}
{% endif %}
{% nosuch %}
{{ a b }}
{{ 'unterminated }}
{% for x in %}{% endfor %}
{{ a.1x }}
{{ a. }}
{{ }}
{% set %}
{% set 5 = 3 %}
{{ a ? b }}
{{ 1 + }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 'a' - 1 }}
{{ [1] + 'a' }}
{{ [1] + (2,) }}
{{ 1 < 'a' }}
{{ {[1]: 2} }}
{{ l | sort(attribute='x') }}
{{ [1,'a'] | sort }}
{{ [d, d] | map(attribute='z.k') | list }} {{ [[1,2]] | map(attribute=1) | list }} {{ [[1,2]] | map(attribute='1') | list }}
{{ msgs | selectattr('tool_calls.0.name', 'equalto', 'f') | list | length }}
{% set x = [] %}{% for i in l %}{% set x = x + [i] %}{% endfor %}{{ x }}
{% set ns = namespace(x=[]) %}{% for i in l %}{% set ns.x = ns.x + [i] %}{% endfor %}{{ ns.x }}
{%- for m in msgs -%}{{ '<' ~ m['role'] ~ '>' + m.content }}{%- if not loop.last -%}{{ '\n' }}{%- endif -%}{%- endfor -%}
{{ 'x' if msgs[0].role == 'user' and msgs[-1]['role'] != 'system' else 'y' }}
{{ msgs[1].tool_calls[0].args | tojson }} {{ msgs[1].tool_calls[0].args }} {{ msgs[1] }}
{{ msgs[1].tool_calls[0].args.items() | list }} {{ msgs[0] | length }} {{ 'role' in msgs[0] }} {{ 'tool_calls' in msgs[0] }} {{ msgs[0].get('tool_calls') is none }}
{% set gen = l | select('odd') %}{{ gen | list }}{{ gen | list }}
{{ (l | map('string')) is iterable }} {{ (l | map('string')) is sequence }} {{ (l|select) is string }}
{{ l | map('string') | length }}
{{ l | map('string') | first }} {{ l | map('string') | last }}
{% if l | select('gt', 5) %}truthy{% endif %}
{{ none | select | list }} {{ none | map('upper') | list }}
{{ ['a'] | map('replace', 'a', 'b') | list }} {{ ['ab'] | map('truncate', 1, end='', leeway=0, killwords=true) | list }}
{{ 'a' * 3 ~ 'b' }} {{ 1 ~ 2 + 3 }} {{ 'x' ~ 1 + 2 }} {{ 2 * 3 ~ 4 }} {{ -1 ~ 2 }}
{{ 'a' is in 'abc' }} {{ 'abc' is sequence and true }} {{ (a if b) }} {{ a and b or c }} {{ a or b and c }}
{{ [1, [2, [3]]] | string }} {{ 1.0 | string }} {{ none | string }} {{ true | lower }} {{ l | upper }} {{ d | title }}
{{ a|string|length }} {{ a | string | list }} {{ '3' | int + 1 }} {{ s | length > 3 }} {{ l | length == 3 and true }}
{{ ''.join(l | map('string')) }} {{ '-'.join('abc') }} {{ ','.join(d) }} {{ ','.join([1]) }}
{{ ','.join(d) }} {{ d.x.y }}| {{ d.y[0] }} {{ d['z']['k'] }} {{ d.z.items() | first | last }}
{{ s[0:5] }} {{ s[:5] ~ '...' }} {{ s[none:2] }} {{ l[:none] }} {{ s['a'] }}|
{{ l | join(d='+') }} {{ [none, true, 1.0] | join(',') }} {{ [[1],[2]] | join }} {{ u | e }}
{% for i in range(3) recursive %}{{ i }}{% if i == 0 %}{{ loop([7,8]) }}{% endif %}{% endfor %}
{% for i in [1] %}{{ loop([2]) }}{% endfor %}
{% macro f(x) %}{% for i in x %}{{ i }}{% endfor %}{% endmacro %}{% for y in [[1],[2]] %}{{ f(y) }}{{ loop.index }}{% endfor %}
{% for i in l %}{% macro g() %}{{ i }}{{ loop is defined }}{% endmacro %}{{ g() }}{% endfor %}
{% set f = l.index %}{{ f(1) }} {% set up = s.upper %}{{ up() }}
{{ [s.upper, s.lower][0]() }} {{ {'f': s.upper}.f() }} {{ {'f': s.upper}['f']() }}
{{ m1 | default({}) }} {{ m1 | default([]) | length }} {{ (m1 | default({})).x is defined }} {{ m1 is defined and m1.x }} {{ m1 is not defined or m1.x }}
{{ l|sort|reverse|list|tojson }} {{ (l|sort)[0] }} {{ (l | list)[-1] }} {{ l[0] if l else 'none' }} {{ l[-1:] }}
{{ "\"" }} {{ '\'' }} {{ "a'b" }} {{ 'a"b' }} {{ "{{ x }}" }} {{ '{% if %}' }} {{ '#}' }} {{ '}}' }} {{ "%}" }}
{% if '%}' %}x{% endif %} {% set q = '}}' %}{{ q }} {{ {'a':{'b':1}}['a']['b'] }} {{ {'a':{}} }}
{% do l %}
{{ 'é'|upper }}{{ 'É'.lower() }}{{ 'ŉ'.upper() }}{{ 'İ'.lower() }}
{{ '1,234'.replace(',', '') | int + 1 }} {{ '12' ~ 3 | int }} {{ 1.5 | int + 1 }} {{ 7 | float / 2 }}
{{ (a, b) }} {{ (a) }} {{ a, b }} {{ a, }}
{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% endfor %}{% for p in {'x': 1}.items() %}{{ p }}{% endfor %}{% for k in {'x': 1}.keys() %}{{ k }}{% endfor %}
{{ d.keys()[0] }}| {{ (d.keys() | list)[0] }} {{ d.items() | length }} {{ 'x' in d.keys() }} {{ ('x', 1) in d.items() }} {{ d.values() | list | length }}
{{ [1e999, -1e999] | tojson }} {{ +2.5 }} {{ -2.5 }} {{ 1.5 + true }} {{ 2.0 ** 3 }} {{ 7.5 // 2 }} {{ -7.5 // 2 }}
{{ '{'.format(1) }}
{{ '}'.format(1) }}
{{ '%s' % () }}
{{ '%(x)s' % 5 }}
{{ '%z' % 5 }}
{{ '%' % 5 }}
{{ '%-6.2f|%.1f|%.0f' % (3.14159, 2.55, 0.5) }} {{ '%5.1f%%' % 99.5 }}
{{ 'ﬁne' | title }} {{ 'ﬁne'.title() }} {{ 'ŉ'.capitalize() }} {{ 'Abc Def'.istitle() }} {{ 'ABc'.istitle() }} {{ 'a'.isascii() }} {{ 'é'.isascii() }} {{ 'a b'.isprintable() }} {{ '\x00'.isprintable() }}
{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.reset() }}{{ c.next() }}{{ c.nope }}
{{ s() }}
{{ 5() }}
{{ none() }}
{{ d[[1]] }}|{{ l['x'] }}|{{ l[none] }}|{{ d[(1, 2)] }}|{{ {(1, 'a'): 'T', (1, ('b',)): 'U'}[(1, ('b',))] }}
{{ l[1, 2] }}|
{{ 'x'.center(3, 'ab') }}
{{ 'x' | center }}| {{ 'abc'.find('c', -1) }} {{ 'abc'.count('') }} {{ 'abcabc'.count('bc', 2) }} {{ 'abc'.rindex('z') }}
{{ 0b2 }}
{{ 00 }} {{ 0_0 }} {{ 1__0 }}
{{ 12345678901234567890123 }} {{ 0xFFFFFFFFFFFFFFFFFF }} {{ 2 ** 100 }} {{ (-1) ** 5 }} {{ 0 ** 0 }} {{ 1 ** 99999999 }} {{ 2 ** 0.5 }} {{ (2 ** 70) // 3 }} {{ (2 ** 70) / 2 ** 69 }} {{ -(2 ** 70) % 7 }} {{ 2 ** 64 > 1.5 }} {{ 2 ** 64 == 2.0 ** 64 }}
{{ (1).x }} {{ {'a': 1}.a }} {{ namespace(a=1) }} {{ namespace(a=1).b is defined }}
{{ l | map | list }}
{{ l | select(5) | list }}
{{ msgs | selectattr | list }}
{{ l | round }}
{{ s | truncate(1) }}
{{ s | wordwrap(0) }}
{{ 'a' | indent(width='\t', first=true) }} {{ 'a' | dictsort }}
{{ '\u12' }}
{{ '\x' }}
{{ '\U99999999' }}
{{ range(1, 5, 0) }}
{{ dict([1]) }}
{{ dict(1) }}
{{ 'abc'.startswith(1) }} 
{{ 'abc'.strip(1) }}
{{ 'abc'.replace('a') }}
{{ 'abc'.upper(1) }}
{{ 'abc'.join(5) }}
{{ 'İX'.lower() | length }} {{ 'ǅ'.lower() }} {{ 'ǆ' | title }} {{ 'ΑΣ ΣΑ'.lower() }} {{ 'ẖ'.upper() | length }}
{{ u | truncate(3, true, '', 0) }} {{ '日本語' | center(7) }}| {{ '日本語'[1] }} {{ '日本語'.find('語') }} {{ '日本語' | length }} {{ '日本語' | reverse }}
{% for x in [1,2] %}{{ x }}{% break %}{% else %}after a break in the first round{% endfor %}
{% for x in [1,2] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}else{% endfor %}
{% for x in [1,2] %}{{ x }}{% continue %}{% else %}no round came to its end{% endfor %}
{% for x in [1,2] %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}else{% endfor %}
{{ range(3) }} {{ range(1, 9, 3) }} {{ range(5)[1:3] }} {{ range(9)[::-2] }} {{ range(3) == [0, 1, 2] }} {{ range(3) == range(0, 3) }} {{ range(0) == range(4, 4) }} {{ range(3) is sequence }} {{ 2 in range(3) }} {{ range(3) | length }} {{ range(3) | string }} {{ range(4) | reverse | list }}
{{ range(3) + [1] }}
{{ range(2) * 2 }}
{{ range(2) | tojson }}
{% for x in l %}{{ loop }} {% endfor %}{% macro m() %}{% endmacro %}{{ m }}
{% macro m() %}{{ kwargs }}{{ caller is defined }}{% endmacro %}{% call m(1) %}x{% endcall %}
{% macro m() %}{{ kwargs }}{% endmacro %}{% call(x, y=2) m() %}{{ x }}{{ y }}{% endcall %}
{% macro m() %}{{ caller.name }} {{ caller.arguments }} {{ caller.catch_kwargs }} {{ caller(7) }}{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}
{% macro outer() %}{% macro inner() %}{{ kwargs }}{{ varargs }}{% endmacro %}{{ inner(p=1) }}{% endmacro %}{{ outer(1, z=2) }}
{% macro m() %}{% call n() %}{{ caller is defined }}{% endcall %}{% endmacro %}{% macro n() %}[{{ caller() }}]{% endmacro %}{% call m() %}x{% endcall %}
{{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ 'nope' is test }} {{ '==' is test }} {{ 5 is filter }}
{{ 1.0 // 0.1 }} {{ 1.0 % 0.1 }} {{ 1e16 // -3 }} {{ -1.0 // 3 }} {{ 0.0 // -2 }} {{ -0.0 % 3 }} {{ 3.0 % -1 }} {{ 7.5 // -0.5 }} {{ 1e308 // 1e-308 }}
{{ 'abc' % [1] }} {{ 'abc' % {'k': 1} }} {{ 'abc' % nope }}| {{ '%s|' % nope }} {{ '%s' % [1, 2] }} {{ '%5s|' % none }}
{{ 'abc' % 1 }}
{{ 'abc' % 'x' }}
{{ '%c' % 'ab' }}
{{ '{0} {}'.format(1, 2) }}
{{ '{} {1}'.format(1, 2) }}
{{ [1, 2] | truncate(3) }} {{ nope | truncate }}| {{ {'a': 1} | truncate(1, leeway=0) }}
{{ [1, 2, 3, 4] | truncate(1, end='', leeway=0) }}
{{ ('<b>' | e) | list }} {{ ('<b>' | e)[0] | string | list }} {{ [('<' | e)[::-1]] }} {{ [('<a>' | e) | first] }}
{{ [1, 2] | select('nope') is defined }} {{ (5 | map('upper')) is iterable }} {{ 7 | unique is string }}
{{ (5 | map('upper')) | list }}
{{ [3, 1] | select('odd') | reverse }} {{ ([3, 1] | map('string')) | reverse | join }}
{{ [1, 2, nope, nope2] | unique | list }} {{ [{'a': 1}, {}, {}] | unique(attribute='a') | list }}
{{ 'ΑΣ' | title }} {{ 'ΑΒΣ' | title }} {{ 'ΑΣ'.title() }} {{ 'İ'.casefold() | length }} {{ -1 | round(-1, 'ceil') }} {{ (-1) | round(-1, 'ceil') }} {{ (-0.4) | round }} {{ (-0.4) | round(0, 'ceil') }}
{{ 'a state-of-the-art well-known x--y thing' | wordwrap(9) }}|{{ 'hello world' | wordwrap(2) }}|{{ 'state-of-the-art' | wordwrap(10, break_on_hyphens=false) }}|{{ '--- a-b 12-ab' | wordwrap(3) }}
{{ l[] }}|
{{ l[1:2, 0] }}
{{ (5)[1:] if false else 'x' }} {{ a[1:] }}
{{ '\x7f\x80' | tojson(ensure_ascii=true) }} {{ -1e30 | filesizeformat }} {{ -0.5 | filesizeformat }} {{ (-0.5) | filesizeformat }}
{{ 'Ⅳ'.isupper() }} {{ 'ⅳ'.islower() }} {{ 'ª'.islower() }} {{ 'ʰ'.islower() }} {{ 'Ⅳa'.istitle() }} {{ 'ǅa'.swapcase() }} {{ 'ⓐⓑ'.title() }} {{ '\u0301a'.isidentifier() }} {{ 'a\u0301'.isidentifier() }}
{% set é = 1 %}{{ é }}{% set 变量 = 'x' %}{{ 变量 }}
# for x in l
## comment
{% set x = 1 if true else 2 %}{{ x }}
{% set x = l | first, 2 %}{{ x }}
{{ "a" if s is string and s|length > 3 else "b" }}
{{ s.split()|first|upper ~ '!' }}
{{ not s }}{{ not not s }}
{{ (s is defined) and (nope is not defined) }}
{{ s is not none and s }}
{{ d.z.k.upper() }}
{{ d['z']['k'] | upper ~ 'x' }}
{{ l[-1] }}{{ l[0:2] }}{{ l[::-1] }}{{ l[:-1] | length }}
{% for m in msgs[1:] %}{{ m.role }}{% endfor %}
{% for m in msgs if m.role == 'user' %}{{ loop.index }}{{ loop.last }}{% endfor %}
{% for m in msgs | selectattr('role', 'equalto', 'user') %}{{ m.content }}{% endfor %}
{% for m in (msgs | list)[-2:] %}{{ m.content }}{% endfor %}
{% for k, v in d | dictsort(reverse=true) %}{{ k }}{% endfor %}
{% for k, v in d.items() if k != 'x' %}{{ k }}{{ loop.first }}{% endfor %}
{% for x in l recursive %}{{ x }}{{ loop.depth }}{% endfor %}
{% for n in nested recursive %}[{{ n if n is not sequence or n is string else loop(n) }}]{% endfor %}
{% for a in [1,2] %}{% for b in [3,4] %}{{ loop.index }}{{ a }}{{ b }}{% endfor %}{{ loop.index }}{% endfor %}
{% for a in [1,2] %}{% set outer = loop %}{% for b in [3] %}{{ outer.index }}{{ outer.last }}{% endfor %}{% endfor %}
{% for a in 'ab' %}{{ loop.cycle('x', 'y') }}{{ loop.changed(a) }}{% endfor %}
{% if a %}{% elif b %}{% else %}{% endif %}x
{% if (a == 3) %}1{% endif %}{% if not (a == 3) %}2{% endif %}
{% if a in [1,3] and 'x' in d and 'H' in s %}y{% endif %}
{% set ns = namespace(a=1, b=[]) %}{% set ns.b = ns.b + [ns.a] %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns.b }}
{% set ns = namespace({'q': 1}, w=2) %}{{ ns.q + ns.w }}
{% set ns.foo = 1 %}
{% macro m(a, b='x', *args) %}{% endmacro %}
{% macro m(a) -%} {{ a }} {%- endmacro %}[{{ m('q') }}][{{ m(a='w') }}]
{% macro m() %}{{ varargs | join('-') }}{% endmacro %}{{ m(1, 2, 3) }}
{% macro m() %}{{ caller('z') }}{% endmacro %}{% call(p) m() %}<{{ p }}>{% endcall %}
{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(3) }}
{% macro m(x=s) %}{{ x }}{% endmacro %}{% set s = 'changed' %}{{ m() }}
{% set x %}{% for i in l %}{{ i }}{% endfor %}{% endset %}{{ x ~ x }}
{% set x | upper | replace('A', 'b') %}abc{% endset %}{{ x }}
{% with %}{% set x = 5 %}{{ x }}{% endwith %}{{ x is defined }}
{% with x = 1, y = x %}{{ y is defined }}{% endwith %}
{% extends 'x' %}
{% import 'x' as y %}
{% from 'x' import y %}
{% trans %}x{% endtrans %}
{% debug %}
{% do l.append(1) %}
{{ l.append(9) or l }}
{{ caller }}
{{ varargs }}
{{ super() }}
{{ url_for('x') }}
{{ range(10)[3] }} {{ range(3)|list + [9] }}
{{ dict(a=1)|tojson }} {{ dict([('x', 1)]) }} {{ {'a': 1, **d} }}
{{ [*l] }}
{{ {} | length }} {{ {}['x'] is defined }} {{ {}.x is none }}
{{ 1 is integer }} {{ 1.0 is integer }} {{ true is integer }} {{ true is number }} {{ '1' is number }} {{ none is number }}
{{ 1 == 1.0 }} {{ '1' == 1 }} {{ true == 1 }} {{ [] == () }} {{ none == 0 }}
{{ 'a' < 'B' }} {{ [1] < [1, 2] }} {{ 2 > 1.5 }}
{{ 3 is odd }} {{ 4 is even }} {{ 0 is even }} {{ 6 is divisibleby 3 }} {{ 7 is not divisibleby(2) }}
{{ 'x' is in 'xyz' }} {{ 1 is in [1] }} {{ 'x' is not in d }}
{{ a is eq 3 }} {{ a is ne(4) }} {{ a is lt 4 }} {{ a is ge 3 }} {{ a is greaterthan 2 }}
{{ s is upper }} {{ 'ABC' is upper }} {{ s is lower }} {{ s is mapping }} {{ d is mapping }} {{ d is iterable }} {{ a is iterable }}
{{ none is none }} {{ none is not none }} {{ nope is none }} {{ nope is string }} {{ nope is mapping }} {{ nope is iterable }} {{ nope is number }}
{{ f is false }} {{ t is true }} {{ 0 is false }} {{ f is boolean }} {{ none is boolean }}
{{ nope.x is defined }}
{{ d.nope.x is defined }}
{{ (d.nope or {}).x is defined }}
{{ d.nope | default('z') }} {{ nope | default }} {{ none | default('z', true) }} {{ '' | d('z', boolean=true) }}
{{ [nope] | tojson }}
{{ 5 // 2 }} {{ -5 // 2 }} {{ 5 % 3 }} {{ -5 % 3 }} {{ 5 / 2 }} {{ 4 / 2 }} {{ 2 ** 3 }} {{ 2 ** -1 }} {{ 7.0 // 2 }}
{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 10 - 3 - 2 }} {{ 1 ~ 2 ~ 3 }} {{ 1 ~ 2 + 3 }}
{{ 'a' ~ none ~ true ~ 1.0 ~ [] }} {{ 'a' + 'b' * 2 }} {{ [1] + [2] }} {{ 'ab' * 2 }} {{ (1,) + (2,) }}
{{ "a\nb\tc\\d\"e" }} {{ 'a\'b' }} {{ "\u00e9\x41" }} {{ '\N{DASH}' }}
{{ '{{' }} {{ '}}' }} {{ "{%" }} {{ '{#' }}
2, ] }} {{ { 'a' : 1 , } }}
{{- ' x ' -}} y
a {#- c -#} b {#+ d +#} e
  {%- if true %}  x  {%- endif %}  y
{% raw %}{{ a }}{% if %}{% endraw %}
{%- raw -%}  {{ a }}  {%- endraw -%}
{{ a }}{# unclosed
{% if %}x{% endif %}
{{ a | }}
{{ | upper }}
{{ a is }}
{{ 'a' 'b' }}
{{ a.b. }}
{{ {1: } }}
{{ foo( }}
{{ a }} }}
{{ a }} %}
{{ s[0] }}{{ s[-1] }}{{ s[1:3] }}{{ s[::2] }}{{ s[100:] }}{{ s[100] is defined }}
{{ s.upper() }}{{ s.lower() }}{{ s.title() }}{{ s.strip('Hd') }}{{ s.replace('l', 'L', 1) }}{{ s.count('l') }}{{ s.find('o') }}{{ s.startswith('He') }}{{ s.split('o') }}
{{ ' a '.strip() }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'a\n'.rstrip('\n') }}|{{ '\n\na'.lstrip('\n') }}
{{ 'a,b'.split(',')[-1] }} {{ 'a</think>b'.split('</think>')[-1].lstrip('\n') }} {{ 'x'.split('</think>')[0] }}
{{ 'a'.join(['x', 'y']) }} {{ ', '.join(msgs | map(attribute='role')) }}
{{ 'abc' in 'xabcx' }} {{ '' in 'a' }} {{ none in [none] }}
{{ msgs | map(attribute='content') | join(' ') | length }} {{ msgs | map(attribute='tool_calls') | select('defined') | list | length }}
{{ msgs | rejectattr('tool_calls', 'defined') | list | length }} {{ msgs | selectattr('tool_calls') | list | length }} {{ msgs | selectattr('content', 'ne', 'hi') | map(attribute='role') | list }}
{{ msgs | groupby('role') | map('first') | list }} {{ msgs | groupby('role') | map(attribute='list') | map('length') | list }} {{ (msgs | groupby(attribute='role'))[0].grouper }}
{{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ words | unique | list }} {{ words | select | list }} {{ words | reject('in', ['fig']) | list }} {{ words | map('length') | sum }} {{ words | map('default', 'z', true) | list }} {{ words | max }} {{ words | min }}
{{ 3.14159 | round(2) }} {{ 3.5 | round }} {{ 3.7 | int }} {{ '3' | int }} {{ 'x' | int(-1) }} {{ '3.5' | float }} {{ 5 | string }} {{ 1234567.891 | round(1) }} {{ 2.5 | round | int }}
{{ s | indent }} {{ 'a\nb' | indent(4) }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent(2, false, true) }}
{{ s | truncate(5) }} {{ s | truncate(5, true) }} {{ s | center(20) }}| {{ s | capitalize }} {{ s | title }} {{ s | replace('o', '0') }} {{ s | trim('d') }} {{ s | reverse }} {{ s | list | length }} {{ '<a>' | e }} {{ '<a>' | escape | safe }}
{{ d | tojson }} {{ d | tojson(indent=4) }} {{ d | items | list }} {{ d | dictsort }} {{ d | length }} {{ d | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list }} {{ d.get('x', 0) }} {{ d.get('nope') }}
{{ raise_exception('x') }}
{{ raise_exception() }}
{{ raise_exception('a', 'b') }}
{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%A, %B %d, %Y') }} {{ strftime_now('%H:%M:%S') }} {{ strftime_now('') }}|
{{ strftime_now() }}
{% generation %}x{% endgeneration %}{% generation -%} y {%- endgeneration %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}
{% if true %}{% continue %}{% endif %}
{% macro m() %}{% break %}{% endmacro %}{% for x in l %}{{ m() }}{% endfor %}
{% for x in l %}{% set x = x * 2 %}{{ x }}{% endfor %}{{ x is defined }}
{% set a, b = b, a %}{{ a }}{{ b }}
{% set (a, b), c = [[1, 2], 3] %}{{ a }}{{ b }}{{ c }}
{% set a.b = 1 %}
{% set d['x'] = 1 %}
{% set true = 1 %}
{% set none = 1 %}{{ none }}
{% for true in l %}{% endfor %}
{{ True }}{{ true }}{{ TRUE }}
{{ None }}{{ none }}{{ NONE }}
{{ nope.upper() }}
{{ s.nope() }}
{{ s.nope }}|{{ s.nope is defined }}
{{ l.__len__ }}|{{ l.__class__ }}|{{ s.__add__ }}
{{ l.sort() }}
{{ s | string | upper | lower | title | trim | length is number }}
{{ (l, s) | length }} {{ (1, 2) | tojson }} {{ (1, 2) | list }} {{ () | length }}
{{ 1if true else 2 }}
{{ 1 if true }}{{ 1 if false }}|
{{ (1 if false) is defined }} {{ [1 if false] }}
{{ 'x' if nope else 'y' }} {{ 'x' if nope is defined and nope.y else 'y' }}
{{ a == 3 and 'yes' or 'no' }} {{ nope or 'dflt' }} {{ '' or none or 0 or 'last' }}
{{ 0x1f }} {{ 0b11 }} {{ 1_000 }} {{ 1e3 }} {{ 1.5e-3 }} {{ .5 }}
{{ 007 }}
{{ 1__0 }}
{{ u | tojson }} {{ u | tojson(ensure_ascii=True) }} {{ '\u2028</script>' | tojson }}
{{ {'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=True) }} {{ {'b': 1} | tojson(indent=0) }} {{ [] | tojson(indent=2) }} {{ [[], {}] | tojson(indent=1) }}
{{ {'a': 1} | tojson | safe }} {{ ({'a': 1} | tojson) ~ 'x' }} {{ {'a': 1.0, 'b': 1e100, 'c': -0.0} | tojson }}
{{ {1: 'a', none: 'b', true: 'c', 1.5: 'd'} | tojson }}
{{ {(1, 2): 'a'} | tojson }}
'''
WHOLE = ["  {% if true %}\n  x\n  {% endif %}\ny\n","a\n  {%- for i in [1,2] %}\n    {{ i }}\n  {%- endfor %}\n\nz","{% if true %}\n\n\nx{% endif %}\n","{{ 1 }}\n{{ 2 }}\n","x\n\n","x\r\ny\rz\r\n","{%- raw %}\n a {{ b }}\n{%- endraw %}\n c","  {% raw %}\n x\n  {% endraw %}\n y","  {# c #}\n  a\n    {%+ if true %}q{% endif %}\n","  {#- c -#}\n  a","a  {%+ if true +%}\n b{% endif %}","{% for i in [1] %}  {% if true %}  x{% endif %}\n{% endfor %}","\n\n{%- set x = 1 -%}\n\n{{ x }}\n\n","  {{ 1 }}\n  {{- 2 }}\n","a {#c#} {% if true %} b {% endif %}\n c","{% set x %}\n  a\n{% endset %}{{ x }}|","{% if true %}a{% endif %}{% if true %}\n{% endif %}b","{{ 'a' }} {#\n\n#}\n\nb","\t{% if true %}\tq\n\t{% endif %}\n\tr","{%if true%}x{%endif%}{{-1-}} y","{% macro m(a) %}\n  {{ a }}\n{% endmacro %}\n[{{ m(1) }}]\n","{{ a\n}}\n{{\nb }}","{% if true\n%}\nx\n{%\nendif %}", "{{ 'a\nb' }}","{% raw -%}  x  {%- endraw %}\ny","{{ '\r\n' }}"]


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    cases = []
    for source in LINES.strip("\n").split("\n") + WHOLE:
        case = {"template": source}
        try:
            case["output"] = env.from_string(source).render(**CONTEXT)
        except Exception as e:
            case["error"] = f"{type(e).__name__}: {e}"
        cases.append(case)
    print(json.dumps({"jinja2": jinja2.__version__, "now": NOW.isoformat(), "context": CONTEXT, "cases": cases}, ensure_ascii=False, indent=1))


main()
