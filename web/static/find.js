// Highlights the words of a search in a message. They match as in the search of the server: whole
// words, ignoring case and accents; the last word of a query also matches as a prefix.
const word = /[\p{L}\p{N}\p{M}]+/gu
const spaceless = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u
const most = 500 // marks

const folded = text => text.normalize('NFD').replace(/\p{M}/gu, '').toLowerCase()

// finder returns a function that returns the ranges of a text that match the query.
function finder(query) {
  const words = query.match(word) ?? []
  const inside = words.filter(w => spaceless.test(w))
  const whole = words.filter(w => !spaceless.test(w)).map(folded)
  const open = /[\p{L}\p{N}\p{M}]$/u.test(query) && query.split('"').length % 2 === 1 && whole.at(-1)?.length > 1 ? whole.at(-1) : null
  return text => {
    const found = []
    for (const m of text.matchAll(word)) {
      const is = folded(m[0])
      if (whole.includes(is) || (open && is.startsWith(open))) found.push([m.index, m.index + m[0].length])
    }
    for (const w of inside) for (let at = text.indexOf(w); at >= 0; at = text.indexOf(w, at + w.length)) found.push([at, at + w.length])
    let end = 0
    return found.sort((a, b) => a[0] - b[0]).filter(([from, to]) => from >= end && (end = to))
  }
}

// mark highlights the words of a query in an element and returns the mark elements. It opens the
// details element around the first one.
export function mark(root, query) {
  const find = finder(query), texts = [], marks = []
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT)
  while (walk.nextNode()) if (!walk.currentNode.parentElement.closest('.code > header, summary')) texts.push(walk.currentNode)
  for (const text of texts) {
    const here = []
    for (const [from, to] of find(text.data).reverse()) {
      const range = document.createRange(), el = document.createElement('mark')
      range.setStart(text, from)
      range.setEnd(text, to)
      range.surroundContents(el)
      here.unshift(el)
    }
    marks.push(...here)
    if (marks.length >= most) break
  }
  marks[0]?.closest('details')?.setAttribute('open', '')
  return marks
}
