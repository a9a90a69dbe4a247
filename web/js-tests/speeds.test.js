import assert from 'node:assert/strict'
import { test } from 'node:test'

const stored = new Map([['m40.speeds', '{"old":3.5}'], ['m40.readings', 'no JSON']])
globalThis.localStorage = { getItem: key => stored.get(key) ?? null, setItem: (key, text) => stored.set(key, text), removeItem: key => stored.delete(key) }
const { Speeds } = await import('../static/speeds.js')

const answer = (model, speed, reading, running = false) => ({ info: { model }, speed, reading, running })

test('the last speed of each model is stored, rounded to a tenth', () => {
  const speeds = new Speeds()
  assert.deepEqual([speeds.writing, speeds.reading], [{ old: 3.5 }, {}])
  speeds.measure([answer('a', 10.04, 0), answer('a', 12.06, 500), answer('b', 7, 0, true), answer('', 9, 9)])
  assert.deepEqual([speeds.writing, speeds.reading], [{ old: 3.5, a: 12.1 }, { a: 500 }])
  assert.deepEqual([...stored], [['m40.speeds', '{"old":3.5,"a":12.1}'], ['m40.readings', '{"a":500}']])
})
