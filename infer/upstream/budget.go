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

// Limits of what is decoded of one event or response.
const (
	maxFew        = 1024     // elements of a list that has one for each thing that was asked for
	maxListed     = 16 << 10 // elements of a list of models, or of scores of documents
	maxTokenBytes = 4 << 10  // bytes of a token
)

// errMany is the error of a list that is too long.
var errMany = errors.New("a list has too many elements")

// few is a list of at most maxFew elements. A longer one is not decoded, since an element can take a hundred times the
// memory of its JSON.
type few[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (f *few[T]) UnmarshalJSON(data []byte) error {
	more, err := decodeList(data, maxFew, (*[]T)(f))
	if more {
		return errMany
	}
	return err
}

// listed is a list of which at most maxListed elements are decoded.
type listed[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *listed[T]) UnmarshalJSON(data []byte) error {
	_, err := decodeList(data, maxListed, (*[]T)(l))
	return err
}

// decodeList decodes the first elements of an array, at most most, and reports whether it has more. What is no array has no
// elements.
func decodeList[T any](data []byte, most int, list *[]T) (more bool, err error) {
	*list = nil
	if len(data) == 0 || data[0] != '[' {
		return false, nil
	}
	if len(data) <= 2*most { // each element has a byte and a comma
		return false, json.Unmarshal(data, list)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return false, err
	}
	for d.More() {
		if len(*list) == most {
			return true, nil
		}
		var one T
		if err := d.Decode(&one); err != nil {
			return false, err
		}
		*list = append(*list, one)
	}
	return false, nil
}
