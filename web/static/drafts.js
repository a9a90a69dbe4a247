// Unsent drafts, stored in this browser for each chat.
const key = chat => `m40.draft.${chat || 'new'}`

export function keepDraft(chat, text) {
  try {
    if (text) localStorage.setItem(key(chat), text)
    else localStorage.removeItem(key(chat))
  } catch { /* storage is off: the draft lasts as long as the page */ }
}

export function draftOf(chat) {
  try {
    return localStorage.getItem(key(chat)) ?? ''
  } catch {
    return ''
  }
}
