package api

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"m40-llm/infer/fault"
)

// declinedFields change an answer where vLLM, llama-server or OpenAI serve it, and have no counterpart here: they are refused,
// unless their value turns them off. The tag instead is what there is in their place; off lists the values that turn the field
// off, negative for numbers below 0, if they are not those of offByDefault.
type declinedFields struct {
	StructuredOutputs json.RawMessage `json:"structured_outputs" instead:"response_format, json_schema and grammar say what an answer must be"`
	GuidedJSON        json.RawMessage `json:"guided_json" instead:"response_format, json_schema and grammar say what an answer must be"`
	GuidedRegex       json.RawMessage `json:"guided_regex" instead:"response_format, json_schema and grammar say what an answer must be"`
	GuidedChoice      json.RawMessage `json:"guided_choice" instead:"response_format, json_schema and grammar say what an answer must be"`
	GuidedGrammar     json.RawMessage `json:"guided_grammar" instead:"response_format, json_schema and grammar say what an answer must be"`
	GrammarLazy       json.RawMessage `json:"grammar_lazy" instead:"a grammar holds from the first token on"`
	GrammarTriggers   json.RawMessage `json:"grammar_triggers" instead:"a grammar holds from the first token on"`

	StopTokens      json.RawMessage `json:"stop_token_ids" instead:"stop has texts that end an answer"`
	IncludeStop     json.RawMessage `json:"include_stop_str_in_output" instead:"an answer ends before a stop string"`
	MinTokens       json.RawMessage `json:"min_tokens" instead:"ignore_eos has an answer go on until max_tokens"`
	PredictTime     json.RawMessage `json:"t_max_predict_ms" instead:"max_tokens and stop end an answer, and closing the connection does" off:"0 negative"`
	Indent          json.RawMessage `json:"n_indent" instead:"a grammar can say how lines begin"`
	Repetitions     json.RawMessage `json:"repetition_detection" instead:"repeat_penalty and dry_multiplier make repetitions unlikely"`
	ReasoningEnding json.RawMessage `json:"reasoning_budget_message" instead:"where a budget ends reasoning, its end marker alone is put in"`

	AllowedTokens json.RawMessage `json:"allowed_token_ids" instead:"logit_bias changes how likely tokens are"`
	BadWords      json.RawMessage `json:"bad_words" instead:"banned_strings has texts that an answer must not have"`
	BeamSearch    json.RawMessage `json:"use_beam_search" instead:"best_of of /v1/completions chooses among several answers"`
	AdaptiveP     json.RawMessage `json:"adaptive_target" instead:"mirostat and dynatemp_range adapt to the probabilities of the tokens before" off:"negative"`
	Watermark     json.RawMessage `json:"watermarking" instead:"answers have no watermark"`

	PromptScores    json.RawMessage `json:"prompt_logprobs" instead:"echo with logprobs of /v1/completions scores a prompt" off:""`
	TokenScores     json.RawMessage `json:"logprob_token_ids" instead:"top_logprobs has the likeliest tokens"`
	PostSampling    json.RawMessage `json:"post_sampling_probs" instead:"probabilities are those that the model gives, before the samplers"`
	ResponseFields  json.RawMessage `json:"response_fields" instead:"a response has all fields"`
	TokenIDs        json.RawMessage `json:"return_token_ids" instead:"logprobs with return_tokens_as_token_ids has the ids, and return_tokens of /completion"`
	PromptText      json.RawMessage `json:"return_prompt_text" instead:"POST /apply-template has the prompt"`
	SkipSpecial     json.RawMessage `json:"skip_special_tokens" instead:"control tokens are no text; logprobs has them" off:"true"`
	WithReasoning   json.RawMessage `json:"include_reasoning" instead:"reasoning is in reasoning_content, apart from content" off:"true"`
	ReasoningFormat json.RawMessage `json:"reasoning_format" instead:"reasoning is in reasoning_content, which is auto and deepseek" off:"\"auto\" \"deepseek\" \"\""`
	ParseCalls      json.RawMessage `json:"parse_tool_calls" instead:"without tools, no call is looked for in the text" off:"true"`
	Echo            json.RawMessage `json:"echo" instead:"/v1/completions has it"` // of chats: text completions have it

	WebSearch        json.RawMessage `json:"web_search_options" instead:"this server searches nothing: put what was found into a message" off:""`
	Documents        json.RawMessage `json:"documents" instead:"put them into a message, or into chat_template_kwargs for a template that has a place for them"`
	Template         json.RawMessage `json:"chat_template" instead:"the model's own is used; POST /apply-template takes another one, and /v1/completions the tokens that it returns"`
	TruncatePrompt   json.RawMessage `json:"truncate_prompt_tokens" instead:"prompts are not cut; truncation of /v1/responses leaves out the oldest messages" off:""`
	PromptEmbeddings json.RawMessage `json:"prompt_embeds" instead:"prompts are text, tokens or pictures"`
	MediaSettings    json.RawMessage `json:"media_io_kwargs" instead:"detail says how large a picture is read"`
	PictureSettings  json.RawMessage `json:"mm_processor_kwargs" instead:"detail says how large a picture is read"`

	Priority  json.RawMessage `json:"priority" instead:"requests are queued fairly by person"`
	Transfer  json.RawMessage `json:"kv_transfer_params" instead:"a request is answered by this server, or by an upstream that it names"`
	Encoder   json.RawMessage `json:"ec_transfer_params" instead:"a request is answered by this server, or by an upstream that it names"`
	Extension json.RawMessage `json:"vllm_xargs" instead:"this server has no extensions of vLLM"`
	Adapters  json.RawMessage `json:"lora" instead:"models are used as they are in their files"`
}

// offByDefault are the values that turn most fields off.
const offByDefault = `false 0 [] {} ""`

// refuse returns an error for the first field that is on.
func (f *declinedFields) refuse() error {
	for field, value := range reflect.ValueOf(f).Elem().Fields() {
		if name := field.Tag.Get("json"); !isOff(field.Tag, value.Bytes()) {
			return fault.Invalid(name, "%s is not supported: %s", name, field.Tag.Get("instead"))
		}
	}
	return nil
}

// isOff reports whether a declined field is absent, or has a value that turns it off.
func isOff(tag reflect.StructTag, raw json.RawMessage) bool {
	value := string(bytes.TrimSpace(raw))
	off, special := tag.Lookup("off")
	if !special {
		off = offByDefault
	}
	list := strings.Fields(off)
	return value == "" || value == "null" || slices.Contains(list, value) || slices.Contains(list, "negative") && strings.HasPrefix(value, "-")
}
