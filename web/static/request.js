// What is asked of the server beside the stream, and what the reader is told if that fails.

const sentence = text => `${text[0].toUpperCase()}${text.slice(1)}${/[.?]$/.test(text) ? '' : '.'}`

// request posts a body, which is fields of a form, a file, or an object that goes as JSON;
// without one it only asks. It returns what is answered, an object or a text, or null
// after refused has been told why not.
export async function request(address, body, refused) {
  const form = body instanceof URLSearchParams
  const headers = { Accept: 'application/json', ...body && !form && { 'Content-Type': 'application/json' } }
  const options = body ? { method: 'POST', headers, body: form || body instanceof Blob ? body : JSON.stringify(body) } : { headers }
  const response = await fetch(address, options).catch(() => null)
  const isJSON = response?.headers.get('Content-Type')?.startsWith('application/json')
  const said = response?.status === 204 ? {} : await (isJSON ? response.json() : response?.text())?.catch(() => null)
  if (response?.ok && said != null) return said
  refused({
    title: 'That did not work',
    message: sentence(said?.error?.message ?? 'the server cannot be reached just now, and nothing was changed'),
    status: response?.status,
  })
  return null
}
