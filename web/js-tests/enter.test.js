import assert from 'node:assert/strict'
import { test } from 'node:test'
import { composing, sends } from '../static/enter.js'

const key = fields => ({ key: 'Enter', keyCode: 13, isComposing: false, shiftKey: false, ctrlKey: false, metaKey: false, ...fields })

for (const [name, fields, withEnter, without] of [
  ['Enter', {}, true, false],
  ['Shift + Enter', { shiftKey: true }, false, false],
  ['Ctrl + Enter', { ctrlKey: true }, true, true],
  ['Cmd + Enter', { metaKey: true }, true, true],
  ['Enter that ends a composition', { isComposing: true }, false, false],
  ['Enter that ends a composition in Safari', { keyCode: 229 }, false, false],
  ['Ctrl + Enter within a composition', { ctrlKey: true, keyCode: 229 }, false, false],
  ['another key', { key: 'a', keyCode: 65, ctrlKey: true }, false, false],
]) {
  test(`${name}: ${withEnter ? 'sends' : 'does not send'} where Enter sends, ${without ? 'sends' : 'does not'} elsewhere`, () => {
    assert.equal(Boolean(sends(key(fields), true)), withEnter)
    assert.equal(Boolean(sends(key(fields), false)), without)
  })
}

test('every key of a composition is the input method’s', () => {
  for (const fields of [{ isComposing: true }, { keyCode: 229 }, { key: 'Escape', keyCode: 229 }]) assert.ok(composing(key(fields)))
  for (const fields of [{}, { key: 'Process', keyCode: 27 }]) assert.ok(!composing(key(fields)))
})

for (const [name, kept, touch, want] of [
  ['Enter sends where there is a keyboard', null, false, true],
  ['Enter makes a new line on a touch screen', null, true, false],
  ['the setting decides on a touch screen', 'sends', true, true],
  ['the setting decides where there is a keyboard', 'line', false, false],
]) {
  test(name, async () => {
    globalThis.localStorage = { getItem: () => kept }
    globalThis.matchMedia = query => ({ matches: query === '(pointer: coarse)' && touch })
    const { enterSends } = await import('../static/enter.js')
    assert.equal(enterSends(), want)
  })
}
