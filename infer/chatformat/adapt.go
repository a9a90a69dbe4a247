package chatformat

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"m40-llm/infer/chat"
	"m40-llm/infer/jinja"
)

// A template may refuse a conversation, or leave out text of it: system messages, the text of a message that has calls,
// a second call, an answer at the end. Such a conversation is changed as little as the template requires: changes are tried
// in a fixed order until the template renders the result and shows all that messages, calls and results say. A conversation
// that the template takes and shows is never changed.

// change is one change to a conversation, and what a user should know of it.
type change struct {
	note  string
	apply func(in chat.Input) []chat.Message
}

var emptyFirst = change{"the chat template requires a message of the user before the first answer: an empty one is inserted", userFirst}

// systemChanges are tried in this order, one of them at a time.
var systemChanges = []change{
	{},
	{"the chat template takes one system message: those at the beginning are joined", joinLeading},
	{"the chat template takes no system message there: its text is in a message of the user", laterToUser},
	emptyFirst,
	{"the chat template takes no system message: system text is in a message of the user", allToUser},
}

// roleChanges are tried after systemChanges, each with all before it; then those that were not needed are taken back.
var roleChanges = []change{
	{},
	{"the chat template requires turns: neighbouring messages of one role are joined", joinNeighbours},
	{"the chat template takes no message of the user after a tool result: its text is in the result", textIntoResult},
	emptyFirst,
	{"the chat template requires calls and results in pairs: missing ones are filled in", pairCalls},
	{"the chat template takes one call in a message: several are in one message each", splitCalls},
	{"the chat template shows the text or the calls of a message: they are in two messages", splitText},
	{"the chat template takes one text of the assistant in a turn: they are joined", joinAnswers},
	{"the chat template leaves out an answer at the end: an empty message of the user follows", userLast},
}

// adapted is a rendered conversation with the notes of its changes.
type adapted struct {
	prompt chat.Prompt
	notes  []string
}

// notAllShown is the note of a conversation of which no change makes the template show all.
const notAllShown = "the chat template does not show all texts, calls and results"

// adapt renders in, changed as far as the template requires. If no change makes the template show all, the result is that of
// the first conversation that it renders.
func (f *Format) adapt(ctx context.Context, in chat.Input) (adapted, error) {
	unchanged, firstErr := f.try(ctx, in, nil)
	switch {
	case firstErr == nil && unchanged.complete:
		return unchanged.adapted, nil
	case firstErr != nil && (!isRefusal(firstErr) || !f.traits().takesQuestion):
		return adapted{}, firstErr
	}
	lossy, rendered := unchanged.adapted, firstErr == nil
	tried := [][]chat.Message{in.Messages}
	for i := range roleChanges {
		for _, system := range systemChanges {
			changes := append([]change{system}, roleChanges[:i+1]...)
			messages, _ := applyChanges(in, changes)
			if slices.ContainsFunc(tried, func(m []chat.Message) bool { return sameMessages(m, messages) }) {
				continue
			}
			tried = append(tried, messages)
			got, err := f.try(ctx, in, changes)
			switch {
			case err != nil && !isRefusal(err):
				return adapted{}, err
			case err == nil && got.complete:
				return f.withoutNeedless(ctx, in, changes, got.adapted)
			case err == nil && !rendered:
				lossy, rendered = got.adapted, true
			}
		}
	}
	if !rendered {
		return adapted{}, firstErr
	}
	lossy.notes = append(lossy.notes, notAllShown)
	return lossy, nil
}

// withoutNeedless takes back the changes without which the template shows all too. got is the result with all of them.
func (f *Format) withoutNeedless(ctx context.Context, in chat.Input, changes []change, got adapted) (adapted, error) {
	for i := 0; i < len(changes) && len(got.notes) > 1; {
		fewer := slices.Delete(slices.Clone(changes), i, i+1)
		with, _ := applyChanges(in, changes)
		without, _ := applyChanges(in, fewer)
		if sameMessages(with, without) {
			changes = fewer
			continue
		}
		attempt, err := f.try(ctx, in, fewer)
		switch {
		case err != nil && !isRefusal(err):
			return adapted{}, err
		case err == nil && attempt.complete:
			changes, got = fewer, attempt.adapted
		default:
			i++
		}
	}
	return got, nil
}

// applyChanges returns the messages of in with changes, and the notes of those that changed something.
func applyChanges(in chat.Input, changes []change) (messages []chat.Message, notes []string) {
	for _, c := range changes {
		if c.apply == nil {
			continue
		}
		changed := c.apply(in)
		if !sameMessages(changed, in.Messages) {
			notes = append(notes, c.note)
		}
		in.Messages = changed
	}
	return in.Messages, notes
}

