package infer

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
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
		return fault.Invalid("messages", "the request has no input: give messages, a prompt or tokens")
	case inputs > 1:
		return fault.Invalid("messages", "the request has %d inputs: give only one of messages, prompt and tokens", inputs)
	case r.Continue && (len(r.Messages) == 0 || r.Messages[len(r.Messages)-1].Role != "assistant"):
		return fault.Invalid("continue", "continue is set, but the last message is not an assistant's")
	case len(r.ContinuedTokens) > 0 && !r.Continue:
		return fault.Invalid("begun", "begun has the tokens of a message that is continued, but continue is not set")
	case errors.As(err, &field):
		return fault.Invalid(field.Field, "%s", field)
	case err != nil:
		return fault.Invalid("params", "%s", err)
	case r.MaxTokens < -1:
		return fault.Invalid("max_tokens", "max_tokens is %d: must be 0 or more, or -1 for as many as fit", r.MaxTokens)
	case r.ReasoningBudget != nil && *r.ReasoningBudget < 0:
		return fault.Invalid("reasoning_budget", "reasoning_budget is %d: must be 0 or more tokens", *r.ReasoningBudget)
	case r.Alternatives < 0 || r.Alternatives > maxAlternatives:
		return fault.Invalid("alternatives", "alternatives is %d: must be from 0 to %d", r.Alternatives, maxAlternatives)
	case r.PromptLogProb && r.Alternatives > maxScoredTops:
		return fault.Invalid("alternatives", "alternatives is %d: must be from 0 to %d with prompt_logprob", r.Alternatives, maxScoredTops)
	case r.RowFile != nil && (r.RowFile.Path == "" || r.Against == "" || r.AgainstDevice != ""):
		return fault.Invalid("row_file", "row_file needs a path and against, and no against_device")
	case r.Against != "" && (!r.PromptLogProb || r.MaxTokens != 0):
		return fault.Invalid("against", "a prompt is compared with against only if prompt_logprob is set and max_tokens is 0")
	case len(r.Answered) > 0 && (len(r.Tokens) > 0 || r.Against != "" || r.ParseReply || r.Grammar != "" || len(orNone(r.JSONSchema)) > 0 || r.ForcesCall()):
		return fault.Invalid("answered", "answered has the tokens of an answer to messages or a prompt: leave out tokens, against, parse_reply, and what constrains the answer")
	case r.AgainstDevice != "" && (r.Against == "" || r.AgainstDevice != "cpu"):
		return fault.Invalid("against_device", "against_device is %q: must be cpu, with against, or empty", r.AgainstDevice)
	case len(r.Follow) > maxAlternatives:
		return fault.Invalid("follow", "follow has %d tokens: give at most %d", len(r.Follow), maxAlternatives)
	case slices.ContainsFunc(r.Unset, func(name string) bool { return !slices.Contains(sample.SuggestionNames(), name) }):
		return fault.Invalid("unset", "unset has a name that is none of the settings %s", strings.Join(sample.SuggestionNames(), ", "))
	case len(r.BannedEnds) > maxBannedEnds || slices.ContainsFunc(r.BannedEnds, func(at int) bool { return at < 0 }):
		return fault.Invalid("banned_ends", "banned_ends must have at most %d places in the answer, each 0 or more", maxBannedEnds)
	case len(r.Stop) > maxStops:
		return fault.Invalid("stop", "there are %d stop strings: give at most %d", len(r.Stop), maxStops)
	}
	if err := r.validatePictures(); err != nil {
		return err
	}
	r.Tools = orNone(r.Tools)
	if err := r.validateForm(); err != nil {
		return err
	}
	for i, stop := range r.Stop {
		if stop == "" || len(stop) > maxStopBytes {
			return fault.Invalid("stop", "stop string %d has %d bytes: must be from 1 to %d", i+1, len(stop), maxStopBytes)
		}
	}
	return r.validateBanned()
}

