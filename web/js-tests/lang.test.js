import assert from 'node:assert/strict'
import { test } from 'node:test'

globalThis.texts = { Copied: 'Kopiert', '%s of %s': '%[2]s davon %[1]s', '%s tokens': '%s Tokens' }
const { t, tn } = await import('../static/lang.js')

test('a text is that of the page, or English', () => {
  assert.equal(t('Copied'), 'Kopiert')
  assert.equal(t('not in the catalogue'), 'not in the catalogue')
})

test('arguments take the places of the language', () => {
  assert.equal(t('%s and %s', 'a', 'b'), 'a and b')
  assert.equal(t('%s of %s', 1, 2), '2 davon 1')
  assert.equal(t('100 %s'), '100 %s')
  assert.equal(t('%s', '%s $&'), '%s $&')
})

test('a number chooses the form', () => {
  assert.equal(tn(1, '%s token', '%s tokens', 1), '1 token')
  assert.equal(tn(2, '%s token', '%s tokens', 2), '2 Tokens')
})
