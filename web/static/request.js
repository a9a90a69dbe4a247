// What is asked of the server beside the stream, and what the reader is told if that fails.

const sentence = text => `${text[0].toUpperCase()}${text.slice(1)}${/[.?]$/.test(text) ? '' : '.'}`

// upload is fetch that tells how far it is.
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

// request posts a body, which is fields of a form, a file, or an object that goes as JSON;
// without one it only asks. It returns what is answered, an object or a text, or null
// after refused has been told why not. progress, if it is given, is told which share of the
// body has been sent.
export async function request(address, body, refused, progress) {
  const form = body instanceof URLSearchParams
  const headers = { Accept: 'application/json', ...body && !form && { 'Content-Type': 'application/json' } }
  const options = body ? { method: 'POST', headers, body: form || body instanceof Blob ? body : JSON.stringify(body) } : { headers }
  const response = await (progress ? upload(address, options, progress) : fetch(address, options)).catch(() => null)
  const isJSON = response?.headers.get('Content-Type')?.startsWith('application/json')
  const said = response?.status === 204 ? {} : await (isJSON ? response.json() : response?.text())?.catch(() => null)
  if (response?.ok && said != null) return said
  refused({
    title: said?.error?.title ?? 'That did not work',
    message: sentence(said?.error?.message ?? 'the server cannot be reached just now, and nothing was changed'),
    status: response?.status,
  })
  return null
}
