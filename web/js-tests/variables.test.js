import assert from 'node:assert/strict'
import { test } from 'node:test'
import './page.js'

const { fill, namesIn } = await import('../static/variables.js')

for (const [name, text, names] of [
  ['a text without braces has none', 'Write about cats.', []],
  ['a name is one', 'Write about {{topic}}.', ['topic']],
  ['blanks around a name do not count, those within do', '{{ first name }} {{first name}}', ['first name']],
  ['each is asked for once, in their order', '{{b}} {{a}} {{b}}', ['b', 'a']],
  ['letters are those of any language', '{{straße}} {{тема}} {{x_1}}', ['straße', 'тема', 'x_1']],
  ['one behind a backslash is text', 'In Jinja: \\{{topic}}', []],
  ['expressions of templates are text', '{{ user.name }} {{ x | upper }} {{1}} {{}} {{{a.b}}} { {a} } {%if a%}', []],
  ['a name ends with its line', '{{a\nb}}', []],
  ['a name has 40 characters at most', `{{${'a'.repeat(40)}}} {{${'b'.repeat(41)}}}`, ['a'.repeat(40)]],
]) {
  test(name, () => assert.deepEqual(namesIn(text), names))
}

for (const [name, text, values, want] of [
  ['a value stands in all places of its variable', '{{a}} and {{ a }}', { a: 'x' }, 'x and x'],
  ['a value is literal', '{{a}} {{b}}', { a: '{{b}} $& $1 \\{{b}}', b: '2' }, '{{b}} $& $1 \\{{b}} 2'],
  ['an empty value is one', '[{{a}}]', { a: '' }, '[]'],
  ['a variable without a value stays', '{{a}} {{constructor}} {{__proto__}}', {}, '{{a}} {{constructor}} {{__proto__}}'],
  ['a backslash makes it text, and goes', '\\{{a}} {{a}}', { a: 'x' }, '{{a}} x'],
  ['other backslashes stay', '\\{x} \\\\ \\n {{a}}', { a: 'x' }, '\\{x} \\\\ \\n x'],
]) {
  test(name, () => assert.equal(fill(text, new Map(Object.entries(values))), want))
}
