package owned

import (
	"fmt"

	"m40-llm/infer/fault"
)

// Conflict says that a command does not fit what the chat is doing.
type Conflict struct {
	Command string
	State   string // Idle, Replaying, WritingGroup, or the state of the running answer
	Answer  int64  // the running answer, if one runs
}

// What a chat can be doing apart from the states of an answer.
const (
	Idle         = "idle"
	Replaying    = "replaying"
	WritingGroup = "comparing" // a contact sheet, or a blind pair, of the person is being written
)

func (c *Conflict) Error() string {
	switch {
	case c.State == Idle:
		return fmt.Sprintf("cannot %s: no answer is being written", c.Command)
	case c.State == WritingGroup:
		return fmt.Sprintf("cannot %s while another one of yours is being written; stop that first", c.Command)
	case c.Command == "stop":
		return "cannot stop: that answer has ended, and another is being written"
	case c.State == Replaying:
		return fmt.Sprintf("cannot %s while an answer is being replayed; stop that first", c.Command)
	}
	return fmt.Sprintf("cannot %s while an answer is being written; stop it first", c.Command)
}

func (c *Conflict) Unwrap() error {
	return &fault.Error{Code: fault.CodeConflict, Message: c.Error(), Title: c.title(), State: c.State}
}

func (c *Conflict) title() string {
	switch c.State {
	case Idle:
		return "No answer is being written"
	case Replaying:
		return "Not while an answer is being replayed"
	case WritingGroup:
		return "Not while answers are being compared"
	}
	return "Not while an answer is being written"
}
