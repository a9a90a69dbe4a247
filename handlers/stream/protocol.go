package stream

import (
	"context"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/markdown"
	"m40-llm/handlers/markdown/blocks"
	"m40-llm/handlers/setting"
	"m40-llm/handlers/view"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/store"
	"m40-llm/web"
)

// The frames that the websocket of the page, GET /ws, sends: text, with one JSON object in each. Where
// websockets are blocked, events.go carries the same. commands.go has what comes from the page.
//
//	{"type":"ack","ref":2,"chat":"ID"}                    the command is done. chat: the open chat, after fork the copy; seq, after panel: events of type panel up to this one are out of date
//	{"type":"error","ref":2,"error":{…}}                  the command failed: see Error
//	{"type":"engine","engine":{…}}                        at the start and on every change: see web.Engine
//	{"type":"snapshot","seq":17,"chat":{…}}               the chat as of event 17: see Chat
//	{"type":"resumed","seq":12}                           no snapshot needed: the events after 12 follow
//	{"type":"events","events":[…]}                        what happened since: see Event
//	{"type":"older","ref":10,"before":4,"messages":[…],"more":true}    after its ack: what comes before message 4, at most 100, and whether there is more
//	{"type":"newer","ref":11,"after":4,"messages":[…],"more":true}     after its ack: what comes after message 4, as above
//	{"type":"close","code":1012}                          the last frame, if the server ends the session: see the close codes
//	{"type":"space","space":"…"}                          on every change: why the disk is short of space; empty: it is not
//	{"type":"left","left":"…"}                            on every change: what the person may still use today; empty: there is no limit
//	{"type":"models","models":{…}}                        at the start and on every change: the downloads since the server started, and a version that rises with the list of models: see web.News
//	{"type":"activity","html":"…"}                        after the command activity, and on every change: the part of the page GET /activity that changes
//	{"type":"keyboard","keyboard":{…}}                    after a chat was opened, and on every change: see WriteAccess
//	{"type":"chats"}                                      the list of chats has changed: GET /rail has the new one
//
// # Branches
//
// The messages of a chat are a tree: each has a parent, and messages with the same
// parent are versions of each other. The page shows one branch, from the beginning to
// a leaf. A message replaces the one with the same id if the page has that (an answer
// that is continued). Otherwise it follows its parent, and what followed that is removed.
// If the page lacks the parent, because it has not asked for such old messages, all
// messages are removed, and the page can ask for those before this one.
//
// # Numbers
//
// Events of a chat are numbered without gaps. One that replaces several carries the
// first number too. After a lost connection the page opens the chat again with the
// number of the last event that it has applied. No number is used twice, not even after
// a restart of the server.
//
// # Close codes
//
//	1000  the chat was deleted, or dropped from memory: the page opens it again to find out
//	1001  the page is left
//	1003  a frame is not text
//	1008  too many commands
//	1009  a frame is too large
//	1011  an internal error of the server
//	1012  the server stops
//	1013  the page fell too far behind and opens the chat again

// Frame is every message to the page.
type Frame struct {
	Type        string       `json:"type"`
	Ref         int64        `json:"ref,omitempty"`
	Seq         int64        `json:"seq,omitempty"`
	Chat        any          `json:"chat,omitempty"` // ack: id; snapshot: Chat
	Error       *Error       `json:"error,omitempty"`
	Engine      *web.Engine  `json:"engine,omitempty"`
	Space       *string      `json:"space,omitempty"`
	Left        *string      `json:"left,omitempty"`
	HTML        string       `json:"html,omitempty"` // activity
	WriteAccess *WriteAccess `json:"keyboard,omitempty"`
	Code        int          `json:"code,omitempty"` // close
	Models      *web.News    `json:"models,omitempty"`
	Events      []Event      `json:"events,omitempty"`
	Before      int64        `json:"before,omitempty"`   // older
	After       int64        `json:"after,omitempty"`    // newer
	Messages    []Message    `json:"messages,omitempty"` // older, newer
	More        bool         `json:"more,omitempty"`     // older, newer
}

