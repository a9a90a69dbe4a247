package sample

import "fmt"

// Score describes a token that was not sampled, such as one of the prompt, by the
// logits that the model had for its place. There are no stages.
func Score(logits []float32, id int32, top int) (Choice, error) {
	if id < 0 || int(id) >= len(logits) {
		return Choice{}, fmt.Errorf("token %d is not in the vocabulary of %d tokens", id, len(logits))
	}
	if top < 0 {
		return Choice{}, fmt.Errorf("number of alternatives %d must not be negative", top)
	}
	model, err := softmax(logits)
	if err != nil {
		return Choice{}, err
	}
	choice := describe(logits, &model, id)
	choice.Top = likeliest(logits, &model, top, new(ranker))
	return choice, nil
}

// describe returns what the model itself says of a token.
func describe(logits []float32, model *distribution, id int32) Choice {
	return Choice{
		ID:      id,
		LogProb: model.logProb(logits[id]),
		Rank:    rank(logits, id),
		PMax:    1 / model.mass,
		Entropy: model.entropy(),
	}
}

// rank returns how many tokens precede id in canonical order.
func rank(logits []float32, id int32) (n int) {
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

// likeliest lists the first top tokens in canonical order, masked ones left out.
func likeliest(logits []float32, model *distribution, top int, r *ranker) []Candidate {
	if top == 0 {
		return nil
	}
	keys := r.best(logits, top)
	list := make([]Candidate, min(top, len(keys)))
	for i := range list {
		list[i] = Candidate{ID: keyID(keys[i]), LogProb: model.logProb(keyLogit(keys[i]))}
	}
	return list
}
