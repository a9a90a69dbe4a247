package store

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSearch_FindsWords(t *testing.T) {
	s := newStore(t)
	texts := []string{
		1:  "Der schnelle braune Fuchs",
		2:  "A quick brown fox jumps",
		3:  "brown is quick, said the FOX",
		4:  "Crème brûlée à la carte",
		5:  "日本語の文章です",
		6:  "ภาษาไทยไม่มีช่องว่าง",
		7:  "func parse_words(x) { return x.y[0] }",
		8:  "cat catalog log",
		9:  "nothing AND everything OR NOT NEAR",
		10: "<script>alert('x')</script> & co",
		11: "Привет, МИР",
		12: "mixed 日本 and latin",
	}
	conversation := must[Conversation](t)(s.CreateConversation(ctx, me, Metadata{ID: "x", Title: "All about foxes"}))
	number := map[int64]int{}
	for i, text := range texts {
		if i == 0 {
			continue
		}
		m := must[Message](t)(s.AddMessage(ctx, me, "x", NewMessage{Role: RoleUser, Text: text}))
		number[m.ID] = i
	}
	for _, c := range []struct {
		name, query string
		want        []int
		marked      []string // in the newest hit
	}{
		{"one word", "brown", []int{3, 2}, []string{"brown"}},
		{"in any case", "fOX", []int{3, 2}, []string{"FOX"}},
		{"all words, in any order", "quick brown ", []int{3, 2}, []string{"brown", "quick"}},
		{"the last word as a beginning", "qui", []int{3, 2}, []string{"quick"}},
		{"a beginning that a space ends", "qui ", nil, nil},
		{"a beginning within the query", "qui fox", nil, nil},
		{"a single letter is no beginning", "q", nil, nil},
		{"a word that ends another is none", "log catalo", []int{8}, []string{"catalog", "log"}},
		{"a quoted phrase", `"quick brown"`, []int{2}, []string{"quick", "brown"}},
		{"a quoted phrase and a word", `jumps "brown fox" `, []int{2}, []string{"brown", "fox", "jumps"}},
		{"an open quote", `"brown fox`, []int{2}, []string{"brown", "fox"}},
		{"without accents", "creme brulee", []int{4}, []string{"Crème", "brûlée"}},
		{"with accents of its own", "cömè", nil, nil},
		{"Cyrillic in another case", "привет мир", []int{11}, []string{"Привет", "МИР"}},
		{"Japanese inside a sentence", "文章", []int{5}, []string{"文章"}},
		{"Thai inside a sentence", "ไทย", []int{6}, []string{"ไทย"}},
		{"Japanese and Latin together", "日本 latin", []int{12}, []string{"日本", "latin"}},
		{"Japanese in two messages", "日本", []int{12, 5}, []string{"日本"}},
		{"parts of an identifier", "parse_words", []int{7}, []string{"parse", "words"}},
		{"operators are words", "AND NOT ", []int{9}, []string{"AND", "NOT"}},
		{"a word that is in no text", "zebra", nil, nil},
		{"markup is text", "<script>", []int{10}, []string{"script", "script"}},
		{"nothing", "", nil, nil},
		{"nothing but signs", ` * "" () :- ^ `, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := must[Found](t)(s.Search(ctx, me, Query{Text: c.query}))
			var got []int
			for _, h := range found.Messages {
				got = append(got, number[h.Message])
				if h.Conversation != "x" || h.Title != conversation.Title || h.Role != RoleUser {
					t.Errorf("hit %+v", h)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("found %v, want %v", got, c.want)
			}
			if len(got) == 0 {
				return
			}
			var marked []string
			sn := found.Messages[0].Snippet
			for _, m := range sn.Marks {
				marked = append(marked, sn.Text[m.Start:m.End])
			}
			if !slices.Equal(marked, c.marked) {
				t.Errorf("marked %q, want %q", marked, c.marked)
			}
		})
	}
	t.Run("titles, and only in the first page", func(t *testing.T) {
		found := must[Found](t)(s.Search(ctx, me, Query{Text: "fox"}))
		if len(found.Titles) != 1 || found.Titles[0].Conversation != "x" || found.Titles[0].Message != 0 ||
			!slices.Equal(found.Titles[0].Snippet.Marks, []Mark{{10, 15}}) {
			t.Errorf("titles %+v", found.Titles)
		}
		if next := must[Found](t)(s.Search(ctx, me, Query{Text: "fox", Before: 1 << 40})); len(next.Titles) != 0 {
			t.Errorf("titles %+v", next.Titles)
		}
	})
	t.Run("pages join without gap or repeat", func(t *testing.T) {
		var got []int
		for q := (Query{Text: "brown", Limit: 1}); ; {
			found := must[Found](t)(s.Search(ctx, me, q))
			for _, h := range found.Messages {
				got = append(got, number[h.Message])
			}
			if q.Before = found.Next; q.Before == 0 {
				break
			}
		}
		if !slices.Equal(got, []int{3, 2}) {
			t.Errorf("the pages hold %v", got)
		}
	})
}