// Chat is a chat with the end of the branch that it shows, or the part around a
// message: at most 100 messages.
type Chat struct {
	ID string `json:"id"`
	store.Metadata
	System    string           `json:"system,omitempty"`
	Settings  setting.Settings `json:"settings"`         // of the next answer
	Preset    string           `json:"preset,omitempty"` // that these are compared with
	Temporary bool             `json:"temporary,omitempty"`
	Replay    *Replay          `json:"replay,omitempty"`
	More      bool             `json:"more,omitempty"`   // there are messages before these
	Later     bool             `json:"later,omitempty"`  // there are messages after these
	Origin    *Origin          `json:"origin,omitempty"` // the chat that this one was forked from
	Messages  []Message        `json:"messages"`
}

// Message is a question, with its text, or an answer; or, with the role tool, the result of the call with
// which the answer before it ended. An answer has its
// source in text, its reasoning in reasoning, the finished blocks of
// both in html, and in tail the end of the text that is not a finished block yet.
type Message struct {
	ID        int64     `json:"id"`
	Parent    int64     `json:"parent,omitempty"` // none: the first message
	Versions  Versions  `json:"versions"`
	Role      live.Role `json:"role"`
	At        int64     `json:"at"`               // milliseconds since 1970
	Author    string    `json:"author,omitempty"` // of a question: the reader of a shared chat who wrote it; none: the owner
	Text      string    `json:"text,omitempty"`
	Reasoning string    `json:"reasoning,omitempty"`
	HTML      []string  `json:"html,omitempty"`
	Tail      string    `json:"tail,omitempty"`
	Answer    *Answer   `json:"answer,omitempty"`

	Pictures []store.Picture `json:"pictures,omitempty"` // of a question; GET /c/ID/pictures/HASH has the file
}

// Versions says which version of a message this is: index of count, from 1.
type Versions struct {
	Index int `json:"index"`
	Count int `json:"count"`
}

// Answer is about an answer. States are waiting, writing, done, stopped, failed and
// interrupted: the server stopped while it was written. Continue fits the last four.
type Answer struct {
	State    live.AnswerState `json:"state"`
	Edited   bool             `json:"edited,omitempty"` // a person wrote it: there are no figures
	Prefixed bool             `json:"begun,omitempty"`  // a person wrote its beginning
	Settings setting.Settings `json:"settings"`
	Model    string           `json:"model"`
	Name     string           `json:"name,omitempty"` // what people call the model
	Device   string           `json:"device"`
	Progress *Progress        `json:"progress,omitempty"`
	Thinking bool             `json:"thinking,omitempty"` // the reasoning is being written, and is not in html
	Context  int              `json:"context"`
	Error    *Error           `json:"error,omitempty"`
	Ending   *view.Ending     `json:"ending,omitempty"` // none: it is being written
	Notes    string           `json:"notes,omitempty"`  // how the prompt differs from the chat, for people

	record.Usage
	record.End
	Timings record.Timings `json:"timings"`
	Pace    *record.Pace   `json:"pace,omitempty"` // of an answer that has ended
	Call    *store.Call    `json:"call,omitempty"` // with which it ended
	Reads   record.Reads   `json:"reads,omitzero"`
	Lookup  record.Lookup  `json:"lookup,omitzero"`

	// Three figures have other names here than in the record, whose own are left out.
	Tokens           int     `json:"tokens"`
	CompletionTokens omitted `json:"completion_tokens,omitzero"`
	ByContext        bool    `json:"by_context,omitempty"`
	ContextFull      omitted `json:"context_full,omitzero"`
	StopText         string  `json:"stop_text,omitempty"`
	StopString       omitted `json:"stop_string,omitzero"`
}

type omitted struct{}

// Progress says what an answer waits for.
type Progress struct {
	live.Progress
	For float64 `json:"for_ms"` // how long this phase has lasted
}

