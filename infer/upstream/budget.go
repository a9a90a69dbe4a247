package upstream

import (
	"bytes"
	"encoding/json"
	"errors"

	"m40-llm/infer"
)

// What an answer of a server may cost, in bytes: what it sends, and what becomes of it here.
const (
	baseBudget  = 64 << 20 // text, reasoning and calls, as JSON may write them
	mostBudget  = 1 << 30
	perToken    = 512 // an event, and the JSON around it
	perTop      = 256 // an alternative
	perFollowed = 256 // what is reported of a token that is followed
	perRow      = 4 * maxRow
	longContext = 1 << 17 // tokens, if the context is not known
)

// budget returns what the answer to r may cost. context is that of the model, or 0.
func budget(r *infer.Request, context int) int {
	if context <= 0 {
		context = longContext
	}
	tokens := context
	if r.MaxTokens >= 0 && !r.PromptLogProb {
		tokens = min(tokens, r.MaxTokens)
	}
	each := perToken + perTop*r.Alternatives + perFollowed*len(r.Follow)
	if r.Rows {
		each += perRow
	}
	return min(mostBudget, baseBudget+tokens*each)
}

// Limits of what is decoded of one event.
const (
	maxScored     = 1024    // tokens with their probabilities
	maxTokenBytes = 4 << 10 // bytes of a token
)

// errManyTokens is the error of a list of tokens that is too long.
var errManyTokens = errors.New("an event has too many tokens")

// few is a list of at most maxScored elements, the rest of which is not decoded.
type few[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (f *few[T]) UnmarshalJSON(data []byte) error {
	list := json.NewDecoder(bytes.NewReader(data))
	if first, err := list.Token(); err != nil || first != json.Delim('[') {
		return err // null, or no list: it has no elements
	}
	for list.More() {
		if len(*f) == maxScored {
			return errManyTokens
		}
		var one T
		if err := list.Decode(&one); err != nil {
			return err
		}
		*f = append(*f, one)
	}
	return nil
}
