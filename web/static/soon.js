// Soon calls a function once for all requests that come within a time.
export class Soon {
  constructor(call) {
    this.call = call
    this.due = Infinity
  }

  // within has the function called in at most so many milliseconds, never at once.
  within(ms = 0) {
    const due = performance.now() + ms
    if (due >= this.due) return
    clearTimeout(this.timer)
    this.due = due
    this.timer = setTimeout(() => {
      this.due = Infinity
      this.call()
    }, ms)
  }
}
