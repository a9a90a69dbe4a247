// The list of chats. The server renders it; this script fetches it again after changes and performs
// the actions of the chat menu.
import { route } from './base.js'
import { composing } from './enter.js'
import { choose, send } from './import.js'
import { count, messageCount } from './format.js'
import { fragment } from './html.js'
import { keepDraft } from './drafts.js'
import { t } from './lang.js'
import { place } from './menu.js'
import { dismiss, notify } from './notice.js'
import { pressed, released } from './press.js'
import { request } from './request.js'

const $ = q => document.querySelector(q)
const $$ = q => document.querySelectorAll(q)
const typing = 150 // ms between the last input and the search

// state returns the state of a chat from the data attributes of its row or of the header button.
const state = el => ({ pinned: 'pinned' in el.dataset, archived: 'archived' in el.dataset, folder: el.dataset.folder })

export class Rail {
  // on: {current(), gone(id), failed(error)}
  constructor(on) {
    this.on = on
    this.el = $('#rail')
    this.search = $('#search')
    this.menu = $('#chat-menu')
    this.view = location.search.slice(1) // query of the list shown
    this.asked = 0
    this.el.addEventListener('click', e => this.clicked(e))
    this.el.addEventListener('keydown', e => this.moved(e))
    this.el.addEventListener('focusin', e => {
      if (e.target.closest('.rail-list')) this.rove(e.target)
    })
    this.rove()
    this.row(this.on.current())?.scrollIntoView({ block: 'nearest' })
    for (const title of $$('.chat-head [data-title]')) title.addEventListener('click', () => this.renameTitle(title))
    $('[data-rename-title]').addEventListener('click', e => this.renameTitle(e.target))
    this.search.addEventListener('input', () => this.soon())
    this.search.form.addEventListener('submit', e => {
      e.preventDefault()
      this.load()
    })
    this.menu.addEventListener('submit', e => this.submitted(e))
    this.menu.addEventListener('toggle', e => {
      if (e.newState === 'closed' && this.stale) this.load()
    })
    this.menu.querySelector('[data-rename]').addEventListener('click', () => this.rename())
    this.menu.addEventListener('click', e => {
      if (e.target.closest('a')) this.menu.hidePopover()
    })
    for (const kind of ['pointerdown', 'keydown']) document.addEventListener(kind, e => { this.wasOpen = this.open && this.opener === e.target.closest('button') }, { capture: true })
    for (const button of $$('[data-chat-menu]')) button.addEventListener('click', e => {
      e.preventDefault()
      this.show(button, { id: this.on.current(), ...state(button) })
    })
    const folder = this.menu.querySelector('details')
    folder.addEventListener('toggle', () => {
      if (!folder.open) return
      this.listFolders(folder)
      const first = folder.querySelector('.folders .item') ?? folder.querySelector('[name=folder]')
      first.focus()
    })
    folder.addEventListener('click', e => {
      const item = e.target.closest('.folders .item')
      if (!item) return
      folder.querySelector('[name=folder]').value = item.dataset.to
      folder.querySelector('form').requestSubmit()
    })
    this.drags()
  }

  // listFolders offers the folders that there are as items of the menu.
  listFolders(details) {
    const box = details.querySelector('.folders'), { folder } = this.chat
    const names = [...$('#folders').options].map(o => o.value).filter(name => name !== folder)
    box.replaceChildren(...[...names, ...folder ? [''] : []].map(name => {
      const item = document.createElement('button'), text = document.createElement('span')
      item.type = 'button'
      item.className = 'item'
      item.dataset.to = name
      text.className = 'cut-text'
      text.dir = 'auto'
      text.textContent = name || t('Out of “%s”', folder)
      item.append(text)
      return item
    }))
    box.hidden = !box.firstChild
  }

