import assert from 'node:assert/strict'
import { test } from 'node:test'

globalThis.document = { documentElement: { lang: 'de' } }
const { bytes, count, duration, rate } = await import('../static/format.js')

test('numbers have the separators of the language of the page', () => {
  assert.equal(count(1234567), '1.234.567')
  assert.equal(rate(3.14159), '3,1')
  assert.equal(duration(9999), '10,00 s')
  assert.equal(bytes(4.9e9), '4,9 GB')
})
