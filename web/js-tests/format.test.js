import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bytes, count, duration, ordinal, percent, rate, roughly, tokenCount, visible } from '../static/format.js'

for (const [format, cases] of [
  [count, [[0, '0'], [1234567, '1,234,567'], [2.5, '3']]],
  [tokenCount, [[0, '0 tokens'], [1, '1 token'], [1000, '1,000 tokens']]],
  [rate, [[3.14159, '3.1'], [99.94, '99.9'], [99.95, '100'], [123.4, '123']]],
  [duration, [[9, '0.009 s'], [10, '0.01 s'], [9999, '10.00 s'], [10_000, '10.0 s'], [59_999, '60.0 s'], [60_000, '1 min'], [90 * 60_000, '1 h 30 min']]],
  [roughly, [[0, '0.1 s'], [949, '0.9 s'], [950, '1 s'], [89_000, '89 s'], [90_000, '2 min']]],
  [bytes, [[0, '0 B'], [999, '999 B'], [1000, '1.0 kB'], [99_950, '100 kB'], [999_500, '1.0 MB'], [4.9e9, '4.9 GB'], [2e15, '2000 TB']]],
  [percent, [[-1, '0.00%'], [0.125, '12.50%'], [2, '100.00%']]],
  [ordinal, [[1, '1st'], [2, '2nd'], [3, '3rd'], [11, '11th'], [1022, '1,022nd']]],
  [visible, [['', '∅'], [' a\n\t\r', '␣a↵⇥␍']]],
]) {
  for (const [given, want] of cases) test(`${format.name}(${JSON.stringify(given)}) is ${want}`, () => assert.equal(format(given), want))
}
