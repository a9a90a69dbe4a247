package web

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRail_GroupsByDayNotByHours(t *testing.T) {
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 11, 20, 0, 30, 0, 0, zone) // a Friday, half an hour old
	at := func(month time.Month, day, hour, minute int) time.Time {
		return time.Date(2026, month, day, hour, minute, 0, 0, zone)
	}
	for _, c := range []struct {
		name          string
		row           ConversationRow
		heading, when string
	}{
		{"a minute ago is today", ConversationRow{At: at(11, 20, 0, 29)}, "Today", "00:29"},
		{"an hour ago was yesterday", ConversationRow{At: at(11, 19, 23, 30)}, "Yesterday", "23:30"},
		{"the same moment in another zone is the same day", ConversationRow{At: at(11, 19, 23, 30).UTC()}, "Yesterday", "23:30"},
		{"two days ago has the name of its day", ConversationRow{At: at(11, 18, 12, 0)}, "Last week", "Wed"},
		{"six days ago too", ConversationRow{At: at(11, 14, 12, 0)}, "Last week", "Sat"},
		{"seven days ago that name would be today's", ConversationRow{At: at(11, 13, 12, 0)}, "Last week", "13 Nov"},
		{"eight days ago is older", ConversationRow{At: at(11, 12, 12, 0)}, "Older", "12 Nov"},
		{"last year has its year", ConversationRow{At: at(11, 12, 12, 0).AddDate(-1, 0, 0)}, "Older", "Nov 2025"},
		{"a clock that was ahead counts as today", ConversationRow{At: at(11, 21, 1, 0)}, "Today", "01:00"},
		{"a pinned chat is pinned, whatever its age", ConversationRow{At: at(1, 2, 1, 0), Pinned: true}, "Pinned", "2 Jan"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Rail{Rows: []ConversationRow{c.row}, Now: now}
			groups := r.groups(t.Context())
			if len(groups) != 1 || groups[0].title != c.heading {
				t.Errorf("got the groups %+v, want %q", groups, c.heading)
			}
			if got := r.when(t.Context(), c.row); got != c.when {
				t.Errorf("got the time %q, want %q", got, c.when)
			}
		})
	}
}

func TestRail_HeadingsKeepTheirOrder(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := Rail{Now: now, Rows: []ConversationRow{
		{ID: "old", At: now.AddDate(0, -3, 0)}, {ID: "today", At: now}, {ID: "pinned", At: now, Pinned: true}, {ID: "later", At: now},
	}}
	var got []string
	for _, g := range r.groups(t.Context()) {
		got = append(got, g.title)
		for _, row := range g.rows {
			got = append(got, row.ID)
		}
	}
	if want := "Pinned pinned Today today later Older old"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Query = "x"
	if groups := r.groups(t.Context()); len(groups) != 1 || groups[0].title != "" || len(groups[0].rows) != 4 {
		t.Errorf("what was searched for is grouped: %+v", groups)
	}
}

func TestRail_FoldersStandBetweenPinnedChatsAndDays(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := Rail{Now: now, Current: "w7", Folders: []Folder{{"Away", 3}, {"Work", 8}}, Rows: []ConversationRow{
		{ID: "pinned", At: now, Pinned: true, Folder: "Work"}, {ID: "today", At: now},
	}}
	for i := range 7 {
		r.Rows = append(r.Rows, ConversationRow{ID: fmt.Sprint("w", i+1), At: now, Folder: "Work"})
	}
	groups := func() (list []string) {
		for _, g := range r.groups(t.Context()) {
			var ids []string
			for _, row := range g.rows {
				ids = append(ids, row.ID)
			}
			list = append(list, fmt.Sprintf("%s %s +%d", g.title, strings.Join(ids, " "), g.more))
		}
		return list
	}
	want := []string{"Pinned pinned +0", "Away  +3", "Work w1 w2 w3 w4 w7 +3", "Today today +0"}
	if got := groups(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Folder = "Work"
	if got := groups(); len(got) != 1 {
		t.Errorf("a folder alone has the groups %q", got)
	}
	r.Folder, r.Later = "", true
	want = []string{"Pinned pinned +0", "Today today w1 w2 w3 w4 w5 w6 w7 +0"}
	if got := groups(); !slices.Equal(got, want) {
		t.Errorf("older chats: got %q, want %q", got, want)
	}
}

func TestRailList_WritesWhatPeopleWroteAsText(t *testing.T) {
	hostile := `"><script>pwned=1</script>`
	for name, r := range map[string]Rail{
		"a title":   {Rows: []ConversationRow{{ID: "a", Title: hostile}}},
		"a passage": {Rows: []ConversationRow{{ID: "a", Hit: []Passage{{Text: hostile}, {hostile, true}}}}, Query: "x"},
		"a query":   {Query: hostile},
		"a folder":  {Folder: hostile, Folders: []Folder{{hostile, 1}}, Rows: []ConversationRow{{ID: "a", Folder: hostile}}},
		"folders":   {Folders: []Folder{{hostile, 9}}, Rows: []ConversationRow{{ID: "a", Folder: hostile}}},
	} {
		var buf bytes.Buffer
		if err := RailList(r).Render(context.Background(), &buf); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(buf.String(), "<script>") {
			t.Errorf("%s became an element: %s", name, &buf)
		}
	}
}

func TestRail_SaysHowManyThereAre(t *testing.T) {
	rows := func(n int) []ConversationRow { return make([]ConversationRow, n) }
	for want, r := range map[string]Rail{
		"0 chats":          {},
		"1 chat":           {Rows: rows(1)},
		"200 newest chats": {Rows: rows(200), Older: "5"},
		"4 older chats":    {Rows: rows(4), Later: true},
		"1 chat in here":   {Rows: rows(1), Folder: "x"},
		"2 chats found":    {Rows: rows(2), Query: "x"},
		"3 chats archived": {Rows: rows(3), Archived: true},
	} {
		if got := r.summary(t.Context()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRail_AFolderWhoseChatsArePinnedSaysHowManyItHas(t *testing.T) {
	row := ConversationRow{ID: "a", Folder: "Poems"}
	for want, g := range map[string]conversationGroup{
		"1 chat":      {more: 1},
		"1,200 chats": {more: 1200},
		"2 more":      {more: 2, rows: []ConversationRow{row}},
	} {
		if got := g.moreText(t.Context()); got != want {
			t.Errorf("%d behind %d rows reads %q, want %q", g.more, len(g.rows), got, want)
		}
	}
}
