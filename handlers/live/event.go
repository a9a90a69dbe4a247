package live

import (
	"time"

	"m40-llm/handlers/markdown/blocks"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Role says who wrote a message.
type Role string

const (
	RoleUser  Role = "user"
	RoleModel Role = "model"
	RoleTool  Role = "tool" // the result of the call with which the message before it ended
)

// AnswerState is what happens to an answer. It moves forward only, until the answer is
// continued.
type AnswerState string

const (
	Waiting     AnswerState = "waiting"     // in the queue, or the model is loading, or the prompt is being read
	Writing     AnswerState = "writing"     // the first token was received
	Done        AnswerState = "done"        // the model ended it, or a limit did
	Stopped     AnswerState = "stopped"     // a person ended it; its text is stored
	Failed      AnswerState = "failed"      // the engine ended it; its text is stored
	Interrupted AnswerState = "interrupted" // the server ended while it ran; its text is stored
)

// Running reports whether more may follow.
func (s AnswerState) Running() bool { return s == Waiting || s == Writing }

// Message is one node of a chat's tree. Messages with the same parent are versions of
// each other. Text is Markdown for answers and plain text for questions. A Message
// handed out is a copy and does not change any more.
type Message struct {
	ID        int64 // unique in its chat, rising, never reused
	Parent    int64 // 0: none
	Version   int   // place among the versions, from 1
	Versions  int   // how many there are
	Role      Role
	Text      string
	Reasoning string // of an answer: the reasoning before Text
	Author    string // of a question: name of the reader of a shared chat who wrote it; empty: its owner did
	At        time.Time
	Pictures  []store.Picture // of a question, without their files
	Answer    *Answer         // answers only
}

// Answer is what is known about an answer apart from its text: what is stored of it, and what
// it does now. The engine's own figures replace ours at the end, but Timings.First.
type Answer struct {
	store.Answer
	Settings  setting.Settings // Seed is the one in use, never -1
	Error     *fault.Error     // while Failed
	State     AnswerState
	Rewritten bool      // a person wrote it; nothing else is known
	Progress  *Progress // while waiting
	Blocks    int       // bytes of Text that make up finished Markdown blocks
	Thinking  bool      // Reasoning is being written: it is no finished block yet
}

// Progress says what an answer waits for. Exactly one of its pointers is set.
type Progress struct {
	Pictures *infer.Pictures `json:"pictures,omitempty"`
	Queued   *infer.Queued   `json:"queued,omitempty"`
	Loading  *infer.Loading  `json:"loading,omitempty"`
	Prefill  *infer.Prefill  `json:"prefill,omitempty"`
	For      time.Duration   `json:"-"` // how long this phase has lasted
}

// EventType names what an Event changes.
type EventType string

const (
	EventMessage  EventType = "message"  // Message takes the place of the one with its id, else what follows its parent goes and it comes there
	EventProgress EventType = "progress" // Progress of an answer that waits
	EventText     EventType = "text"     // Text and Reasoning were appended; Tokens, Decode and First are the new totals, Row is that of the last token
	EventBlock    EventType = "block"    // Text, the next part of what was appended, is a finished Markdown block; with Thinking, all of Reasoning is
	EventEnd      EventType = "end"      // Message is the final answer
	EventBranch   EventType = "branch"   // what follows message ID goes, and Messages take its place; ID 0: all goes, and More says whether messages precede these
	EventTitle    EventType = "title"    // Text is the new title
	EventReplay   EventType = "replay"   // Replay is how far the replay of an answer is
	EventPanel    EventType = "panel"    // Panel is the new panel and Text the new system prompt; without Panel another event of this type follows
	EventModel    EventType = "model"    // Text names the model of the answers to come
)

// Event is one change of a chat. Seq counts without gaps, and never takes a number
// that was used when the chat was loaded before. A merged event replaces First to Seq. Fields
// with a name in JSON are sent to open pages as they are; package stream renders the others.
type Event struct {
	First      int64         `json:"first,omitempty"`
	Seq        int64         `json:"seq"`
	Type       EventType     `json:"type"`
	ID         int64         `json:"id,omitempty"` // message concerned
	Text       string        `json:"text,omitempty"`
	Reasoning  string        `json:"reasoning,omitempty"`
	Thinking   bool          `json:"thinking,omitempty"` // EventText, EventEnd: Reasoning was being written; EventBlock: it is the block
	Tokens     int           `json:"tokens,omitempty"`
	Repeated   int           `json:"repeated,omitempty"` // EventText: as in record.End
	More       bool          `json:"more,omitempty"`
	Decode     time.Duration `json:"-"`
	FirstToken time.Duration `json:"-"`
	Row        []byte        `json:"-"` // EventText, EventEnd: what the samplers that remove candidates got for the last token, as sample.ParseRow reads it; nil: not known
	Message    *Message      `json:"-"`
	Messages   []Message     `json:"-"`
	Progress   *Progress     `json:"-"`
	Replay     *Replay       `json:"-"`
	Panel      *Panel        `json:"-"`
}

// size is what an event counts where events are bounded by bytes: its texts, and those of its messages, which may
// be of a version that the chat shows no more.
func (e *Event) size() int {
	size := len(e.Text) + len(e.Reasoning) + 64
	if e.Message != nil {
		size += e.Message.size()
	}
	for i := range e.Messages {
		size += e.Messages[i].size()
	}
	if e.Panel != nil {
		size += len(e.Panel.record())
	}
	return size
}

// FinishedBlocks are those of the text of an answer that is being written.
func (m *Message) FinishedBlocks() []string {
	finished := blocks.Split(m.Text[:m.Answer.Blocks])
	if last := len(finished) - 1; finished[last] == "" {
		finished = finished[:last]
	} // else only the line after it shows that it has ended
	return finished
}

// size is what a message counts: its texts, and those with which an answer was made, of which each version has its own.
func (m *Message) size() int {
	size := len(m.Text) + len(m.Reasoning) + len(m.Author) + 256*(1+len(m.Pictures))
	a := m.Answer
	if a == nil {
		return size
	}
	size += len(a.System) + len(a.Answer.Settings) + len(a.Answer.Error) + len(a.Settings.Tools) + len(a.Settings.OutputFormat.Schema) + len(a.Settings.OutputFormat.Grammar) + 4*len(a.Tokens)
	for _, texts := range [][]string{a.Settings.Stop, a.Settings.BannedStrings} {
		for _, text := range texts {
			size += len(text)
		}
	}
	if a.Call != nil {
		size += len(a.Call.Arguments)
	}
	return size
}

// merge appends next to e if one event can replace both, and reports whether it did.
func (e *Event) merge(next *Event) bool {
	if e.Type != next.Type || e.ID != next.ID || e.Seq+1 != next.First {
		return false
	}
	switch e.Type {
	case EventText:
		text, reasoning := e.Text+next.Text, e.Reasoning+next.Reasoning
		first := e.First
		*e = *next
		e.Text, e.Reasoning, e.First = text, reasoning, first
		return true
	case EventProgress, EventReplay, EventPanel:
		first := e.First
		*e = *next
		e.First = first
		return true
	}
	return false
}

// Snapshot is a chat at event Seq: the end of the branch that is shown, or the part of it
// around a message.
type Snapshot struct {
	store.Metadata // without Settings, which Panel has, and Placement; Origin is empty too if that chat is gone
	OriginTitle    string
	Seq            int64
	Panel          Panel   // of the next answer
	Replay         *Replay // that runs, else the last one; nil: none
	Temporary      bool
	Messages       []Message // at most a page
	More           bool      // there are messages before these
	Later          bool      // there are messages after these
}
