package web

import (
	"strconv"
	"time"
)

// Sharing is the page on which the owner creates and ends links to a chat.
type Sharing struct {
	Chat, Title string
	Temporary   bool // temporary chats cannot be shared
	Shares      []Share
	Messages    []Choice // possible first messages of a link
	First       string   // preselected first message; empty: the start of the chat
	Alone       bool     // other machines can reach only shared chats, not the server
	Port        uint16
	Trouble     string // why other machines may fail to reach the links; empty: none
}

// Share is a link to a chat.
type Share struct {
	ID        int64
	What      string   // description of what the link shows
	Links     []string // addresses, the best first; empty if only the hash of the token is known
	QR        QRCode   // of Links[0]
	Followers int
	Live      bool
	Ends      string // time of expiry; empty: it does not expire
}

// QRCode is a QR code as an SVG path in a square of Size units.
type QRCode struct {
	Path string // empty: there is no code
	Size int
}

func (q QRCode) side() string { return strconv.Itoa(q.Size) }

// readers returns a sentence about the number of readers.
func (s Share) readers() string {
	switch s.Followers {
	case 0:
		return "Nobody is reading now."
	case 1:
		return "1 person is reading now."
	}
	return strconv.Itoa(s.Followers) + " people are reading now."
}

// SharedChat is the page of a shared chat.
type SharedChat struct {
	Token, Title, System string
	Raw, Live, Elsewhere bool
	Grows                bool   // the response stays open and appends HTML as the chat continues
	Before               bool   // the page shows earlier messages
	Ends                 string // time of expiry; empty: it does not expire
	Earlier              int64  // id of the first message shown if there are earlier ones; else 0
	Turns                []SharedTurn
}

// path returns the path of the page.
func (p SharedChat) path() string { return "/s/" + p.Token }

// SharedTurn is a message as a reader sees it.
type SharedTurn struct {
	ID       int64
	You      bool // a question
	At       time.Time
	Speaker  string // name of the model
	HTML     string // rendered part of an answer
	Text     string // text of a question, or the unrendered rest of an answer
	Thinking bool   // the model is reasoning
	Running  bool
	Wait     string // what a running answer waits for; empty: nothing
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

// status returns whether the page is live and when the link expires.
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
