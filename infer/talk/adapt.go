package talk

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"m40-llm/infer/chat"
)

// A template may refuse a conversation, or leave out system messages of it. Such a conversation is
// changed as little as the template requires: changes are tried in a fixed order until the template
// renders the result and shows all its system text. A conversation that the template takes is never
// changed.

// change is one change to a conversation, and what a user should know of it.
type change struct {
	note  string
	apply func(in chat.Input) []chat.Message
}

// systemChanges are tried in this order, one of them at a time.
var systemChanges = []change{
	{},
	{"the chat template takes one system message: those at the beginning are joined", joinLeading},
	{"the chat template takes no system message there: its text is in a message of the user", laterToUser},
	{"the chat template takes no system message: system text is in a message of the user", allToUser},
}

// roleChanges are tried after systemChanges, each with all before it.
var roleChanges = []change{
	{},
	{"the chat template requires turns: neighbouring messages of one role are joined", joinNeighbours},
	{"the chat template takes no message of the user after a tool result: its text is in the result", textIntoResult},
	{"the chat template requires a message of the user before the first answer: an empty one is inserted", userFirst},
	{"the chat template requires calls and results in pairs: missing ones are filled in", pairCalls},
	{"the chat template takes one call in a message: several are in one message each", splitCalls},
}

// adapted is a rendered conversation with the notes of its changes.
type adapted struct {
	prompt chat.Prompt
	notes  []string
}

// adapt renders in, changed as far as the template requires. If no change helps, the result is that
// of the unchanged conversation.
func (f *Format) adapt(ctx context.Context, in chat.Input) (adapted, error) {
	prompt, shown, firstErr := f.render(ctx, in)
	switch {
	case firstErr == nil && f.showsSystem(ctx, in, prompt, shown):
		return adapted{prompt: prompt}, nil
	case firstErr != nil && (!isRefusal(firstErr) || !f.traits().takesQuestion):
		return adapted{}, firstErr
	}
	tried := [][]chat.Message{in.Messages}
	for i := range roleChanges {
		for _, system := range systemChanges {
			changed, notes := in, []string(nil)
			for _, c := range append([]change{system}, roleChanges[:i+1]...) {
				if c.apply == nil {
					continue
				}
				messages := c.apply(changed)
				if !sameMessages(messages, changed.Messages) {
					notes = append(notes, c.note)
				}
				changed.Messages = messages
			}
			if slices.ContainsFunc(tried, func(m []chat.Message) bool { return sameMessages(m, changed.Messages) }) {
				continue
			}
			tried = append(tried, changed.Messages)
			prompt, shown, err := f.render(ctx, changed)
			if err != nil && !isRefusal(err) {
				return adapted{}, err
			}
			if err == nil && showsAll(changed.Messages, shown) {
				return adapted{prompt, notes}, nil
			}
		}
	}
	if firstErr == nil {
		return adapted{prompt, []string{"the chat template does not show system messages"}}, nil
	}
	return adapted{}, firstErr
}

// traits are properties of a template that decide how a conversation is adapted.
type traits struct {
	takesQuestion bool // it renders a conversation of one question
	showsTools    bool // it shows definitions of tools
}

// traits detects the traits of the template. It returns a *chat.LimitError if the template takes too
// long.
func (p probe) traits(ctx context.Context) (t traits, err error) {
	question := chat.Input{Messages: []chat.Message{probeQuestion}, AddGenerationPrompt: true}
	_, err = p.render(ctx, question)
	if _, over := errors.AsType[*chat.LimitError](err); over {
		return traits{}, err
	}
	t.takesQuestion = err == nil
	question.Tools = probeTools
	prompt, err := p.render(ctx, question)
	if _, over := errors.AsType[*chat.LimitError](err); over {
		return traits{}, err
	}
	t.showsTools = strings.Contains(prompt, probeName)
	return t, nil
}

// isRefusal reports whether a template refused a conversation or failed on it, so that it may take
// another one. A template that recurses without end failed.
func isRefusal(err error) bool {
	if over, ok := errors.AsType[*chat.LimitError](err); ok {
		return over.Budget == "nesting depth"
	}
	_, raised := errors.AsType[*chat.RaisedError](err)
	_, failed := errors.AsType[*chat.RenderError](err)
	return raised || failed
}

func sameMessages(a, b []chat.Message) bool {
	return slices.EqualFunc(a, b, func(a, b chat.Message) bool { return reflect.DeepEqual(a, b) })
}

// systemMark is appended to system text to find out whether a template reads it.
const systemMark = "\nprobe system"

// showsSystem reports whether a prompt, with what it shows of the messages of in, lost no system
// message. Text that the template reads and leaves out, such as /no_think, is not lost.
func (f *Format) showsSystem(ctx context.Context, in chat.Input, prompt chat.Prompt, shown []bool) bool {
	marked, lost := slices.Clone(in.Messages), 0
	for i := range marked {
		if m := &marked[i]; m.Role == "system" && !shown[i] && !isBlank(m.Content) {
			m.Content += systemMark
			lost++
		}
	}
	if lost == 0 {
		return true
	}
	in.Messages = marked
	withMarks, _, err := f.render(ctx, in)
	mark := strings.TrimSpace(systemMark)
	return err == nil && strings.Count(withMarks.String(), mark)-strings.Count(prompt.String(), mark) >= lost
}

// showsAll reports whether a prompt shows something of all text but the assistant's.
func showsAll(messages []chat.Message, shown []bool) bool {
	for i, m := range messages {
		if m.Role != "assistant" && !shown[i] && !isBlank(m.Content) {
			return false
		}
	}
	return true
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
		last := &list[n]
		last.Content = joined(last.Content, m.Content)
		last.Pictures = slices.Concat(last.Pictures, m.Pictures)
		last.ReasoningContent = joined(last.ReasoningContent, m.ReasoningContent)
		last.ToolCalls = joinCalls(last.ToolCalls, m.ToolCalls)
		if last.Name != m.Name {
			last.Name = ""
		}
	}
	return list
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
