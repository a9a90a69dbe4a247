import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Pool, decode, run, spread } from '../static/candidates.js'

const shares = [0.5, 0.3, 0.15, 0.05]
const off = { temperature: 1, dynatemp_range: 0, mirostat: 0, top_k: 0, top_p: 1, min_p: 0, typical_p: 1, top_n_sigma: 0, min_keep: 0 }
const whole = () => new Pool(Float64Array.from(shares, Math.log), shares.length)
// part knows the two likeliest of four candidates, with the mass of all at logits whose weights sum to 1.
const part = () => new Pool(Float64Array.from(shares.slice(0, 2), Math.log), 4, 1)
const close = (got, want) => assert.ok(Math.abs(got - want) < 1e-9, `got ${got}, want ${want}`)

// The entropy is 1.142 nats; the surprises of the candidates are 0.693, 1.204, 1.897 and 2.996.
for (const [name, settings, kept, first] of [
  ['top-k keeps so many', { top_k: 3 }, 3, 0],
  ['top-k of more than there are keeps all', { top_k: 9 }, 4, 0],
  ['top-p keeps the one that crosses it', { top_p: 0.7 }, 2, 0],
  ['top-p 0 keeps the likeliest', { top_p: 0 }, 1, 0],
  ['min-keep is the least that top-p leaves', { top_p: 0, min_keep: 3 }, 3, 0],
  ['min-p is relative to the likeliest', { min_p: 0.2 }, 3, 0],
  ['typical-p begins with the surprise nearest to the entropy', { typical_p: 0.2 }, 1, 1],
  ['typical-p adds the next nearest', { typical_p: 0.6 }, 2, 0],
  ['top-n-sigma measures from the largest logit', { top_n_sigma: 1 }, 2, 0],
]) {
  test(name, () => {
    const key = Object.keys(settings)[0], { after } = run(whole(), { ...off, ...settings }, [key])[key]
    assert.deepEqual([after.count, after.first], [kept, first])
  })
}

test('stages work on what those before them left, renormalised', () => {
  const steps = run(whole(), { ...off, top_k: 2, top_p: 0.6 }, ['penalties', 'top_k', 'top_p'])
  assert.deepEqual(Object.keys(steps), ['top_k', 'top_p'])
  assert.equal(steps.top_p.before.count, 2)
  assert.equal(steps.top_p.after.count, 1) // 0.5 of 0.8 is more than 0.6
  close(steps.top_p.before.share(steps.top_p.after), 0.625)
})

for (const [name, settings, key] of [
  ['top-p', { top_p: 0.9 }, 'top_p'], ['typical-p', { typical_p: 0.5 }, 'typical_p'], ['top-n-sigma', { top_n_sigma: 1 }, 'top_n_sigma'], ['a temperature', { temperature: 0.5 }, 'temperature'],
]) {
  test(`what ${name} leaves of candidates that the page does not have is not known, nor what follows`, () => {
    const steps = run(part(), { ...off, ...settings, min_p: 0.1 }, [key, 'min_p'])
    assert.equal(steps[key].after, null)
    assert.ok(!('min_p' in steps))
  })
}

test('what is known suffices where the cut is among the known candidates', () => {
  assert.equal(run(part(), { ...off, top_p: 0.4 }, ['top_p']).top_p.after.count, 1)
})

test('bars are on the axis of their slider', () => {
  const top = spread('top_p', whole())
  for (const [i, [from, to]] of [[0, 0.5], [0.5, 0.8], [0.8, 0.95], [0.95, 1]].entries()) {
    close(top[i].from, from)
    close(top[i].to, to)
    close(top[i].share, shares[i])
  }
  assert.deepEqual(spread('top_k', whole()).map(b => [b.from, b.to]), [[0.5, 1.5], [1.5, 2.5], [2.5, 3.5], [3.5, 4.5]])
  close(spread('min_p', whole())[1].from, 0.6)
  assert.deepEqual(spread('typical_p', part()), [])
})

test('equally likely candidates are as many choices', () => {
  close(new Pool(Float64Array.from([1, 1, 1]), 3).choices(), 3)
  close(whole().choices(1e-9), 1)
})

test('the candidates of the server are 32-bit floats in base64', () => {
  const pool = decode({ logits: Buffer.from(Float32Array.from([2, 0.5]).buffer).toString('base64'), count: 7, mass: 11 })
  assert.deepEqual([[...pool.logits], pool.count, pool.mass, pool.complete], [[2, 0.5], 7, 11, false])
})
