// The only code that turns HTML into elements. The server has rendered and sanitised this HTML; all
// other scripts only set text.
import { t } from './lang.js'
import { localise } from './times.js'

const policy = globalThis.trustedTypes?.createPolicy('m40', { createHTML: html => html })
  ?? { createHTML: html => html }

localise(document) // what the page came with

const template = id => document.getElementById(id).content

export const copyOf = id => template(id).firstElementChild.cloneNode(true)

// fragment returns the elements of rendered HTML. Its code blocks already have their frames, so
// that the layout does not change later.
export function fragment(html) {
  const holder = document.createElement('template')
  holder.innerHTML = policy.createHTML(html)
  for (const pre of holder.content.querySelectorAll('pre')) {
    const code = pre.firstElementChild
    if (code?.tagName !== 'CODE') continue
    const [box, inner] = codeBox(/language-(\S+)/.exec(code.className)?.[1])
    inner.append(...code.childNodes)
    pre.replaceWith(box)
  }
  localise(holder.content)
  return holder.content
}

// replaceChanged replaces an element by the server's newer one, unless they are equal: what stays keeps the focus, and
// a click during the update is not lost.
export function replaceChanged(shown, newer) {
  if (!shown.isEqualNode(newer)) shown.replaceWith(newer)
}

// codeBox returns the frame of a code block, and the element for its text.
export function codeBox(language) {
  const box = copyOf('t-code')
  box.querySelector('header span').textContent = language || t('text')
  box.querySelector('[data-wrap]').setAttribute('aria-pressed', document.documentElement.dataset.code !== 'scroll')
  box.querySelector('pre').setAttribute('aria-label', t('Code, %s', language || t('text')))
  return [box, box.querySelector('code')]
}
