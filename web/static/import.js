// Imports files of exported chats, of this program or of others.
import { route } from './base.js'
import { request } from './request.js'

// choose opens the file picker and resolves to the files; to none if the user cancels.
export function choose() {
  const input = document.createElement('input')
  input.type = 'file'
  input.multiple = true
  input.accept = '.json,.zip,application/json,application/zip'
  return new Promise(resolve => {
    input.addEventListener('change', () => resolve([...input.files]))
    input.addEventListener('cancel', () => resolve([]))
    input.click()
  })
}

// send imports the files in order. It returns the imported chats and the error of the first file
// that failed, and calls progress with the name of a file and the share of it that was sent.
export async function send(files, progress) {
  const done = []
  let failed = ''
  for (const file of files) {
    const made = await request(route('/import'), file, error => { failed ||= `${file.name}: ${error.message}` }, share => progress(file.name, share))
    if (made) done.push(made)
  }
  return { done, failed }
}
