package web

import (
	"strconv"
	"time"
)

// Sharing is the page on which links to a chat are made and ended.
type Sharing struct {
	Chat, Title string
	Temporary   bool // it cannot be shared
	Shares      []Share
	Messages    []Choice // where a link can begin
	First       string   // that is chosen among them; empty: the start
	Alone       bool     // other machines reach shared chats alone, not the server
	Port        uint16
	Trouble     string // why others may not reach the links
}

// Share is a link to a chat.
type Share struct {
	ID        int64
	What      string   // it shows
	Links     []string // addresses of it, the best first; none: only its hash is known
	QR        string   // path of the code of the first, on a square of QRSize
	QRSize    int
	Followers int
	Live      bool
	Ends      string // empty: when the owner ends it
}

func (s Share) box() string {
	n := strconv.Itoa(s.QRSize)
	return "0 0 " + n + " " + n
}

// readers says how many read.
func (s Share) readers() string {
	switch s.Followers {
	case 0:
		return "Nobody is reading now."
	case 1:
		return "1 person is reading now."
	}
	return strconv.Itoa(s.Followers) + " people are reading now."
}

// SharedChat is the page behind a link.
type SharedChat struct {
	Token, Title, System string
	Raw, Live, Elsewhere bool
	Grows                bool   // the HTML goes on while the chat does
	Before               bool   // it shows earlier messages
	Ends                 string // empty: when the owner ends it
	Earlier              int64  // the first message that is shown, if there are some before; else 0
	Turns                []SharedTurn
}

// path is the address of the page.
func (p SharedChat) path() string { return "/s/" + p.Token }

// SharedTurn is a message as a reader sees it.
type SharedTurn struct {
	ID       int64
	You      bool // a question
	At       time.Time
	Speaker  string // model that answered
	HTML     string // rendered; what follows it is Text
	Text     string // as it was written
	Thinking bool   // it is about to say something
	Running  bool
	Wait     string // what it waits for
	Error    string
	Notes    string // how it ended, and its figures
}

func (t SharedTurn) who() string {
	switch {
	case t.You:
		return "Question"
	case t.Speaker == "":
		return "Answer"
	}
	return t.Speaker
}

func (t SharedTurn) anchor() string { return "m-" + strconv.FormatInt(t.ID, 10) }

// status says how long more may come.
func (p SharedChat) status() string {
	switch {
	case !p.Live && p.Ends == "":
		return "Shared as it was"
	case !p.Live:
		return "Shared as it was · ends " + p.Ends
	case p.Ends == "":
		return "Live"
	}
	return "Live · ends " + p.Ends
}
