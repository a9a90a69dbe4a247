import assert from 'node:assert/strict'
import { test } from 'node:test'
import { WordCounter } from '../static/words.js'

const text = 'It is  2 + 2, don’t\nyou think? 你好 there, 東京タワー is—tall. 🎉🎉 ok '

test('pieces of every size have as many words as the whole text', () => {
  const whole = new WordCounter()
  whole.add(text)
  assert.equal(whole.count, 19)
  const signs = [...text]
  for (let size = 1; size <= signs.length; size++) {
    const c = new WordCounter()
    for (let at = 0; at < signs.length; at += size) c.add(signs.slice(at, at + size).join(''))
    assert.equal(c.count, 19, `in pieces of ${size}`)
  }
})

test('white space and nothing have no words', () => {
  const c = new WordCounter()
  for (const piece of ['', ' ', '\n', '']) c.add(piece)
  assert.equal(c.count, 0)
})
