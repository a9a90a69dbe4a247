// Files of chats, from the reader's disk to the server.

// choose asks for files; none if the reader changes their mind.
export function choose() {
  const input = document.createElement('input')
  input.type = 'file'
  input.multiple = true
  input.accept = '.json,application/json'
  return new Promise(resolve => {
    input.addEventListener('change', () => resolve([...input.files]))
    input.addEventListener('cancel', () => resolve([]))
    input.click()
  })
}

// send imports files one by one and returns what became chats, and what is wrong with
// the first that did not.
export async function send(files) {
  const done = []
  let failed = ''
  for (const file of files) {
    const response = await fetch('/import', { method: 'POST', body: file, headers: { Accept: 'application/json', 'Content-Type': 'application/json' } }).catch(() => null)
    const said = await response?.json().catch(() => null)
    if (response?.ok) done.push(said)
    else failed ||= `${file.name}: ${said?.error?.message ?? 'the server cannot be reached just now'}.`
  }
  return { done, failed }
}
