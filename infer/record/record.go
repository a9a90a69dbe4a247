// Package record is the record of an answer apart from its text: how it ended, its tokens, its times,
// and the settings that reproduce it. The engine creates the record; the worker's protocol, the
// chats, the database, the page and the export carry it unchanged.
package record

import (
	"reflect"
	"slices"

	"m40-llm/infer/sample"
)

// Answer is the record of one answer.
type Answer struct {
	End
	Usage   Usage    `json:"usage"`
	Timings Timings  `json:"timings"`
	Pace    *Pace    `json:"pace,omitempty"` // of a chat's answer; nil: not known
	Reads   Reads    `json:"reads,omitzero"` // zero: not known
	Lookup  Lookup   `json:"lookup,omitzero"`
	Notes   []string `json:"notes,omitempty"` // how the prompt differs from the conversation, because the chat template requires it
	Receipt Receipt  `json:"receipt"`
}

// Limits of Answer.Notes.
const (
	MaxNotes    = 16
	MaxNoteSize = 1024 // bytes
)

// ValidNotes reports whether notes are as few and short as the engine's are.
func ValidNotes(notes []string) bool {
	return len(notes) <= MaxNotes && !slices.ContainsFunc(notes, func(n string) bool { return len(n) > MaxNoteSize })
}

// Then returns the record of answer a continued by next. The prompt is that of a, since the
// prompt of next includes the text of a.
func (a Answer) Then(next Answer) Answer {
	if a.Usage.CompletionTokens > 0 {
		next.Usage.PromptTokens, next.Usage.CachedTokens = a.Usage.PromptTokens, a.Usage.CachedTokens
		next.Timings.First = a.Timings.First
	}
	next.Usage.CompletionTokens += a.Usage.CompletionTokens
	next.Usage.ReasoningTokens += a.Usage.ReasoningTokens
	next.Timings.Queue += a.Timings.Queue
	next.Timings.Load += a.Timings.Load
	next.Timings.Prefill += a.Timings.Prefill
	next.Timings.Decode += a.Timings.Decode
	next.Reads = a.Reads.Then(next.Reads)
	next.Lookup.Drafted += a.Lookup.Drafted
	next.Lookup.Accepted += a.Lookup.Accepted
	return next
}

// FinishReason says why an answer ended.
type FinishReason string

const (
	FinishStop   FinishReason = "stop"           // an end token or a stop string
	FinishCalls  FinishReason = "tool_calls"     // the model ended an answer that has calls, all of them complete
	FinishLength FinishReason = "length"         // the token limit, or the context is full
	FinishBanned FinishReason = "content_filter" // every token would continue the answer with a banned string

	FinishRepetition FinishReason = "repetition" // a chat paused the answer, because it repeated itself
)

// End is how an answer ended.
type End struct {
	Reason      FinishReason `json:"reason,omitempty"`       // empty: the answer is running or was stopped
	StopString  string       `json:"stop_string,omitempty"`  // the stop string found, if one was
	EndToken    *int32       `json:"end_token,omitempty"`    // the end token sampled, if one was
	EndProb     float64      `json:"end_prob,omitempty"`     // its probability
	ContextFull bool         `json:"context_full,omitempty"` // with FinishLength: the context, not the token limit, ended it
	Repeated    int          `json:"repeated,omitempty"`     // of a chat: how many of its last tokens repeat those before them; 0: it does not repeat itself
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`              // 0: not known yet
	CachedTokens     int `json:"cached_tokens"`              // of the prompt, found in the KV cache
	CompletionTokens int `json:"completion_tokens"`          // an end token that ended the answer is not counted
	ReasoningTokens  int `json:"reasoning_tokens,omitempty"` // of CompletionTokens, where reasoning is parsed
}

// Receipt is what reproduces the tokens of an answer.
type Receipt struct {
	Model        string        `json:"model"`
	ModelHash    string        `json:"model_hash,omitempty"`    // of the file's header and size
	TemplateHash string        `json:"template_hash,omitempty"` // SHA-256 of the chat template
	Params       sample.Params `json:"params"`                  // Seed is the one that was used
	Device       string        `json:"device"`
	Path         string        `json:"path,omitempty"`   // number path of the device
	Decode       string        `json:"decode,omitempty"` // how a GPU ran steps; the bits do not depend on it
	CacheType    string        `json:"cache_type,omitempty"`
	Engine       string        `json:"engine,omitempty"`      // engine version
	BannedEnds   []int         `json:"banned_ends,omitempty"` // tokens of the answer, from 0, in whose places no end token could come
}

// HasParams reports whether the parameters are known; the engine sends them at the end.
func (r Receipt) HasParams() bool { return !reflect.ValueOf(r.Params).IsZero() }
