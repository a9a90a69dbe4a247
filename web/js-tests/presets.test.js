import assert from 'node:assert/strict'
import { test } from 'node:test'
import './page.js'

const { Presets } = await import('../static/presets.js')

// panel returns presets of a panel with one setting, which has the value that a person left there.
function panel(list, value) {
  const param = { value, preset: 0 }
  const p = Object.create(Presets.prototype)
  Object.assign(p, {
    list, id: 'balanced', refresh() {},
    on: { system: () => '', setSystem() {}, params: { list: [], rebase: s => { param.preset = s.temperature }, reset: () => { param.value = param.preset } } },
  })
  return [p, param]
}

const list = [{ id: 'balanced', settings: { temperature: 0.8 } }, { id: 'precise', settings: { temperature: 0.3 } }]

for (const [name, id, pristine, fresh, want] of [
  ['a new chat begins with the values of its preset', 'precise', true, true, 0.3],
  ['one without a preset with the defaults', undefined, true, true, 0.8],
  ['a setting that was changed in a new chat stays when the list is read again', 'precise', false, true, 1.5],
  ['a chat that is opened keeps its settings', 'precise', true, false, 1.5],
]) {
  test(name, () => {
    const [p, param] = panel(list, 1.5)
    p.pristine = pristine
    p.choose(id, fresh)
    assert.equal(param.value, want)
  })
}

test('presets that come later are those of the new chat too', () => {
  const [p, param] = panel([], 1.5)
  p.pristine = true
  p.choose('precise', true)
  p.list = list
  p.choose(p.id, p.fresh)
  assert.equal(param.value, 0.3)
})
