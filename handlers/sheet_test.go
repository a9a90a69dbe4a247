package handlers_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/compare"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/live"
	"m40-llm/handlers/presets"
	"m40-llm/handlers/setting"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/store"
)

// cellsOf reads a sheet until enough holds for its cells, and returns them.
func cellsOf(t *testing.T, s *compare.Sheet, enough func(cells []compare.Cell) bool) []compare.Cell {
	t.Helper()
	r := s.Read()
	defer r.Close()
	var cells []compare.Cell
	for {
		list, changed := r.Take()
		for _, c := range list {
			for len(cells) <= c.Index {
				cells = append(cells, compare.Cell{})
			}
			cells[c.Index] = c
		}
		if changed == nil || enough(cells) {
			return cells
		}
		waitFor(t, changed, "a change of the sheet")
	}
}

func never([]compare.Cell) bool { return false }

// inState counts the cells in a state.
func inState(cells []compare.Cell, state live.AnswerState) (n int) {
	for _, c := range cells {
		if c.Answer.State == state {
			n++
		}
	}
	return n
}

// A sheet of 64 answers computes the complete blocks of its prompt once, and each of its answers is, byte
// for byte, the one that the same seed and settings give alone, in an engine that has computed nothing before.
func TestTheAnswersOfASheetAreThoseOfSingleRuns(t *testing.T) {
	db := handlerstest.OpenStoreAt(t, filepath.Join(t.TempDir(), "data", "chats.db"))
	chats := live.New(handlerstest.OpenGuide(t), live.Options{Store: db})
	comparing := compare.New(chats, presets.New(chats, db), db)
	chat, question := handlerstest.Asked(t, chats, access.Local, "Here is a list of words: "+strings.Repeat("stone river lamp ", 40)+"Tell me a story with one of them.")
	sheet, err := comparing.StartSheet(t.Context(), access.Local, chat.ID(), compare.NewSheet{
		Question: question, MaxTokens: 8,
		Across: compare.Axis{Key: "temperature", Values: "0 0.7 1.2 1.6"},
		Down:   compare.Axis{Key: "min_p", Values: "0 0.05"},
		Seeds:  "1 2 3 4 5 6 7 8",
	})
	if err != nil {
		t.Fatal(err)
	}
	cells := cellsOf(t, sheet, never)
	if len(cells) != compare.MaxCells || inState(cells, live.Done) != compare.MaxCells {
		t.Fatalf("%d of %d answers are done", inState(cells, live.Done), len(cells))
	}

	prompt, computed, alone := cells[0].Answer.Usage.PromptTokens, 0, 0
	shared := (prompt - 1) / device.BlockSize * device.BlockSize // the last token is computed in any case: the first of the answer comes from it
	for i, c := range cells {
		u := c.Answer.Usage
		computed += u.PromptTokens - u.CachedTokens
		if u.CachedTokens < shared {
			alone++
		}
		if u.PromptTokens != prompt || u.CachedTokens < shared && u.CachedTokens != 0 {
			t.Errorf("answer %d computed %d of %d tokens of the prompt, of which %d are in complete blocks", i, u.PromptTokens-u.CachedTokens, prompt, shared)
		}
	}
	if alone != 1 || computed > prompt+63*(prompt-shared) {
		t.Errorf("the prompts of 64 answers took %d tokens, and one takes %d", computed, prompt)
	}
	t.Logf("a prompt of %d tokens: %d computed for 64 answers, %d if each had read it alone", prompt, computed, 64*prompt)

	stored, err := comparing.Keep(t.Context(), access.Local, chat.ID(), 5)
	if err != nil {
		t.Fatal(err)
	}
	again, err := comparing.Keep(t.Context(), access.Local, chat.ID(), 5)
	if err != nil || again != stored {
		t.Errorf("kept twice, the answer is message %d and %d, %v", stored, again, err)
	}
	tokens, total, err := inspect.New(chats).Tokens(t.Context(), access.Local, chat, stored, 0, 100, 0)
	if err != nil || total != cells[5].Answer.Usage.CompletionTokens || tokens[0].Row == nil {
		t.Errorf("the answer that was kept has %d tokens, %v", total, err)
	}
	chats.Close()

	single := live.New(handlerstest.OpenGuide(t), live.Options{Store: db})
	t.Cleanup(single.Close)
	step := 7
	if fixtures.Torture() {
		step = 1
	}
	if chat, err = single.Chat(t.Context(), access.Local, chat.ID()); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(cells); i += step {
		settings := cells[i].Answer.Settings
		got := answerAlone(t, single, chat, settings)
		if got.Text != cells[i].Text || got.Answer.Usage.CompletionTokens != cells[i].Answer.Usage.CompletionTokens || got.Answer.LogProb != cells[i].Answer.LogProb {
			t.Errorf("answer %d (temperature %v, min-p %v, seed %d) is %q, and alone it is %q", i, settings.Temperature, settings.MinP, settings.Seed, cells[i].Text, got.Text)
		}
	}
}

