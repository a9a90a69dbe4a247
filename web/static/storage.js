// What the browser keeps between pages. Where its storage is off, nothing is kept.

export const recall = key => { try { return localStorage.getItem(key) } catch { return null } }

// remember keeps a text; an empty one is forgotten.
export function remember(key, text) {
  try { text ? localStorage.setItem(key, text) : localStorage.removeItem(key) } catch { /* storage is off */ }
}

// recallObject returns the object stored under key, or {} if there is none.
export function recallObject(key) {
  try {
    const stored = JSON.parse(recall(key))
    return stored instanceof Object ? stored : {}
  } catch {
    return {}
  }
}
