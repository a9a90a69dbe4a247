package web

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	"m40-llm/web/lang"
)

// Rail is the list of chats. It is part of the page, and GET /rail returns it alone when a chat
// has changed or the reader searches.
type Rail struct {
	Current  string            // id of the chat shown, if it is one
	Query    string            // what titles and texts were searched for
	Folder   string            // these are the chats of this folder
	Archived bool              // these are the archived chats
	Later    bool              // there are newer ones than these
	Rows     []ConversationRow // the newest first
	Older    string            // place from which older ones follow; empty: there are none
	Folders  []Folder          // all there are, by name
	Now      time.Time
}

// ConversationRow is one chat of the rail.
type ConversationRow struct {
	ID       string
	Title    string
	At       time.Time // of its last message
	Live     bool      // an answer is being written
	Pinned   bool
	Archived bool
	Shared   bool      // somebody has a link to it
	Folder   string    // empty: none
	Marked   []Passage // the title in parts, if the query was found in it
	Hit      []Passage // what the query was found in; empty: the title, or no query
	Message  int64     // that it is from
}

// Passage is a part of a text that was searched.
type Passage struct {
	Text  string
	Found bool // it is what was searched for
}

// title returns the title in parts.
func (r ConversationRow) title() []Passage {
	if len(r.Marked) > 0 {
		return r.Marked
	}
	return []Passage{{Text: r.Title}}
}

// Folder is a name that chats share.
type Folder struct {
	Name  string
	Chats int
}

// conversationGroup is a heading and the chats below it.
type conversationGroup struct {
	day   bool // it is one of the days, which depend on the zone
	title string
	icon  string
	view  string // query of the list with all rows of a folder
	more  int    // rows that are only there
	rows  []ConversationRow
}

// moreText speaks of more only where some are shown: those of a folder may all be pinned.
func (g conversationGroup) moreText(ctx context.Context) string {
	if len(g.rows) > 0 {
		return lang.T(ctx, "%s more", lang.Count(ctx, g.more))
	}
	return lang.N(ctx, g.more, "%s chat", "%s chats", lang.Count(ctx, g.more))
}

func (g conversationGroup) moreLabel(ctx context.Context) string {
	return lang.T(ctx, "%s in “%s”", g.moreText(ctx), g.title)
}

// folderRows is how many chats of a folder are among the others.
const folderRows = 5

// groups puts the rows under headings: the pinned ones, then by folder, then by day.
// What was searched for, what was put away and what is in one folder is one list.
func (r Rail) groups(ctx context.Context) []conversationGroup {
	if r.Query != "" || r.Archived || r.Folder != "" {
		return []conversationGroup{{rows: r.Rows}}
	}
	rows := map[string][]ConversationRow{}
	foldered := map[string][]ConversationRow{}
	for _, row := range r.Rows {
		if row.Folder != "" && !row.Pinned && !r.Later {
			foldered[row.Folder] = append(foldered[row.Folder], row)
			continue
		}
		heading := r.heading(row)
		rows[heading] = append(rows[heading], row)
	}
	var out []conversationGroup
	add := func(icon string, headings ...string) {
		for _, heading := range headings {
			if len(rows[heading]) > 0 {
				out = append(out, conversationGroup{title: lang.T(ctx, heading), icon: icon, rows: rows[heading]})
			}
		}
	}
	add("tack", lang.Key("Pinned"))
	if !r.Later {
		for _, f := range r.Folders {
			shown := r.newest(foldered[f.Name])
			out = append(out, conversationGroup{title: f.Name, icon: "folder", view: folderView(f.Name), more: f.Chats - len(shown), rows: shown})
		}
	}
	days := len(out)
	add("", lang.Key("Today"), lang.Key("Yesterday"), lang.Key("Last week"), lang.Key("Older"))
	for i := range out[days:] {
		out[days+i].day = true
	}
	return out
}

// newest returns the first rows of a folder, and the chat that is open.
func (r Rail) newest(rows []ConversationRow) []ConversationRow {
	if len(rows) <= folderRows {
		return rows
	}
	for _, row := range rows[folderRows:] {
		if row.ID == r.Current {
			return append(rows[:folderRows-1:folderRows-1], row)
		}
	}
	return rows[:folderRows]
}