// validatePictures checks the pictures of the input, and the part of one that is left out.
func (r *Request) validatePictures() error {
	pictures, field := r.AllPictures()
	if len(pictures) > maxPictures {
		return fault.Invalid(field, "the request has more than %d pictures: leave out some", maxPictures)
	}
	if len(r.Pictures) > 0 && r.Prompt == "" {
		return fault.Invalid("pictures", "pictures are those of prompt, which is empty: those of messages are in the messages")
	}
	if n := strings.Count(r.Prompt, chat.PictureMark); len(r.Pictures) > 0 && n != len(r.Pictures) {
		return fault.Invalid("prompt", "prompt has %d pictures and %d marks (U+FFFC) of where they stand", len(r.Pictures), n)
	}
	for i, m := range r.Messages {
		if n := strings.Count(m.Content, chat.PictureMark); len(m.Pictures) > 0 && n != len(m.Pictures) {
			return fault.Invalid("messages", "message %d has %d pictures and %d marks (U+FFFC) of where they stand", i+1, len(m.Pictures), n)
		}
		if len(m.Details) > 0 && len(m.Details) != len(m.Pictures) {
			return fault.Invalid("messages", "message %d has %d pictures and %d details: give one for each, or none", i+1, len(m.Pictures), len(m.Details))
		}
		for _, d := range m.Details {
			if !d.IsKnown() {
				return fault.Invalid("messages", "message %d has the detail %q of a picture: must be %s, %s or empty", i+1, d, chat.Low, chat.Medium)
			}
		}
	}
	if p := r.LeftOut; p != nil && (p.Picture < 0 || p.Picture >= len(pictures)) {
		return fault.Invalid("left_out", "left_out names picture %d, and the request has %d: give a number from 0", p.Picture, len(pictures))
	}
	if p := r.LeftOut; p != nil && (p.X < 0 || p.Y < 0 || p.Width < 1 || p.Height < 1) {
		return fault.Invalid("left_out", "left_out has %d x %d pixels at %d, %d: give a part inside the picture", p.Width, p.Height, p.X, p.Y)
	}
	return nil
}

// validateForm checks the combination of fields that constrain the answer. Errors in a grammar or
// schema itself are found when it is compiled.
func (r *Request) validateForm() error {
	if string(r.JSONSchema) == "null" {
		r.JSONSchema = nil
	}
	switch {
	case r.Grammar != "" && len(r.JSONSchema) > 0:
		return fault.Invalid("grammar", "give only one of grammar and json_schema")
	case r.IgnoreEOS && (r.Grammar != "" || len(r.JSONSchema) > 0):
		return fault.Invalid("ignore_eos", "ignore_eos has no meaning with a grammar or json_schema, which says where the answer ends")
	case r.ForcesCall() && r.Grammar != "":
		return fault.Invalid("tool_choice", "tool_choice asks for a call, which cannot be constrained by a grammar too")
	case r.ForcesCall() && r.IgnoreEOS:
		return fault.Invalid("ignore_eos", "ignore_eos has no meaning where tool_choice asks for a call")
	case r.ForcesCall() && len(r.Tools) == 0:
		return fault.Invalid("tool_choice", "tool_choice asks for a call, but there are no tools")
	case r.ForcesCall() && r.Continue:
		return fault.Invalid("tool_choice", "tool_choice cannot ask for a call in a message that is continued")
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
		return fault.Invalid("banned_strings", "there are %d banned strings: give at most %d", n, maxBanned)
	}
	total := 0
	for i, text := range r.BannedStrings {
		if text == "" || len(text) > maxBannedBytes {
			return fault.Invalid("banned_strings", "banned string %d has %d bytes: must be from 1 to %d", i+1, len(text), maxBannedBytes)
		}
		total += len(text)
	}
	if total > maxBannedTotal {
		return fault.Invalid("banned_strings", "the banned strings have %d bytes together: give at most %d", total, maxBannedTotal)
	}
	return nil
}
