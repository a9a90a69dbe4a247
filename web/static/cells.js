// Answers that the server writes side by side, on the pages of blind comparisons and contact sheets: the
// stream that brings them, what is wrong with it, and errors of requests.
import { t } from './lang.js'

const $ = q => document.querySelector(q)

export function showProblem({ title, message }) {
  $('[data-title-of-error]').textContent = title
  $('[data-error]').textContent = message
  $('#problem').hidden = false
}

export function hideProblem() {
  $('#problem').hidden = true
}

function showConnection(text) {
  $('#connbar').hidden = !text
  $('#connbar span').textContent = text
}

// cellStream reads the stream at an address. takes has a function for each name in a message; opened is
// called whenever the stream begins, and ended if the server has it no more, which gone says in words.
export function cellStream(address, takes, { opened, ended, gone }) {
  const source = new EventSource(address)
  source.onopen = () => {
    opened?.()
    showConnection('')
  }
  source.onmessage = e => { for (const [name, value] of Object.entries(JSON.parse(e.data))) takes[name](value) }
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED) {
      showConnection(t('The connection is lost. The server goes on writing; trying again.'))
      return
    }
    showConnection(gone)
    ended()
  }
  return source
}