// attempt is a rendered conversation. It is complete if the prompt shows all of it.
type attempt struct {
	adapted
	complete bool
}

// try renders in with changes.
func (f *Format) try(ctx context.Context, in chat.Input, changes []change) (attempt, error) {
	messages, notes := applyChanges(in, changes)
	in.Messages = messages
	prompt, shown, err := f.render(ctx, in)
	if err != nil {
		return attempt{}, err
	}
	return attempt{adapted{prompt, notes}, f.showsAll(ctx, in, prompt, shown)}, nil
}

// traits are properties of a template that decide how a conversation is adapted.
type traits struct {
	takesQuestion bool // it renders a conversation of one question
	showsTools    bool // it shows definitions of tools
	printsNone    bool // it prints null in lists of these definitions as None
}

// traits detects the traits of the template. It returns a *jinja.LimitError if the template takes too
// long.
func (p probe) traits(ctx context.Context) (t traits, err error) {
	question := chat.Input{Messages: []chat.Message{probeQuestion}, AddGenerationPrompt: true}
	_, err = p.render(ctx, question)
	if _, over := errors.AsType[*jinja.LimitError](err); over {
		return traits{}, err
	}
	t.takesQuestion = err == nil
	question.Tools = probeTools
	prompt, err := p.render(ctx, question)
	if _, over := errors.AsType[*jinja.LimitError](err); over {
		return traits{}, err
	}
	t.showsTools = strings.Contains(prompt, probeName)
	question.Tools = probeNulls
	prompt, err = p.render(ctx, question)
	if _, over := errors.AsType[*jinja.LimitError](err); over {
		return traits{}, err
	}
	t.printsNone = probeNone.MatchString(prompt)
	return t, nil
}

// probeNulls are definitions of a tool with null in lists, which probeNone matches in prompts that show it as None.
var (
	probeNulls = json.RawMessage(`[{"type": "function", "function": {"name": "` + probeName + `", "description": "d", "parameters": {"type": "object", "properties": {` +
		`"a": {"type": "string", "description": "d", "enum": ["` + probeValue + `", null]}, "b": {"type": "array", "description": "d", "items": {"type": "string", "enum": ["` + probeValue + `", null]}}}, "required": ["a", "b"]}}}]`)
	probeNone = regexp.MustCompile(probeValue + `\W+None`)
)

// isRefusal reports whether a template refused a conversation or failed on it, so that it may take
// another one. A template that recurses without end failed.
func isRefusal(err error) bool {
	if over, ok := errors.AsType[*jinja.LimitError](err); ok {
		return over.Budget == "nesting depth"
	}
	_, raised := errors.AsType[*jinja.RaisedError](err)
	_, failed := errors.AsType[*jinja.RenderError](err)
	return raised || failed
}

func sameMessages(a, b []chat.Message) bool {
	return slices.EqualFunc(a, b, func(a, b chat.Message) bool { return reflect.DeepEqual(a, b) })
}

// readMark is appended to a text to find out whether a template reads it.
const readMark = "\nprobe text"

// showsAll reports whether a prompt, with what it shows of the messages of in, lost no text, call or result. Text that the
// template reads and leaves out, such as /no_think, is not lost. A first answer that the template takes for a message of
// the user is lost.
func (f *Format) showsAll(ctx context.Context, in chat.Input, prompt chat.Prompt, shown []chat.Shown) bool {
	marked, hidden := slices.Clone(in.Messages), 0
	if in.Continue { // render has checked the last message
		shown = slices.Clone(shown)
		shown[len(shown)-1].Content = true
	}
	for i := range marked {
		if !shown[i].Calls {
			return false
		}
		if m := &marked[i]; !shown[i].Content && !isBlank(m.Content) {
			m.Content += readMark
			hidden++
		}
	}
	if hidden > 0 {
		in := in
		in.Messages = marked
		withMarks, _, err := f.render(ctx, in)
		mark := strings.TrimSpace(readMark)
		if err != nil || strings.Count(withMarks.String(), mark)-strings.Count(prompt.String(), mark) < hidden {
			return false
		}
	}
	return !f.mistakesFirstAnswer(ctx, in, prompt)
}

