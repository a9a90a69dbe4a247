// Where the program is, if a reverse proxy has it under a path of its own.
const base = globalThis.document?.documentElement.dataset.base ?? ''

// route returns the address of a path of the program, such as /models.
export const route = path => base + path
