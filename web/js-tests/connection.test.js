import assert from 'node:assert/strict'
import { test } from 'node:test'
import { lossText, lostText } from '../static/connection.js'

for (const [name, code, answering, want, visits] of [
  ['a lost connection is tried again', 1006, false, 'Connection lost. Trying again in 3 s.'],
  ['the answer goes on without the page', 1006, true, 'Connection lost. The server goes on writing the answer, if it still runs. Trying again in 3 s.'],
  ['a server that stops keeps what was written', 1012, true, 'The server is stopping. What was written is kept. Trying again in 3 s.'],
  ['a device that was logged out does not try again', 401, true, 'This device was logged out.'],
  ['a visitor was not logged in', 401, true, 'Your visit has ended.', true],
]) {
  test(name, () => assert.equal(lostText(code, 3, answering, visits), want))
}

const of = state => ({ info: { state } })
for (const [name, compared, want] of [
  ['nothing is said where texts cannot be compared', null, ''],
  ['nothing is missing', { missing: 0, of: null }, ' Nothing is missing.'],
  ['one character is missing', { missing: 1, of: of('done') }, ' 1 character that was shown was not saved.'],
  ['a server that was killed has not saved the end', { missing: 1200, of: of('interrupted') }, ' 1,200 characters that were shown were not saved: the server was killed.'],
]) {
  test(name, () => assert.equal(lossText(compared), want))
}
