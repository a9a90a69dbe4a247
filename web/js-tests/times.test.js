import assert from 'node:assert/strict'
import { test } from 'node:test'
import { heading, localise, when } from '../static/times.js'

// The zone of the process can be changed between tests.
for (const [zone, at, now, want] of [
  ['Asia/Tokyo', '2026-11-20T00:30:00Z', '2026-11-20T03:00:00Z', '09:30'],
  ['America/New_York', '2026-11-20T00:30:00Z', '2026-11-20T03:00:00Z', '19:30'],
  ['UTC', '2026-11-18T23:59:00Z', '2026-11-20T00:01:00Z', 'Wed'],
  ['Asia/Tokyo', '2026-11-18T23:59:00Z', '2026-11-20T00:01:00Z', '08:59'],
  ['Europe/Berlin', '2026-03-01T12:00:00Z', '2026-11-20T00:01:00Z', '1 Mar'],
  ['Pacific/Kiritimati', '2025-12-31T12:00:00Z', '2026-11-20T00:01:00Z', '1 Jan'],
  ['Pacific/Honolulu', '2026-01-01T08:00:00Z', '2026-11-20T12:00:00Z', 'Dec 2025'],
]) {
  test(`in ${zone}, ${at} is ${want}`, () => {
    process.env.TZ = zone
    assert.equal(when(new Date(at), new Date(now)), want)
  })
}

for (const [zone, at, want] of [
  ['UTC', '2026-11-19T23:59:00Z', 'Yesterday'],
  ['Asia/Tokyo', '2026-11-19T23:59:00Z', 'Today'],
  ['America/New_York', '2026-11-19T23:59:00Z', 'Today'],
  ['Pacific/Honolulu', '2026-11-20T00:30:00Z', 'Today'],
  ['Europe/Berlin', '2026-11-13T12:00:00Z', 'Last week'],
  ['Europe/Berlin', '2026-11-12T12:00:00Z', 'Older'],
]) {
  test(`in ${zone}, ${at} is under ${want}`, () => {
    process.env.TZ = zone
    assert.equal(heading(new Date(at), new Date('2026-11-20T01:00:00Z')), want)
  })
}

test('times of messages and of the list are rewritten, and none that are not dates', () => {
  process.env.TZ = 'Asia/Tokyo'
  const el = (dateTime, list, time) => ({ dateTime, textContent: 'as the server says', matches: () => list, dataset: { time } })
  const all = [el('2026-11-20T00:30:00Z', false), el('2001-02-03T00:30:00+01:00', true), el('soon', false), el('2026-03-09T18:00:00Z', false, 'day'), el('2026-03-09T18:00:00Z', false, 'ends')]
  localise({ querySelectorAll: q => q.startsWith('time') ? all : [] })
  assert.deepEqual(all.map(e => e.textContent), ['09:30', 'Feb 2001', 'as the server says', '10 Mar 2026, 03:00', 'Tue 10 Mar, 03:00'])
})
