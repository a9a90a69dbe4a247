// Package infer holds what an engine and those who use it say to each other: requests, events,
// errors, models and status. They are plain values, since they cross the process boundary as
// JSON. Package engine computes in this process, package worker in another one.
package infer

import (
	"encoding/json"

	"m40-llm/infer/chat"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

// Request asks for one answer. It is a plain value: as JSON it crosses the
// process boundary (POST /v1/generate). Exactly one of Messages, Prompt and Tokens
// is the input.
type Request struct {
	Model string `json:"model,omitempty"` // empty: the resident model

	Client  string `json:"client,omitempty"`  // who asks: clients take turns. The server says so, not the client
	Sibling int    `json:"sibling,omitempty"` // number of the answer among those asked for together, from 0

	Messages     []chat.Message             `json:"messages,omitempty"`      // rendered by the model's chat template
	Continue     bool                       `json:"continue,omitempty"`      // write on in the last message, an assistant's, instead of opening a new one
	Begun        []int32                    `json:"begun,omitempty"`         // with Continue: the tokens of that message, if the model wrote it; it goes on in these very ones, unless they say something else
	Tools        json.RawMessage            `json:"tools,omitempty"`         // array of tool definitions for the template
	ToolChoice   string                     `json:"tool_choice,omitempty"`   // auto or empty: the model chooses; none: no call; required: a call of any tool; else a call of the tool of this name
	TemplateVars map[string]json.RawMessage `json:"template_vars,omitempty"` // further variables of the template

	// ParseReply tells reasoning and calls of tools apart from what the answer says: the
	// Text of its events is then content alone. Calls are those of Tools.
	ParseReply bool `json:"parse_reply,omitempty"`
	WholeCalls bool `json:"whole_calls,omitempty"` // with ParseReply: a call is told when it is complete, so that one that breaks off is text
	SingleCall bool `json:"single_call,omitempty"` // with ParseReply: the first complete call ends the answer

	Prompt string  `json:"prompt,omitempty"` // raw text: special tokens parsed and added as the model file says
	Tokens []int32 `json:"tokens,omitempty"` // taken as they are

	Grammar    string          `json:"grammar,omitempty"`     // GBNF that the answer is held to
	JSONSchema json.RawMessage `json:"json_schema,omitempty"` // a JSON Schema that the content is held to; at most one of both. Calls of Tools may come in its place
	// StrictSchema makes it an error that the answer cannot be held to all of JSONSchema;
	// else what it is not held to is left out, and a schema event lists that.
	StrictSchema bool `json:"strict_schema,omitempty"`

	Params        sample.Params `json:"params"`
	MaxTokens     int           `json:"max_tokens"` // -1: until the context is full
	Stop          []string      `json:"stop,omitempty"`
	BannedStrings []string      `json:"banned_strings,omitempty"` // texts that the answer never contains
	IgnoreEOS     bool          `json:"ignore_eos,omitempty"`     // end tokens do not end the answer
	Alternatives  int           `json:"alternatives,omitempty"`   // likeliest tokens listed with each token, 0 to 256; with PromptLogProb 0 to 100
	PromptLogProb bool          `json:"prompt_logprob,omitempty"` // send the prompt's tokens too, scored
}

// Values of Request.ToolChoice that are no names of tools.
const (
	ToolChoiceAuto     = "auto"
	ToolChoiceNone     = "none"
	ToolChoiceRequired = "required"
)

// ForcesCall reports whether the answer must be a call.
func (r *Request) ForcesCall() bool {
	return r.ToolChoice != "" && r.ToolChoice != ToolChoiceAuto && r.ToolChoice != ToolChoiceNone
}

// DefaultRequest returns the settings of a request that sets nothing: JSON is
// decoded over it.
func DefaultRequest() Request {
	return Request{Params: sample.DefaultParams(), MaxTokens: -1}
}

// EventType names the kind of an Event, and which of its fields is set.
type EventType string

const (
	EventSchema  EventType = "schema"
	EventQueued  EventType = "queued"
	EventLoading EventType = "loading"
	EventPrefill EventType = "prefill"
	EventToken   EventType = "token"
	EventDone    EventType = "done"
)

// Event is one step of an answer, a plain value like Request. An answer is a schema
// event, if anything of the schemas is left out, any number of queued, loading and
// prefill events, then tokens, then one done; or it ends early with an error.
type Event struct {
	Type    EventType    `json:"type"`
	Schema  *SchemaNotes `json:"schema,omitempty"`
	Queued  *Queued      `json:"queued,omitempty"`
	Loading *Loading     `json:"loading,omitempty"`
	Prefill *Prefill     `json:"prefill,omitempty"`
	Token   *Token       `json:"token,omitempty"`
	Done    *Done        `json:"done,omitempty"`
}

// SchemaNotes say what the answer is not held to.
type SchemaNotes struct {
	Ignored []string `json:"ignored"` // keywords and where they stand, as "if at #/properties/a", or "if at # of NAME" in the schema of a tool
}

// Queued says that the request waits.
type Queued struct {
	Position int     `json:"position"`         // 1: next
	WaitS    float64 `json:"wait_s,omitempty"` // expected seconds until it begins, rounded up, from the measured speed; 0: not known. Package engine says what it assumes
}

// Loading says how much of a model has been read, and then, on a device whose driver must
// compile kernels for it, how many of them are there.
type Loading struct {
	Model        string `json:"model"`
	Done         int64  `json:"done"`                    // bytes
	Total        int64  `json:"total"`                   // bytes
	Kernels      int    `json:"kernels,omitempty"`       // that are compiled
	KernelsTotal int    `json:"kernels_total,omitempty"` // 0: none are being compiled
}

// Prefill says how much of the prompt is in the KV cache.
type Prefill struct {
	Done   int `json:"done"`   // tokens, those found in the cache included
	Total  int `json:"total"`  // tokens
	Cached int `json:"cached"` // tokens found in the cache
}

// Token is one token of the answer, or of the prompt where PromptLogProb asks
// for them. Top is nil unless the request asked for Alternatives; the first token
// of a prompt has no prediction and carries its ID and Bytes alone.
type Token struct {
	sample.Choice
	Bytes  []byte   `json:"bytes"`               // what the token itself spells, a control token its name; may be part of a rune
	Tops   [][]byte `json:"top_bytes,omitempty"` // the same for each of Top
	Text   string   `json:"text"`                // text released by this token: whole runes only, nothing that may begin a stop string
	Prompt bool     `json:"prompt,omitempty"`    // belongs to the prompt

	Reasoning string            `json:"reasoning,omitempty"` // with ParseReply, as are Calls
	Calls     []reply.CallDelta `json:"calls,omitempty"`
}

// FinishReason says why an answer ended.
type FinishReason = record.FinishReason

const (
	FinishStop   = record.FinishStop
	FinishCalls  = record.FinishCalls
	FinishLength = record.FinishLength
	FinishBanned = record.FinishBanned
)

// Done ends an answer: its record, and what was held back of it until now.
type Done struct {
	record.Answer
	Text      string            `json:"text,omitempty"`
	Reasoning string            `json:"reasoning,omitempty"` // with ParseReply, as are Calls
	Calls     []reply.CallDelta `json:"calls,omitempty"`
}
