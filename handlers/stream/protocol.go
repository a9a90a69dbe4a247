package stream

import (
	"encoding/json"
	"errors"
	"strings"

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

// The websocket of the page: GET /ws, text frames, one JSON object in each. Where
// websockets are blocked, events.go carries the same.
//
// # From the page
//
// Commands carry a type and a ref, a number that the reply repeats. Unknown
// fields are refused. At most 20 commands a second, with bursts of 40, and 256
// KiB in one; who sends more is disconnected with 1008 or 1009.
//
//	{"type":"open","ref":1,"chat":"ID","since":0}               read this chat from here on; with "at":4 and no since: with the messages around message 4, if the branch has it
//	{"type":"send","ref":2,"text":…,"system":…,"settings":{…}}  ask; begins a new chat if none is open
//	{"type":"send","ref":2,…,"pictures":["HASH"]}               ask about pictures, which were uploaded with POST /pictures; in an edit those of the message, too
//	{"type":"send","ref":2,…,"unanswered":true}                 add the question without an answer, for a contact sheet of it
//	{"type":"stop","ref":3,"answer":4}                          end the answer with this id, keep its text
//	{"type":"stop","ref":3,"answer":4,"thinking":true}          end its reasoning alone: it goes on after that
//	{"type":"regenerate","ref":4,"answer":4,"system":…,"settings":{…}}        answer that question again: a new version of the answer; 0: of the last one
//	{"type":"edit","ref":5,"message":3,"text":…,"system":…,"settings":{…}}    ask something else there: a new version of the question, and its answer
//	{"type":"rewrite","ref":6,"answer":4,"text":…,"reasoning":…}    put words into the model's mouth: a new version of the answer, marked edited
//	{"type":"continue","ref":7,"answer":4,"settings":{…}}       write on in the last answer; seed -1: the seed it had
//	{"type":"continue","ref":7,"answer":4,"past_end":true,"settings":{…}}     the same for an answer that the model or a stop string ended: without an end there, or without that stop string
//	{"type":"rewind","ref":7,"answer":4,"keep":40,"settings":{…}}             stop this answer if it runs, and go on after its first 40 tokens: a new version of the answer; seed -1: the seed it had. With "token":7 or "text":… that token, or those of the text, come next
//	{"type":"result","ref":7,"answer":4,"text":…,"system":…,"settings":{…}}   the result of the call with which the last answer ended; the model goes on
//	{"type":"prune","ref":7,"message":4}                        delete this version of a message, and all that follows it
//	{"type":"delete","ref":7,"message":4}                       delete this message alone; one of several versions goes with what follows it
//	{"type":"select","ref":8,"message":4,"version":2}           show this version of the message, and what followed it last; 0: the message itself
//	{"type":"fork","ref":9,"message":4}                         copy the branch up to the message into a new chat; the ack has its id, and the open chat stays open
//	{"type":"older","ref":10,"before":4}                        send the messages before this one
//	{"type":"newer","ref":11,"after":4}                         send the messages after this one
//	{"type":"panel","ref":11,"settings":{…},"system":…,"preset":"precise"}    keep these for the next answer of this chat
//	{"type":"replay","ref":12,"answer":4}                       write this answer once more from its receipt and compare; stop ends it
//	{"type":"activity","ref":13,"on":true}                      begin to send what the engine does and for whom, or end with "on":false
//	{"type":"typing","ref":14}                                  somebody types in the open chat; others who write there are told
//	{"type":"ping","ref":15}                                    is anybody there
//
// settings has the fields of setting.Settings; a missing one has its default. A send
// that begins a chat may have "temporary":true: that chat is never stored; and "model": the name
// of the one that answers it until a person chooses another, else the one that is loaded then; and "raw":true: in that chat the texts go
// to the model as they are, one after the other, without its chat template; and "preset": the id
// of the one that the settings came from. While an answer is written, only open, stop, rewind,
// older, newer, fork, panel, activity, typing and ping fit; the others get the error "conflict" with the state.
//
// # To the page
//
//	{"type":"ack","ref":2,"chat":"ID"}                    done; chat is the one that is open, after fork the new one; after panel with seq: events of type panel up to that one are older
//	{"type":"error","ref":2,"error":{…}}                  not done, and why: see Error
//	{"type":"engine","engine":{…}}                        at the start and on every change: see web.Engine
//	{"type":"snapshot","seq":17,"chat":{…}}               the chat as of event 17: see Chat
//	{"type":"resumed","seq":12}                           no snapshot needed: the events after 12 follow
//	{"type":"events","events":[…]}                        what happened since: see Event
//	{"type":"older","ref":10,"before":4,"messages":[…],"more":true}    after its ack: what comes before message 4, at most 100, and whether there is more
//	{"type":"newer","ref":11,"after":4,"messages":[…],"more":true}     after its ack: what comes after message 4, as above
//	{"type":"close","code":1012}                          the last frame, if the server ends the session: see the close codes
//	{"type":"space","space":"…"}                          on every change: what is wrong with the room on the disk; empty: nothing
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
// a leaf. A message that arrives goes to its place: over the one with the same id if
// the page has that (an answer that is continued); else after its parent, and what
// stood there goes. If the page lacks the parent, because it has not asked for such
// old messages, everything that it shows goes, and there is more before the message.
//
// # Numbers
//
// Events of a chat are numbered without gaps. One that stands for several carries the
// first number too. After a lost connection the page opens the chat again with the
// number of the last event that it has applied; numbers are never used twice, so that
// holds over a restart of the server too. Close codes: 1000 the chat was deleted (or
// dropped from memory: the page opens it again to find out), 1001 the page is left, 1003 not text, 1008 too many commands, 1009 too large, 1011 the server failed inside, 1012 the
// server stops, 1013 the page fell too far behind and opens again.
type Command struct {
	store.Opening
	Type       string            `json:"type"`
	Ref        int64             `json:"ref"`
	Chat       string            `json:"chat"`
	Since      int64             `json:"since"`
	Text       string            `json:"text"`
	Reasoning  string            `json:"reasoning"`
	System     string            `json:"system"`
	Temporary  bool              `json:"temporary"`
	On         bool              `json:"on"`
	PastEnd    bool              `json:"past_end"`
	Thinking   bool              `json:"thinking"`
	Unanswered bool              `json:"unanswered"`
	Keep       int               `json:"keep"`
	Pictures   []string          `json:"pictures"`
	Preset     string            `json:"preset"`
	Answer     int64             `json:"answer"`
	Token      *int32            `json:"token"`
	Message    int64             `json:"message"`
	Version    int               `json:"version"`
	At         int64             `json:"at"`
	Before     int64             `json:"before"`
	After      int64             `json:"after"`
	Settings   *setting.Settings `json:"settings"`
}

func decodeCommand(frame []byte) (Command, error) {
	settings := setting.Default()
	c := Command{Settings: &settings}
	decoder := json.NewDecoder(strings.NewReader(string(frame)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return Command{Ref: c.Ref}, fault.Invalid(jsonField(err), "the command cannot be read: %v", err)
	}
	if c.Settings == nil {
		c.Settings = &settings
	}
	return c, nil
}

// jsonField names the field that a decoding error is about, if it says so.
func jsonField(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
	}
	return ""
}

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
//	panel     settings, preset, system: what is kept for the next answer; without settings, another event of this type follows
//	model     text: the model of the answers to come
//
// First is there if it is not Seq. Fields that need no rendering are those of live.Event.
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
// Where it differs, was is what was there, and is what is there now; an empty one: the end.
type Replay struct {
	live.Replay
	Error *Error `json:"error,omitempty"`
}

func newReplay(r *live.Replay) *Replay {
	if r == nil {
		return nil
	}
	w := &Replay{Replay: *r}
	if r.Error != nil {
		w.Error = newError(r.Error)
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

func newChat(s *live.Snapshot) Chat {
	var origin *Origin
	if s.Origin != "" {
		origin = &Origin{s.Origin, s.OriginTitle}
	}
	return Chat{
		ID: s.ID, Metadata: s.Metadata, Origin: origin, System: s.System, Settings: s.Panel.Settings, Preset: s.Panel.Preset,
		Temporary: s.Temporary, Replay: newReplay(s.Replay), More: s.More, Later: s.Later, Messages: newMessages(s.Messages),
	}
}

func newMessages(list []live.Message) []Message {
	out := make([]Message, len(list))
	for i := range list {
		out[i] = newMessage(&list[i])
	}
	return out
}

func newMessage(m *live.Message) Message {
	w := Message{
		ID: m.ID, Parent: m.Parent, Versions: Versions{Index: m.Version, Count: m.Versions},
		Role: m.Role, Author: m.Author, At: m.At.UnixMilli(), Text: m.Text, Reasoning: m.Reasoning, Pictures: m.Pictures,
	}
	if m.Answer == nil {
		return w
	}
	w.Answer = newAnswer(m.Answer)
	if !m.Answer.State.Running() {
		w.HTML = []string{markdown.Message(m)}
		return w
	}
	if m.Reasoning != "" && !m.Answer.Thinking {
		w.HTML = append(w.HTML, markdown.Reasoning(m.Reasoning))
	}
	for _, block := range m.FinishedBlocks() {
		w.HTML = append(w.HTML, markdown.Text(block))
	}
	w.Tail = m.Text[m.Answer.Blocks:]
	return w
}

func newAnswer(a *live.Answer) *Answer {
	w := &Answer{
		State: a.State, Edited: a.Rewritten, Prefixed: a.Edited, Settings: a.Settings,
		Model: a.Receipt.Model, Name: view.Speaker(a), Device: a.Receipt.Device,
		Progress: newProgress(a.Progress), Thinking: a.Thinking, Context: a.Context, Ending: view.End(a), Notes: view.PromptNotes(a.Notes),
		Usage: a.Usage, End: a.End, Timings: a.Timings,
		Tokens: a.Usage.CompletionTokens, ByContext: a.ContextFull, StopText: a.StopString,
	}
	if !a.State.Running() {
		w.Pace, w.Reads, w.Lookup, w.Call = a.Pace, a.Reads, a.Lookup, a.Call
	}
	if a.Error != nil {
		w.Error = newError(a.Error)
	}
	return w
}

func newProgress(p *live.Progress) *Progress {
	if p == nil {
		return nil
	}
	return &Progress{Progress: *p, For: record.Milliseconds(p.For)}
}

func newEvent(e *live.Event) Event {
	w := Event{Event: *e, Progress: newProgress(e.Progress), Replay: newReplay(e.Replay)}
	if e.First == e.Seq {
		w.First = 0
	}
	switch e.Type {
	case live.EventMessage:
		m := newMessage(e.Message)
		w.Message = &m
	case live.EventText:
		w.Decode, w.FirstMS = record.Milliseconds(e.Decode), record.Milliseconds(e.FirstToken)
	case live.EventBranch:
		w.Messages = newMessages(e.Messages)
	case live.EventPanel:
		w.Text = ""
		if e.Panel != nil {
			w.Settings, w.Preset, w.System = &e.Panel.Settings, e.Panel.Preset, e.Text
		}
	case live.EventBlock:
		html := markdown.Block(e)
		w.HTML, w.Chars, w.Text, w.Reasoning = &html, markdown.UTF16Length(e.Text), "", ""
	case live.EventEnd:
		w.Answer, w.Thinking = newAnswer(e.Message.Answer), false
		w.Rest, w.HTML = renderEnd(e)
	}
	return w
}

// renderEnd renders what is left of an answer that has ended: its last block, or, where
// rendering the parts one by one gives something else, the whole answer.
func renderEnd(e *live.Event) (rest string, whole *string) {
	all, parts := markdown.Message(e.Message), markdown.Reasoning(e.Message.Reasoning)
	for _, block := range blocks.Split(e.Message.Text) {
		rest = markdown.Text(block)
		parts += rest
	}
	if e.Thinking || parts != all {
		return "", &all
	}
	return rest, nil
}

func newError(err error) *Error {
	f := failure.Describe(err)
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
