package upstream

import (
	"hash/fnv"
	"slices"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// conversation identifies the conversation of a request by its beginning, which later requests of it have
// too: up to the first message of a person, or the first bytes of a text.
func conversation(r *infer.Request) uint64 {
	const begin = 1024 // bytes of a text
	hash := fnv.New64a()
	hash.Write([]byte(r.Model))
	for _, m := range r.Messages {
		hash.Write([]byte(m.Role + "\x00" + m.Content + "\x00"))
		if m.Role == "user" {
			break
		}
	}
	hash.Write([]byte(r.Prompt[:min(len(r.Prompt), begin)]))
	for _, id := range r.Tokens[:min(len(r.Tokens), begin/4)] {
		hash.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)})
	}
	return hash.Sum64()
}

// maxRecent is of how many conversations a Router knows which server answered last.
const maxRecent = 4096

// recent is the servers that answered conversations last.
type recent struct {
	servers map[uint64]*server
	order   []uint64 // of servers, the oldest first, as a ring from next on
	next    int
}

func (c *recent) set(key uint64, s *server) {
	if c.servers == nil {
		c.servers = map[uint64]*server{}
	}
	if _, known := c.servers[key]; !known {
		if len(c.order) < maxRecent {
			c.order = append(c.order, key)
		} else {
			delete(c.servers, c.order[c.next])
			c.order[c.next] = key
			c.next = (c.next + 1) % maxRecent
		}
	}
	c.servers[key] = s
}

// slack is how many answers more than the idlest server that of a conversation may write before the
// conversation moves: reading its prompt anew costs about as much as waiting for these.
const slack = 2

// reserve chooses the server for a request and counts the request there; number is that of the request in the server's
// breaker. key is that of its conversation, or 0. Servers in tried are left out, and those that are taken for dead, unless
// there is no other one and last is set: whether the next try fails too is not known. nil: there is none.
func (r *Router) reserve(m *model, key uint64, tried []*server, last bool) (s *server, number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	best := idlest(m.servers, func(s *server) bool { return s.usable() && !slices.Contains(tried, s) })
	switch s := r.recent.servers[key]; {
	case best != nil && s != nil && slices.Contains(m.servers, s) && s.usable() && !slices.Contains(tried, s) && s.load() <= best.load()+slack:
		best = s
	case best == nil && last:
		best = idlest(m.servers, func(s *server) bool { return !slices.Contains(tried, s) })
	}
	if best == nil {
		return nil, 0
	}
	if key != 0 {
		r.recent.set(key, best)
	}
	return best, best.begin()
}

// idlest returns the server that writes the fewest answers among those that may be chosen, and of equal ones that which
// has had fewest requests; nil: there is none.
func idlest(servers []*server, may func(*server) bool) (best *server) {
	for _, s := range servers {
		if may(s) && (best == nil || s.load() < best.load() || s.load() == best.load() && s.total() < best.total()) {
			best = s
		}
	}
	return best
}

// down is the error for a model whose servers cannot be reached.
func (m *model) down() *fault.Error {
	var reasons []string
	for _, s := range m.servers {
		if problem := s.status().Problem; problem != "" {
			reasons = append(reasons, problem)
		}
	}
	if len(reasons) == 0 {
		reasons = []string{m.servers[0].address + " failed a moment ago"}
	}
	return fault.Errorf(fault.CodeUpstream, "%s cannot answer: %s; this is tried again by itself, choose another model meanwhile", m.name, strings.Join(reasons, "; "))
}
