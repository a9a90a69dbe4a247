// Announces a streamed answer to screen readers through one polite live region: whole sentences, at
// most every two seconds.
const pause = 2000
const region = document.getElementById('spoken')

let text = ''
let timer = 0
let last = 0

const plain = s => s.replace(/[*_#`>|]+/g, ' ').replace(/\s+/g, ' ').trim()

function speak() {
  timer = 0
  const end = Math.max(...['. ', '! ', '? ', '\n', ': '].map(mark => text.lastIndexOf(mark)))
  if (end < 0) return
  region.textContent = plain(text.slice(0, end + 1))
  text = text.slice(end + 1)
  last = Date.now()
}

export function announce(more) {
  text += more
  if (!timer) timer = setTimeout(speak, Math.max(0, last + pause - Date.now()))
}

export function conclude(how) {
  clearTimeout(timer)
  timer = 0
  region.textContent = `${plain(text)} ${how}`.trim()
  text = ''
  last = Date.now()
}
