// The numbers of events, which have no gaps. An event that replaces several has the first of them in first and the
// last in seq.

// unseen returns which of events follow number seq without a gap, the number of the last of them, and whether others
// follow after a gap. Events up to number seq were seen before and are left out.
export function unseen(events, seq) {
  const fresh = []
  for (const e of events) {
    if (e.seq <= seq) continue
    if ((e.first ?? e.seq) !== seq + 1) return { events: fresh, seq, gap: true }
    fresh.push(e)
    seq = e.seq
  }
  return { events: fresh, seq, gap: false }
}
