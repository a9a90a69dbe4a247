package web

import (
	"time"
)

// Rail is the list of chats. It is part of the page, and comes again on its own
// from GET /rail when a chat has changed or the reader searches.
type Rail struct {
	Current  string            // id of the chat shown, if it is one
	Query    string            // what titles and texts were searched for
	Archived bool              // these are the archived chats
	Rows     []ConversationRow // the newest first
	More     bool              // there are older ones than these
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
	Hit      string // the passage that the query was found in; empty: the title, or no query
}

// conversationGroup is what a heading stands above.
type conversationGroup struct {
	title string
	rows  []ConversationRow
}

// groups puts the rows under headings: the pinned ones, then by day. What was
// searched for and what was put away is one list.
func (r Rail) groups() []conversationGroup {
	if r.Query != "" || r.Archived {
		return []conversationGroup{{rows: r.Rows}}
	}
	headings := []string{"Pinned", "Today", "Yesterday", "Last week", "Older"}
	rows := make(map[string][]ConversationRow, len(headings))
	for _, row := range r.Rows {
		heading := r.heading(row)
		rows[heading] = append(rows[heading], row)
	}
	var out []conversationGroup
	for _, heading := range headings {
		if len(rows[heading]) > 0 {
			out = append(out, conversationGroup{heading, rows[heading]})
		}
	}
	return out
}

func (r Rail) heading(row ConversationRow) string {
	switch days := r.daysAgo(row.At); {
	case row.Pinned:
		return "Pinned"
	case days <= 0:
		return "Today"
	case days == 1:
		return "Yesterday"
	case days <= 7:
		return "Last week"
	}
	return "Older"
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
func (r Rail) when(row ConversationRow) string {
	at := row.At.In(r.Now.Location())
	switch days := r.daysAgo(at); {
	case days <= 1:
		return at.Format("15:04")
	case days < 7:
		return at.Format("Mon")
	case at.Year() == r.Now.Year():
		return at.Format("2 Jan")
	}
	return at.Format("Jan 2006")
}

// summary is the line under the list.
func (r Rail) summary() string {
	noun := " chats"
	if len(r.Rows) == 1 {
		noun = " chat"
	}
	switch {
	case r.Query != "":
		noun += " found"
	case r.Archived:
		noun += " archived"
	}
	if r.More {
		noun = " newest" + noun
	}
	return thousands(len(r.Rows)) + noun
}
