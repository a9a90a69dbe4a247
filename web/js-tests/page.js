// A page that has nothing, for scripts that look for their elements when they are loaded.
const nothing = () => ({ addEventListener() {}, querySelector: nothing, querySelectorAll: () => [], dataset: {}, classList: { toggle() {} }, style: {} })

globalThis.document = { ...nothing(), getElementById: nothing, documentElement: nothing(), body: nothing() }
globalThis.addEventListener = () => {}
globalThis.matchMedia = () => ({ matches: false, ...nothing() })
globalThis.localStorage = { getItem: () => null, setItem() {}, removeItem() {} }