// answerAlone answers the last question of a chat with settings, and returns the answer.
func answerAlone(t *testing.T, chats *live.Service, chat *live.Chat, settings setting.Settings) live.Message {
	t.Helper()
	if err := chat.Regenerate(t.Context(), access.Local, 0, "", settings); err != nil {
		t.Fatal(err)
	}
	return lastOf(t, chat, access.Local)
}

// lastOf waits until no answer is being written and returns the last message.
func lastOf(t *testing.T, chat *live.Chat, who access.Principal) live.Message {
	t.Helper()
	for {
		sub, snapshot, err := chat.Subscribe(t.Context(), who, 0)
		if err != nil {
			t.Fatal(err)
		}
		if m := snapshot.Messages[len(snapshot.Messages)-1]; m.Answer == nil || !m.Answer.State.Running() {
			sub.Close()
			return m
		}
		waitFor(t, sub.Ready(), "the end of an answer")
		sub.Close()
	}
}

// Somebody who asks while another person's sheet of 64 answers is being written has an answer long before
// that sheet ends, and the person of the sheet too; then the sheet is stopped.
func TestASheetDoesNotStarveOthers(t *testing.T) {
	db := handlerstest.OpenStoreAt(t, filepath.Join(t.TempDir(), "data", "chats.db"))
	engine := handlerstest.OpenGuide(t)
	chats := live.New(engine, live.Options{Store: db})
	comparing := compare.New(chats, presets.New(chats, db), db)
	t.Cleanup(chats.Close)
	person, err := db.AddPerson(t.Context(), "Ben")
	if err != nil {
		t.Fatal(err)
	}
	ben := access.Of(person)
	chat, question := handlerstest.Asked(t, chats, access.Local, "Tell me a story about a fox.")
	sheet, err := comparing.StartSheet(t.Context(), access.Local, chat.ID(), compare.NewSheet{Question: question, MaxTokens: 256, Across: compare.Axis{Key: "temperature", Values: "5 6 7 8"}, Seeds: "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"})
	if err != nil {
		t.Fatal(err)
	}
	cellsOf(t, sheet, func(cells []compare.Cell) bool { return inState(cells, live.Writing) > 8 })

	settings := setting.Default()
	settings.MaxTokens = 12
	for _, who := range []access.Principal{ben, access.Local} {
		other, err := chats.Start(t.Context(), who, live.Question{Text: "What is a token?", Settings: settings}, false)
		if err != nil {
			t.Fatal(err)
		}
		if m := lastOf(t, other, who); m.Answer.State != live.Done {
			t.Errorf("the answer for %q is %s", who.Owner, m.Answer.State)
		}
		cells := cellsOf(t, sheet, func([]compare.Cell) bool { return true })
		if waiting := inState(cells, live.Waiting); waiting == 0 {
			t.Errorf("the answer for %q waited for the sheet", who.Owner)
		}
	}
	if err := comparing.StopSheet(t.Context(), access.Local, chat.ID(), -1); err != nil {
		t.Fatal(err)
	}
	cells := cellsOf(t, sheet, never)
	if inState(cells, live.Stopped)+inState(cells, live.Done) != compare.MaxCells || inState(cells, live.Stopped) == 0 {
		t.Errorf("%d answers are stopped and %d done", inState(cells, live.Stopped), inState(cells, live.Done))
	}
}

