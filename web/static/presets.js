// The preset picker of the settings panel, and the actions on presets.
import { route } from './base.js'
import { copyOf } from './html.js'
import { t } from './lang.js'
import { hang } from './menu.js'
import { notify } from './notice.js'
import { request } from './request.js'

const $ = q => document.querySelector(q)
const standard = 'balanced' // id of the preset with the defaults
export const own = 'own' // id of the preset of the loaded model, which the server lists first if the model has one

export class Presets {
  // on: {params, system(), setSystem(text), address(preset), changed(), failed(error)}
  constructor(on) {
    this.on = on
    this.list = []
    this.pristine = false // a new chat of which no setting was changed
    this.id = standard
    this.busy = false
    this.select = $('#preset')
    this.chip = $('[data-modified]')
    this.menu = $('#preset-menu')
    this.dialog = $('#preset-dialog')
    this.differs = $('#differs')
    this.select.addEventListener('change', () => this.use(this.select.value))
    $('[data-save-preset]').addEventListener('click', () => this.save())
    $('[data-reset-all]').addEventListener('click', () => this.reset())
    hang(this.menu, () => this.offer())
    this.menu.addEventListener('click', e => this.clicked(e))
    $('#preset-file').addEventListener('change', e => this.import(e.target))
    this.dialog.querySelector('form').addEventListener('submit', e => this.submitted(e))
  }

  // chosen is the preset with which the panel is compared; undefined if it was deleted.
  get chosen() { return this.list.find(p => p.id === this.id) }

  // isOwn reports whether the settings are those that the loaded model's file suggests.
  get isOwn() { return this.id === own && this.differences.length === 0 }

  get missing() { return this.list.length > 0 && !this.chosen }

  // load fetches the presets, which other pages may have changed.
  load() {
    this.loaded = request(route('/presets'), null, this.on.failed).then(answer => {
      if (!answer) return
      const follows = this.list.length > 0 && this.isOwn
      this.list = answer.presets
      this.draw()
      this.choose(this.untouched ? '' : this.id, this.fresh)
      if (!follows || this.differences.length === 0) return
      this.on.params.reset()
      if (!this.fresh) this.on.changed()
    })
  }

  // draw shows the presets in the menu.
  draw() {
    const groups = [[t('Built in'), this.list.filter(p => p.builtin)], [t('Yours'), this.list.filter(p => !p.builtin)]]
    this.select.replaceChildren(...groups.filter(([, list]) => list.length).map(([label, list]) => {
      const group = document.createElement('optgroup')
      group.label = label
      group.append(...list.map(p => new Option(p.name, p.id)))
      return group
    }))
  }

  // choose compares the panel with a preset without changing a setting. With fresh, for a new chat,
  // it takes over the preset's system prompt. A new chat without an id has the settings of the loaded
  // model, or those of standard.
  choose(id, fresh = false) {
    this.untouched = fresh && !id
    if (this.untouched && this.list.some(p => p.id === own)) id = own
    this.id = id || standard
    if (this.id === own && this.missing) this.id = standard // another model is loaded, which has none
    this.fresh = fresh
    const preset = this.chosen
    if (preset) {
      this.on.params.rebase(preset.settings)
      if (this.untouched || this.pristine && fresh) this.on.params.reset()
      if (fresh && preset.system && !this.on.system()) this.on.setSystem(preset.system)
    }
    this.refresh()
  }

  // use applies the values of a preset. It keeps a system prompt that the user has written.
  async use(id) {
    await this.loaded
    if (!this.list.some(p => p.id === id)) return
    const before = this.chosen?.system ?? '', written = this.on.system()
    this.choose(id)
    this.untouched = false
    for (const p of this.on.params.list) p.set(p.preset)
    if (!written || written === before) this.on.setSystem(this.chosen.system ?? '')
    this.on.changed()
  }

  reset() {
    for (const p of this.on.params.list) p.set(p.preset)
    if (this.systemDiffers) this.on.setSystem(this.chosen.system)
    this.on.changed()
  }