// FolderAddress is the page with the list of a folder's chats.
func FolderAddress(name string) string { return "/?" + folderView(name) }

func folderView(name string) string { return url.Values{"folder": {name}}.Encode() }

// recent returns the three chats that were used last; none of a part of the list.
func (r Rail) recent() []ConversationRow {
	if r.view() != "" || r.Query != "" || r.Later {
		return nil
	}
	rows := slices.SortedStableFunc(slices.Values(r.Rows), func(a, b ConversationRow) int { return b.At.Compare(a.At) })
	return rows[:min(3, len(rows))]
}

// view is the query that asks for this list, without what was searched for.
func (r Rail) view() string {
	switch {
	case r.Query != "":
		return ""
	case r.Archived:
		return "archived=1"
	case r.Folder != "":
		return folderView(r.Folder)
	}
	return ""
}

// olderView is the query that asks for the chats that follow these.
func (r Rail) olderView() string {
	v, _ := url.ParseQuery(r.view()) // of our own making
	if r.Query != "" {
		v.Set("q", r.Query)
	}
	v.Set("after", r.Older)
	return v.Encode()
}

// address leads to a chat. From a search it leads to the message that was found, and the
// page there has the same list.
func (r Rail) address(row ConversationRow) string {
	address := "/c/" + row.ID
	if r.Query == "" {
		return address
	}
	v := url.Values{"q": {r.Query}}
	if row.Message == 0 {
		return address + "?" + v.Encode()
	}
	v.Set("at", strconv.FormatInt(row.Message, 10))
	return address + "?" + v.Encode() + "#" + Turn{ID: row.Message}.anchor()
}

func (r Rail) heading(row ConversationRow) string {
	switch days := r.daysAgo(row.At); {
	case row.Pinned:
		return lang.Key("Pinned")
	case days <= 0:
		return lang.Key("Today")
	case days == 1:
		return lang.Key("Yesterday")
	case days <= 7:
		return lang.Key("Last week")
	}
	return lang.Key("Older")
}

// daysAgo counts midnights between at and now, which is not the same as hours: a
// day on which the clocks change has 23 or 25.
func (r Rail) daysAgo(at time.Time) int {
	midnight := func(t time.Time) time.Time {
		t = t.In(r.Now.Location())
		return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	}
	return int(midnight(r.Now).Sub(midnight(at)) / (24 * time.Hour))
}

// when says when a chat was last used, as short as its age allows.
func (r Rail) when(ctx context.Context, row ConversationRow) string {
	at := row.At.In(r.Now.Location())
	switch days := r.daysAgo(at); {
	case days <= 1:
		return at.Format("15:04")
	case days < 7:
		return lang.Date(ctx, at, "Mon")
	case at.Year() == r.Now.Year():
		return lang.Date(ctx, at, "2 Jan")
	}
	return lang.Date(ctx, at, "Jan 2006")
}

// summary is the line under the list.
func (r Rail) summary(ctx context.Context) string {
	n := len(r.Rows)
	count := lang.Count(ctx, n)
	switch {
	case r.Later:
		return lang.N(ctx, n, "%s older chat", "%s older chats", count)
	case r.Query != "" && r.Older != "":
		return lang.N(ctx, n, "%s newest chat found", "%s newest chats found", count)
	case r.Query != "":
		return lang.N(ctx, n, "%s chat found", "%s chats found", count)
	case r.Archived && r.Older != "":
		return lang.N(ctx, n, "%s newest chat archived", "%s newest chats archived", count)
	case r.Archived:
		return lang.N(ctx, n, "%s chat archived", "%s chats archived", count)
	case r.Folder != "" && r.Older != "":
		return lang.N(ctx, n, "%s newest chat in here", "%s newest chats in here", count)
	case r.Folder != "":
		return lang.N(ctx, n, "%s chat in here", "%s chats in here", count)
	case r.Older != "":
		return lang.N(ctx, n, "%s newest chat", "%s newest chats", count)
	}
	return lang.N(ctx, n, "%s chat", "%s chats", count)
}