// Event is one change.
//
//	message   message: a question, or an answer that begins, goes on or was rewritten; where it goes is said above
//	progress  id, progress
//	text      id, text, reasoning: what each goes on with; thinking: the reasoning is being written; tokens, decode_ms and first_ms are the new totals; repeated: how many of the last tokens repeat those before them; candidates: of the last token, at most ten times a second; also in end
//	block     id, html: the first chars UTF-16 units of the tail are a finished block; thinking: the reasoning is
//	end       id, answer; rest: what is left of the tail, rendered, or html: the whole answer, where rendering the parts one by one gives something else
//	branch    id, messages, more: what follows message id goes, and messages take its place; if the page lacks id, or id is missing, everything goes, and more says whether there are messages before these
//	title     text: the new title
//	replay    id, replay: how far the replay of an answer is
//	panel     settings, preset, system: what is stored for the next answer; without settings, another event of this type follows
//	model     text: the model of the answers to come
//
// First is absent if it equals Seq. Fields that need no rendering are those of live.Event.
type Event struct {
	live.Event
	Message  *Message  `json:"message,omitempty"`
	Messages []Message `json:"messages,omitempty"`
	Progress *Progress `json:"progress,omitempty"`
	Replay   *Replay   `json:"replay,omitempty"`
	Decode   float64   `json:"decode_ms,omitempty"`
	FirstMS  float64   `json:"first_ms,omitempty"`

	Candidates *view.Candidates `json:"candidates,omitempty"`

	HTML     *string           `json:"html,omitempty"`
	Chars    int               `json:"chars,omitempty"`
	Rest     string            `json:"rest,omitempty"`
	Answer   *Answer           `json:"answer,omitempty"`
	Settings *setting.Settings `json:"settings,omitempty"`
	Preset   string            `json:"preset,omitempty"`
	System   string            `json:"system,omitempty"`
}

// Replay is an answer that is written once more, and compared: the first equal of
// its total tokens are the same. States are running, equal, differs, stopped and failed.
// Where it differs, was is the old text and is the new one; empty: the end.
type Replay struct {
	live.Replay
	Error *Error `json:"error,omitempty"`
}

func newReplay(ctx context.Context, r *live.Replay) *Replay {
	if r == nil {
		return nil
	}
	w := &Replay{Replay: *r}
	if r.Error != nil {
		w.Error = newError(ctx, r.Error)
	}
	return w
}

// Error says what happened, why, and what to do.
type Error struct {
	Code          fault.Code `json:"code"`
	Title         string     `json:"title"`
	Message       string     `json:"message"`
	Param         string     `json:"param,omitempty"`
	State         string     `json:"state,omitempty"` // of the chat, where a command did not fit it
	PromptTokens  int        `json:"prompt_tokens,omitempty"`
	ContextLength int        `json:"context_length,omitempty"`
	Part          fault.Part `json:"part,omitempty"` // of a prompt that is too long, if the message speaks of it
}

// Origin is a chat that another one was forked from.
type Origin struct {
	ID    string `json:"id"`
	Title string `json:"title"`
}

func newChat(ctx context.Context, s *live.Snapshot) Chat {
	var origin *Origin
	if s.Origin != "" {
		origin = &Origin{s.Origin, s.OriginTitle}
	}
	return Chat{
		ID: s.ID, Metadata: s.Metadata, Origin: origin, System: s.System, Settings: s.Panel.Settings, Preset: s.Panel.Preset,
		Temporary: s.Temporary, Replay: newReplay(ctx, s.Replay), More: s.More, Later: s.Later, Messages: newMessages(ctx, s.Messages),
	}
}

func newMessages(ctx context.Context, list []live.Message) []Message {
	out := make([]Message, len(list))
	for i := range list {
		out[i] = newMessage(ctx, &list[i])
	}
	return out
}

func newMessage(ctx context.Context, m *live.Message) Message {
	w := Message{
		ID: m.ID, Parent: m.Parent, Versions: Versions{Index: m.Version, Count: m.Versions},
		Role: m.Role, Author: m.Author, At: m.At.UnixMilli(), Text: m.Text, Reasoning: m.Reasoning, Pictures: m.Pictures,
	}
	if m.Answer == nil {
		return w
	}
	w.Answer = newAnswer(ctx, m.Answer)
	if !m.Answer.State.Running() {
		w.HTML = []string{markdown.Message(ctx, m)}
		return w
	}
	if m.Reasoning != "" && !m.Answer.Thinking {
		w.HTML = append(w.HTML, markdown.Reasoning(ctx, m.Reasoning))
	}
	for _, block := range m.FinishedBlocks() {
		w.HTML = append(w.HTML, markdown.Text(ctx, block))
	}
	w.Tail = m.Text[m.Answer.Blocks:]
	return w
}

