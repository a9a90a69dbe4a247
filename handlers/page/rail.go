package page

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
	"m40-llm/infer/fault"
	"m40-llm/store"
	"m40-llm/web"
)

// RailRows is how many chats the rail, the list next to the chat, shows at once; a link leads
// to older ones.
const RailRows = 200

// rail returns the list of chats that the query of a request selects: the newest, those of a
// folder (folder=NAME), those in the archive (archived=1), or those that contain words (q).
// after=CURSOR selects the next, older part of a list.
func (h *Handlers) rail(c echo.Context, current string) (web.Rail, error) {
	r := web.Rail{
		Current:  current,
		Query:    strings.TrimSpace(c.QueryParam("q")),
		Folder:   c.QueryParam("folder"),
		Archived: c.QueryParam("archived") != "",
		Later:    c.QueryParam("after") != "",
		Now:      time.Now(),
	}
	after, err := parseCursor(c.QueryParam("after"))
	if err != nil {
		return web.Rail{}, err
	}
	if r.Query != "" {
		return r, h.search(c, &r, after)
	}
	ctx, who := c.Request().Context(), principal(c)
	filter := store.Filter{Archived: r.Archived, After: after, Limit: RailRows + 1}
	if r.Folder != "" {
		filter.Folder = &r.Folder
	}
	list, err := h.Live.List.Conversations(ctx, who, filter)
	if now := h.Live.List.FolderNow(who, r.Folder); err == nil && len(list) == 0 && now != r.Folder {
		r.Folder = now // the address has a name that the folder had before
		list, err = h.Live.List.Conversations(ctx, who, filter)
	}
	if err != nil {
		return web.Rail{}, err
	}
	if len(list) > RailRows {
		list = list[:RailRows]
		r.Older = formatCursor(list[RailRows-1].Cursor())
	}
	shared, err := h.Live.Links.SharedChats(ctx, who)
	if err != nil {
		return web.Rail{}, err
	}
	for _, c := range list {
		r.Rows = append(r.Rows, web.ConversationRow{
			ID: c.ID, Title: c.Title, At: c.Updated, Live: h.Live.Running(who, c.ID), Pinned: c.Pinned, Archived: c.Archived, Shared: shared[c.ID], Folder: c.Folder,
		})
	}
	folders, err := h.Live.List.Folders(ctx, who)
	for _, f := range folders {
		r.Folders = append(r.Folders, web.Folder{Name: f.Name, Chats: f.Conversations})
	}
	return r, err
}

// search adds the chats that contain the words of the query to the rail.
func (h *Handlers) search(c echo.Context, r *web.Rail, after store.Cursor) error {
	found, err := h.Live.List.Search(c.Request().Context(), principal(c), store.Query{Text: r.Query, Before: after.Activity, Limit: RailRows / 2})
	if err != nil {
		return err
	}
	r.Rows = h.foundRows(principal(c), found)
	if found.Next != 0 {
		r.Older = formatCursor(store.Cursor{Activity: found.Next})
	}
	return nil
}

// formatCursor formats a cursor as "p12" among the pinned chats and as "12" among the others.
func formatCursor(c store.Cursor) string {
	if c.Pinned {
		return fmt.Sprintf("p%d", c.Activity)
	}
	return fmt.Sprint(c.Activity)
}

func parseCursor(text string) (c store.Cursor, err error) {
	if text == "" {
		return c, nil
	}
	number, pinned := strings.CutPrefix(text, "p")
	c.Pinned = pinned
	if c.Activity, err = strconv.ParseInt(number, 10, 64); err != nil || c.Activity < 1 {
		return c, fault.Invalid("after", "after is %q, but must be from the link to older chats", httpio.Shorten(text))
	}
	return c, nil
}

// foundRows returns one row for each chat: its title, and unless the words were found in that,
// a passage of the newest message that contains them.
func (h *Handlers) foundRows(who live.Principal, found store.Found) []web.ConversationRow {
	var rows []web.ConversationRow
	seen := map[string]bool{}
	for _, hit := range slices.Concat(found.Titles, found.Messages) {
		if seen[hit.Conversation] {
			continue
		}
		seen[hit.Conversation] = true
		row := web.ConversationRow{ID: hit.Conversation, Title: hit.Title, At: hit.Created, Live: h.Live.Running(who, hit.Conversation)}
		if hit.Message == 0 && !hit.Snippet.CutAfter {
			row.Marked = marked(hit.Snippet, 0)
		}
		if hit.Message != 0 {
			row.Hit, row.Message = passage(hit.Snippet), hit.Message
		}
		rows = append(rows, row)
	}
	return rows
}

// passage returns the part of a snippet that begins shortly before the first match, because
// the rail shows only one line of it.
func passage(s store.Snippet) []web.Passage {
	const before = 20 // bytes
	from, cut := 0, s.CutBefore
	if len(s.Marks) > 0 && s.Marks[0].Start > before {
		from = s.Marks[0].Start - before
		if i := strings.IndexByte(s.Text[from:s.Marks[0].Start], ' '); i >= 0 {
			from, cut = from+i+1, true
		} else {
			from = 0
		}
	}
	parts := marked(s, from)
	if cut {
		parts = append([]web.Passage{{Text: "… "}}, parts...)
	}
	return parts
}

// marked returns a snippet from a byte on in parts, with white space as it is in one line.
func marked(s store.Snippet, from int) (parts []web.Passage) {
	add := func(to int, found bool) {
		text := spaces.ReplaceAllString(s.Text[from:to], " ")
		if len(parts) == 0 {
			text = strings.TrimLeft(text, " ")
		}
		if from = to; text != "" {
			parts = append(parts, web.Passage{Text: text, Found: found})
		}
	}
	for _, m := range s.Marks {
		add(m.Start, false)
		add(m.End, true)
	}
	add(len(s.Text), false)
	return parts
}

var spaces = regexp.MustCompile(`\s+`)
