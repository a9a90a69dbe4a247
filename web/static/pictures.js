// Pictures of messages: those of the draft, which are uploaded at once, those in the chat, and the one in full size.
import { route } from './base.js'
import { bytes, count, tokenCount } from './format.js'
import { copyOf } from './html.js'
import { t } from './lang.js'
import { request } from './request.js'

const $ = q => document.querySelector(q)

// fitted returns the size in which a picture is shown; web/picture.templ has the same.
export function fitted({ width, height }, many) {
  const [w, h] = many ? [240, 160] : [480, 320]
  const scale = Math.min(1, w / width, h / height)
  return { width: Math.max(1, Math.round(scale * width)), height: Math.max(1, Math.round(scale * height)) }
}

function sizeOf({ width, height, detail }) {
  const size = t('%s × %s pixels', count(width), count(height))
  const read = { low: t('%s, read in low detail', size), medium: t('%s, read in medium detail', size) }
  return read[detail] ?? size
}

// nameOf is what a message calls a picture: see attached.Name.
export const nameOf = ({ hash, detail }) => detail ? `${hash}:${detail}` : hash

// list returns the element with the pictures of a message, whose files are under an address.
export function list(address, pictures) {
  const ul = document.createElement('ul')
  ul.className = 'pics'
  for (const [at, p] of pictures.entries()) {
    const li = copyOf('t-picture'), a = li.firstElementChild, img = a.firstElementChild
    a.href = img.src = `${address}/pictures/${p.hash}`
    img.alt = `${pictures.length > 1 ? `Picture ${at + 1} of ${pictures.length}` : 'Picture'}, ${sizeOf(p)}`
    Object.assign(img, fitted(p, pictures.length > 1))
    ul.append(li)
  }
  return ul
}

// A picture in the chat opens over the page; with a modifier key in a tab of its own, as links do.
const viewer = $('#viewer')
document.addEventListener('click', e => {
  const a = e.target.closest('a[data-picture]')
  if (!a || e.ctrlKey || e.metaKey || e.shiftKey) return
  e.preventDefault()
  const img = viewer.querySelector('img')
  img.src = viewer.querySelector('[data-original]').href = a.href
  img.alt = a.firstElementChild.alt
  viewer.querySelector('[data-size]').textContent = img.alt
  viewer.showModal()
})
viewer.addEventListener('click', e => {
  if (e.target === viewer || e.target.closest('[data-close], img')) viewer.close()
})

const isPicture = file => /^image\/(?!svg)/.test(file.type) || !file.type && /\.(png|jpe?g|webp|gif|bmp)$/i.test(file.name)

// Draft is the list of the pictures of a message that is being written. on: {changed(), failed(error)}
export class Draft {
  constructor(on) {
    this.on = on
    this.detail = '' // in which the model reads them: low, medium, or all
    this.choices = [] // {low, medium, full}: how many tokens each has in each detail, if that is known
    this.list = [] // {file, name, size, progress, uploaded; of one that is uploaded: hash, width, height}
    const { most, bytes: limit } = $('#attached').dataset
    this.most = Number(most)
    this.limit = Number(limit)
    $('#detail').addEventListener('click', e => {
      const button = e.target.closest('[data-detail]')
      if (!button) return
      this.detail = button.dataset.detail
      this.on.changed()
    })
  }

  // takes reports whether a file is meant as a picture.
  takes(file) { return isPicture(file) }

  // add uploads a picture file, or returns why it cannot be one of the message.
  add(file) {
    if (this.list.length >= this.most) return t('is one too many: a message can have %s pictures. Send it with the next one.', this.most)
    if (file.size > this.limit) return t('has %s: a picture can have %s. Attach a smaller one.', bytes(file.size), bytes(this.limit))
    const picture = { file, name: file.name || t('Picture'), size: file.size, progress: 0 }
    this.list.push(picture)
    this.upload(picture)
  }

  upload(picture) {
    picture.hash = ''
    const refused = error => {
      this.remove(picture)
      this.on.failed({ ...error, title: t('%s was not attached', picture.name) })
    }
    picture.uploaded = request(route('/pictures'), picture.file, refused, share => {
      picture.progress = share
      this.on.moved()
    }).then(known => {
      if (known) Object.assign(picture, known)
      if (known && this.list.some(p => p !== picture && p.hash === picture.hash)) this.remove(picture) // it is there already
      this.on.changed()
    })
    this.on.changed()
  }

  remove(picture) {
    this.list = this.list.filter(p => p !== picture)
    this.on.changed()
  }

  get busy() { return this.list.some(p => !p.hash) }

  // ready resolves when all are uploaded, or refused.
  async ready() { await Promise.all(this.list.map(p => p.uploaded)) }

  get names() { return this.list.filter(p => p.hash).map(({ hash }) => nameOf({ hash, detail: this.detail })) }

  // counted sets how many tokens the pictures have in each detail.
  counted(choices = []) { this.choices = choices }

  // showDetail shows the details, if they are known and not all the same.
  showDetail() {
    const all = name => this.choices.reduce((sum, c) => sum + c[name || 'full'], 0)
    const group = $('#detail')
    group.hidden = !this.choices.length || this.choices.length !== this.list.length || all('low') === all('')
    for (const button of group.querySelectorAll('[data-detail]')) {
      const tokens = all(button.dataset.detail)
      button.setAttribute('aria-pressed', String(button.dataset.detail === this.detail))
      button.title = tokenCount(tokens)
      button.querySelector('.num').textContent = count(tokens)
    }
  }

  // again uploads all anew: the server does not have them any more.
  async again() {
    for (const p of this.list) this.upload(p)
    await this.ready()
  }

  // items returns an element for each. tokens: how many each has in the prompt, if that is known.
  items(tokens = []) {
    return this.list.map((p, at) => {
      const li = copyOf('t-attached-picture'), img = li.querySelector('img'), facts = [bytes(p.size)]
      if (p.hash) {
        img.src = route(`/pictures/${p.hash}`)
        facts.unshift(`${count(p.width)} × ${count(p.height)}`)
        if (tokens[at]) facts.push(tokenCount(tokens[at]))
      } else facts.push(p.progress < 1 ? t('%s % uploaded', Math.floor(100 * p.progress)) : t('being checked'))
      li.toggleAttribute('aria-busy', false)
      if (!p.hash) li.setAttribute('aria-busy', 'true')
      li.querySelector('[data-name]').textContent = p.name
      li.querySelector('[data-size]').textContent = facts.join(' · ')
      li.querySelector('button').setAttribute('aria-label', t('Remove %s', p.name))
      li.querySelector('button').addEventListener('click', () => {
        this.remove(p)
        $('#message').focus()
      })
      return li
    })
  }

  // take removes the pictures and returns what puts them back.
  take() {
    const taken = this.list
    this.list = []
    return () => { this.list = [...taken, ...this.list.filter(p => !taken.includes(p))] }
  }
}
