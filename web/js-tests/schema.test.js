import assert from 'node:assert/strict'
import { test } from 'node:test'
import './page.js'

const { example, parse, read, sample, textOf, Unshown, write, wrong } = await import('../static/schema.js')

const person = {
  $schema: 'https://json-schema.org/draft/2020-12/schema', title: 'Person', description: 'Who is meant', type: 'object',
  properties: {
    name: { description: 'As they write it', type: 'string' },
    age: { type: 'integer' },
    height: { type: 'number' },
    alive: { type: 'boolean' },
    mood: { type: 'string', enum: ['good', 'bad'] },
    homes: { type: 'array', items: { type: 'object', properties: { town: { type: 'string' }, tags: { type: 'array', items: { type: 'array', items: { type: 'string' } } } }, required: ['town'] } },
  },
  required: ['name', 'homes'], additionalProperties: false,
}

for (const [name, schema] of Object.entries({
  'a schema with all types, nested': person,
  'the sample': sample,
  'an object without fields': { type: 'object', properties: {} },
  'an answer that is no object': { type: 'array', items: { type: 'string', enum: ['a'] } },
})) {
  test(`${name} is the same after the form`, () => {
    assert.equal(textOf(write(read(schema))), textOf(schema))
  })
}

test('the example has a value of each field', () => {
  assert.deepEqual(example(read(person)), { name: '…', age: 1, height: 1.5, alive: true, mood: 'good', homes: [{ town: '…', tags: [['…']] }] })
})

for (const [schema, what] of [
  [{ anyOf: [{ type: 'string' }] }, 'anyOf at #'],
  [{ type: 'object', properties: { a: { type: 'string', pattern: 'x' } } }, 'pattern at #/properties/a'],
  [{ type: 'object', properties: { a: { type: 'array' } } }, 'an array without items at #/properties/a'],
  [{ type: 'array', items: { type: ['string', 'null'] } }, 'the type ["string","null"] at #/items'],
  [{ type: 'object', properties: {}, required: ['b'] }, 'required at #'],
  [{ type: 'string', enum: ['a, b'] }, 'enum at #'],
  [{ type: 'string', items: { type: 'string' } }, 'items at #'],
  [{ enum: [1] }, 'enum at #'],
  [{}, 'no type at #'],
  [true, 'true at #'],
]) {
  test(`the form does not show ${what}`, () => assert.throws(() => read(schema), error => error instanceof Unshown && error.message === what))
}

test('the form shows a few levels', () => {
  let schema = { type: 'string' }
  for (let i = 0; i < 6; i++) schema = { type: 'array', items: schema }
  assert.throws(() => read(schema), /more than 5 levels/)
})

for (const [name, change, want] of [
  ['a field without a name', f => { f.fields[1].name = '' }, 'Field 2 needs a name'],
  ['two fields of one name', f => { f.fields[1].name = 'name' }, 'There are two fields called name'],
  ['a choice of nothing', f => { f.fields[4].values = [] }, 'mood needs at least one value'],
  ['a value twice', f => { f.fields[4].values = ['a', 'a'] }, 'mood has a value twice'],
  ['a field in a list without a name', f => { f.fields[5].item.fields[0].name = '' }, 'Field 1 needs a name'],
]) {
  test(`${name} is named`, () => {
    const field = read(person)
    assert.equal(wrong(field), null)
    change(field)
    assert.equal(wrong(field).text, want)
  })
}

for (const [text, want] of [
  ['{\n  "type": object\n}', 'Line 2, column 11: there should be a value here'],
  ['{"a": 1,}', 'Line 1, column 9: there should be a name in double quotes here'],
  ['{"a" 1}', 'Line 1, column 6: there should be a colon here'],
  ['[1\n2]', 'Line 2, column 1: there should be a comma or ] here'],
  ['{"a": ["x", {}, []], "b": -1.5e3', 'Line 1, column 33: there should be a comma or } here'],
  ['{} {}', 'Line 1, column 3: there should be nothing more here'],
  ['{"a": "\\x"}', 'Line 1, column 7: there should be a value here'],
  ['', 'Line 1, column 1: there should be a value here'],
]) {
  test(`${JSON.stringify(text)} is wrong at its place`, () => assert.throws(() => parse(text), { message: want }))
}
