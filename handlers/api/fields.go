package api

import (
	"bytes"
	"cmp"
	"crypto/rand"
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
	N     *int `json:"n"`
	NCmpl *int `json:"n_cmpl"` // llama-server's name of n

	sample.Params
	LogitBias    map[string]float64 `json:"logit_bias"`
	TypP         *float64           `json:"typ_p"`              // llama-server's short name of typical_p
	Repetition   *float64           `json:"repetition_penalty"` // vLLM's: repeat_penalty with a window of the whole context
	Banned       []string           `json:"banned_strings"`
	BannedTokens []string           `json:"banned_tokens"` // KoboldCpp's name: texts all the same

	MaxTokens             *int            `json:"max_tokens"`
	Stop                  json.RawMessage `json:"stop" schema:"string|[string]"`
	IgnoreEOS             bool            `json:"ignore_eos"`
	ThinkingBudget        *int            `json:"thinking_token_budget"`   // vLLM's name: tokens of reasoning after which the answer goes on without
	ReasoningBudget       *int            `json:"reasoning_budget_tokens"` // llama-server's names of it
	ThinkingTokens        *int            `json:"thinking_budget_tokens"`
	CachePrompt           *bool           `json:"cache_prompt"` // llama-server's: false reads the prompt anew
	CacheSalt             string          `json:"cache_salt"`   // vLLM's: caches are shared with requests of the same salt alone
	ReturnTokensAsTokenID bool            `json:"return_tokens_as_token_ids"`
	ReturnProgress        bool            `json:"return_progress"`   // llama-server's: a stream reports the progress of the prefill
	TimingsPerToken       bool            `json:"timings_per_token"` // llama-server's: each chunk of a stream has timings
	formFields
	declinedFields `schema:"-"`
}

// request returns the engine's request for the fields, without its prompt or messages.
func (f *generationFields) request() (infer.Request, error) {
	r := infer.DefaultRequest()
	r.Model, r.IgnoreEOS = f.Model, f.IgnoreEOS
	if err := f.refuse(); err != nil {
		return r, err
	}
	if r.CacheScope = f.CacheSalt; f.CachePrompt != nil && !*f.CachePrompt {
		r.CacheScope = rand.Text()
	}
	if err := f.formFields.fill(&r); err != nil {
		return r, err
	}
	var err error
	if r.ReasoningBudget, err = f.reasoningBudget(); err != nil {
		return r, err
	}
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
// means a random one. unset are the names of those that the request does not have.
func (f *generationFields) params() (p sample.Params, unset []string, err error) {
	p = f.Params
	if f.TypP != nil {
		p.TypicalP = *f.TypP // before Fill, so that it counts as set
	}
	if f.Repetition != nil {
		if !math.IsNaN(p.RepeatPenalty) {
			return p, nil, fault.Invalid("repetition_penalty", "repeat_penalty and repetition_penalty are two names of one field; give one")
		}
		if p.RepeatPenalty = *f.Repetition; p.RepeatLastN == sample.Unset().RepeatLastN {
			p.RepeatLastN = -1
		}
	}
	if p.TopK == -1 {
		p.TopK = 0
	}
	p.Seed = max(p.Seed, -1)
	if p.TopNSigma == -1 {
		p.TopNSigma = 0
	}
	p.Samplers = slices.DeleteFunc(slices.Clone(p.Samplers), func(stage string) bool { return slices.Contains(otherStages, stage) })
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

// otherStages are stages of llama-server that are left out of an order: adaptive_p, which is off without adaptive_target, and
// infill, which editors list.
var otherStages = []string{"adaptive_p", "infill"}

// setCount stores a count that the request holds, if it does and is in range.
func setCount(dst *int, field string, value *int) error {
	if value == nil {
		return nil
	}
	*dst = *value
	return httpio.Ranges[field].Check(field, *value)
}

// setPredicted sets the limit of tokens to a field of Ollama's or llama-server's, in which -2 means an
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
	if f.NCmpl != nil {
		if f.N != nil && *f.N != *f.NCmpl {
			return 0, fault.Invalid("n_cmpl", "n and n_cmpl are two names of one field; give one")
		}
		return *f.NCmpl, httpio.Ranges["n"].Check("n_cmpl", *f.NCmpl)
	}
	err := setCount(&n, "n", f.N)
	return n, err
}

// oneAnswer returns an error if the request asks a route that writes one answer for several.
func (f *generationFields) oneAnswer() error {
	for name, n := range map[string]*int{"n": f.N, "n_cmpl": f.NCmpl} {
		if n != nil && *n != 1 {
			return fault.Invalid(name, "%s is %d, and this route writes one answer: /v1/chat/completions and /v1/completions write several", name, *n)
		}
	}
	return nil
}

// reasoningBudget returns how many tokens of reasoning there may be; nil: any number.
func (f *generationFields) reasoningBudget() (*int, error) {
	var budget *int
	for _, given := range []struct {
		name  string
		value *int
	}{{"thinking_token_budget", f.ThinkingBudget}, {"reasoning_budget_tokens", f.ReasoningBudget}, {"thinking_budget_tokens", f.ThinkingTokens}} {
		switch {
		case given.value == nil || *given.value == -1: // not limited
		case *given.value < 0:
			return nil, fault.Invalid(given.name, "%s is %d: it must be a number of tokens, or -1 for no limit", given.name, *given.value)
		case budget != nil && *budget != *given.value:
			return nil, fault.Invalid(given.name, "%s differs from another name of the same field; give one", given.name)
		default:
			budget = given.value
		}
	}
	return budget, nil
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
