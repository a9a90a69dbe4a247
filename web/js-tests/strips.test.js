import assert from 'node:assert/strict'
import { test } from 'node:test'
import './page.js'

const { Curve, Strip } = await import('../static/strips.js')

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
