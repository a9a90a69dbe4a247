import assert from 'node:assert/strict'
import { test } from 'node:test'
import { unseen } from '../static/sequence.js'

const numbers = list => list.map(n => Array.isArray(n) ? { first: n[0], seq: n[1] } : { seq: n })

for (const [name, seq, given, shown, last, gap] of [
  ['events that follow are all shown', 4, [5, 6, 7], [5, 6, 7], 7, false],
  ['those before a gap are shown, and are not asked for again', 4, [5, 6, 8], [5, 6], 6, true],
  ['behind a gap at the beginning nothing is shown', 4, [6, 7], [], 4, true],
  ['an event that stands for several counts as all of them', 4, [[5, 9], 10], [9, 10], 10, false],
  ['one that begins behind a gap is not shown', 4, [[6, 9]], [], 4, true],
  ['events that were seen are left out', 4, [3, 4, 5], [5], 5, false],
  ['one that was seen in part is a gap', 4, [[4, 6], 7], [], 4, true],
  ['no events change nothing', 4, [], [], 4, false],
  ['the first event has number 1', 0, [1], [1], 1, false],
]) {
  test(name, () => {
    const got = unseen(numbers(given), seq)
    assert.deepEqual({ ...got, events: got.events.map(e => e.seq) }, { events: shown, seq: last, gap })
  })
}
