package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
)

// This file holds what the requests of several APIs share. The names are those of
// OpenAI's completions, with the sampler fields of llama-server and vLLM; unknown
// fields are ignored.

// generationFields are the fields that ask for an answer. Absent and null mean the
// default: JSON is decoded over newGenerationFields.
type generationFields struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	N *int `json:"n"`

	sample.Params
	LogitBias    map[string]float64 `json:"logit_bias"`
	TypP         *float64           `json:"typ_p"` // llama-server's short name of typical_p
	Banned       []string           `json:"banned_strings"`
	BannedTokens []string           `json:"banned_tokens"` // KoboldCpp's name: texts all the same

	MaxTokens             *int            `json:"max_tokens"`
	Stop                  json.RawMessage `json:"stop" schema:"string|[string]"`
	IgnoreEOS             bool            `json:"ignore_eos"`
	ThinkingBudget        *int            `json:"thinking_token_budget"` // vLLM's name: tokens of reasoning after which the answer goes on without
	ReturnTokensAsTokenID bool            `json:"return_tokens_as_token_ids"`
	ReturnProgress        bool            `json:"return_progress"`   // llama-server's: a stream reports the progress of the prefill
	TimingsPerToken       bool            `json:"timings_per_token"` // llama-server's: each chunk of a stream has timings
	formFields
	declinedFields `schema:"-"`
}

// declinedFields change an answer where vLLM, llama-server or OpenAI serve it, and have no counterpart here: they are refused,
// unless their value turns them off.
type declinedFields struct {
	StructuredOutputs json.RawMessage `json:"structured_outputs"`
	GuidedJSON        json.RawMessage `json:"guided_json"`
	GuidedRegex       json.RawMessage `json:"guided_regex"`
	GuidedChoice      json.RawMessage `json:"guided_choice"`
	GuidedGrammar     json.RawMessage `json:"guided_grammar"`
	StopTokens        json.RawMessage `json:"stop_token_ids"`
	IncludeStop       json.RawMessage `json:"include_stop_str_in_output"`
	MinTokens         json.RawMessage `json:"min_tokens"`
	AllowedTokens     json.RawMessage `json:"allowed_token_ids"`
	BadWords          json.RawMessage `json:"bad_words"`
	BeamSearch        json.RawMessage `json:"use_beam_search"`
	PromptScores      json.RawMessage `json:"prompt_logprobs"`
	WebSearch         json.RawMessage `json:"web_search_options"`
	PostSampling      json.RawMessage `json:"post_sampling_probs"`
	ResponseFields    json.RawMessage `json:"response_fields"`
	Adapters          json.RawMessage `json:"lora"`
}

// refuse returns an error for the first field that is on.
func (f *declinedFields) refuse() error {
	const form = "response_format, json_schema and grammar say what an answer must be"
	for _, field := range []struct {
		name  string
		value json.RawMessage
		todo  string
	}{
		{"structured_outputs", f.StructuredOutputs, form}, {"guided_json", f.GuidedJSON, form}, {"guided_regex", f.GuidedRegex, form}, {"guided_choice", f.GuidedChoice, form}, {"guided_grammar", f.GuidedGrammar, form},
		{"stop_token_ids", f.StopTokens, "stop has texts that end an answer"},
		{"include_stop_str_in_output", f.IncludeStop, "an answer ends before a stop string"},
		{"min_tokens", f.MinTokens, "ignore_eos has an answer go on until max_tokens"},
		{"allowed_token_ids", f.AllowedTokens, "logit_bias changes how likely tokens are"},
		{"bad_words", f.BadWords, "banned_strings has texts that an answer must not have"},
		{"use_beam_search", f.BeamSearch, "best_of of /v1/completions chooses among several answers"},
		{"prompt_logprobs", f.PromptScores, "echo with logprobs of /v1/completions scores a prompt"},
		{"web_search_options", f.WebSearch, "this server searches nothing: put what was found into a message"},
		{"post_sampling_probs", f.PostSampling, "probabilities are those that the model gives, before the samplers"},
		{"response_fields", f.ResponseFields, "a response has all fields"},
		{"lora", f.Adapters, "models are used as they are in their files"},
	} {
		switch string(bytes.TrimSpace(field.value)) {
		case "", "null", "false", "0", "[]", `""`:
		default:
			return fault.Invalid(field.name, "%s is not supported: %s", field.name, field.todo)
		}
	}
	return nil
}

// request returns the engine's request for the fields, without its prompt or messages.
func (f *generationFields) request() (infer.Request, error) {
	r := infer.DefaultRequest()
	r.Model = f.Model
	r.IgnoreEOS, r.ReasoningBudget = f.IgnoreEOS, f.ThinkingBudget
	if err := f.refuse(); err != nil {
		return r, err
	}
	if err := f.formFields.fill(&r); err != nil {
		return r, err
	}
	var err error
	if r.Params, r.Unset, err = f.params(); err != nil {
		return r, err
	}
	if len(f.Banned) > 0 && len(f.BannedTokens) > 0 {
		return r, fault.Invalid("banned_tokens", "banned_strings and banned_tokens are two names of one field; give one")
	}
	r.BannedStrings = slices.Concat(f.Banned, f.BannedTokens)
	if err := setCount(&r.MaxTokens, "max_tokens", f.MaxTokens); err != nil {
		return r, err
	}
	r.Stop, err = parseStop(f.Stop)
	return r, err
}

