import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { copy } from '../static/copy.js'

let fields, commands, focused, selected

// page is a document without a clipboard, whose command copy does as told.
function page({ clipboard, command }) {
  focused = { focus: () => { focused.again = true } }
  const document = {
    activeElement: focused, body: { append: el => fields.push(el) }, querySelectorAll: () => [],
    createElement: () => ({ style: {}, select() { this.selected = true }, remove() { this.removed = true } }),
    execCommand: name => {
      commands.push([name, fields.at(-1).value, fields.at(-1).selected])
      if (command instanceof Error) throw command
      return command
    },
  }
  Object.defineProperty(globalThis, 'navigator', { value: { clipboard }, configurable: true })
  globalThis.document = document
  globalThis.getSelection = () => ({ rangeCount: 1, getRangeAt: () => 'before', removeAllRanges: () => { selected = [] }, addRange: r => selected.push(r), selectAllChildren: el => { selected = [el] } })
}

beforeEach(() => { fields = []; commands = []; selected = [] })

test('with a clipboard the text is written there', async () => {
  const written = []
  page({ clipboard: { writeText: async text => { written.push(text) } }, command: true })
  assert.equal(await copy('a'), 'Copied')
  assert.deepEqual([written, commands], [['a'], []])
})

for (const [name, clipboard] of [['over plain http there is none', undefined], ['where it is denied', { writeText: () => Promise.reject(new Error('denied')) }]]) {
  test(`${name}: the text is copied by selecting it, and what was selected is again`, async () => {
    page({ clipboard, command: true })
    assert.equal(await copy('line 1\nline 2'), 'Copied')
    assert.deepEqual(commands, [['copy', 'line 1\nline 2', true]])
    assert.ok(fields[0].removed && focused.again)
    assert.deepEqual(selected, ['before'])
  })
}

for (const [name, command] of [['is refused', false], ['is not there', new Error('unknown')]]) {
  test(`if that ${name}, what shows the text is selected, and the user told`, async () => {
    page({ clipboard: undefined, command })
    const shown = { text: 'a' }
    assert.equal(await copy('a', shown), 'Selected: press Ctrl C')
    assert.deepEqual(selected, [shown])
    let chosen = false
    assert.equal(await copy('a', { select: () => { chosen = true } }), 'Selected: press Ctrl C')
    assert.ok(chosen)
    assert.equal(await copy('a'), 'Copying is not allowed here')
  })
}
