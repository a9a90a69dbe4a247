// HTTP requests besides the stream, with errors for the user.
import { t } from './lang.js'

// Some pages have no referrer; requests without one may come with an Origin that the server refuses.
const referrerPolicy = 'same-origin'

const sentence = text => `${text[0].toUpperCase()}${text.slice(1)}${/[.?]$/.test(text) ? '' : '.'}`

// upload is like fetch and reports the progress of the upload.
function upload(address, { method, headers, body }, progress) {
  return new Promise((resolve, reject) => {
    const asked = new XMLHttpRequest()
    asked.open(method, address)
    for (const [name, value] of Object.entries(headers)) asked.setRequestHeader(name, value)
    asked.upload.onprogress = e => { if (e.lengthComputable) progress(e.loaded / e.total) }
    asked.onload = () => resolve(new Response(asked.status === 204 ? null : asked.response, { status: asked.status, headers: { 'Content-Type': asked.getResponseHeader('Content-Type') ?? '' } }))
    asked.onerror = asked.onabort = reject
    asked.send(body)
  })
}

// start sends a POST with an object as JSON, and calls line with each object of the response, which has
// one in each line. On failure it calls refused with the error. signal cancels it.
export async function start(address, body, signal, line, refused) {
  const headers = { Accept: 'application/json', 'Content-Type': 'application/json' }
  const response = await fetch(address, { method: 'POST', headers, body: JSON.stringify(body), referrerPolicy, signal }).catch(() => null)
  if (!response?.ok) {
    if (!signal.aborted) refused(errorOf(response, await response?.json().catch(() => null)))
    return
  }
  try {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
    for (let rest = ''; ;) {
      const { value, done } = await reader.read()
      if (done) return
      const lines = (rest + value).split('\n')
      rest = lines.pop()
      for (const text of lines) line(JSON.parse(text))
    }
  } catch {
    if (!signal.aborted) refused(errorOf(null, null))
  }
}

const errorOf = (response, said) => ({
  title: said?.error?.title ?? t('That did not work'),
  message: sentence(said?.error?.message ?? t('the server cannot be reached just now, and nothing was changed')),
  status: response?.status,
  param: said?.error?.param,
})

// request sends a POST with a body, which is URLSearchParams, a Blob, or an object to send as JSON;
// without a body it sends a GET. It resolves to the response as an object or text. On failure it
// calls refused with the error and resolves to null. progress, if given, is called with the share
// of the body that was sent.
export async function request(address, body, refused, progress) {
  const form = body instanceof URLSearchParams
  const headers = { Accept: 'application/json', ...body && !form && { 'Content-Type': 'application/json' } }
  const options = body ? { method: 'POST', headers, body: form || body instanceof Blob ? body : JSON.stringify(body), referrerPolicy } : { headers }
  const response = await (progress ? upload(address, options, progress) : fetch(address, options)).catch(() => null)
  const isJSON = response?.headers.get('Content-Type')?.startsWith('application/json')
  const said = response?.status === 204 ? {} : await (isJSON ? response.json() : response?.text())?.catch(() => null)
  if (response?.ok && said != null) return said
  refused(errorOf(response, said))
  return null
}
