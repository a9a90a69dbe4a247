// The bar about the connection, and what was lost with it.
import { route } from './base.js'
import { count } from './format.js'
import { t, tn } from './lang.js'

const stopping = 1012 // the close code of a server that is stopping
const loggedOut = 401
const shownFor = 2000 // ms for which the bar says that all is well again

// lostText says that the connection is lost. answering: an answer was being written. visits: the page is one of a visitor.
export function lostText(code, seconds, answering, visits) {
  if (code === loggedOut) return visits ? t('Your visit has ended.') : t('This device was logged out.')
  const what = code === stopping ? t('The server is stopping. What was written is kept.')
    : answering ? t('Connection lost. The server goes on writing the answer, if it still runs.') : t('Connection lost.')
  return `${what} ${t('Trying again in %s s.', seconds)}`
}

// lossText says how much of the text that was shown the server did not save, by the result of Chat.lacks; '' if it is
// not known.
export function lossText(compared) {
  if (!compared) return ''
  const { missing, of } = compared
  if (missing === 0) return ` ${t('Nothing is missing.')}`
  if (of.info.state === 'interrupted') return ` ${tn(missing, '%s character that was shown was not saved: the server was killed.', '%s characters that were shown were not saved: the server was killed.', count(missing))}`
  return ` ${tn(missing, '%s character that was shown was not saved.', '%s characters that were shown were not saved.', count(missing))}`
}

export class ConnectionBar {
  // again connects again.
  constructor(again) {
    this.el = document.querySelector('#connbar')
    this.text = this.el.querySelector('[data-connbar]')
    this.button = this.el.querySelector('[data-reconnect]')
    this.offline = false
    this.texts = new Map() // of the answers, by id, when the connection was lost
    this.compared = null // result of Chat.lacks after reconnecting
    this.button.addEventListener('click', () => this.code === loggedOut ? location.assign(route('/login')) : again())
  }

  lost(seconds, code, chat) {
    if (!this.offline) {
      this.texts = chat.texts
      this.compared = null
    }
    this.offline = true
    this.code = code
    this.el.classList.replace('ok', 'warn')
    this.text.textContent = lostText(code, seconds, Boolean(chat.running), 'visits' in document.body.dataset)
    this.button.textContent = code === loggedOut ? t('Log in') : t('Try now')
    this.button.hidden = false
    this.el.hidden = false
  }

  // back says what was lost. again: the chat was open before.
  back(again) {
    const was = this.offline
    this.offline = false
    this.el.hidden = !was || !again
    if (this.el.hidden) return
    this.text.textContent = `${t('Back.')}${lossText(this.compared)}`
    this.button.hidden = true
    if (this.compared?.missing) return // show the loss until the user sends something
    this.el.classList.replace('warn', 'ok')
    setTimeout(() => { if (!this.offline) this.el.hidden = true }, shownFor)
  }

  // settle hides what was said about a connection that is there again.
  settle() { if (!this.offline) this.el.hidden = true }

  hide() { this.el.hidden = true }
}
