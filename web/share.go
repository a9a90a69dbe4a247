package web

import (
	"context"
	"strconv"
	"time"

	"m40-llm/web/lang"
)

// Sharing is the page on which the owner creates and ends links to a chat.
type Sharing struct {
	Chat, Title string
	Temporary   bool // temporary chats cannot be shared
	Shares      []Share
	Messages    []Choice // possible first messages of a link
	First       string   // preselected first message; empty: the start of the chat
	Alone       bool     // other machines can reach only shared chats, not the server
	Encrypted   bool     // other machines reach links over TLS
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
	Ends      time.Time // zero: it does not expire
	Accepts   bool      // its readers can ask to write
	Writers   []Writer
}

// Writer is a reader who asks to write, or writes.
type Writer struct {
	ID   int64
	Name string
	Asks bool
}

// QRCode is a QR code as an SVG path in a square of Size units.
type QRCode struct {
	Path string // empty: there is no code
	Size int
}

func (q QRCode) side() string { return strconv.Itoa(q.Size) }

// readers returns a sentence about the number of readers.
func (s Share) readers(ctx context.Context) string {
	if s.Followers == 0 {
		return lang.T(ctx, "Nobody is reading now.")
	}
	return lang.N(ctx, s.Followers, "%d person is reading now.", "%d people are reading now.", s.Followers)
}

// SharedChat is the page of a shared chat.
type SharedChat struct {
	Token, Title, System string
	Raw, Live, Elsewhere bool
	Grows                bool      // the response stays open and appends HTML as the chat continues
	Before               bool      // the page shows earlier messages
	Ends                 time.Time // zero: it does not expire
	Earlier              int64     // id of the first message shown if there are earlier ones; else 0
	Turns                []SharedTurn
	WriteAccess          WriteAccess
}

// WriteAccess is the state of a reader's request to write. The page's scripts get it as JSON whenever it changes.
type WriteAccess struct {
	State   string   `json:"state"` // asks, writes, refused, missed, ended, idle or left; empty: they have not asked
	Name    string   `json:"name"`
	Accepts bool     `json:"accepts"` // they can ask
	Typing  []string `json:"typing"`  // who else is typing
	Said    string   `json:"said"`    // the state as a sentence; empty: none is needed
}

// WriteForm is the page on which a reader without scripts asks to write, and writes.
type WriteForm struct {
	Token, Title string
	WriteAccess  WriteAccess
	Draft        string // a message that could not be sent
	Problem      string // why a form was refused
	Running      bool   // the answer to their message is being written
}

func (p WriteForm) path() string { return "/s/" + p.Token }

// WriteAccessText returns the sentence about a state of a WriteAccess.
func WriteAccessText(ctx context.Context, state string) string {
	switch state {
	case "asks":
		return lang.T(ctx, "You asked to write here. The owner decides.")
	case "refused":
		return lang.T(ctx, "The owner did not let you write.")
	case "missed":
		return lang.T(ctx, "The owner did not answer.")
	case "ended":
		return lang.T(ctx, "The owner has taken the keyboard back.")
	case "idle":
		return lang.T(ctx, "The keyboard went back to the owner, because you wrote nothing for a while.")
	}
	return ""
}

// link returns the text of the link to WritePage.
func (k WriteAccess) link(ctx context.Context) string {
	if k.State == "writes" {
		return lang.T(ctx, "Write")
	}
	return lang.T(ctx, "Ask to write")
}

// path returns the path of the page.
func (p SharedChat) path() string { return "/s/" + p.Token }

// SharedTurn is a message as a reader sees it.
type SharedTurn struct {
	ID       int64
	You      bool // a question, or a result
	Result   bool // it is the result of a call
	At       time.Time
	Speaker  string // name of the model
	Author   string // name of the reader who wrote the question; empty: the owner of the chat
	HTML     string // rendered part of an answer
	Text     string // text of a question, or the unrendered rest of an answer
	Thinking bool   // the model is reasoning
	Running  bool
	Wait     string // what a running answer waits for; empty: nothing
	Error    string
	Notes    string // how it ended, and its figures

	Pictures []Picture // of a question
}

func (t SharedTurn) who(ctx context.Context) string {
	switch {
	case t.Result:
		return lang.T(ctx, "Result")
	case t.You:
		return lang.T(ctx, "Question")
	case t.Speaker == "":
		return lang.T(ctx, "Answer")
	}
	return t.Speaker
}

func (t SharedTurn) label(ctx context.Context) string {
	if t.Author != "" {
		return lang.T(ctx, "%s, guest", t.Author)
	}
	return t.who(ctx)
}

func (t SharedTurn) anchor() string { return "m-" + strconv.FormatInt(t.ID, 10) }

// status returns whether the page is live.
func (p SharedChat) status(ctx context.Context) string {
	if p.Live {
		return lang.T(ctx, "Live")
	}
	return lang.T(ctx, "Shared as it was")
}

// momentForms are the forms of the component moment.
var momentForms = map[string]string{"day": "2 Jan 2006, 15:04", "ends": "Mon 2 Jan, 15:04"}
