package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Query asks for words. All of them must be there, in any order; case and accents do
// not matter. Words in double quotes are next to each other, and the last word, if
// it has two letters or more, may be a beginning, unless a space or a quote ends it.
// Nothing in the text is an operator, and no text is an error.
//
// Chinese, Japanese, Thai, Lao, Khmer and Burmese put no spaces between words, so
// words with such letters are looked for inside of texts, without an index.
type Query struct {
	Text   string
	Before int64 // only messages before this one, for the next page; 0: from the newest
	Limit  int   // default 20, at most 100
}

// Hit is a message or a title in which all words of a query are.
type Hit struct {
	Conversation string
	Title        string
	Message      int64 // 0: the words are in the title
	Role         Role
	Created      time.Time // of the message, or of the conversation
	Snippet      Snippet   // of the message, its reasoning if the words are there alone, or the title
}

// Snippet is a part of a text, as plain text. Cut says at which ends more follows.
type Snippet struct {
	Text                string
	Marks               []Mark // where words were found, in order, not overlapping
	CutBefore, CutAfter bool
}

// Mark is a range of bytes, whole runes.
type Mark struct{ Start, End int }

// Found is a page of results, newest first. Titles are in the first page only.
type Found struct {
	Titles   []Hit
	Messages []Hit
	Next     int64 // Query.Before of the next page; 0: there is none
}

// Search finds words in the titles and messages of conversations that are not in the
// trash. Answers that run are found once they end.
func (s *Store) Search(ctx context.Context, owner string, q Query) (found Found, err error) {
	w := parseWords(q.Text)
	if w.empty() {
		return Found{}, nil
	}
	count := limit(q.Limit, 20, 100)
	err = s.read(ctx, func(tx *sql.Tx) error {
		if q.Before == 0 {
			if found.Titles, err = hits(ctx, tx, w, searchQuery(w, inTitles), 1<<62, owner, count); err != nil {
				return err
			}
		}
		before := q.Before
		if before <= 0 {
			before = 1 << 62
		}
		if found.Messages, err = hits(ctx, tx, w, searchQuery(w, inMessages), before, owner, count+1); err != nil {
			return err
		}
		if len(found.Messages) > count {
			found.Messages = found.Messages[:count]
			found.Next = found.Messages[count-1].Message
		}
		return nil
	})
	return found, err
}

// place is where to search: a table, its text, its key and its index.
type place struct {
	columns string
	from    string // tables read without the index
	indexed string // and with it
	text    string
	key     string
	docid   string
	index   string
}

var inTitles = place{
	columns: `c.id, c.title, 0, '', c.created_at, c.title, ''`,
	from:    `conversations AS c NOT INDEXED`, // in the order of the key, to stop early
	indexed: `title_search AS f CROSS JOIN conversations AS c ON c.seq = f.docid`,
	text:    `c.title`,
	key:     `c.seq`,
	docid:   `f.docid`,
	index:   `title_search`,
}

var inMessages = place{
	columns: `c.id, c.title, m.id, m.role, m.created_at, m.text, m.reasoning`,
	from:    `messages AS m CROSS JOIN conversations AS c ON c.seq = m.conversation`,
	indexed: `message_search AS f CROSS JOIN messages AS m ON m.id = f.docid CROSS JOIN conversations AS c ON c.seq = m.conversation`,
	text:    `m.text || char(10) || m.reasoning`,
	key:     `m.id`,
	docid:   `f.docid`,
	index:   `message_search`,
}

// searchQuery is the statement for a query of this shape. Its arguments are those of
// hits; it is made of constants only. It goes through the documents from the newest,
// and stops when it has enough.
func searchQuery(w words, p place) string {
	from, key, offsets, match := p.from, p.key, `''`, ``
	if w.match != "" {
		from, key, offsets, match = p.indexed, p.docid, `offsets(`+p.index+`)`, p.index+` MATCH ? AND `
	}
	return `
		SELECT ` + p.columns + `, ` + offsets + `
		FROM ` + from + `
		WHERE ` + match + key + ` < ? AND c.owner = ? AND c.deleted_at IS NULL` +
		strings.Repeat(` AND instr(`+p.text+`, ?) > 0`, len(w.inside)) + `
		ORDER BY ` + key + ` DESC
		LIMIT ?`
}

func hits(ctx context.Context, tx *sql.Tx, w words, query string, before int64, owner string, count int) (list []Hit, err error) {
	var args []any
	if w.match != "" {
		args = append(args, w.match)
	}
	args = append(args, before, owner)
	for _, part := range w.inside {
		args = append(args, part)
	}
	rows, err := tx.QueryContext(ctx, query, append(args, count)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var h Hit
		var created int64
		var text, reasoning, offsets string
		if err := rows.Scan(&h.Conversation, &h.Title, &h.Message, &h.Role, &created, &text, &reasoning, &offsets); err != nil {
			return nil, err
		}
		h.Created = fromMillis(created)
		marks := append(parseOffsets(offsets, 0), w.find(text)...)
		if len(marks) == 0 && reasoning != "" {
			text, marks = reasoning, append(parseOffsets(offsets, 1), w.find(reasoning)...)
		}
		h.Snippet = cut(text, marks)
		list = append(list, h)
	}
	return list, rows.Err()
}

