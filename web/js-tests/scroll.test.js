import assert from 'node:assert/strict'
import { test } from 'node:test'
import './page.js'

const { followsAfter } = await import('../static/scroll.js')

for (const [name, state, want] of [
  ['at the end the column follows new text', { following: false, left: 47 }, true],
  ['scrolling up ends following', { following: true, left: 48, top: 99, reached: 100 }, false],
  ['text that moves the end away does not', { following: true, left: 500, top: 100, reached: 100 }, true],
  ['scrolling down does not begin following before the end', { following: false, left: 500, top: 200, reached: 100 }, false],
  ['the end of what is loaded is not the end of the chat', { following: true, cut: true, left: 0, top: 100, reached: 100 }, false],
]) {
  test(name, () => assert.equal(followsAfter({ cut: false, top: 0, reached: 0, ...state }), want))
}
