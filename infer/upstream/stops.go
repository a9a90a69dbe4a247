package upstream

import "strings"

// sentStops is how many stop strings engines with OpenAI's routes take; llama-server takes any number.
const sentStops = 4

// stops ends a text at the first of some strings. It holds back text that one of them could begin with.
type stops struct {
	strings []string
	held    string
	found   string // the string at which the text ended; empty: it goes on
}

// text takes more of the text and returns what comes before all stop strings.
func (s *stops) text(more string) string {
	if len(s.strings) == 0 {
		return more
	}
	if s.found != "" {
		return ""
	}
	s.held += more
	end := len(s.held)
	for _, stop := range s.strings {
		if at := strings.Index(s.held, stop); at >= 0 && at < end {
			end, s.found = at, stop
		}
	}
	if s.found == "" {
		end -= s.partial()
	}
	certain := s.held[:end]
	if s.held = s.held[end:]; s.found != "" {
		s.held = ""
	}
	return certain
}

// partial returns how many bytes at the end of the held text a stop string begins with.
func (s *stops) partial() (most int) {
	for _, stop := range s.strings {
		for n := min(len(stop)-1, len(s.held)); n > most; n-- {
			if strings.HasSuffix(s.held, stop[:n]) {
				most = n
			}
		}
	}
	return most
}