  // drags lets a chat be dropped on a folder, on a chat in one, or on what takes it out of its folder. Touch and keys have
  // the menu.
  drags() {
    let chat = null // that is dragged
    const mark = to => { for (const el of this.el.querySelectorAll('[data-over]')) if (el !== to) delete el.dataset.over }
    const target = e => {
      const to = chat && e.target.closest('.rail-list h2[data-folder], .rail-drop, .conv-row')
      const folder = to?.dataset.folder ?? ''
      return to && folder !== chat.folder ? { to, folder } : null
    }
    this.el.addEventListener('dragstart', e => {
      const row = e.target.closest?.('.conv-row')
      if (!row || row.matches('.renaming')) return
      chat = { id: row.dataset.conv, ...state(row) }
      setTimeout(() => { // what changes at once ends the drag in Chromium
        if (!chat) return
        row.dataset.dragged = ''
        if (chat.folder) this.dropOut(chat.folder)
      })
    })
    this.el.addEventListener('dragover', e => {
      const at = target(e)
      mark(at?.to)
      if (!at) return
      e.preventDefault()
      at.to.dataset.over = ''
    })
    this.el.addEventListener('dragleave', e => { if (!this.el.contains(e.relatedTarget)) mark() })
    this.el.addEventListener('drop', e => {
      const at = target(e)
      if (!at) return
      e.preventDefault()
      this.moveTo(chat, at.folder)
    })
    this.el.addEventListener('dragend', () => {
      chat = null
      mark()
      for (const el of this.el.querySelectorAll('[data-dragged]')) delete el.dataset.dragged
      this.el.querySelector('.rail-drop')?.remove()
      if (this.stale) this.load()
    })
  }

  // dropOut shows where a chat is dropped to take it out of its folder.
  dropOut(folder) {
    const zone = document.createElement('p')
    zone.className = 'rail-drop'
    zone.textContent = t('Out of “%s”', folder)
    this.el.querySelector('.rail-list').prepend(zone)
  }

  // moveTo moves a chat into a folder, or out of its own if folder is empty, and offers to undo that.
  async moveTo({ id, folder: from }, folder, undone = false) {
    if (!await this.post(route(`/c/${id}/move`), { folder })) return
    if (id === this.on.current()) this.mark({ ...state($('[data-chat-menu]')), folder })
    if (!undone) notify(folder ? t('Moved to “%s”', folder) : t('Moved out of “%s”', from), { does: () => this.moveTo({ id, folder }, from, true) })
    this.load()
  }

  get open() { return this.menu.matches(':popover-open') }

  // busy: the list must stay as it is; a click on a row that has been replaced since it was pressed is lost.
  get busy() { return this.open || pressed() || this.el.querySelector('.renaming, [data-dragged]') }

  // postpone fetches the list again when it may change.
  async postpone() {
    this.stale = true
    await released()
    if (this.stale && !this.busy) this.load()
  }

  // rove implements a roving tabindex: the list is one tab stop, and the arrow keys move between
  // rows and between a row and its menu.
  rove(to = this.row(this.on.current())?.querySelector('a') ?? this.el.querySelector('.rail-list a')) {
    for (const el of this.el.querySelectorAll('.rail-list :is(a, button, input, summary)')) el.tabIndex = el === to ? 0 : -1
  }

  moved(e) {
    const here = e.target.closest('.rail-list :is(a, button)')
    if (!here || e.ctrlKey || e.metaKey || e.altKey || e.shiftKey) return
    const row = here.closest('li, h2') ?? here, links = [...this.el.querySelectorAll('.rail-list a')]
    const at = links.indexOf(here.matches('a') ? here : row.querySelector('a'))
    const to = {
      ArrowDown: links[at + 1], ArrowUp: links[at - 1], Home: links[0], End: links.at(-1),
      ArrowRight: row.querySelector('button'), ArrowLeft: row.querySelector('a'),
    }[e.key]
    if (!to) return
    e.preventDefault()
    to.focus()
  }

  // endSearch shows all chats again and reports whether a search was active.
  endSearch() {
    if (!this.search.value && !new URLSearchParams(this.view).get('q')) return false
    this.search.value = ''
    this.view = ''
    history.replaceState(null, '', location.pathname)
    this.search.focus()
    this.load()
    return true
  }

  row(id) { return this.el.querySelector(`[data-conv="${CSS.escape(id)}"]`) }

