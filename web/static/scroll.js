// The column of messages: it follows new text unless the user has scrolled up, loads messages near the ends of what is
// loaded, and shows the message in the address, for example of a search result.
import { mark } from './find.js'

const $ = q => document.querySelector(q)
const near = 400 // px from the first or the last loaded message at which others are loaded
const atEnd = 48 // px from the end within which the column counts as at its end

// followsAfter reports whether the column follows new text after the user has scrolled. New text also moves the end
// away, so only scrolling up ends following. left: px to the end.
export const followsAfter = ({ following, cut, left, top, reached }) => !cut && (left < atEnd || following && top >= reached)

export class Scroll {
  // on: {command(type, fields), reopen(message), scrolled(), loaded(), failed(error)}
  constructor(chat, on) {
    this.chat = chat
    this.on = on
    this.el = $('#scroll')
    this.following = true
    this.reached = 0 // scrollTop at the last scroll event
    this.width = this.height = 0
    this.fetching = false
    this.sought = Number(document.body.dataset.at) // message in the address
    this.asked = false // the branch of that message was requested
    this.el.addEventListener('scroll', () => this.scrolled(), { passive: true })
    $('#tobottom').addEventListener('click', () => this.toEnd())
    $('#older').addEventListener('click', () => this.older())
    const sizes = new ResizeObserver(() => { if (this.following) this.toEnd() })
    sizes.observe(this.el)
    sizes.observe(chat.el)
    const ends = new IntersectionObserver(() => this.fetchNear(), { root: this.el, rootMargin: `${near}px 0px` })
    for (const end of ['#older', '#end']) ends.observe($(end))
  }

  toEnd() {
    if (this.chat.cut) {
      this.on.reopen()
      return
    }
    this.following = true
    if ($('#empty').hidden) this.el.scrollTop = this.el.scrollHeight
    this.reached = this.el.scrollTop
  }

  // stay keeps the column where it is when text is added.
  stay() { this.following = false }

  // resized reports whether the size of the column has changed since the last call. A scroll event
  // is then not caused by the user.
  resized() {
    const is = this.width !== this.el.clientWidth || this.height !== this.el.clientHeight
    this.width = this.el.clientWidth
    this.height = this.el.clientHeight
    return is
  }

  scrolled() {
    if (this.resized()) {
      if (this.following) this.toEnd()
      this.on.scrolled()
      return
    }
    const { scrollHeight, scrollTop: top, clientHeight } = this.el, { cut } = this.chat
    this.following = followsAfter({ ...this, cut, top, left: scrollHeight - top - clientHeight })
    this.reached = this.el.scrollTop
    $('#tobottom').hidden = (this.following && !cut) || this.chat.empty
    this.fetchNear()
    this.on.scrolled()
  }

  // Older and newer messages are loaded when the user scrolls near the first or the last loaded one.
  fetchMore(type, from) {
    if (this.fetching || !from) return
    this.fetching = true
    this.on.command(type, from).catch(() => { this.fetching = false })
  }

  older() { this.fetchMore('older', this.chat.more && this.chat.first && { before: this.chat.first.id }) }

  fetchNear() {
    const top = this.el.getBoundingClientRect().top
    if (!this.following && $('#older').getBoundingClientRect().bottom > top - near) this.older()
    if (this.chat.cut && $('#end').getBoundingClientRect().top < top + this.el.clientHeight + near) this.fetchMore('newer', { after: this.chat.end.id })
  }

  // load calls put to insert messages, and keeps the visible text at its position.
  load(put) {
    this.fetching = false
    const top = this.el.getBoundingClientRect().top
    const read = [...this.chat.turns.values()].find(turn => turn.el.getBoundingClientRect().bottom > top)?.el
    const before = read?.getBoundingClientRect().top
    put()
    this.on.loaded()
    if (read?.isConnected) this.el.scrollTop += read.getBoundingClientRect().top - before
    this.reached = this.el.scrollTop
    this.fetchNear()
  }

  // inView returns the last answer in the viewport that a model has written, or the last one of all; undefined: there is
  // none.
  inView() {
    const { top, bottom } = this.el.getBoundingClientRect()
    const seeded = this.chat.answers.filter(a => !a.info.edited).reverse()
    return seeded.find(a => {
      const r = a.el.getBoundingClientRect()
      return r.top < bottom && r.bottom > top
    }) ?? seeded[0]
  }

  // seek scrolls to the message in the address and highlights the words of the search. It reports whether the message is
  // on the page or being loaded.
  seek() {
    const { sought } = this
    if (!sought) return false
    const turn = this.chat.turns.get(sought)
    if (!turn && !this.asked) {
      this.asked = true
      this.on.command('select', { message: sought, version: 0 }).then(() => this.on.reopen(sought), error => {
        this.sought = 0
        this.on.failed(error)
        this.toEnd()
      })
      return true
    }
    this.sought = 0
    if (!turn) return false
    this.stay()
    const [first] = mark(turn.el.querySelector('.prose'), new URLSearchParams(location.search).get('q') ?? '')
    turn.el.focus({ preventScroll: true })
    turn.el.scrollIntoView()
    if (first && first.getBoundingClientRect().bottom > this.el.getBoundingClientRect().bottom) first.scrollIntoView({ block: 'center' })
    this.reached = this.el.scrollTop
    this.fetchNear()
    return true
  }
}
