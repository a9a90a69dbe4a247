// Package record is what is known about an answer beside what it says: how it ended, how
// many tokens it took and how much time, and how it was made. The engine writes the
// record, and everything behind it carries it as it is: the worker's protocol, the chats,
// the database, the page and the export.
package record

import (
	"reflect"

	"m40-llm/infer/sample"
)

// Answer is the record of one answer.
type Answer struct {
	End
	Usage   Usage   `json:"usage"`
	Timings Timings `json:"timings"`
	Receipt Receipt `json:"receipt"`
}

// Then returns the record of an answer that is a and was continued with next: the prompt is
// that of its beginning, as the one of next has what a says.
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
	return next
}

// FinishReason says why an answer ended.
type FinishReason string

const (
	FinishStop   FinishReason = "stop"           // an end token or a stop string
	FinishCalls  FinishReason = "tool_calls"     // the model ended an answer that has calls, all of them complete
	FinishLength FinishReason = "length"         // the token limit, or the context is full
	FinishBanned FinishReason = "content_filter" // the answer can only go on with a banned string
)

// End is how an answer ended.
type End struct {
	Reason      FinishReason `json:"reason,omitempty"`       // empty: it runs, or was ended from outside
	StopString  string       `json:"stop_string,omitempty"`  // the stop string found, if one was
	EndToken    *int32       `json:"end_token,omitempty"`    // the end token sampled, if one was
	EndProb     float64      `json:"end_prob,omitempty"`     // its probability
	ContextFull bool         `json:"context_full,omitempty"` // with FinishLength: the context, not the token limit, ended it
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`              // 0: not known yet
	CachedTokens     int `json:"cached_tokens"`              // of the prompt, found in the KV cache
	CompletionTokens int `json:"completion_tokens"`          // an end token that ended the answer is not counted
	ReasoningTokens  int `json:"reasoning_tokens,omitempty"` // of them, those of the reasoning, where it is told apart
}

// Receipt is what one needs to get the same tokens again.
type Receipt struct {
	Model        string        `json:"model"`
	ModelHash    string        `json:"model_hash,omitempty"`    // of the file's header and size
	TemplateHash string        `json:"template_hash,omitempty"` // SHA-256 of the chat template
	Params       sample.Params `json:"params"`                  // Seed is the one that was used
	Device       string        `json:"device"`
	Path         string        `json:"path,omitempty"` // number path of the device
	CacheType    string        `json:"cache_type,omitempty"`
	Engine       string        `json:"engine,omitempty"` // engine version
}

// HasParams reports whether the parameters are known, which the engine says at the end.
func (r Receipt) HasParams() bool { return !reflect.ValueOf(r.Params).IsZero() }