  soon() {
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.load(), typing)
  }

  // changed fetches the list again; called when the server reports a change.
  changed() {
    if (this.busy) this.postpone()
    else this.soon()
  }

  async load() {
    clearTimeout(this.timer)
    this.stale = false
    const asked = ++this.asked
    const query = new URLSearchParams(this.view)
    const words = this.search.value.trim()
    if (words !== (query.get('q') ?? '')) query.delete('after') // position in another list
    query.set('q', words)
    query.set('current', this.on.current())
    query.delete('at') // message in the chat
    const response = await fetch(route(`/rail?${query}`)).catch(() => null)
    if (!response?.ok || asked !== this.asked) return
    const list = fragment(await response.text())
    if (asked !== this.asked) return
    if (this.busy) {
      this.postpone()
      return
    }
    const old = $('#rail-list')
    const at = old.querySelector('.rail-list').scrollTop
    const had = old.contains(document.activeElement) ? document.activeElement : null
    old.replaceWith(list)
    $('#rail-list .rail-list').scrollTop = at
    this.rove()
    this.focusLike(had)
    this.mark()
    if (!this.view && !words) for (const row of $$('[data-recent]')) row.hidden = !this.row(row.dataset.recent) // it was deleted or archived
  }

  // focusLike focuses the counterpart of had, the focused element of the previous list.
  focusLike(had) {
    const row = had?.closest('[data-conv]'), heading = had?.closest('[data-folder]')
    if (row) this.row(row.dataset.conv)?.querySelector('a').focus()
    else if (heading) this.el.querySelector(`h2[data-folder="${CSS.escape(heading.dataset.folder)}"]`)?.querySelector(had.localName)?.focus()
  }

  // mark shows the state of the open chat in the header; the default is the state of its row.
  mark(is) {
    const row = this.row(this.on.current())
    is ??= row && state(row)
    if (!is) return
    for (const button of $$('[data-chat-menu]')) {
      button.toggleAttribute('data-pinned', is.pinned)
      button.toggleAttribute('data-archived', is.archived)
      button.dataset.folder = is.folder
    }
    for (const el of $$('[data-archived-mark]')) el.hidden = !is.archived
  }

  clicked(e) {
    const more = e.target.closest('[data-row-menu]')
    const view = e.target.closest('a[data-view]')
    if (more) {
      const row = more.closest('[data-conv]')
      this.show(more, { id: row.dataset.conv, ...state(row) })
    } else if (view) {
      e.preventDefault()
      this.turnTo(view.dataset.view)
    } else if (e.target.closest('[data-rename-folder]')) this.renameFolder(e.target.closest('[data-folder]'))
    else if (e.target.closest('[data-import]')) this.import()
  }

  // turnTo shows another list: a folder, the archive or older chats; '' shows all chats.
  async turnTo(view) {
    const query = new URLSearchParams(view)
    this.search.value = query.get('q') ?? ''
    this.view = view
    await this.load()
    $('#rail-list .rail-list').scrollTop = 0
    $('#rail-list .rail-foot [data-view]').focus()
  }

  // show opens the menu of a chat at a button.
  show(button, chat) {
    if (this.wasOpen) {
      this.wasOpen = false
      this.menu.hidePopover()
      return
    }
    this.opener = button
    this.chat = chat
    for (const form of this.menu.querySelectorAll('form')) form.action = route(`/c/${chat.id}/${form.dataset.act}`)
    for (const link of this.menu.querySelectorAll('a')) link.href = route(`/c/${chat.id}/${link.dataset.leads}`)
    for (const el of this.menu.querySelectorAll('[data-when]')) el.hidden = !{ pinned: chat.pinned, loose: !chat.pinned, kept: !chat.archived, archived: chat.archived }[el.dataset.when]
    this.menu.querySelector('[name=folder]').value = chat.folder
    this.menu.querySelector('details').open = false
    this.menu.showPopover()
    place(this.menu, button, button.closest('.rail') ? 'left' : 'right')
    this.menu.querySelector('button:not([hidden])').focus()
  }

  async submitted(e) {
    e.preventDefault()
    const form = e.target, { chat } = this, { id } = chat
    const lost = { id, title: this.titleOf(id), current: id === this.on.current() }
    this.menu.hidePopover()
    const answer = await this.post(form.getAttribute('action'), new FormData(form))
    if (!answer) return
    if (answer.chat) {
      location.assign(route(`/c/${answer.chat}`)) // the copy
      return
    }
    const { act } = form.dataset, value = form.elements.value?.value === 'true'
    if (act === 'delete') this.deleted(lost)
    else if (lost.current) this.mark({ ...chat, ...{ pin: { pinned: value }, archive: { archived: value }, move: { folder: form.elements.folder?.value } }[act] })
    if (act === 'archive') this.archived(lost, value)
    this.load()
  }

  titleOf(id) { return this.row(id)?.querySelector('[data-name]').textContent ?? (id === this.on.current() ? $('[data-title]').textContent : '') }

  post(address, fields) { return request(address, new URLSearchParams(fields), this.on.failed) }

  // rename replaces the title in the row, or in the header, by a text field.
  rename() {
    const { id } = this.chat
    this.menu.hidePopover()
    const place = this.opener.closest('[data-conv], .chat-head, .top')
    const title = place.querySelector('[data-name], [data-title]')
    this.retype(place, title.closest('a') ?? title, title.closest('a') ?? this.opener, { label: t('Title'), most: 200, text: this.titleOf(id) }, async name => {
      if (name !== title.textContent && await this.post(route(`/c/${id}/rename`), { title: name })) title.textContent = name
    })
  }

  // renameTitle replaces the title of the open chat by a text field.
  renameTitle(opener) {
    const button = opener.closest('.chat-head, .top').querySelector('[data-rename-title], [data-chat-menu]')
    if (button.hidden) return
    this.opener = button
    this.chat = { id: this.on.current() }
    this.rename()
  }

  // renameFolder replaces the heading of a folder by a text field.
  renameFolder(heading) {
    const { folder } = heading.dataset, title = heading.querySelector('[data-name]')
    this.retype(heading, title, heading.querySelector('button'), { label: t('Name of the folder'), most: 60, text: folder }, async name => {
      if (name === folder || !await this.post(route('/folders/rename'), { folder, name })) return
      title.textContent = name
      this.stale = true // the links still contain the old name
      if (new URLSearchParams(this.view).get('folder') === folder) this.view = `${new URLSearchParams({ folder: name })}`
    })
  }

  // retype replaces a name by a text field until the field loses the focus, and then calls save with
  // its value. Escape cancels. Afterwards back gets the focus.
  retype(place, title, back, { label, most, text }, save) {
    const field = document.createElement('input')
    field.className = 'field'
    field.maxLength = most
    field.value = text
    field.setAttribute('aria-label', label)
    place.classList.add('renaming')
    title.before(field)
    field.focus()
    field.select()
    let done = false
    const close = async keep => {
      if (done) return
      done = true
      const name = field.value.trim().replace(/\s+/g, ' ')
      const focused = document.activeElement === field
      if (keep && name) await save(name)
      field.remove()
      place.classList.remove('renaming')
      if (focused) back.focus()
      if (this.stale) this.load()
    }
    field.addEventListener('keydown', e => {
      if (composing(e)) return
      if (e.key !== 'Enter' && e.key !== 'Escape') return
      e.preventDefault()
      e.stopPropagation()
      close(e.key === 'Enter')
    })
    field.addEventListener('blur', () => close(true))
  }

  deleted(lost) {
    const does = 'visits' in document.body.dataset ? undefined : () => this.restore(lost) // what a visitor deletes is gone
    notify(t('Deleted “%s”', lost.title), { does, then: () => keepDraft(lost.id, '') })
    if (lost.current) this.on.gone()
  }

  // archived shows a notice that a chat was archived, or restored.
  archived({ id, title }, away) {
    notify(away ? t('Archived “%s”. The archive is under the list of chats.', title) : t('Put back “%s”', title), {
      does: async () => {
        if (!await this.post(route(`/c/${id}/archive`), { value: !away })) return
        if (id === this.on.current()) this.mark({ ...state($('[data-chat-menu]')), archived: !away })
        this.load()
      },
    })
  }

  async restore({ id, current }) {
    if (!await this.post(route(`/c/${id}/restore`), {})) return
    if (current) location.assign(route(`/c/${id}`))
    else this.load()
  }

  // import imports exported files and shows the result.
  async import() {
    const { done, failed } = await send(await choose(), (name, share) => notify(t('Importing %s, %s %', name, Math.floor(100 * share))))
    if (failed) {
      dismiss()
      this.on.failed({ title: done.length ? t('Not everything was imported') : t('Nothing was imported'), message: failed })
    }
    if (done.length === 0) return
    const [first] = done
    const chats = done.reduce((sum, made) => sum + (made.chats ?? 1), 0)
    const what = chats > 1 ? t('Imported %s chats', count(chats)) : t('Imported “%s”, %s', first.title, messageCount(first.messages))
    notify(what, { label: t('Open'), does: () => location.assign(route(`/c/${first.chat}`)) })
    const left = done.flatMap(made => made.left_out ?? [])
    if (left.length) this.reportLeftOut(what, left)
    this.view = ''
    this.search.value = ''
    this.load()
  }

  // reportLeftOut shows what of the imported files was not imported.
  reportLeftOut(what, left) {
    const dialog = $('#imported')
    dialog.querySelector('[data-what]').textContent = t('%s. These parts of the files were left out:', what)
    dialog.querySelector('ul').replaceChildren(...left.map(text => {
      const item = document.createElement('li')
      item.textContent = text
      return item
    }))
    dialog.showModal()
  }
}