// What is wrong with a request for a sheet is said with the field; none is made.
func TestSheetsThatAreRefused(t *testing.T) {
	engine := handlerstest.NewScript()
	server, chats, comparing := handlerstest.ServeComparing(t, engine)
	chat, question := handlerstest.Asked(t, chats, access.Local, "Why?")
	address := "/c/" + chat.ID() + "/sheet"
	many := strings.Join(slices.Repeat([]string{"1"}, 600), " ")
	for name, test := range map[string]struct {
		body  string
		param string
		says  string
	}{
		"no seeds":                {`{"question":%d,"max_tokens":8}`, "seeds", "seed has no values"},
		"one answer":              {`{"question":%d,"max_tokens":8,"seeds":"1"}`, "seeds", "the sheet has one answer"},
		"65 answers":              {`{"question":%d,"max_tokens":8,"seeds":"` + handlerstest.FirstNumbers(65) + `"}`, "seeds", "has 65 answers, and at most 64 fit"},
		"too many tokens":         {`{"question":%d,"max_tokens":257,"seeds":"` + handlerstest.FirstNumbers(64) + `"}`, "max_tokens", "set max_tokens to 256 or less"},
		"tokens that overflow":    {`{"question":%d,"max_tokens":9223372036854775807,"seeds":"1 2"}`, "max_tokens", "do not fit"},
		"no limit":                {`{"question":%d,"max_tokens":-1,"seeds":"1 2"}`, "max_tokens", "at least 1 token"},
		"a word":                  {`{"question":%d,"max_tokens":8,"seeds":"1 two"}`, "seeds", "is no number"},
		"a decimal comma":         {`{"question":%d,"max_tokens":8,"seeds":"1","across":{"key":"temperature","values":"0,2 1"}}`, "across", "decimals with a point"},
		"infinity":                {`{"question":%d,"max_tokens":8,"seeds":"1","across":{"key":"temperature","values":"Inf 1"}}`, "across", "no number"},
		"nan":                     {`{"question":%d,"max_tokens":8,"seeds":"1","across":{"key":"temperature","values":"NaN 1"}}`, "across", "no number"},
		"a negative seed":         {`{"question":%d,"max_tokens":8,"seeds":"-1 2"}`, "seeds", "must be from 0"},
		"a fraction":              {`{"question":%d,"max_tokens":8,"seeds":"1","across":{"key":"top_k","values":"1.5 2"}}`, "across", "whole number"},
		"out of range":            {`{"question":%d,"max_tokens":8,"seeds":"1","across":{"key":"top_p","values":"0.5 2"}}`, "across", "top_p is 2, but it must be from 0 to 1"},
		"a whole number too high": {`{"question":%d,"max_tokens":8,"seeds":"1","down":{"key":"top_k","values":"1 1e300"}}`, "down", "must be from"},
		"twice the same":          {`{"question":%d,"max_tokens":8,"seeds":"1 1.0"}`, "seeds", "value 1 twice"},
		"too long":                {`{"question":%d,"max_tokens":8,"seeds":"` + many + `"}`, "seeds", "at most 1000 are read"},
		"an unknown setting":      {`{"question":%d,"max_tokens":8,"seeds":"1","across":{"key":"logit_bias","values":"1 2"}}`, "across", "no setting that a sheet can vary"},
		"a setting twice":         {`{"question":%d,"max_tokens":8,"seeds":"1","across":{"key":"top_p","values":"0.5 1"},"down":{"key":"top_p","values":"0.5 1"}}`, "down", "across and down"},
		"an unknown field":        {`{"question":%d,"max_tokens":8,"seeds":"1 2","model":"x"}`, "", "unknown field"},
		"no object":               {`[%d]`, "", "must be a JSON object"},
		"another question":        {`{"question":1%d00,"max_tokens":8,"seeds":"1 2"}`, "question", "has no question"},
	} {
		t.Run(name, func(t *testing.T) {
			got := handlerstest.Post(t, server, address, fmt.Sprintf(test.body, question), "Origin", server.URL)
			if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, test.says) || test.param != "" && !strings.Contains(got.Body, fmt.Sprintf(`"param":%q`, test.param)) {
				t.Errorf("got %d %s, want the field %q and %q", got.Status, got.Body, test.param, test.says)
			}
		})
	}
	for path, body := range map[string]string{"/stop": `{}`, "/keep": `{"cell":0}`} {
		if got := handlerstest.Post(t, server, address+path, body, "Origin", server.URL); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "no contact sheet any more") {
			t.Errorf("%s without a sheet: %d %s", path, got.Status, got.Body)
		}
	}
	if got := handlerstest.Call(t, server, http.MethodGet, address+"/events", ""); got.Status != http.StatusNoContent {
		t.Errorf("the events of no sheet: %d %s", got.Status, got.Body)
	}
	if sheet, err := comparing.Sheet(t.Context(), access.Local, chat.ID()); sheet != nil || err != nil {
		t.Errorf("a sheet was made: %v, %v", sheet, err)
	}
	page := handlerstest.Call(t, server, http.MethodGet, address, "", "Accept", "text/html")
	if page.Status != http.StatusOK || !strings.Contains(page.Body, "JavaScript is off, and a contact sheet needs it") {
		t.Errorf("the page without a script: %d", page.Status)
	}
}

