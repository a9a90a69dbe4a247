package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// What a model takes is planned from what is free, and memory can be refused all the same: another program took it, or it is fragmented. Then
// the load is tried again, each time after another idle model was unloaded, the one used least recently; when there is none, the worker
// itself tries with less, which means fewer layers on a device or a shorter context.

// refusal is what was done since memory was refused to the load of a model.
type refusal struct {
	unloaded []string // names
	shrinks  bool     // no idle model is left
}

// notice says what was done, as a sentence without its full stop; empty: nothing.
func (r refusal) notice() string {
	switch n := len(r.unloaded); {
	case n == 0:
		return ""
	case n == 1:
		return "memory ran out while the model was loaded, so " + r.unloaded[0] + " was unloaded"
	}
	return "memory ran out while the model was loaded, so these models were unloaded: " + strings.Join(r.unloaded, ", ")
}

// isIdle reports whether a model can be unloaded at once for another.
func (s *slot) isIdle() bool {
	return !s.gone && !s.pinned && s.using == 0 && occupies(s.status())
}

// loadsAgain reports whether a request for m, whose worker failed with err, has to be made again, because m is loaded in another way.
func (f *Fleet) loadsAgain(s *slot, m infer.ModelInfo, err error) bool {
	known, ok := errors.AsType[*fault.Error](err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.refused {
		return true
	}
	status := s.engine.Status() // which may be older than err
	if !ok || known.Code != fault.CodeMemory || !s.whole || status.State == infer.StateReady || s.gone || f.closed {
		return false
	}
	r := f.refused[key(m)]
	unload := []*slot{s}
	idle := slices.DeleteFunc(slices.Clone(f.slots), func(other *slot) bool { return other == s || !other.isIdle() })
	if r.shrinks = len(idle) == 0; !r.shrinks {
		least := slices.MinFunc(idle, func(a, b *slot) int { return a.used.Compare(b.used) })
		unload, r.unloaded = append(unload, least), append(r.unloaded, least.engine.Status().Model.Name)
		f.evictions++
	}
	f.o.Log.Warn("memory ran out while a model was loaded; it is loaded again", "model", m.Name, "unloaded", r.unloaded, "with_less", r.shrinks, "error", known.Message)
	if f.refused == nil {
		f.refused = map[string]refusal{}
	}
	f.refused[key(m)] = r
	s.refused = true
	f.remove(unload)
	return true
}

// seeLoaded loads m, the model of s, again if memory is refused to its load, which no request waits for.
func (f *Fleet) seeLoaded(s *slot, m infer.ModelInfo) {
	f.mu.Lock()
	for s.engine.Status().State == infer.StateLoading && !s.gone && !f.closed {
		f.wait(context.Background(), &waiter{}, nil)
	}
	status, gone := s.engine.Status(), s.gone
	f.mu.Unlock()
	if status.Error == nil || gone && !s.refused || !f.loadsAgain(s, m, status.Error) {
		return
	}
	f.load(context.Background(), m) // its error is in the status, too
}