// mistakesFirstAnswer reports whether a conversation begins with an answer for which the prompt is the same as for a message
// of the user: a template that writes tools into the first message may not look whose it is.
func (f *Format) mistakesFirstAnswer(ctx context.Context, in chat.Input, prompt chat.Prompt) bool {
	n := leadingSystem(in.Messages)
	if len(in.Tools) == 0 || n == len(in.Messages) || in.Messages[n].Role != "assistant" || in.Continue && n == len(in.Messages)-1 {
		return false
	}
	in.Messages = slices.Clone(in.Messages)
	in.Messages[n].Role = "user"
	asUser, _, err := f.render(ctx, in)
	return err == nil && asUser.String() == prompt.String()
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

// joined joins texts that are not blank with an empty line.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, isBlank), "\n\n")
}

// joinLeading joins the system messages at the beginning.
func joinLeading(in chat.Input) []chat.Message {
	n := leadingSystem(in.Messages)
	if n < 2 {
		return in.Messages
	}
	var texts []string
	for _, m := range in.Messages[:n] {
		texts = append(texts, m.Content)
	}
	return append([]chat.Message{{Role: "system", Content: joined(texts...)}}, in.Messages[n:]...)
}

func leadingSystem(messages []chat.Message) int {
	n := slices.IndexFunc(messages, func(m chat.Message) bool { return m.Role != "system" })
	if n < 0 {
		return len(messages)
	}
	return n
}

// laterToUser joins the system messages at the beginning, and places each later one before the text
// of the next message of the user.
func laterToUser(in chat.Input) []chat.Message {
	in.Messages = joinLeading(in)
	n := min(1, leadingSystem(in.Messages))
	rest := systemToUser(in.Messages[n:], in.Continue)
	return append(in.Messages[:n:n], rest...)
}

// allToUser places each system message before the text of the next message of the user, those at the
// beginning in a message of their own if another one is next.
func allToUser(in chat.Input) []chat.Message {
	n := leadingSystem(in.Messages)
	var texts []string
	for _, m := range in.Messages[:n] {
		texts = append(texts, m.Content)
	}
	rest := systemToUser(in.Messages[n:], in.Continue)
	text := joined(texts...)
	switch {
	case text == "" && len(rest) > 0:
		return rest
	case len(rest) > 0 && rest[0].Role == "user":
		rest[0].Content = joined(text, rest[0].Content)
		return rest
	}
	return append([]chat.Message{{Role: "user", Content: text}}, rest...)
}

// systemToUser places each system message before the text of the next message of the user. Without a
// next one it is appended to the last message if that is the user's, or becomes a new message; if
// the last message is continued, it comes before that. The result shares no memory with messages.
func systemToUser(messages []chat.Message, continued bool) (list []chat.Message) {
	var pending []string
	end := len(messages)
	if continued {
		end--
	}
	for _, m := range messages[:max(0, end)] {
		if m.Role == "system" {
			pending = append(pending, m.Content)
			continue
		}
		if m.Role == "user" {
			m.Content = joined(append(pending, m.Content)...)
			pending = nil
		}
		list = append(list, m)
	}
	if text := joined(pending...); text != "" {
		if n := len(list); n > 0 && list[n-1].Role == "user" {
			list[n-1].Content = joined(list[n-1].Content, text)
		} else {
			list = append(list, chat.Message{Role: "user", Content: text})
		}
	}
	return append(list, messages[max(0, end):]...)
}

// joinNeighbours joins messages of one role that follow each other. Results of tools stay apart, since
// each belongs to a call.
func joinNeighbours(in chat.Input) (list []chat.Message) {
	for _, m := range in.Messages {
		n := len(list) - 1
		if n < 0 || list[n].Role != m.Role || m.Role == "tool" {
			list = append(list, m)
			continue
		}
		list[n] = joinMessages(list[n], m)
	}
	return list
}

// joinMessages joins two messages of one role.
func joinMessages(a, b chat.Message) chat.Message {
	a.Content = joined(a.Content, b.Content)
	a.Pictures = slices.Concat(a.Pictures, b.Pictures)
	a.ReasoningContent = joined(a.ReasoningContent, b.ReasoningContent)
	a.ToolCalls = joinCalls(a.ToolCalls, b.ToolCalls)
	if a.Name != b.Name {
		a.Name = ""
	}
	return a
}

// joinCalls joins two arrays of calls.
func joinCalls(a, b json.RawMessage) json.RawMessage {
	if len(a) == 0 || len(b) == 0 {
		return append(a, b...)
	}
	var first, second []json.RawMessage
	if json.Unmarshal(a, &first) != nil || json.Unmarshal(b, &second) != nil {
		return a // toolMessages has decoded both
	}
	all, _ := json.Marshal(append(first, second...)) // of valid JSON: cannot fail
	return all
}

