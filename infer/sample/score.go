package sample

import "fmt"

// Score describes a token that was not sampled, such as one of the prompt. r is the model's
// row for its position, vocab the size of the vocabulary. The Choice has no stages; with store it has
// the row as ParseRow reads it.
func Score(r Row, vocab int, id int32, top int, store bool) (Choice, error) {
	if id < 0 || int(id) >= vocab {
		return Choice{}, fmt.Errorf("token %d is not in the vocabulary of %d tokens", id, vocab)
	}
	if top < 0 {
		return Choice{}, fmt.Errorf("number of alternatives %d is negative", top)
	}
	var t table
	model, err := t.open(r, vocab)
	if err != nil {
		return Choice{}, err
	}
	ranks := new(ranker)
	c, err := t.describe(&model, id, top, ranks)
	if store && err == nil {
		c.Row, err = t.appendRow(nil, model, StoredCandidates, ranks), t.err
	}
	return c, err
}

// describe returns the Choice of a token, with the top likeliest tokens and without stages.
func (t *table) describe(model *distribution, id int32, top int, r *ranker) (Choice, error) {
	logit, rank := t.find(id)
	choice := Choice{
		ID:      id,
		LogProb: model.logProb(logit),
		Rank:    rank,
		PMax:    1 / model.mass,
		Entropy: model.entropy(),
	}
	if top > 0 {
		keys := t.best(top, r)
		choice.Top = make([]Candidate, min(top, len(keys)))
		for i := range choice.Top {
			choice.Top[i] = Candidate{ID: keyID(keys[i]), LogProb: model.logProb(keyLogit(keys[i]))}
		}
	}
	return choice, t.err
}

// find returns the logit of a token and its rank.
func (t *table) find(id int32) (logit float32, rank int) {
	if t.logits == nil {
		for i, key := range t.keys {
			if keyID(key) == id {
				return keyLogit(key), i
			}
		}
	}
	if t.all() == nil {
		return 0, 0
	}
	return t.logits[id], rankOf(t.logits, id)
}

// rankOf returns how many tokens precede id in canonical order.
func rankOf(logits []float32, id int32) (n int) {
	own := logits[id]
	for _, logit := range logits[:id] {
		if logit >= own {
			n++
		}
	}
	for _, logit := range logits[id+1:] {
		if logit > own {
			n++
		}
	}
	return n
}
