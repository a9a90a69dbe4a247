package quota

import "sync"

// Slots counts the answers of many that are generated at the same time. The zero value is ready to use.
type Slots struct {
	mu      sync.Mutex
	running map[string]int
	freed   chan struct{} // closed when an answer ends
}

// Take counts an answer, unless as many of the key as its limit are being generated. Then freed is closed when an answer ends,
// and the caller tries again.
func (t *Slots) Take(key string, limit int) (freed <-chan struct{}, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running == nil {
		t.running, t.freed = map[string]int{}, make(chan struct{})
	}
	if t.running[key] >= limit {
		return t.freed, false
	}
	t.running[key]++
	return nil, true
}

// Release counts the end of an answer that Take counted.
func (t *Slots) Release(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[key]--; t.running[key] == 0 {
		delete(t.running, key)
	}
	close(t.freed)
	t.freed = make(chan struct{})
}
