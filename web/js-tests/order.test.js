import assert from 'node:assert/strict'
import { test } from 'node:test'
import { chainOf, isChain, summary } from '../static/order.js'

const usual = ['penalties', 'top_k', 'temperature']

for (const [name, on, chain, text] of [
  ['the default order is the empty chain', ['penalties', 'top_k', 'temperature'], [], 'default'],
  ['another order is named as it is', ['top_k', 'penalties', 'temperature'], ['top_k', 'penalties', 'temperature'], 'changed'],
  ['a chain can lack stages', ['top_k'], ['top_k'], '1 of 3 on'],
]) {
  test(name, () => assert.deepEqual([chainOf(on, usual), summary(on, usual)], [chain, text]))
}

for (const [list, want] of [[[], true], [['top_k'], true], [['top_k', 'top_k'], false], [['top_q'], false], ['top_k', false]]) {
  test(`${JSON.stringify(list)} is ${want ? 'a' : 'no'} chain`, () => assert.equal(isChain(list, usual), want))
}
