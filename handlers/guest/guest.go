// Package guest is what a person who has a link to a chat can do there: follow it, as far as the link
// shows it, ask its owner for write access, and write with it. The links are package links's.
//
// A reader asks the owner of the chat to write there, and the owner gives them write access,
// and takes it back. Writers send messages with the settings of the chat and
// stop the answers to these; they do nothing else. Answers count as the owner's in the queue, because a chat has
// one answer at a time and the owner let them in. Who asks and who writes is in memory:
// write access ends when the server stops. Of the secret by which a browser is known
// only the hash is stored. The package knows no HTTP.
package guest

import (
	"cmp"
	"time"

	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
)

// Service has the guests of a server's chats.
type Service struct {
	chats   *live.Service
	writers writers
}

// Options are settings of a Service. The zero value of each field means the default.
type Options struct {
	Idle time.Duration // how long a writer who writes nothing has write access; default 30 minutes
}

// New returns a Service for the guests of chats. All who serve the same chats need the same one.
func New(chats *live.Service, opt Options) *Service {
	s := &Service{chats: chats, writers: newWriters(cmp.Or(opt.Idle, 30*time.Minute), chats.Now)}
	chats.AddHooks(live.Hooks{
		Sent:          s.writers.ownerSent,
		ChatDeleted:   func(chat string) { s.writers.remove(func(w *writer) bool { return w.chat == chat }) },
		PersonRemoved: func(owner string) { s.writers.remove(func(w *writer) bool { return w.owner == owner }) },
	})
	chats.Links.AddHooks(links.Hooks{Ended: s.writers.endLink, ReadBy: s.writers.tell})
	return s
}