// Limits of a query; what goes beyond is left out.
const (
	maxQuery = 1 << 10 // bytes
	maxWords = 16
)

// words is a query in parts.
type words struct {
	match  string   // for the index: quoted phrases, all of which must match
	inside []string // looked for in the text itself
}

func (w words) empty() bool { return w.match == "" && len(w.inside) == 0 }

// parseWords makes of any text a query that the index understands: nothing but
// letters, digits and marks gets into a phrase, so there is nothing to escape.
func parseWords(text string) (w words) {
	if len(text) > maxQuery {
		text = text[:maxQuery]
	}
	text = strings.ToValidUTF8(text, " ")
	var phrases []string
	n := 0
	add := func(phrase []string, prefix bool) {
		if len(phrase) == 0 {
			return
		}
		quoted := `"` + strings.Join(phrase, " ")
		if prefix {
			quoted += "*"
		}
		phrases = append(phrases, quoted+`"`)
	}
	parts := strings.Split(text, `"`)
	last, _ := utf8.DecodeLastRuneInString(text)
	for i, part := range parts {
		var phrase []string
		fields := strings.FieldsFunc(part, func(r rune) bool { return !inWord(r) })
		for j, field := range fields {
			if n == maxWords {
				break
			}
			n++
			switch {
			case strings.ContainsFunc(field, spaceless):
				w.inside = append(w.inside, field)
			case i%2 == 1: // between quotes
				phrase = append(phrase, field)
			default:
				open := i == len(parts)-1 && j == len(fields)-1 && inWord(last)
				add([]string{field}, open && utf8.RuneCountInString(field) > 1)
			}
		}
		add(phrase, false)
	}
	w.match = strings.Join(phrases, " ")
	return w
}

// inWord says of which runes words are, as the index's tokenizer does.
func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) || unicode.Is(unicode.Co, r)
}

func spaceless(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// find returns where the parts that are not in the index are in text.
func (w words) find(text string) (marks []Mark) {
	for _, part := range w.inside {
		for from := 0; ; {
			i := strings.Index(text[from:], part)
			if i < 0 {
				break
			}
			marks = append(marks, Mark{from + i, from + i + len(part)})
			from += i + len(part)
		}
	}
	return marks
}

// parseOffsets reads what the function offsets returns of a column: four numbers for each
// match, column, term, first byte and bytes.
func parseOffsets(text string, column int) (marks []Mark) {
	numbers := strings.Fields(text)
	for ; len(numbers) >= 4; numbers = numbers[4:] {
		in, err := strconv.Atoi(numbers[0])
		start, err1 := strconv.Atoi(numbers[2])
		size, err2 := strconv.Atoi(numbers[3])
		if errors.Join(err, err1, err2) == nil && in == column {
			marks = append(marks, Mark{start, start + size})
		}
	}
	return marks
}

// A snippet shows at most this many bytes before its first mark, and in all.
const (
	snippetBefore = 60
	snippetSize   = 240
)

// cut returns the part of text around its first mark. Text and marks come from a file
// that may be damaged, so nothing is taken for granted.
func cut(text string, marks []Mark) (s Snippet) {
	marks = slices.DeleteFunc(marks, func(m Mark) bool { return m.Start < 0 || m.Start >= m.End || m.End > len(text) })
	slices.SortFunc(marks, func(a, b Mark) int {
		if a.Start != b.Start {
			return a.Start - b.Start
		}
		return b.End - a.End
	})
	from := 0
	if len(marks) > 0 && marks[0].Start > snippetBefore {
		from = nextWord(text, marks[0].Start-snippetBefore, marks[0].Start)
	}
	to := len(text)
	if to-from > snippetSize {
		to = from + snippetSize
		for to > from && !utf8.RuneStart(text[to]) {
			to--
		}
	}
	s = Snippet{Text: text[from:to], CutBefore: from > 0, CutAfter: to < len(text)}
	end := from
	for _, m := range marks {
		if m.Start >= end && m.End <= to {
			s.Marks = append(s.Marks, Mark{m.Start - from, m.End - from})
			end = m.End
		}
	}
	return s
}

// nextWord returns where after from, and not after limit, a word begins.
func nextWord(text string, from, limit int) int {
	for from < limit && !utf8.RuneStart(text[from]) {
		from++
	}
	for i, r := range text[from:limit] {
		if unicode.IsSpace(r) {
			return from + i + utf8.RuneLen(r)
		}
	}
	return from
}
