import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Soon } from '../static/soon.js'

test('a function is called once for all requests that come within a time, at the earliest of their times', t => {
  let now = 0, calls = 0, timers = []
  t.mock.method(performance, 'now', () => now)
  t.mock.method(globalThis, 'setTimeout', (call, ms) => timers[timers.push({ call, due: now + ms }) - 1])
  t.mock.method(globalThis, 'clearTimeout', timer => { timers = timers.filter(t => t !== timer) })
  const pass = ms => {
    now += ms
    for (const timer of timers.filter(t => t.due <= now)) {
      clearTimeout(timer)
      timer.call()
    }
  }
  const soon = new Soon(() => { calls++ })
  soon.within(100)
  soon.within(100)
  pass(50)
  soon.within(200)
  pass(49)
  assert.equal(calls, 0)
  pass(1)
  assert.equal(calls, 1)
  pass(500)
  assert.equal(calls, 1, 'the later requests were for the same call')
  soon.within(100)
  soon.within()
  assert.equal(calls, 1, 'nothing is called at once')
  pass(1)
  assert.equal(calls, 2)
})
