package tokenizer

import "context"

// Pair is the token ids of a query and documents, as models that rank texts read them. Texts are data: no control token is recognised in
// them.
type Pair struct {
	t     *Tokenizer
	start []int32 // all tokens in front of the document
}

// PairWith returns the pairs of query with documents. The only error is that of ctx.
func (t *Tokenizer) PairWith(ctx context.Context, query string) (*Pair, error) {
	ids, err := t.Encode(ctx, query, Options{})
	if err != nil {
		return nil, err
	}
	p := &Pair{t: t}
	p.add(t.vocab.prefix)
	p.start = append(p.start, ids...)
	p.add(t.vocab.suffix)
	p.add(t.vocab.separator)
	return p, nil
}

// add adds a token in front of the document, unless it is -1.
func (p *Pair) add(id int32) {
	if id >= 0 {
		p.start = append(p.start, id)
	}
}

// Frame returns how many tokens of a pair are not the document's, and how many of these are after it.
func (p *Pair) Frame() (tokens, suffix int) {
	suffix = p.t.Suffixes()
	return len(p.start) + suffix, suffix
}

// Encode returns the token ids of the pair with document. The only error is that of ctx.
func (p *Pair) Encode(ctx context.Context, document string) ([]int32, error) {
	ids, err := p.t.Encode(ctx, document, Options{})
	if err != nil {
		return nil, err
	}
	all := make([]int32, 0, len(p.start)+len(ids)+1)
	all = append(append(all, p.start...), ids...)
	if p.t.Suffixes() > 0 {
		all = append(all, p.t.vocab.suffix)
	}
	return all, nil
}
