package live

import "m40-llm/store"

// savedRows is how many rows of a running answer are saved together: they take some 70 kB.
const savedRows = 64

// tokenRows are the rows of the tokens that a run adds to an answer. It drops those that are stored,
// but the last.
type tokenRows struct {
	first int // which token of the answer list[0] is of
	list  []store.TokenRow
	done  int // leading rows of list that are stored
}

func (r *tokenRows) add(row store.TokenRow) { r.list = append(r.list, row) }

// last returns what the samplers that remove candidates got for the last token; nil if it is not known.
func (r *tokenRows) last() []byte {
	if len(r.list) == 0 {
		return nil
	}
	return CutRow(r.list[len(r.list)-1])
}

// all returns the rows that are still here.
func (r *tokenRows) all() store.TokenRows {
	return store.TokenRows{First: r.first, Rows: r.list[:len(r.list):len(r.list)]}
}

// unsaved returns the rows that are not stored, if they are at least n.
func (r *tokenRows) unsaved(n int) []store.TokenRows {
	rows := r.list[r.done:len(r.list):len(r.list)]
	if len(rows) < n {
		return nil
	}
	return []store.TokenRows{{First: r.first + r.done, Rows: rows}}
}

// saved drops rows that are stored.
func (r *tokenRows) saved(list []store.TokenRows) {
	for _, rows := range list {
		end := rows.First + len(rows.Rows) - r.first
		keep := min(end, len(r.list)-1)
		r.list, r.first, r.done = r.list[keep:], r.first+keep, end-keep
	}
}

// CutRow returns the row that the samplers that remove candidates got.
func CutRow(r store.TokenRow) []byte {
	if r.Changed != nil {
		return r.Changed
	}
	return r.Row
}
