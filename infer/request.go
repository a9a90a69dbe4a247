// Package infer has the values that an engine exchanges with its users: requests, events, errors,
// models and status. They are plain values, because they cross the process boundary as JSON. Package
// engine computes in this process, package worker in another one.
package infer

import (
	"encoding/json"
	"time"

	"m40-llm/infer/chat"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

// Request asks for one answer. As JSON it crosses the process boundary (POST /v1/generate). Exactly
// one of Messages, Prompt and Tokens is the input.
type Request struct {
	Model string `json:"model,omitempty"` // empty: the model that is loaded

	Client  string `json:"client,omitempty"`  // set by the server: the scheduler divides the device fairly among clients
	Sibling int    `json:"sibling,omitempty"` // index of the answer among those of one API request, from 0

	// CacheScope and PublicSystem are set by the server. The beginnings of prompts are shared in the KV cache among
	// the requests of one scope, a person's. Requests of all scopes share the template's own text and, with
	// PublicSystem, the first message.
	CacheScope   string `json:"cache_scope,omitempty"`
	PublicSystem bool   `json:"public_system,omitempty"`

	KVFile *KVFile `json:"kv_file,omitempty"` // set by the server: where the KV cache of the chat is stored between its answers

	// KeepAliveS is how many seconds the model stays loaded without a request, from the end of this one on and
	// until another model is loaded; negative: always; nil: as before. The server drops those of people who may
	// not manage its models.
	KeepAliveS *float64 `json:"keep_alive_s,omitempty"`

	Messages        []chat.Message             `json:"messages,omitempty"`      // rendered by the model's chat template
	Continue        bool                       `json:"continue,omitempty"`      // continue the last message, an assistant's, instead of opening a new one
	ContinuedTokens []int32                    `json:"begun,omitempty"`         // with Continue: the tokens of that message, if the model wrote it; ignored unless they decode to the message
	Tools           json.RawMessage            `json:"tools,omitempty"`         // array of tool definitions for the template
	ToolChoice      string                     `json:"tool_choice,omitempty"`   // auto or empty: the model chooses; none: no call; required: a call of any tool; otherwise the name of the tool to call
	TemplateVars    map[string]json.RawMessage `json:"template_vars,omitempty"` // additional template variables
	ChatTemplate    string                     `json:"chat_template,omitempty"` // replaces the templates of the model, in a preview: Engine.Render alone takes it

	// ReasoningBudget is the number of tokens of reasoning after which the marker that closes it comes in place of what the
	// model would write; nil: there is no limit. Without ParseReply, or in a format without such a marker, it has no effect.
	ReasoningBudget *int `json:"reasoning_budget,omitempty"`

	// ParseReply separates reasoning and calls of Tools from the content: the Text of events is
	// then content alone.
	ParseReply bool `json:"parse_reply,omitempty"`
	WholeCalls bool `json:"whole_calls,omitempty"` // with ParseReply: emit a call only when it is complete; an incomplete one becomes text
	SingleCall bool `json:"single_call,omitempty"` // with ParseReply: the first complete call ends the answer

	Prompt string `json:"prompt,omitempty"` // raw text: special tokens are parsed, and added as the model file says
	// Pictures are files of pictures of Prompt. Each stands where Prompt has a chat.PictureMark, in this order.
	Pictures [][]byte `json:"pictures,omitempty"`
	Tokens   []int32  `json:"tokens,omitempty"` // used as they are

	Grammar    string          `json:"grammar,omitempty"`     // GBNF grammar that constrains the answer
	JSONSchema json.RawMessage `json:"json_schema,omitempty"` // JSON Schema that constrains the content; not together with Grammar. Calls of Tools may come instead of content

	// ContinueForm makes the message that Continue continues the beginning of what Grammar or JSONSchema describes. Otherwise
	// they describe what follows it.
	ContinueForm bool `json:"continue_form,omitempty"`

	// StrictSchema refuses the request if the answer cannot be constrained to all of JSONSchema.
	// Otherwise unsupported keywords are ignored, and a schema event lists them.
	StrictSchema bool `json:"strict_schema,omitempty"`

	Params        sample.Params `json:"params"`
	Unset         []string      `json:"unset,omitempty"` // names of Params that the request does not set: what the model's file suggests replaces them
	MaxTokens     int           `json:"max_tokens"`      // -1: until the context is full
	Stop          []string      `json:"stop,omitempty"`
	BannedStrings []string      `json:"banned_strings,omitempty"` // texts that the answer must not contain
	IgnoreEOS     bool          `json:"ignore_eos,omitempty"`     // end tokens do not end the answer
	BannedEnds    []int         `json:"banned_ends,omitempty"`    // places in the answer, from 0, at which no end token may come
	Alternatives  int           `json:"alternatives,omitempty"`   // number of likeliest tokens listed with each token, 0 to 256; with PromptLogProb 0 to 100
	Rows          bool          `json:"rows,omitempty"`           // store the likeliest tokens in each token: see sample.Choice.Row
	Follow        []int32       `json:"follow,omitempty"`         // at most 256 tokens whose probability after each stage each token of the answer reports: see sample.Choice.Followed
	PromptLogProb bool          `json:"prompt_logprob,omitempty"` // emit the prompt's tokens with their log probabilities too, and with Rows their likeliest tokens

	// Answered are the first tokens of an answer to Messages or Prompt, with which the prompt ends. The answer is what comes
	// after them: neither parsed nor constrained. With PromptLogProb they alone are scored.
	Answered []int32 `json:"answered,omitempty"`

	LeftOut *PicturePart `json:"left_out,omitempty"` // a part of a picture that the model does not see; nil: it sees all

	// PromptLookup drafts the next tokens from the context where its last tokens occur before, and checks
	// several in one step. The answer is the same, in other steps. nil: as the server does by default; true: nothing
	// else drafts; false: only what is not lookup does.
	PromptLookup *bool `json:"prompt_lookup,omitempty"`

	// Against is a model that scores the prompt too, after Model: see Token.Compared. Both need the same
	// vocabulary, PromptLogProb must be set and MaxTokens be 0. Without workers, one is loaded after the other.
	Against       string `json:"against,omitempty"`
	AgainstDevice string `json:"against_device,omitempty"` // cpu: Against computes on the CPU; empty: on the devices of the server

	RowFile *RowFile `json:"row_file,omitempty"` // set by the server: with Against, the two models are in two engines; nil: in one
}

// RowFile is the file by which two engines compare what their models predict. The first one, which has Request.Model, scores the prompt and
// writes its rows of logits to the file; the second one, which has Request.Against, reads them: of its tokens, Compared counts.
type RowFile struct {
	Path   string `json:"path"`
	Second bool   `json:"second,omitempty"` // the request is for the second engine
}

// Picture is a picture of the input.
type Picture struct {
	File   []byte
	Detail chat.Detail
}

// AllPictures returns the pictures of the input, in their order, and the name of the field that has them.
func (r *Request) AllPictures() (list []Picture, field string) {
	for _, file := range r.Pictures {
		list = append(list, Picture{File: file})
	}
	for _, m := range r.Messages {
		for i, file := range m.Pictures {
			list = append(list, Picture{file, m.DetailOf(i)})
		}
	}
	if len(r.Messages) == 0 {
		return list, "prompt"
	}
	return list, "messages"
}

// PicturePart is a rectangle of a picture of the input. Its pixels are replaced by the mean of all of the picture's
// before the picture is resized and encoded.
type PicturePart struct {
	Picture int `json:"picture"` // number among Request.AllPictures, from 0
	X       int `json:"x"`       // pixels of the picture as it is shown, from the left
	Y       int `json:"y"`       // from the top
	Width   int `json:"width"`
	Height  int `json:"height"`
}

// KVFile is a file for the KV cache of a chat. It is used if it exists; see package kvfile.
type KVFile struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"` // bytes of all such files; the least recently used ones are deleted
}

