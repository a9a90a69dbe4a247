// The texts of the scripts in the language of the page. The English text is the key. Pages in another language load their
// texts before any module: web/assets.go makes that file of the texts that scripts name here.
const texts = globalThis.texts ?? {}

// t returns a text in the language of the page, with args in the place of %s, or of %[1]s and so on.
export function t(text, ...args) {
  let next = 0
  const shown = texts[text] ?? text
  return args.length ? shown.replace(/%(?:\[(\d)\])?s/g, (_, place) => args[place ? place - 1 : next++]) : shown
}

// tn returns t of one if n is 1, else of other.
export const tn = (n, one, other, ...args) => t(n === 1 ? one : other, ...args)
