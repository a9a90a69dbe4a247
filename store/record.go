package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"m40-llm/infer/record"
	"m40-llm/infer/sample"
)

// AnswerJSON is an Answer as JSON, in exports and, without its tokens, in the database. It
// has the parts of the record side by side.
type AnswerJSON struct {
	Settings json.RawMessage `json:"settings"`
	System   string          `json:"system,omitempty"`
	record.Receipt
	Params  omitted        `json:"params,omitzero"` // is Chain here
	Chain   *sample.Params `json:"chain"`           // null before the engine has reported it
	Seed    int64          `json:"seed"`
	Context int            `json:"context"`
	record.Usage
	Timings record.Micro  `json:"timings"`
	Pace    *record.Pace  `json:"pace,omitempty"`
	Reads   record.Reads  `json:"reads,omitzero"`
	Lookup  record.Lookup `json:"lookup,omitzero"`
	Notes   []string      `json:"notes,omitempty"`
	record.End
	Error           json.RawMessage `json:"error"`
	Prefix          int             `json:"begun,omitempty"`
	ReasoningPrefix int             `json:"begun_reasoning,omitempty"`
	Edited          bool            `json:"edited,omitempty"`
	LogProb         float64         `json:"logprob,omitempty"`
	Scored          int             `json:"scored,omitempty"`
	Call            *Call           `json:"call,omitempty"`
	Tokens          []int32         `json:"tokens,omitempty"`
}

// omitted hides a field of an embedded struct.
type omitted struct{}

// JSON returns a in the form of exports.
func (a Answer) JSON() AnswerJSON {
	j := AnswerJSON{
		Settings: a.Settings, System: a.System, Receipt: a.Receipt, Seed: a.Seed, Context: a.Context, Usage: a.Usage,
		Timings: a.Timings.Micro(), Pace: a.Pace, Reads: a.Reads, Lookup: a.Lookup, Notes: a.Notes, End: a.End, Error: a.Error, Prefix: a.Prefix, ReasoningPrefix: a.ReasoningPrefix, Edited: a.Edited,
		LogProb: a.LogProb, Scored: a.Scored, Call: a.Call, Tokens: a.Tokens,
	}
	if a.Receipt.HasParams() {
		j.Chain = &a.Receipt.Params
	}
	return j
}

// Answer returns the answer that j describes.
func (j AnswerJSON) Answer() Answer {
	if j.Chain != nil {
		j.Receipt.Params = *j.Chain
	}
	return Answer{
		Answer:   record.Answer{End: j.End, Usage: j.Usage, Timings: j.Timings.Timings(), Pace: j.Pace, Reads: j.Reads, Lookup: j.Lookup, Notes: j.Notes, Receipt: j.Receipt},
		Settings: j.Settings, System: j.System, Seed: j.Seed, Context: j.Context, Error: j.Error, Prefix: j.Prefix, ReasoningPrefix: j.ReasoningPrefix, Edited: j.Edited,
		LogProb: j.LogProb, Scored: j.Scored, Call: j.Call, Tokens: j.Tokens,
	}
}

// check returns an *InvalidError if a is not what can be stored.
func (a Answer) check() error {
	for _, f := range []struct {
		name string
		json json.RawMessage
	}{{"settings", a.Settings}, {"error", a.Error}} {
		if _, err := jsonText(f.name, f.json); err != nil {
			return err
		}
	}
	texts := reflect.ValueOf(a.Receipt)
	for i := range texts.NumField() {
		if f := texts.Field(i); f.Kind() == reflect.String {
			if err := checkText(texts.Type().Field(i).Name, f.String(), maxName); err != nil {
				return err
			}
		}
	}
	switch {
	case a.Prefix < 0 || a.ReasoningPrefix < 0:
		return &InvalidError{"begun", fmt.Sprintf("is %d bytes of the text and %d of the reasoning", a.Prefix, a.ReasoningPrefix)}
	case a.Pace != nil && !a.Pace.Valid():
		return &InvalidError{"pace", "is not numbers of tokens in up to 64 intervals of some milliseconds"}
	case !a.Reads.Valid():
		return &InvalidError{"reads", "is not numbers of bytes and microseconds, and a bandwidth"}
	case !a.Lookup.Valid():
		return &InvalidError{"lookup", fmt.Sprintf("is %d accepted of %d drafted tokens", a.Lookup.Accepted, a.Lookup.Drafted)}
	case a.Scored < 0 || !finite(a.LogProb):
		return &InvalidError{"log probability", fmt.Sprintf("is %g of %d tokens", a.LogProb, a.Scored)}
	case !finite(a.EndProb):
		return &InvalidError{"end probability", fmt.Sprintf("is %g", a.EndProb)}
	}
	if c := a.Call; c != nil {
		if err := errors.Join(checkText("call", c.ID, maxName), checkText("call", c.Name, maxName), checkText("call", c.Arguments, MaxText)); err != nil {
			return err
		}
	}
	if !record.ValidNotes(a.Notes) {
		return &InvalidError{"notes", fmt.Sprintf("are more than %d, or longer than %d bytes", record.MaxNotes, record.MaxNoteSize)}
	}
	for _, note := range a.Notes {
		if err := checkText("notes", note, record.MaxNoteSize); err != nil {
			return err
		}
	}
	if err := checkText("system", a.System, MaxText); err != nil {
		return err
	}
	if err := checkText("reason", string(a.Reason), maxName); err != nil {
		return err
	}
	return checkText("stop string", a.StopString, maxValue)
}

func finite(x float64) bool { return x-x == 0 }

// document returns what is stored of a apart from its tokens, or an *InvalidError if that cannot be.
func (a Answer) document() (string, error) {
	if err := a.check(); err != nil {
		return "", err
	}
	a.Tokens = nil
	document, err := json.Marshal(a.JSON())
	if err != nil {
		return "", &InvalidError{"answer", fmt.Sprintf("cannot be written as JSON: %v", err)}
	}
	return string(document), nil
}

func putAnswer(ctx context.Context, tx *sql.Tx, message int64, a Answer) error {
	document, err := a.document()
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
		REPLACE INTO answers (message, record, tokens)
		VALUES (?, ?, ?)`,
		message, document, packTokens(a.Tokens))
	return err
}

// readAnswer returns the answer that a document of the database describes; nil if there is none.
func readAnswer(document string) (*Answer, error) {
	if document == "" {
		return nil, nil
	}
	var j AnswerJSON
	if err := json.Unmarshal([]byte(document), &j); err != nil {
		return nil, fmt.Errorf("the record of an answer cannot be read: %w", err)
	}
	a := j.Answer()
	return &a, nil
}