// textIntoResult appends text of the user that follows the result of a tool to that result.
func textIntoResult(in chat.Input) (list []chat.Message) {
	for _, m := range in.Messages {
		if n := len(list) - 1; n >= 0 && m.Role == "user" && list[n].Role == "tool" {
			list[n].Content = joined(list[n].Content, m.Content)
			list[n].Pictures = slices.Concat(list[n].Pictures, m.Pictures)
			continue
		}
		list = append(list, m)
	}
	return list
}

// userFirst inserts an empty message of the user before an answer with which the conversation begins.
func userFirst(in chat.Input) []chat.Message {
	n := leadingSystem(in.Messages)
	if n < len(in.Messages) && in.Messages[n].Role == "user" {
		return in.Messages
	}
	return slices.Insert(slices.Clone(in.Messages), n, chat.Message{Role: "user"})
}

// splitText makes two messages of one that has text and calls.
func splitText(in chat.Input) (list []chat.Message) {
	for _, m := range in.Messages {
		if len(m.ToolCalls) == 0 || isBlank(m.Content) {
			list = append(list, m)
			continue
		}
		text, call := m, m
		text.ToolCalls = nil
		call.Content, call.ReasoningContent, call.Pictures = "", "", nil
		list = append(list, text, call)
	}
	return list
}

// joinAnswers joins the texts of the assistant that have calls and results, and no message of the user, between them. Each
// moves to the last of them. Texts of messages that have calls stay.
func joinAnswers(in chat.Input) (list []chat.Message) {
	list = slices.Clone(in.Messages)
	later := -1 // the next answer of the turn
	for i := len(list) - 1; i >= 0; i-- {
		switch m := list[i]; {
		case m.Role == "user":
			later = -1
		case m.Role != "assistant" || len(m.ToolCalls) > 0:
		case later < 0:
			later = i
		default:
			list[later] = joinMessages(m, list[later])
			list = slices.Delete(list, i, i+1)
			later--
		}
	}
	return list
}

// userLast appends an empty message of the user to a conversation that ends in an answer.
func userLast(in chat.Input) []chat.Message {
	if n := len(in.Messages); in.Continue || n == 0 || in.Messages[n-1].Role != "assistant" {
		return in.Messages
	}
	return append(slices.Clone(in.Messages), chat.Message{Role: "user"})
}

// noResult is the result of a call that has none.
const noResult = "(no result)"

// pairCalls gives each call without a result one that says so, and makes text of the user of results
// without a call.
func pairCalls(in chat.Input) (list []chat.Message) {
	messages := in.Messages
	for i := 0; i < len(messages); {
		m := messages[i]
		i++
		if m.Role == "tool" {
			list = append(list, resultsAsUser([]chat.Message{m})...)
			continue
		}
		list = append(list, m)
		calls := decodeCalls(m)
		if len(calls) == 0 || in.Continue && i == len(messages) {
			continue
		}
		for ; i < len(messages) && messages[i].Role == "tool"; i++ {
			at := slices.IndexFunc(calls, func(c toolCall) bool { return c.ID == messages[i].ToolCallID })
			if at < 0 && messages[i].ToolCallID == "" && len(calls) > 0 {
				at = 0
			}
			if at < 0 {
				break
			}
			calls = slices.Delete(calls, at, at+1)
			list = append(list, messages[i])
		}
		for _, c := range calls {
			list = append(list, chat.Message{Role: "tool", Name: c.Function.Name, ToolCallID: c.ID, Content: noResult})
		}
	}
	in.Messages = list
	in.Messages = textIntoResult(in)
	return joinNeighbours(in)
}

// decodeCalls returns the calls of a message; none if they are invalid.
func decodeCalls(m chat.Message) (calls []toolCall) {
	if len(m.ToolCalls) > 0 && json.Unmarshal(m.ToolCalls, &calls) != nil {
		return nil
	}
	return calls
}

// splitCalls makes a message of each call, followed by its result.
func splitCalls(in chat.Input) (list []chat.Message) {
	results := slices.Clone(in.Messages)
	for i, m := range in.Messages {
		calls := decodeCalls(m)
		if len(calls) < 2 {
			if results[i].Role != "" {
				list = append(list, results[i])
			}
			continue
		}
		for j, c := range calls {
			if j > 0 {
				m.Content, m.ReasoningContent = "", ""
			}
			m.ToolCalls, _ = json.Marshal([]toolCall{c}) // decoded from JSON: cannot fail
			list = append(list, m)
			at := slices.IndexFunc(results[i+1:], func(r chat.Message) bool { return r.Role == "tool" && r.ToolCallID == c.ID })
			if at >= 0 {
				list = append(list, results[i+1+at])
				results[i+1+at] = chat.Message{} // taken
			}
		}
	}
	return list
}