func newGenerationFields() generationFields { return generationFields{Params: sample.Unset()} }

// params returns the sampling parameters. The values that turn a parameter off in other servers
// do so here: -1 for top_k as in vLLM, and for top_n_sigma as in llama-server. A negative seed
// stands for a random one. unset are the names of those that the request does not have.
func (f *generationFields) params() (p sample.Params, unset []string, err error) {
	p = f.Params
	if f.TypP != nil {
		p.TypicalP = *f.TypP // before Fill, so that it counts as set
	}
	if p.TopK == -1 {
		p.TopK = 0
	}
	p.Seed = max(p.Seed, -1)
	if p.TopNSigma == -1 {
		p.TopNSigma = 0
	}
	unset = p.Fill()
	if p.LogitBias, err = parseLogitBias(f.LogitBias); err != nil {
		return p, nil, err
	}
	var wrong *sample.FieldError
	if err := p.Validate(); errors.As(err, &wrong) {
		return p, nil, fault.Invalid(wrong.Field, "%v", wrong)
	}
	return p, unset, nil
}

// setCount stores a count that the request holds, if it does and is in range.
func setCount(dst *int, field string, value *int) error {
	if value == nil {
		return nil
	}
	*dst = *value
	return httpio.Ranges[field].Check(field, *value)
}

// setPredicted sets the limit of tokens to a field of Ollama's or llama-server's, in which -2 stands for an
// answer that fills the context.
func setPredicted(r *infer.Request, field string, value *int) error {
	if value != nil && *value == -2 {
		value = new(-1)
	}
	return setCount(&r.MaxTokens, field, value)
}

func parseLogitBias(biases map[string]float64) (map[int32]float64, error) {
	if len(biases) == 0 {
		return nil, nil
	}
	parsed := make(map[int32]float64, len(biases))
	for key, bias := range biases {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return nil, fault.Invalid("logit_bias", "logit_bias has the key %q: keys are token ids", httpio.Shorten(key))
		}
		parsed[int32(id)] = bias
	}
	return parsed, nil
}

// parseStop decodes a string or an array of strings. It ignores empty ones.
func parseStop(raw json.RawMessage) ([]string, error) {
	var all []string
	switch firstByte(raw) {
	case 0, 'n':
		return nil, nil
	case '"':
		all = make([]string, 1)
		if err := httpio.DecodeJSON(raw, "stop", &all[0]); err != nil {
			return nil, err
		}
	case '[':
		if err := httpio.DecodeJSON(raw, "stop", &all); err != nil {
			return nil, err
		}
	default:
		return nil, fault.Invalid("stop", "stop must be a string or an array of strings")
	}
	var stops []string
	for _, s := range all {
		if s != "" {
			stops = append(stops, s)
		}
	}
	return stops, nil
}

// firstByte returns the first byte of a JSON value, which determines its kind; 0 if it is empty.
func firstByte(raw json.RawMessage) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

// answersPerPrompt returns n.
func (f *generationFields) answersPerPrompt() (int, error) {
	n := 1
	err := setCount(&n, "n", f.N)
	return n, err
}

// sideBySide returns n copies of r. A fixed seed is incremented for each, so that the answers
// differ and each can be reproduced.
func sideBySide(r infer.Request, n int) []infer.Request {
	requests := make([]infer.Request, n)
	for i := range requests {
		requests[i] = r
		if r.Params.Seed >= 0 {
			requests[i].Params.Seed = int64(uint64(r.Params.Seed)+uint64(i)) & math.MaxInt64
		}
	}
	return requests
}

// modelName returns the model's name for a response: the requested one or, if the request has
// none, the loaded model's.
func (api *API) modelName(asked string) string {
	return cmp.Or(asked, api.engine.Status().Model.Name)
}

func (api *API) fingerprint() string { return "m40-llm-" + cmp.Or(api.version, "devel") }

// usageBody counts the tokens of a response.
type usageBody struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails *completionDetails `json:"completion_tokens_details,omitempty"` // of an answer with reasoning
}

type completionDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// add adds the tokens of one answer. The prompt of n answers is counted once.
func (u *usageBody) add(answer record.Usage, firstOfPrompt bool) {
	if firstOfPrompt {
		u.PromptTokens += answer.PromptTokens
		u.PromptDetails.CachedTokens += answer.CachedTokens
	}
	u.CompletionTokens += answer.CompletionTokens
	if answer.ReasoningTokens > 0 {
		if u.CompletionDetails == nil {
			u.CompletionDetails = &completionDetails{}
		}
		u.CompletionDetails.ReasoningTokens += answer.ReasoningTokens
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}

// tokenName returns a token for a response: its text, or its id for clients that must
// distinguish tokens with the same text.
func tokenName(id int32, spelled []byte, byID bool) string {
	if byID {
		return "token_id:" + strconv.Itoa(int(id))
	}
	return strings.ToValidUTF8(string(spelled), string(utf8.RuneError))
}

// byteNumbers returns b for JSON as an array of numbers; encoding/json writes []byte as base64.
func byteNumbers(b []byte) []int {
	numbers := make([]int, len(b))
	for i, v := range b {
		numbers[i] = int(v)
	}
	return numbers
}

// finiteLogProb replaces minus infinity, which JSON cannot represent, by the value that OpenAI's
// servers send.
func finiteLogProb(p float64) float64 {
	const least = -9999
	if !(p > least) {
		return least
	}
	return p
}
