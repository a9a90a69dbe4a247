import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Typing, typingText } from '../static/typing.js'

for (const [names, want] of [[[], ''], [['Ana'], 'Ana is typing'], [['Ana', 'Bo'], 'Ana and Bo are typing'], [['Ana', 'Bo', 'Cy'], '3 people are typing']]) {
  test(`${names.length} names are told as “${want}”`, () => assert.equal(typingText(names), want))
}

test('typing is signalled every two seconds, and at once after a message was sent', t => {
  let now = 1000, signals = 0
  t.mock.method(Date, 'now', () => now)
  const typing = new Typing(() => { signals++ })
  for (const [at, sent, want] of [[1000, false, 1], [2999, false, 1], [3000, false, 2], [3001, false, 2], [3002, true, 3]]) {
    now = at
    if (sent) typing.sent()
    typing.typed()
    assert.equal(signals, want, `at ${at} ms`)
  }
})