// A sheet that is being written is the only one of its person. It ends with its chat, and its answers can
// be kept when they have ended alone.
func TestTheLifeOfASheet(t *testing.T) {
	engine := handlerstest.NewScript()
	server, chats, comparing := handlerstest.ServeComparing(t, engine)
	chat, question := handlerstest.Asked(t, chats, access.Local, "Why?")
	address := "/c/" + chat.ID() + "/sheet"
	body := fmt.Sprintf(`{"question":%d,"max_tokens":8,"seeds":"1 2"}`, question)
	send := func(path, body string, status int, says string) {
		t.Helper()
		if got := handlerstest.Post(t, server, address+path, body, "Origin", server.URL); got.Status != status || !strings.Contains(got.Body, says) {
			t.Errorf("POST %s: got %d %s, want %d %q", path, got.Status, got.Body, status, says)
		}
	}
	send("", body, http.StatusNoContent, "")
	answers := map[int64]*handlerstest.ScriptedAnswer{}
	for range 2 {
		a := engine.Next(t)
		answers[a.Request.Params.Seed] = a
		if a.Request.Client != store.OwnerID || !a.Request.Rows || a.Request.MaxTokens != 8 {
			t.Errorf("the engine was asked for %+v", a.Request)
		}
	}
	send("", body, http.StatusConflict, "while another one of yours is being written")
	send("/keep", `{"cell":0}`, http.StatusBadRequest, "still being written")
	send("/keep", `{"cell":2}`, http.StatusBadRequest, "cell is 2, but there are 2")
	send("/stop", `{"cell":64}`, http.StatusBadRequest, "cell is 64")

	sheet, err := comparing.Sheet(t.Context(), access.Local, chat.ID())
	if err != nil {
		t.Fatal(err)
	}
	for id, text := range []string{"one ", "two ", "three"} {
		answers[1].Send(handlerstest.WordEvent(int32(id), text))
	}
	cells := cellsOf(t, sheet, func(cells []compare.Cell) bool { return cells[0].Text == "one two three" })
	if cells[1].Differs || cells[1].Same != 0 {
		t.Errorf("an answer without a token is %+v", cells[1])
	}
	answers[2].Send(handlerstest.WordEvent(0, "one "))
	answers[2].Send(handlerstest.WordEvent(1, "two "))
	cells = cellsOf(t, sheet, func(cells []compare.Cell) bool { return cells[1].Same == 2 })
	if cells[1].Differs || cells[1].SameText != len("one two ") {
		t.Errorf("an answer that has begun like the first is %+v", cells[1])
	}
	answers[2].Send(handlerstest.WordEvent(9, "four"))
	cells = cellsOf(t, sheet, func(cells []compare.Cell) bool { return cells[1].Differs })
	if cells[1].Same != 2 || cells[1].SameText != len("one two ") {
		t.Errorf("an answer whose third token is another one is %+v", cells[1])
	}
	answers[1].Finish()
	cellsOf(t, sheet, func(cells []compare.Cell) bool { return inState(cells, live.Done) == 1 })
	send("/keep", `{"cell":0}`, http.StatusOK, `"message":`)
	send("/stop", `{"cell":1}`, http.StatusNoContent, "")
	cells = cellsOf(t, sheet, never)
	if cells[0].Text != "one two three" || cells[0].Message == 0 || cells[1].Answer.State != live.Stopped || cells[1].Text != "one two four" {
		t.Errorf("the answers are %+v", cells)
	}
	if m := lastOf(t, chat, access.Local); m.Text != "one two three" || m.Parent != question || m.Answer.Settings.Seed != 1 {
		t.Errorf("the chat ends with %+v", m)
	}

	send("", body, http.StatusNoContent, "") // the old one has ended
	engine.Next(t)
	engine.Next(t)
	if sheet, err = comparing.Sheet(t.Context(), access.Local, chat.ID()); err != nil {
		t.Fatal(err)
	}
	if err := chats.Delete(context.WithoutCancel(t.Context()), access.Local, chat.ID()); err != nil {
		t.Fatal(err)
	}
	if cells := cellsOf(t, sheet, never); inState(cells, live.Stopped) != 2 {
		t.Errorf("the answers of a deleted chat are %+v", cells)
	}
}