func TestSearch_FollowsChanges(t *testing.T) {
	s := newStore(t)
	expect := func(query string, titles, messages int) {
		t.Helper()
		found := must[Found](t)(s.Search(ctx, me, Query{Text: query}))
		if len(found.Titles) != titles || len(found.Messages) != messages {
			t.Errorf("%q is found in %d titles and %d messages, want %d and %d", query, len(found.Titles), len(found.Messages), titles, messages)
		}
	}
	_, a := start(t, s, "x", "question")
	must[[]int64](t)(s.SaveProgress(ctx, []Progress{{me, "x", a.ID, "draft words", "", nil, nil}}))
	expect("draft", 0, 0)
	must[Message](t)(s.FinishAnswer(ctx, me, "x", a.ID, Finish{State: Done, Text: "final words"}))
	expect("draft", 0, 0)
	expect("final", 0, 1)
	title := "Zoology"
	must[Conversation](t)(s.UpdateConversation(ctx, me, "x", func(m *Metadata) { m.Title = title }))
	expect("about ", 0, 0)
	expect("zoology", 1, 0)
	mustDo(t, s.Erase(ctx, me, "x"))
	expect("final", 0, 0)
	expect("zoology", 0, 0)
	if detail, err := check(ctx, s.readers); detail != "" || err != nil {
		t.Errorf("the index does not fit the texts: %s %v", detail, err)
	}
}

func TestCut(t *testing.T) {
	long := strings.Repeat("lorem ipsum ", 20) + "needle" + strings.Repeat(" dolor", 60)
	wide := strings.Repeat("é", 200) + "needle" + strings.Repeat("é", 200)
	for _, c := range []struct {
		name, text    string
		marks         []Mark
		before, after bool
		marked        int
	}{
		{"a short text is whole", "a needle", []Mark{{2, 8}}, false, false, 1},
		{"a long text is cut around the mark", long, []Mark{{240, 246}}, true, true, 1},
		{"a text without marks is cut at its end", long, nil, false, true, 0},
		{"runes stay whole", wide, []Mark{{400, 406}}, true, true, 1},
		{"marks beyond the end are left out", "short", []Mark{{3, 99}, {-1, 2}, {4, 4}}, false, false, 0},
		{"of overlapping marks the first stays", "overlap", []Mark{{0, 4}, {2, 6}, {4, 7}}, false, false, 2},
		{"a text that is not UTF-8", strings.Repeat("\x80", 1000), []Mark{{500, 600}}, true, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := cut(c.text, c.marks)
			if got.CutBefore != c.before || got.CutAfter != c.after || len(got.Marks) != c.marked {
				t.Errorf("%+v", got)
			}
			if !strings.Contains(c.text, got.Text) || len(got.Text) > snippetSize || utf8.ValidString(c.text) && !utf8.ValidString(got.Text) {
				t.Errorf("the snippet is %q", got.Text)
			}
		})
	}
}

