package failure_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

func TestEveryErrorHasOneDescriptionForProgramsAndPeople(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		code    fault.Code
		status  int
		message string // for programs
		title   string
		text    string // for people
	}{
		{"an answer is running", &owned.Conflict{Command: "edit", State: string(live.Writing)}, "conflict", 409,
			"cannot edit while an answer is being written; stop it first", "Not while an answer is being written", "Cannot edit while an answer is being written; stop it first."},
		{"no answer is running", &owned.Conflict{Command: "stop", State: owned.Idle}, "conflict", 409,
			"cannot stop: no answer is being written", "No answer is being written", "Cannot stop: no answer is being written."},
		{"a chat is gone", owned.ErrNotFound, "chat_not_found", 404,
			"there is no such chat on this server", "This chat is gone", "It was deleted, or it was a temporary chat, which is kept until the server stops."},
		{"the server stops", owned.ErrClosed, "closed", 503,
			"the server is shutting down", "The server is stopping", "The server is shutting down."},
		{"the disk is full", fmt.Errorf("save: %w", &store.SpaceError{Path: "/secret"}), "disk_full", 507,
			"nothing was changed: the disk of the data folder is full; free some space and try again", "The disk is full", "Nothing was changed. Free some space on the disk of the data folder and try again."},
		{"another program has locked the chats", fmt.Errorf("save: %w", &store.BusyError{Path: "/data/chats.db"}), "chats_locked", 503,
			`nothing was changed: another program, such as a browser of databases or a backup, has locked the database "/data/chats.db"; close it there and try again`, "Another program holds the chats",
			`Nothing was changed: another program, such as a browser of databases or a backup, has locked the database "/data/chats.db"; close it there and try again.`},
		{"the chats were removed", fmt.Errorf("save: %w", &store.MissingError{Path: "/data/chats.db"}), "chats_missing", 503,
			`nothing was changed: the file "/data/chats.db" was removed or replaced while the server runs, so nothing new is stored; stop the server, which tries to save what it has again`, "The file of the chats is gone",
			`Nothing was changed: the file "/data/chats.db" was removed or replaced while the server runs, so nothing new is stored; stop the server, which tries to save what it has again.`},
		{"no further chat fits", live.ErrFull, "too_many_chats", 503,
			"too many chats are being answered at once; wait for one to end", "Too many chats at once", "Too many chats are being answered at once; wait for one to end."},
		{"a name is taken", &owned.TakenError{Kind: "preset", Name: "x"}, "name_taken", 409,
			"there is a preset “x” already", "This name is taken", "There is a preset “x” already."},
		{"a prompt is too long", &fault.Error{Code: fault.CodeContext, PromptTokens: 9, ContextLength: 8, ContextTrain: 16}, "context_length_exceeded", 400,
			"This model's maximum context length is 8 tokens, but the prompt is too long: it has 9 tokens; shorten it, or start the server with a larger --ctx, of which the model takes up to 16",
			"This does not fit into the context", "Nothing was cut. Shorten it, raise the context on the page Models, or start a new chat with a summary of this one."},
		{"a system prompt is too long", tooLong(fault.PartSystem, 16), "context_length_exceeded", 400,
			"This model's maximum context length is 8192 tokens, but the prompt is too long: it has 9031 tokens; 8800 of them are the system prompt: shorten that, or start the server with a larger --ctx, of which the model takes up to 16384",
			"This does not fit into the context", "Nothing was cut. Your system prompt has 8,800 tokens of the 8,192 that fit. Shorten it, or raise the context on the page Models."},
		{"tools are too long", tooLong(fault.PartTools, 0), "context_length_exceeded", 400,
			"This model's maximum context length is 8192 tokens, but the prompt is too long: it has 9031 tokens; 8800 of them are the definitions of the tools: offer fewer, or describe them in fewer words",
			"This does not fit into the context", "Nothing was cut. The definitions of the tools have 8,800 tokens of the 8,192 that fit. Offer fewer of them, or describe them in fewer words."},
		{"pictures are too large", tooLong(fault.PartPictures, 0), "context_length_exceeded", 400,
			"This model's maximum context length is 8192 tokens, but the prompt is too long: it has 9031 tokens; 8800 of them are pictures: send fewer, or in low detail",
			"This does not fit into the context", "Nothing was cut. The pictures have 8,800 tokens of the 8,192 that fit. Send fewer of them, or show them in low detail."},
		{"a chat is too long", tooLong(fault.PartHistory, 0), "context_length_exceeded", 400,
			"This model's maximum context length is 8192 tokens, but the prompt is too long: it has 9031 tokens; 8800 of them are the messages before the last: leave out the oldest",
			"This does not fit into the context", "Nothing was cut. The messages before yours have 8,800 tokens of the 8,192 that fit. Start a new chat with a summary of this one."},
		{"a message is too long", tooLong(fault.PartMessage, 0), "context_length_exceeded", 400,
			"This model's maximum context length is 8192 tokens, but the prompt is too long: it has 9031 tokens; shorten it",
			"This does not fit into the context", "Nothing was cut. Shorten it, or start a new chat with a summary of this one."},
		{"the device failed", &fault.Error{Code: fault.CodeDevice, Message: "secret"}, "device", 500,
			"the engine failed on this request; the server's log says more", "The device failed", "The engine failed on this request; the server's log says more."},
		{"an engine that is newer than the table", &fault.Error{Code: "new", Message: "secret"}, "new", 500,
			"the engine failed on this request; the server's log says more", "The answer failed", "The engine failed on this request; the server's log says more."},
		{"something inside failed", io.ErrUnexpectedEOF, "internal", 500,
			"internal error; the server's log says more", "The answer failed", "Internal error; the server's log says more."},
		{"an address leads nowhere", echo.ErrNotFound, "", 404,
			"Not Found", "Not found", "There is nothing at this address."},
		{"a body is too large", &http.MaxBytesError{Limit: 7}, "body_too_large", 413,
			"the body is larger than the 7 bytes that this route accepts", "Request entity too large", "The body is larger than the 7 bytes that this route accepts."},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := failure.Describe(c.err)
			if f.Code != c.code || f.Status != c.status || f.Message != c.message || f.Title != c.title || f.Text != c.text {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// tooLong is the error for a prompt of which a part has most of the tokens; trained is the model's context in KiB.
func tooLong(part fault.Part, trained int) error {
	return &fault.Error{Code: fault.CodeContext, PromptTokens: 9031, ContextLength: 8192, ContextTrain: trained << 10, Largest: part, LargestTokens: 8800}
}

func TestOnlyTheServerWhoseEngineItIsGetsTheWholeError(t *testing.T) {
	for _, err := range []error{&fault.Error{Code: fault.CodeDevice, Message: "secret"}, errors.New("secret")} {
		if shown := failure.Shown(err); strings.Contains(shown.Message, "secret") {
			t.Errorf("shown: %+v", shown)
		}
		if whole := failure.Whole(err); whole.Message != "secret" {
			t.Errorf("whole: %+v", whole)
		}
	}
	if whole := failure.Whole(context.Canceled); whole.Code != fault.CodeClosed {
		t.Errorf("a request that was cancelled has the code %q", whole.Code)
	}
}