func newAnswer(ctx context.Context, a *live.Answer) *Answer {
	w := &Answer{
		State: a.State, Edited: a.Rewritten, Prefixed: a.Edited, Settings: a.Settings,
		Model: a.Receipt.Model, Name: view.Speaker(ctx, a), Device: a.Receipt.Device,
		Progress: newProgress(a.Progress), Thinking: a.Thinking, Context: a.Context, Ending: view.End(ctx, a), Notes: view.PromptNotes(ctx, a.Notes),
		Usage: a.Usage, End: a.End, Timings: a.Timings,
		Tokens: a.Usage.CompletionTokens, ByContext: a.ContextFull, StopText: a.StopString,
	}
	if !a.State.Running() {
		w.Pace, w.Reads, w.Lookup, w.Call = a.Pace, a.Reads, a.Lookup, a.Call
	}
	if a.Error != nil {
		w.Error = newError(ctx, a.Error)
	}
	return w
}

func newProgress(p *live.Progress) *Progress {
	if p == nil {
		return nil
	}
	return &Progress{Progress: *p, For: record.Milliseconds(p.For)}
}

func newEvent(ctx context.Context, e *live.Event) Event {
	w := Event{Event: *e, Progress: newProgress(e.Progress), Replay: newReplay(ctx, e.Replay)}
	if e.First == e.Seq {
		w.First = 0
	}
	switch e.Type {
	case live.EventMessage:
		m := newMessage(ctx, e.Message)
		w.Message = &m
	case live.EventText:
		w.Decode, w.FirstMS = record.Milliseconds(e.Decode), record.Milliseconds(e.FirstToken)
	case live.EventBranch:
		w.Messages = newMessages(ctx, e.Messages)
	case live.EventPanel:
		w.Text = ""
		if e.Panel != nil {
			w.Settings, w.Preset, w.System = &e.Panel.Settings, e.Panel.Preset, e.Text
		}
	case live.EventBlock:
		html := markdown.Block(ctx, e)
		w.HTML, w.Chars, w.Text, w.Reasoning = &html, markdown.UTF16Length(e.Text), "", ""
	case live.EventEnd:
		w.Answer, w.Thinking = newAnswer(ctx, e.Message.Answer), false
		w.Rest, w.HTML = renderEnd(ctx, e)
	}
	return w
}

// renderEnd renders what is left of an answer that has ended: its last block, or, where
// rendering the parts one by one gives something else, the whole answer.
func renderEnd(ctx context.Context, e *live.Event) (rest string, whole *string) {
	all, parts := markdown.Message(ctx, e.Message), markdown.Reasoning(ctx, e.Message.Reasoning)
	for _, block := range blocks.Split(e.Message.Text) {
		rest = markdown.Text(ctx, block)
		parts += rest
	}
	if e.Thinking || parts != all {
		return "", &all
	}
	return rest, nil
}

func newError(ctx context.Context, err error) *Error {
	f := failure.For(ctx, err)
	if f.Part == fault.PartMessage {
		f.Part = ""
	}
	return &Error{Part: f.Part, Code: f.Code, Title: f.Title, Message: f.Text, Param: f.Param, State: f.State, PromptTokens: f.PromptTokens, ContextLength: f.ContextLength}
}

// WriteAccess is who besides the owner writes in the open chat, or asks to.
type WriteAccess struct {
	Links   int      `json:"links"`   // to the chat
	Readers int      `json:"readers"` // who follow it by them now
	Asks    []Writer `json:"asks"`
	Writers []Writer `json:"writers"`
	Typing  []string `json:"typing"` // names of writers
}

// Writer is a reader of a link to the chat.
type Writer struct {
	ID    int64  `json:"id"`
	Share int64  `json:"share"` // the link
	Name  string `json:"name"`
}

func newWriteAccess(held guest.WriteAccess) WriteAccess {
	k := WriteAccess{Links: held.Links, Readers: held.Readers, Asks: []Writer{}, Writers: []Writer{}, Typing: []string{}}
	for _, w := range held.Writers {
		to := &k.Writers
		if w.State == guest.WriterAsks {
			to = &k.Asks
		}
		*to = append(*to, Writer{w.ID, w.Share, w.Name})
	}
	for _, t := range held.Typing {
		k.Typing = append(k.Typing, t.Name)
	}
	return k
}
