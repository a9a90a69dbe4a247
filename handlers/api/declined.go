package api

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"m40-llm/infer/fault"
)

// declinedFields change an answer where vLLM, llama-server or OpenAI serve it, and have no counterpart here: they are refused,
// unless their value turns them off.
type declinedFields struct {
	StructuredOutputs json.RawMessage `json:"structured_outputs"`
	GuidedJSON        json.RawMessage `json:"guided_json"`
	GuidedRegex       json.RawMessage `json:"guided_regex"`
	GuidedChoice      json.RawMessage `json:"guided_choice"`
	GuidedGrammar     json.RawMessage `json:"guided_grammar"`
	GrammarLazy       json.RawMessage `json:"grammar_lazy"`
	GrammarTriggers   json.RawMessage `json:"grammar_triggers"`

	StopTokens      json.RawMessage `json:"stop_token_ids"`
	IncludeStop     json.RawMessage `json:"include_stop_str_in_output"`
	MinTokens       json.RawMessage `json:"min_tokens"`
	PredictTime     json.RawMessage `json:"t_max_predict_ms"`
	Indent          json.RawMessage `json:"n_indent"`
	Repetitions     json.RawMessage `json:"repetition_detection"`
	ReasoningEnding json.RawMessage `json:"reasoning_budget_message"`

	AllowedTokens json.RawMessage `json:"allowed_token_ids"`
	BadWords      json.RawMessage `json:"bad_words"`
	BeamSearch    json.RawMessage `json:"use_beam_search"`
	AdaptiveP     json.RawMessage `json:"adaptive_target"`
	Watermark     json.RawMessage `json:"watermarking"`

	PromptScores    json.RawMessage `json:"prompt_logprobs"`
	TokenScores     json.RawMessage `json:"logprob_token_ids"`
	PostSampling    json.RawMessage `json:"post_sampling_probs"`
	ResponseFields  json.RawMessage `json:"response_fields"`
	TokenIDs        json.RawMessage `json:"return_token_ids"`
	PromptText      json.RawMessage `json:"return_prompt_text"`
	SkipSpecial     json.RawMessage `json:"skip_special_tokens"`
	WithReasoning   json.RawMessage `json:"include_reasoning"`
	ReasoningFormat json.RawMessage `json:"reasoning_format"`
	ParseCalls      json.RawMessage `json:"parse_tool_calls"`
	Echo            json.RawMessage `json:"echo"` // of chats: text completions have it

	WebSearch        json.RawMessage `json:"web_search_options"`
	Documents        json.RawMessage `json:"documents"`
	Template         json.RawMessage `json:"chat_template"`
	TruncatePrompt   json.RawMessage `json:"truncate_prompt_tokens"`
	PromptEmbeddings json.RawMessage `json:"prompt_embeds"`
	MediaSettings    json.RawMessage `json:"media_io_kwargs"`
	PictureSettings  json.RawMessage `json:"mm_processor_kwargs"`

	Priority  json.RawMessage `json:"priority"`
	Transfer  json.RawMessage `json:"kv_transfer_params"`
	Encoder   json.RawMessage `json:"ec_transfer_params"`
	Extension json.RawMessage `json:"vllm_xargs"`
	Adapters  json.RawMessage `json:"lora"`
}

// declined is a field that is refused.
type declined struct {
	name  string
	value json.RawMessage
	todo  string   // what there is instead
	off   []string // the values that turn it off; nil: those of offByDefault
}

// offByDefault are the values that turn most fields off.
var offByDefault = []string{"false", "0", "[]", "{}", `""`}

// isOff reports whether the field is absent, or turned off.
func (d *declined) isOff() bool {
	value := string(bytes.TrimSpace(d.value))
	if value == "" || value == "null" {
		return true
	}
	if d.off == nil {
		return slices.Contains(offByDefault, value)
	}
	return slices.ContainsFunc(d.off, func(off string) bool { return value == off || off == "negative" && strings.HasPrefix(value, "-") })
}

