import assert from 'node:assert/strict'
import { test } from 'node:test'
import './page.js'

const { Curve, Strip } = await import('../static/strips.js')
const { Pool, run } = await import('../static/candidates.js')

// slider is a setting whose read-out shows what it kept of a token.
const slider = () => ({
  text: 'keeps 4 of 40, 0.97', keep: { title: 'Keeps 4 of 40 candidates' }, range: { setAttribute() {} }, value: 4,
  unlimited: () => false, note(text = '') { this.text = text },
})

for (const [name, kind] of [['a slider', Strip], ['the temperature', Curve]]) {
  test(`without candidates the read-out of ${name} is empty`, () => {
    const strip = Object.create(kind.prototype), path = { setAttribute() {} }
    Object.assign(strip, { param: slider(), kept: path, gone: path, about: '' })
    strip.show()
    assert.deepEqual([strip.param.text, strip.param.keep.title], ['', ''])
  })
}

for (const [name, settings, why] of [['at temperature 0', { temperature: 0 }, 'at temperature 0'], ['with Mirostat', { mirostat: 2 }, 'with Mirostat']]) {
  test(`${name} top-k has no effect, and keeps no number of candidates`, () => {
    const pool = new Pool(Float64Array.from([3, 2, 1]), 3)
    const all = { temperature: 1, dynatemp_range: 0, mirostat: 0, top_k: 2, top_p: 0.5, min_p: 0, min_keep: 0, ...settings }
    const steps = run(pool, all, ['top_k', 'top_p', 'temperature'])
    const strip = Object.create(Strip.prototype)
    Object.assign(strip, { param: slider(), about: '' })
    for (const key of ['top_k', 'top_p']) {
      strip.say(steps[key])
      assert.deepEqual([strip.param.text, strip.param.keep.title], ['no effect', `Has no effect ${why}`])
    }
    const used = run(pool, { ...all, temperature: 1, mirostat: 0 }, ['top_k', 'top_p', 'temperature'])
    strip.say(used.top_k)
    assert.equal(strip.param.text, 'keeps 2 (90 %)')
  })
}
