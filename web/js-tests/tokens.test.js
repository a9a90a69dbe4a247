import assert from 'node:assert/strict'
import { test } from 'node:test'
import './page.js'

const { inPercent, scales } = await import('../static/tokens.js')

for (const [p, want] of [[1, '100.0'], [0.0995, '10.0'], [0.0994, '9.94'], [0.00095, '0.10'], [0.0009, '0.09'], [0.0000095, '0.001'], [0.000001, '<0.001']]) {
  test(`the probability ${p} is ${want} percent`, () => assert.equal(inPercent(p), want))
}

for (const [by, cases] of Object.entries({
  p: [[{ p: 0.9 }, '≥ 90 %'], [{ p: 0.89 }, '50–90 %'], [{ p: 0.01 }, '1–5 %'], [{ p: 0.001 }, '< 1 %']],
  rank: [[{ rank: 0 }, '1st'], [{ rank: 1 }, '2nd'], [{ rank: 3 }, '3–4'], [{ rank: 40 }, '41+']],
  entropy: [[{ entropy: 0 }, '< 0.3'], [{ entropy: 0.9 }, '0.9–1.6'], [{ entropy: 9 }, '≥ 3.2']],
  kl: [[{ compared: { kl: 0 } }, '< 0.001'], [{ compared: { kl: 1 } }, '≥ 1']],
})) {
  for (const [token, want] of cases) test(`by ${by}, ${JSON.stringify(token)} has the colour of ${want}`, () => {
    const { step, bounds, words } = scales[by]
    assert.equal(words.length, bounds.length + 1)
    assert.equal(words[step(token, bounds)], want)
  })
}
