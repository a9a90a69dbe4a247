// Package guest is what a person who has a link to a chat can do there: follow it, as far as the link
// shows it, ask its owner for the keyboard, and write with it. The links are package live's.
//
// A reader asks the owner of the chat to write there, and the owner gives them the keyboard, which is
// write access, and takes it back. Writers send messages with the settings of the chat and
// stop the answers to these; they do nothing else. Answers count as the owner's in the queue, because a chat has
// one answer at a time and the owner let them in. Who asks and who writes is in memory: the
// keyboard is back with the owner when the server stops. Of the secret by which a browser is known
// only the hash is kept. The package knows no HTTP.
package guest

import (
	"cmp"
	"time"

	"m40-llm/handlers/live"
)

// Service has the guests of a server's chats.
type Service struct {
	chats     *live.Service
	keyboards keyboards
}

// Options are settings of a Service. The zero value of each field means the default.
type Options struct {
	Idle time.Duration // how long a writer who writes nothing has the keyboard; default 30 minutes
}

// New returns a Service for the guests of chats. All who serve the same chats need the same one.
func New(chats *live.Service, opt Options) *Service {
	s := &Service{chats: chats, keyboards: newKeyboards(cmp.Or(opt.Idle, 30*time.Minute), chats.Now)}
	chats.AddHooks(live.Hooks{
		Sent:          s.keyboards.ownerSent,
		ChatDeleted:   func(chat string) { s.keyboards.remove(func(w *writer) bool { return w.chat == chat }) },
		PersonRemoved: func(owner string) { s.keyboards.remove(func(w *writer) bool { return w.owner == owner }) },
		LinkEnded:     s.keyboards.endLink,
		ReadBy:        s.keyboards.tell,
	})
	return s
}