// refuse returns an error for the first field that is on.
func (f *declinedFields) refuse() error {
	const (
		form      = "response_format, json_schema and grammar say what an answer must be"
		elsewhere = "a request is answered by this server, or by an upstream that it names"
	)
	for _, field := range []declined{
		{"structured_outputs", f.StructuredOutputs, form, nil}, {"guided_json", f.GuidedJSON, form, nil}, {"guided_regex", f.GuidedRegex, form, nil}, {"guided_choice", f.GuidedChoice, form, nil}, {"guided_grammar", f.GuidedGrammar, form, nil},
		{"grammar_lazy", f.GrammarLazy, "a grammar holds from the first token on", nil},
		{"grammar_triggers", f.GrammarTriggers, "a grammar holds from the first token on", nil},

		{"stop_token_ids", f.StopTokens, "stop has texts that end an answer", nil},
		{"include_stop_str_in_output", f.IncludeStop, "an answer ends before a stop string", nil},
		{"min_tokens", f.MinTokens, "ignore_eos has an answer go on until max_tokens", nil},
		{"t_max_predict_ms", f.PredictTime, "max_tokens and stop end an answer, and closing the connection does", []string{"0", "negative"}},
		{"n_indent", f.Indent, "a grammar can say how lines begin", nil},
		{"repetition_detection", f.Repetitions, "repeat_penalty and dry_multiplier make repetitions unlikely", nil},
		{"reasoning_budget_message", f.ReasoningEnding, "where a budget ends reasoning, its end marker alone is put in", nil},

		{"allowed_token_ids", f.AllowedTokens, "logit_bias changes how likely tokens are", nil},
		{"bad_words", f.BadWords, "banned_strings has texts that an answer must not have", nil},
		{"use_beam_search", f.BeamSearch, "best_of of /v1/completions chooses among several answers", nil},
		{"adaptive_target", f.AdaptiveP, "mirostat and dynatemp_range adapt to the probabilities of the tokens before", []string{"negative"}},
		{"watermarking", f.Watermark, "answers have no watermark", nil},

		{"prompt_logprobs", f.PromptScores, "echo with logprobs of /v1/completions scores a prompt", []string{}},
		{"logprob_token_ids", f.TokenScores, "top_logprobs has the likeliest tokens", nil},
		{"post_sampling_probs", f.PostSampling, "probabilities are those that the model gives, before the samplers", nil},
		{"response_fields", f.ResponseFields, "a response has all fields", nil},
		{"return_token_ids", f.TokenIDs, "logprobs with return_tokens_as_token_ids has the ids, and return_tokens of /completion", nil},
		{"return_prompt_text", f.PromptText, "POST /apply-template has the prompt", nil},
		{"skip_special_tokens", f.SkipSpecial, "control tokens are no text; logprobs has them", []string{"true"}},
		{"include_reasoning", f.WithReasoning, "reasoning is in reasoning_content, apart from content", []string{"true"}},
		{"reasoning_format", f.ReasoningFormat, "reasoning is in reasoning_content, which is auto and deepseek", []string{`"auto"`, `"deepseek"`, `""`}},
		{"parse_tool_calls", f.ParseCalls, "without tools, no call is looked for in the text", []string{"true"}},
		{"echo", f.Echo, "/v1/completions has it", nil},

		{"web_search_options", f.WebSearch, "this server searches nothing: put what was found into a message", []string{}},
		{"documents", f.Documents, "put them into a message, or into chat_template_kwargs for a template that has a place for them", nil},
		{"chat_template", f.Template, "the model's own is used; POST /apply-template takes another one, and /v1/completions the tokens that it returns", nil},
		{"truncate_prompt_tokens", f.TruncatePrompt, "prompts are not cut; truncation of /v1/responses leaves out the oldest messages", []string{}},
		{"prompt_embeds", f.PromptEmbeddings, "prompts are text, tokens or pictures", nil},
		{"media_io_kwargs", f.MediaSettings, "detail says how large a picture is read", nil},
		{"mm_processor_kwargs", f.PictureSettings, "detail says how large a picture is read", nil},

		{"priority", f.Priority, "requests are queued fairly by person", nil},
		{"kv_transfer_params", f.Transfer, elsewhere, nil}, {"ec_transfer_params", f.Encoder, elsewhere, nil},
		{"vllm_xargs", f.Extension, "this server has no extensions of vLLM", nil},
		{"lora", f.Adapters, "models are used as they are in their files", nil},
	} {
		if !field.isOff() {
			return fault.Invalid(field.name, "%s is not supported: %s", field.name, field.todo)
		}
	}
	return nil
}
