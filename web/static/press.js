// Clicks that would be lost, or meet another button than the one that was pressed.

// A click is lost if its element is replaced between press and release, so updates wait for the release.
let down = false
const waiting = []
addEventListener('pointerdown', e => { down ||= e.button === 0 }, { capture: true })
for (const kind of ['pointerup', 'pointercancel']) addEventListener(kind, () => setTimeout(() => { // after the click
  down = false
  for (const resume of waiting.splice(0)) resume()
}), { capture: true })

// pressed reports whether a mouse button or a finger is down.
export const pressed = () => down

// released waits until none is.
export const released = () => new Promise(resume => { down ? waiting.push(resume) : resume() })

// isFirst reports whether a click is not the second of a double-click: after the first one, another button may be in its place.
export const isFirst = click => click.detail < 2