// Values of Request.ToolChoice other than names of tools.
const (
	ToolChoiceAuto     = "auto"
	ToolChoiceNone     = "none"
	ToolChoiceRequired = "required"
)

// ForcesCall reports whether the answer must be a tool call.
func (r *Request) ForcesCall() bool {
	return r.ToolChoice != "" && r.ToolChoice != ToolChoiceAuto && r.ToolChoice != ToolChoiceNone
}

// DefaultRequest returns the defaults of a request. JSON is decoded into it.
func DefaultRequest() Request {
	return Request{Params: sample.DefaultParams(), MaxTokens: -1}
}

// EventType is the kind of an Event: the name of the field that is set.
type EventType string

const (
	EventSchema   EventType = "schema"
	EventPrompt   EventType = "prompt"
	EventPictures EventType = "pictures"
	EventQueued   EventType = "queued"
	EventLoading  EventType = "loading"
	EventPrefill  EventType = "prefill"
	EventToken    EventType = "token"
	EventDone     EventType = "done"
)

// Event is one event of an answer, a plain value like Request. An answer is a schema event, if any
// keywords of its schemas are ignored; a prompt event, if there are notes; a pictures event for each picture of the messages; any number of queued, loading and prefill events; tokens; and
// one done event. An error ends it early.
type Event struct {
	Type     EventType    `json:"type"`
	Schema   *SchemaNotes `json:"schema,omitempty"`
	Prompt   *PromptNotes `json:"prompt,omitempty"`
	Pictures *Pictures    `json:"pictures,omitempty"`
	Queued   *Queued      `json:"queued,omitempty"`
	Loading  *Loading     `json:"loading,omitempty"`
	Prefill  *Prefill     `json:"prefill,omitempty"`
	Token    *Token       `json:"token,omitempty"`
	Done     *Done        `json:"done,omitempty"`
}