  // systemDiffers reports whether the chat's system prompt differs from the preset's; false if the
  // preset has none.
  get systemDiffers() { return Boolean(this.chosen?.system) && this.chosen.system !== this.on.system() }

  get differences() {
    if (this.missing) return []
    const rows = this.on.params.list.filter(p => p.modified).map(p => ({ label: p.label, param: p, is: p.word(p.value), was: p.word(p.preset) }))
    if (this.systemDiffers) rows.push({ label: t('System prompt'), is: this.on.system() || t('none'), was: this.chosen.system })
    return rows
  }

  refresh() {
    const n = this.differences.length
    const state = this.busy ? t('saving') : this.missing ? t('missing') : n ? t('modified · %s', n) : t('unchanged')
    this.chip.textContent = state
    this.chip.classList.toggle('accent', !this.busy && !this.missing && n > 0)
    this.chip.classList.toggle('warn', this.missing)
    $('[data-reset-all]').hidden = n === 0
    const save = $('[data-save-preset]')
    save.disabled = this.busy
    save.textContent = this.busy ? t('Saving') : t('Save')
    let gone = this.select.querySelector('[data-gone]')
    if (this.missing && !gone) {
      gone = new Option(t('Deleted preset'), this.id)
      gone.dataset.gone = ''
      this.select.prepend(gone)
    } else if (!this.missing) gone?.remove()
    this.select.value = this.id
  }

  // open opens the menu; the key p calls it.
  open() {
    this.select.focus()
    try {
      this.select.showPicker()
    } catch { /* showPicker is not available: the focus is set, and the keys of the browser open it */ }
  }

  offer() {
    const own = this.chosen && !this.chosen.builtin
    for (const el of this.menu.querySelectorAll('[data-own]')) el.hidden = !own
    const differs = this.menu.querySelector('[data-differs]'), n = this.differences.length
    differs.disabled = n === 0
    differs.querySelector('span').textContent = n ? t('What differs · %s', n) : t('No changes')
    this.menu.querySelector('[data-all-presets]').href = this.on.address(this.id)
    this.menu.querySelector('[data-export-preset]').hidden = !this.chosen
    this.menu.querySelector('[data-export-preset]').href = route(`/presets/export.json?id=${encodeURIComponent(this.id)}`)
  }

  clicked(e) {
    const item = e.target.closest('.item')
    if (!item) return
    this.menu.hidePopover()
    if (item.matches('[data-save-as]')) this.name('save')
    else if (item.matches('[data-differs]')) this.compare()
    else if (item.matches('[data-rename-preset]')) this.name('rename')
    else if (item.matches('[data-delete-preset]')) this.delete()
    else if (item.matches('[data-import-presets]')) $('#preset-file').click()
  }

  // save stores the settings in the preset. For a built-in preset it asks for the name of a new one.
  async save() {
    const preset = this.chosen, wrong = this.on.params.firstInvalid()
    if (wrong) {
      wrong.focus()
      return
    }
    if (!preset || preset.builtin) {
      this.name('save')
      return
    }
    await this.working(async () => {
      const saved = await request(route(`/presets/${preset.id}`), { settings: this.settings, system: preset.system ? this.on.system() : '' }, error => {
        if (error.status === 404) this.list = this.list.filter(p => p !== preset)
        this.on.failed(error)
      })
      if (saved) Object.assign(preset, { system: '' }, saved)
      this.draw()
      this.choose(this.id)
    })
  }

  get settings() { return { ...this.on.params.values(), seed: -1 } }

  async working(act) {
    this.busy = true
    this.refresh()
    try {
      await act()
    } finally {
      this.busy = false
      this.refresh()
    }
  }

