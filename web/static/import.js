// Files of chats, from the reader's disk to the server.
import { request } from './request.js'

// choose asks for files; none if the person cancels.
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
// the first that did not. progress is told the name of the file and how much of it is there.
export async function send(files, progress) {
  const done = []
  let failed = ''
  for (const file of files) {
    const made = await request('/import', file, error => { failed ||= `${file.name}: ${error.message}` }, share => progress(file.name, share))
    if (made) done.push(made)
  }
  return { done, failed }
}