// SchemaNotes lists the parts of schemas that do not constrain the answer.
type SchemaNotes struct {
	Ignored []string `json:"ignored"` // keywords with their location: "if at #/properties/a", or "if at # of NAME" in the schema of a tool
}

// IsNote reports whether e says something of the request, before anything of the answer.
func (e Event) IsNote() bool { return e.Type == EventSchema || e.Type == EventPrompt }

// PromptNotes says how the prompt differs from the conversation of the request.
type PromptNotes struct {
	Notes []string `json:"notes"` // clauses such as: the chat template takes one system message: those at the beginning are joined
}

// Pictures is the progress of encoding the pictures of the messages, which happens before the request is queued.
type Pictures struct {
	Done  int `json:"done"`  // pictures
	Total int `json:"total"` // pictures
}

// Queued reports that the request waits in the queue.
type Queued struct {
	Position int     `json:"position"`         // 1: next
	WaitS    float64 `json:"wait_s,omitempty"` // expected seconds until it begins, rounded up, from the measured speed; 0: not known. Package engine says what it assumes

	ForMemory bool `json:"for_memory,omitempty"` // another model has to be unloaded before
}

// Roughly rounds an expected duration up, more coarsely the longer it is: to seconds, five seconds, half minutes or minutes.
func Roughly(d time.Duration) time.Duration {
	unit := time.Second
	switch {
	case d > 5*time.Minute:
		unit = time.Minute
	case d > time.Minute:
		unit = 30 * time.Second
	case d > 10*time.Second:
		unit = 5 * time.Second
	}
	return (d + unit - 1) / unit * unit
}

// Loading is the progress of loading a model: first the weights, then the kernels, if the driver of a
// device must compile them.
type Loading struct {
	Model        string `json:"model"`
	Done         int64  `json:"done"`                    // bytes
	Total        int64  `json:"total"`                   // bytes
	Kernels      int    `json:"kernels,omitempty"`       // compiled kernels
	KernelsTotal int    `json:"kernels_total,omitempty"` // 0: none are being compiled

	InPlaceOf string `json:"in_place_of,omitempty"` // names of the models that were unloaded to make room; empty: none was

	LeftS float64 `json:"left_s,omitempty"` // expected seconds until the weights are loaded, as in Queued; 0: not known
}

// Prefill is the progress of the prompt.
type Prefill struct {
	Done   int `json:"done"`   // tokens in the KV cache, including Cached
	Total  int `json:"total"`  // tokens
	Cached int `json:"cached"` // tokens that were in the KV cache before

	Against bool `json:"against,omitempty"` // it is that of the second model
}

// Token is a token of the answer, or of the prompt if PromptLogProb is set. Top is nil unless the
// request has Alternatives. The first token of a prompt has no prediction: only ID and Bytes are set.
type Token struct {
	sample.Choice
	Bytes  []byte   `json:"bytes"`               // the token's bytes, which may be part of a rune; for a control token its name
	Tops   [][]byte `json:"top_bytes,omitempty"` // Bytes of each token in Top
	Text   string   `json:"text"`                // text emitted with this token: whole runes only, without a possible beginning of a stop string
	Prompt bool     `json:"prompt,omitempty"`    // a token of the prompt

	Compared *Compared `json:"compared,omitempty"` // with Against, of all tokens of the prompt but the first

	Reasoning string            `json:"reasoning,omitempty"` // with ParseReply, as are Calls
	Calls     []reply.CallDelta `json:"calls,omitempty"`
}

// Compared is what the model of Request.Against predicts in the place of a token, where the Choice is
// that of Request.Model.
type Compared struct {
	KL      float64 `json:"kl"`      // Kullback-Leibler divergence of its distribution from that of Model, D(Model || Against), in nats, over the full vocabulary
	LogProb float64 `json:"logprob"` // of the token, as in sample.Choice
	Rank    int     `json:"rank"`    // as in sample.Choice
}

// FinishReason is why an answer ended.
type FinishReason = record.FinishReason

const (
	FinishStop   = record.FinishStop
	FinishCalls  = record.FinishCalls
	FinishLength = record.FinishLength
	FinishBanned = record.FinishBanned

	FinishRepetition = record.FinishRepetition
)

// Done ends an answer: its record, and the text, reasoning and calls that were buffered until now.
type Done struct {
	record.Answer
	Text      string            `json:"text,omitempty"`
	Reasoning string            `json:"reasoning,omitempty"` // with ParseReply, as are Calls
	Calls     []reply.CallDelta `json:"calls,omitempty"`
}