  // name opens the dialog that asks for a name.
  name(purpose) {
    const renames = purpose === 'rename'
    this.purpose = purpose
    this.dialog.querySelector('h2').textContent = renames ? t('Rename the preset') : t('Save as a preset')
    this.dialog.querySelector('[type=submit]').textContent = renames ? t('Rename') : t('Save')
    const field = this.dialog.querySelector('#preset-name'), withSystem = this.dialog.querySelector('.switch')
    field.value = renames ? this.chosen.name : ''
    withSystem.hidden = renames || !this.on.system().trim()
    withSystem.querySelector('input').checked = Boolean(this.chosen?.system)
    this.complain('')
    this.dialog.showModal()
    field.select()
  }

  complain(text) {
    const error = this.dialog.querySelector('.fielderr'), field = this.dialog.querySelector('#preset-name')
    error.textContent = text
    error.hidden = !text
    if (text) field.setAttribute('aria-invalid', 'true')
    else field.removeAttribute('aria-invalid')
  }

  async submitted(e) {
    e.preventDefault()
    const name = this.dialog.querySelector('#preset-name').value.trim()
    if (!name) {
      this.complain(t('A preset needs a name'))
      return
    }
    const withSystem = this.dialog.querySelector('.switch input').checked && !this.dialog.querySelector('.switch').hidden
    const refused = error => this.complain(error.message)
    await this.working(async () => {
      if (this.purpose === 'rename') {
        if (!await request(route(`/presets/${this.id}/rename`), { name }, refused)) return
        this.chosen.name = name
      } else {
        const saved = await request(route('/presets'), { name, settings: this.settings, system: withSystem ? this.on.system() : '' }, refused)
        if (!saved) return
        this.list.push(saved)
        this.id = saved.id
      }
      this.sort()
      this.draw()
      this.dialog.close()
      this.choose(this.id)
      if (this.purpose !== 'rename') this.on.changed()
    })
  }

  sort() { this.list.sort((a, b) => Boolean(b.builtin) - Boolean(a.builtin) || (a.builtin ? 0 : a.name.localeCompare(b.name))) }

  async delete() {
    const preset = this.chosen
    if (!await request(route(`/presets/${preset.id}/delete`), {}, this.on.failed)) return
    this.list = this.list.filter(p => p !== preset)
    this.draw()
    this.refresh()
    notify(t('Deleted the preset “%s”', preset.name), {
      does: async () => {
        if (!await request(route(`/presets/${preset.id}/restore`), {}, this.on.failed)) return
        this.list.push(preset)
        this.sort()
        this.draw()
        this.choose(this.id)
      },
    })
  }

  async import(input) {
    const [file] = input.files
    input.value = ''
    if (!file) return
    const answer = await request(route('/presets/import'), file, this.on.failed)
    if (!answer) return
    this.list.push(...answer.presets)
    this.sort()
    this.draw()
    this.refresh()
    const n = answer.presets.length
    notify(n === 1 ? t('Imported the preset “%s”', answer.presets[0].name) : t('Imported %s presets', n))
  }

  // compare opens the list of differences from the preset.
  compare() {
    this.differs.querySelector('[data-base]').textContent = this.chosen.name
    this.differs.querySelector('tbody').replaceChildren(...this.differences.map(d => {
      const row = copyOf('t-differs'), [label, is, bell, was] = row.children
      label.textContent = d.label
      is.textContent = d.is
      was.textContent = d.was
      if (typeof d.param?.value !== 'number') {
        bell.replaceChildren()
        for (const cell of [is, was]) cell.classList.remove('num')
        return row
      }
      const at = d.param.share(d.param.value), from = d.param.share(d.param.preset)
      bell.querySelector('.is').setAttribute('cx', `${100 * at}%`)
      bell.querySelector('.was').setAttribute('cx', `${100 * from}%`)
      bell.querySelector('.moved').setAttribute('x', `${100 * Math.min(at, from)}%`)
      bell.querySelector('.moved').setAttribute('width', `${100 * Math.abs(at - from)}%`)
      return row
    }))
    this.differs.showModal()
  }
}
