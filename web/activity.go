package web

import (
	"context"
	"strconv"

	"m40-llm/web/lang"
)

// Activity is the page of the answers that are being generated or wait.
type Activity struct {
	Engine  Engine
	Answers []ActiveAnswer // oldest first
	Others  string         // what people do whose answers are not listed: "2 answers being written"; empty: nothing
	Manages bool           // the viewer is the owner of the server
}

// rest returns the line below the list; empty: there is nothing to add.
func (a Activity) rest(ctx context.Context) string {
	switch {
	case a.Others != "":
		return lang.T(ctx, "Somebody else: %s.", a.Others)
	case len(a.Answers) == 0:
		return lang.T(ctx, "Nothing is being written just now.")
	}
	return ""
}

// ActiveAnswer is an answer that is being generated or waits.
type ActiveAnswer struct {
	ID    int64
	Who   string // name of the person, or "You"
	Own   bool   // it is the viewer's
	Kind  string // "chat", "program with the key “script”"
	Chat  string // id of the viewer's chat; empty: none, or another's
	State string // waiting, reading or writing
	Facts string // "writes · 120 tokens · 31.2 tok/s · for 12 s · guide"
}

func (a ActiveAnswer) id() string { return strconv.FormatInt(a.ID, 10) }

func (a ActiveAnswer) stopLabel(ctx context.Context) string {
	if a.Own {
		return lang.T(ctx, "Stop your answer")
	}
	return lang.T(ctx, "Stop the answer of %s", a.Who)
}
