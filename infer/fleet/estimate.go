package fleet

import (
	"cmp"
	"time"

	"m40-llm/infer"
)

// A wait is the sum of the loads and answers that come before. A load takes as long as the last one of the same file, else as its size says
// at the rate of the largest file that was loaded, if that is comparable, else at assumedRate. Answers that are in the way end when their
// worker says (infer.Status.EndS); those that wait too are expected to take as long as the last ones did on average.

// assumedRate is how many bytes of a file are loaded in a second, as long as nothing is known.
const assumedRate = 500e6

// comparable is how many times as large a file may be as one from whose load it is estimated.
const comparable = 8

// times are how long loads and answers took.
type times struct {
	loads   map[string]load   // by model: the last one
	answers [16]time.Duration // ring of the last ones
	ended   int
}

// load is how long a load took.
type load struct {
	size int64 // bytes of the file
	took time.Duration
}

func (t *times) addAnswer(d time.Duration) {
	t.answers[t.ended%len(t.answers)] = d
	t.ended++
}

// answer returns how long an answer takes on average; false: that is not known.
func (t *times) answer() (time.Duration, bool) {
	n := min(t.ended, len(t.answers))
	if n == 0 {
		return 0, false
	}
	sum := time.Duration(0)
	for _, d := range t.answers[:n] {
		sum += d
	}
	return sum / time.Duration(n), true
}

func (t *times) addLoad(m infer.ModelInfo, took time.Duration) {
	if t.loads == nil {
		t.loads = map[string]load{}
	}
	t.loads[key(m)] = load{m.Size, took}
}

// key identifies the file of a model.
func key(m infer.ModelInfo) string { return cmp.Or(m.Path, m.Name) }

// load returns how long a load of m takes.
func (t *times) load(m infer.ModelInfo) time.Duration {
	if known, ok := t.loads[key(m)]; ok && known.size == m.Size {
		return known.took
	}
	rate, largest := assumedRate, int64(0)
	for _, l := range t.loads {
		if l.size > largest && l.took > 0 && l.size*comparable >= m.Size {
			rate, largest = float64(l.size)/l.took.Seconds(), l.size
		}
	}
	return time.Duration(float64(m.Size) / rate * float64(time.Second))
}

// noteLoads notes how long the models were loaded that are ready. The caller has locked mu.
func (f *Fleet) noteLoads() {
	for _, s := range f.slots {
		if status := s.engine.Status(); status.State == infer.StateReady && status.LoadMS > 0 && status.LoadMS != s.loadMS {
			s.loadMS = status.LoadMS
			f.times.addLoad(status.Model, milliseconds(status.LoadMS))
			delete(f.refused, key(status.Model))
		}
	}
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// outlook returns the place of each of those who wait, and how long it is expected to wait until its model is loaded. The caller has locked
// mu.
func (f *Fleet) outlook() (list []infer.Queued) {
	f.noteLoads()
	at, known, short := f.untilFree()
	for i, w := range f.waiting {
		if i == 0 || key(w.model) != key(f.waiting[i-1].model) {
			if i > 0 && short { // the model before has to be unloaded
				answer, ok := f.times.answer()
				at, known = at+answer, known && ok
			}
			at += f.times.load(w.model)
		}
		now := infer.Queued{Position: i + 1, ForMemory: short}
		if known {
			now.WaitS = infer.Roughly(max(at, 1)).Seconds()
		}
		list = append(list, now)
	}
	return list
}

// untilFree returns how long it takes until the model of the first request that waits can be loaded, whether that is known, and whether
// memory is short: models are unloaded for others. The caller has locked mu.
func (f *Fleet) untilFree() (d time.Duration, known, short bool) {
	known, short = true, f.o.Most == 1
	for _, s := range f.slots {
		status := s.status()
		switch {
		case status.State == infer.StateLoading:
			d = max(d, left(status.Loading, f.times.load(status.Model)))
		case s.draining:
			short = true
			end := time.Duration(status.EndS * float64(time.Second))
			d, known = max(d, end), known && (end > 0 || s.using == 0)
		}
	}
	return d, known, short
}

// left returns how much of a load that takes d is to come.
func left(l infer.Loading, d time.Duration) time.Duration {
	if l.Total <= 0 {
		return d
	}
	return time.Duration(float64(d) * (1 - float64(l.Done)/float64(l.Total)))
}

// loading returns the event that the load of m in s starts; false: it is loaded. A worker reports a load only while it progresses.
func (f *Fleet) loading(s *slot, m infer.ModelInfo) (infer.Event, bool) {
	status := s.engine.Status()
	l := status.Loading
	l.Total = cmp.Or(l.Total, m.Size)
	return f.withPlan(infer.Event{Type: infer.EventLoading, Loading: &l}, s, m), status.State == infer.StateLoading
}

// withPlan adds to an event about the load of m in s how long that is expected to take, and what was unloaded for it.
func (f *Fleet) withPlan(e infer.Event, s *slot, m infer.ModelInfo) infer.Event {
	if e.Loading == nil {
		return e
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := *e.Loading
	now.InPlaceOf = s.inPlaceOf
	now.LeftS = infer.Roughly(max(1, left(now, f.times.load(m)))).Seconds()
	e.Loading = &now
	return e
}
