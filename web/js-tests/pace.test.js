import assert from 'node:assert/strict'
import { test } from 'node:test'
import { lookup, reads, timeline } from '../static/pace.js'

// svg is a picture that keeps the class, the place and the width of what is drawn in it.
function svg() {
  globalThis.document = { createElementNS: () => ({ at: {}, setAttribute(name, value) { this.at[name] = value } }) }
  return { hidden: null, rects: [], toggleAttribute(_, on) { this.hidden = on }, replaceChildren(...rects) { this.rects = rects.map(r => [r.at.class, r.at.x, r.at.width]) } }
}

test('an answer without a pace has no timeline', () => {
  for (const pace of [undefined, { every_ms: 250, tokens: [3] }]) {
    const el = svg()
    assert.equal(timeline(el, { timings: {}, pace }), '')
    assert.deepEqual([el.hidden, el.rects], [true, []])
  }
})

test('the timeline has the phases before the first token, and a bar for each interval', () => {
  const el = svg()
  const text = timeline(el, { timings: { queue_ms: 250, load_ms: 0, prefill_ms: 250 }, pace: { every_ms: 250, tokens: [5, 10] } })
  assert.equal(text, '20.0 tok/s in steps of 0.25 s')
  assert.deepEqual(el.rects, [['q', '0.00%', '25.00%'], ['pf', '25.00%', '25.00%'], ['dc', '50.00%', '25.00%'], ['dc', '75.00%', '25.00%']])
})

test('pauses are counted, and the last interval is not, which is not whole', () => {
  const text = timeline(svg(), { timings: { queue_ms: 0, load_ms: 0, first_ms: 100 }, pace: { every_ms: 500, tokens: [5, 0, 20, 1] } })
  assert.equal(text, '10.0 to 40.0 tok/s in steps of 0.50 s, 1 of 3 without a token')
})

test('what was read of the memory is told with its part of the bandwidth', () => {
  assert.equal(reads({}), '')
  assert.equal(reads({ reads: { bytes: 1e9, us: 50_000, bandwidth: 40e9 } }), '20.0 GB/s read, 50 % of its bandwidth')
})

test('drafted tokens are told with what drafted them', () => {
  assert.equal(lookup({}), '')
  assert.equal(lookup({ lookup: { drafted: 8, accepted: 6 } }), '6 of 8 tokens drafted by lookup accepted, 75 %')
  assert.equal(lookup({ lookup: { drafted: 1000, accepted: 500, by: 'guide', gain: 1.5 } }), '500 of 1,000 tokens drafted by guide accepted, 50 %, 1.50 times as fast')
})