var hostileQueries = []string{
	`"`, `""`, `"""`, `*`, `"*"`, `a*b`, `-a`, `NOT`, `a NOT`, `OR OR`, `NEAR/2`, `a NEAR/99999999999 b`, `(`, `)`, `((((((((((a`, `text:a`,
	`message_search:a`, `^a`, `a^`, `'; DROP TABLE messages; --`, `' OR 1=1 --`, "a\x00b", "\x00", "\xff\xfe", `%`, `_`, `a%`, `\`, `{}`, `$1 ?1 :a @b`,
	strings.Repeat("(", 5000), strings.Repeat(`"a" `, 3000), strings.Repeat("a ", 5000), strings.Repeat("é", 600), strings.Repeat("日", 2000),
	"\u0301", "a\u0301\u0301", "\u202e\u2066", "\U000e0001", "ﷺ", "İ", "ß", "\ue000", "１２", "²", "𝟘",
}

// FuzzSearch asks for anything: it is never an error, and never breaks the store.
func FuzzSearch(f *testing.F) {
	for _, q := range hostileQueries {
		f.Add(q, "some text a b")
		f.Add("a", q)
		f.Add(q, q)
	}
	dir := f.TempDir() + "/data"
	s, err := Open(ctx, Options{Path: dir + "/chats.db", Ballast: -1})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	f.Fuzz(func(t *testing.T, query, text string) {
		text = strings.ToValidUTF8(text, "?")
		id := NewID()
		must[Conversation](t)(s.CreateConversation(ctx, me, Metadata{ID: id, Title: strings.ToValidUTF8(text[:min(len(text), maxName)], "")}))
		must[Message](t)(s.AddMessage(ctx, me, id, NewMessage{Role: RoleUser, Text: text}))
		for _, q := range []string{query, query + " ", `"` + query} {
			found := must[Found](t)(s.Search(ctx, me, Query{Text: q}))
			for _, h := range append(found.Titles, found.Messages...) {
				end := 0
				for _, m := range h.Snippet.Marks {
					if m.Start < end || m.Start >= m.End || m.End > len(h.Snippet.Text) || !utf8.ValidString(h.Snippet.Text[m.Start:m.End]) {
						t.Fatalf("query %q: marks %v in %q", q, h.Snippet.Marks, h.Snippet.Text)
					}
					end = m.End
				}
			}
		}
		mustDo(t, s.Erase(ctx, me, id))
	})
}

// TestPlans looks at how SQLite answers the queries whose cost could grow with the
// store: by an index, in its order, never by reading a table.
func TestPlans(t *testing.T) {
	s := newStore(t)
	fill(t, s, 500)
	folder := "work"
	type plan struct {
		query string
		args  []any
	}
	list := func(f Filter) plan { q, args := f.query(me); return plan{q, args} }
	word, inside := words{match: `"w1"`}, words{inside: []string{"日"}}
	plans := map[string]struct {
		plan
		index string
		scans string // the one thing that may be gone through
	}{
		"list":                 {list(Filter{}), "conversations_listed", ""},
		"list, second page":    {list(Filter{After: Cursor{true, 9}}), "conversations_listed", ""},
		"list the archive":     {list(Filter{Archived: true}), "conversations_listed", ""},
		"list a folder":        {list(Filter{Folder: &folder}), "conversations_foldered", ""},
		"list the trash":       {list(Filter{Deleted: true}), "conversations_trashed", ""},
		"search messages":      {plan{searchQuery(word, inMessages), []any{word.match, 99, me, 20}}, "f VIRTUAL TABLE INDEX", "SCAN f VIRTUAL TABLE"},
		"search titles":        {plan{searchQuery(word, inTitles), []any{word.match, 99, me, 20}}, "f VIRTUAL TABLE INDEX", "SCAN f VIRTUAL TABLE"},
		"search inside":        {plan{searchQuery(inside, inMessages), []any{99, me, "日", 20}}, "m USING INTEGER PRIMARY KEY (rowid<?)", ""},
		"search inside titles": {plan{searchQuery(inside, inTitles), []any{99, me, "日", 20}}, "c USING INTEGER PRIMARY KEY (rowid<?)", ""},
		"a page":               {plan{branchQuery, []any{0, 0, "c00001", me, 100}}, "m USING INTEGER PRIMARY KEY (rowid=?)", "SCAN branch"},
	}
	for _, statistics := range []string{"", "ANALYZE"} {
		if _, err := s.writer.db.Exec(statistics); err != nil {
			t.Fatal(err)
		}
		for name, c := range plans {
			t.Run(strings.TrimSpace(name+" "+statistics), func(t *testing.T) {
				steps := explainPlan(t, s.readers, c.query, c.args...)
				if !strings.Contains(strings.Join(steps, "\n"), c.index) {
					t.Errorf("does not use %q:\n%s", c.index, strings.Join(steps, "\n"))
				}
				for _, step := range steps {
					reads := strings.HasPrefix(step, "SCAN") && step != "SCAN CONSTANT ROW" && (c.scans == "" || !strings.HasPrefix(step, c.scans))
					sorts := strings.Contains(step, "TEMP B-TREE") && name != "a page" // of at most a page of rows
					if reads || sorts {
						t.Errorf("%s, in\n%s", step, strings.Join(steps, "\n"))
					}
				}
			})
		}
	}
}

// explainPlan returns the details of the query plan.
func explainPlan(t *testing.T, db *sql.DB, query string, args ...any) (steps []string) {
	t.Helper()
	rows, err := db.Query("EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		mustDo(t, rows.Scan(&id, &parent, &unused, &detail))
		steps = append(steps, detail)
	}
	mustDo(t, rows.Err())
	return steps
}
