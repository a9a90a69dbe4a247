package infer

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"m40-llm/infer/chat"
	"m40-llm/infer/sample"
)

// Limits of a request, far above any reasonable use.
const (
	maxAlternatives = 256
	maxScoredTops   = 100 // alternatives if the prompt is scored too, because all its tokens are sent at once
	maxStops        = 64
	maxPictures     = 256
	maxStopBytes    = 1024
	maxBanned       = 512
	maxBannedBytes  = 256      // of one banned string
	maxBannedTotal  = 16 << 10 // of all
	maxBannedEnds   = 1000
)

// Validate returns an error that names the first field that is invalid for every model. It normalises
// empty lists and null.
func (r *Request) Validate() error {
	inputs := 0
	for _, given := range []bool{len(r.Messages) > 0, r.Prompt != "", len(r.Tokens) > 0} {
		if given {
			inputs++
		}
	}
	var field *sample.FieldError
	switch err := r.Params.Validate(); {
	case inputs == 0:
		return Invalid("messages", "the request has no input: give messages, a prompt or tokens")
	case inputs > 1:
		return Invalid("messages", "the request has %d inputs: give only one of messages, prompt and tokens", inputs)
	case r.Continue && (len(r.Messages) == 0 || r.Messages[len(r.Messages)-1].Role != "assistant"):
		return Invalid("continue", "continue is set, but the last message is not an assistant's")
	case len(r.Begun) > 0 && !r.Continue:
		return Invalid("begun", "begun has the tokens of a message that is continued, but continue is not set")
	case errors.As(err, &field):
		return Invalid(field.Field, "%s", field)
	case err != nil:
		return Invalid("params", "%s", err)
	case r.MaxTokens < -1:
		return Invalid("max_tokens", "max_tokens is %d: must be 0 or more, or -1 for as many as fit", r.MaxTokens)
	case r.Alternatives < 0 || r.Alternatives > maxAlternatives:
		return Invalid("alternatives", "alternatives is %d: must be from 0 to %d", r.Alternatives, maxAlternatives)
	case r.PromptLogProb && r.Alternatives > maxScoredTops:
		return Invalid("alternatives", "alternatives is %d: must be from 0 to %d with prompt_logprob", r.Alternatives, maxScoredTops)
	case r.Against != "" && (!r.PromptLogProb || r.MaxTokens != 0):
		return Invalid("against", "a prompt is compared with against only if prompt_logprob is set and max_tokens is 0")
	case r.AgainstDevice != "" && (r.Against == "" || r.AgainstDevice != "cpu"):
		return Invalid("against_device", "against_device is %q: must be cpu, with against, or empty", r.AgainstDevice)
	case len(r.Follow) > maxAlternatives:
		return Invalid("follow", "follow has %d tokens: give at most %d", len(r.Follow), maxAlternatives)
	case slices.ContainsFunc(r.Unset, func(name string) bool { return !slices.Contains(sample.SuggestionNames(), name) }):
		return Invalid("unset", "unset has a name that is none of the settings %s", strings.Join(sample.SuggestionNames(), ", "))
	case len(r.BannedEnds) > maxBannedEnds || slices.ContainsFunc(r.BannedEnds, func(at int) bool { return at < 0 }):
		return Invalid("banned_ends", "banned_ends must have at most %d places in the answer, each 0 or more", maxBannedEnds)
	case len(r.Stop) > maxStops:
		return Invalid("stop", "there are %d stop strings: give at most %d", len(r.Stop), maxStops)
	}
	pictures := 0
	for i, m := range r.Messages {
		if pictures += len(m.Pictures); pictures > maxPictures {
			return Invalid("messages", "the messages have more than %d pictures: leave out some", maxPictures)
		}
		if n := strings.Count(m.Content, chat.PictureMark); len(m.Pictures) > 0 && n != len(m.Pictures) {
			return Invalid("messages", "message %d has %d pictures and %d marks (U+FFFC) of where they stand", i+1, len(m.Pictures), n)
		}
	}
	r.Tools = orNone(r.Tools)
	if err := r.validateForm(); err != nil {
		return err
	}
	for i, stop := range r.Stop {
		if stop == "" || len(stop) > maxStopBytes {
			return Invalid("stop", "stop string %d has %d bytes: must be from 1 to %d", i+1, len(stop), maxStopBytes)
		}
	}
	return r.validateBanned()
}

// validateForm checks the combination of fields that constrain the answer. Errors in a grammar or
// schema itself are found when it is compiled.
func (r *Request) validateForm() error {
	if string(r.JSONSchema) == "null" {
		r.JSONSchema = nil
	}
	switch {
	case r.Grammar != "" && len(r.JSONSchema) > 0:
		return Invalid("grammar", "give only one of grammar and json_schema")
	case r.IgnoreEOS && (r.Grammar != "" || len(r.JSONSchema) > 0):
		return Invalid("ignore_eos", "ignore_eos has no meaning with a grammar or json_schema, which says where the answer ends")
	case r.ForcesCall() && r.Grammar != "":
		return Invalid("tool_choice", "tool_choice asks for a call, which cannot be constrained by a grammar too")
	case r.ForcesCall() && r.IgnoreEOS:
		return Invalid("ignore_eos", "ignore_eos has no meaning where tool_choice asks for a call")
	case r.ForcesCall() && len(r.Tools) == 0:
		return Invalid("tool_choice", "tool_choice asks for a call, but there are no tools")
	case r.ForcesCall() && r.Continue:
		return Invalid("tool_choice", "tool_choice cannot ask for a call in a message that is continued")
	}
	return nil
}

// orNone returns raw, or nil if it is null or an empty array.
func orNone(raw json.RawMessage) json.RawMessage {
	var elements []json.RawMessage
	if json.Unmarshal(raw, &elements) == nil && len(elements) == 0 {
		return nil
	}
	return raw
}

func (r *Request) validateBanned() error {
	if n := len(r.BannedStrings); n > maxBanned {
		return Invalid("banned_strings", "there are %d banned strings: give at most %d", n, maxBanned)
	}
	total := 0
	for i, text := range r.BannedStrings {
		if text == "" || len(text) > maxBannedBytes {
			return Invalid("banned_strings", "banned string %d has %d bytes: must be from 1 to %d", i+1, len(text), maxBannedBytes)
		}
		total += len(text)
	}
	if total > maxBannedTotal {
		return Invalid("banned_strings", "the banned strings have %d bytes together: give at most %d", total, maxBannedTotal)
	}
	return nil
}
