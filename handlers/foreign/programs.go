package foreign

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"m40-llm/store"
)

type chatGPTMessage struct {
	Author    struct{ Role string }
	Create    float64 `json:"create_time"`
	Recipient string
	Content   struct {
		Type  string `json:"content_type"`
		Parts []json.RawMessage
		Text  string
	}
	Metadata struct {
		Hidden bool `json:"is_visually_hidden_from_conversation"`
	}
}

// readChatGPT reads a chat of conversations.json in an export of ChatGPT.
func readChatGPT(raw json.RawMessage, omitted Omitted) (Chat, error) {
	type place struct {
		Parent   string
		Children []string
		Message  *chatGPTMessage
	}
	var in struct {
		Title    string
		Archived bool   `json:"is_archived"`
		Current  string `json:"current_node"`
		Mapping  map[string]place
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Chat{Metadata: store.Metadata{Title: in.Title}}, err
	}
	c := Chat{Program: "ChatGPT", Metadata: store.Metadata{Title: in.Title, Placement: store.Placement{Archived: in.Archived}}}
	var nodes []node
	for id, p := range inOrder(in.Mapping, func(p place) (string, []string) { return p.Parent, p.Children }) {
		n := node{id: id, parent: p.Parent}
		if p.Message != nil && !p.Message.Metadata.Hidden {
			p.Message.fill(&n, &c, omitted)
		}
		nodes = append(nodes, n)
	}
	c.Messages, c.Leaf = tree(nodes, in.Current)
	return c, nil
}

// fill sets the text and the role of n, or the system prompt of c.
func (m *chatGPTMessage) fill(n *node, c *Chat, omitted Omitted) {
	n.text, n.at = m.Content.Text, seconds(m.Create)
	for _, part := range m.Content.Parts {
		var s string
		if json.Unmarshal(part, &s) != nil {
			omitted[files]++
			continue
		}
		n.text += s
	}
	switch role := m.Author.Role; {
	case role == "system" && strings.TrimSpace(n.text) != "" && c.Metadata.System == "":
		c.Metadata.System = n.text
	case role == "user" && m.Content.Type != "user_editable_context":
		n.role = store.RoleUser
	case role == "tool", role == "assistant" && m.Recipient != "" && m.Recipient != "all", m.Content.Type == "code" && role == "assistant":
		omitted[calls]++
	case role == "assistant" && (m.Content.Type == "text" || m.Content.Type == "multimodal_text"):
		n.role = store.RoleAssistant
	}
	n.omitEmpty(omitted)
}

// inOrder yields the messages of a tree by id, each after its parent, and children in the order in which their parent lists them.
// links returns the parent and the children of a message. Messages without a known parent are roots.
func inOrder[M any](messages map[string]M, links func(M) (parent string, children []string)) iter.Seq2[string, M] {
	return func(yield func(string, M) bool) {
		var open []string
		for id, m := range messages {
			parent, _ := links(m)
			if _, known := messages[parent]; parent == "" || !known {
				open = append(open, id)
			}
		}
		seen := map[string]bool{}
		for len(open) > 0 {
			id := open[len(open)-1]
			open = open[:len(open)-1]
			m, known := messages[id]
			if !known || seen[id] {
				continue
			}
			seen[id] = true
			if !yield(id, m) {
				return
			}
			_, children := links(m)
			for _, child := range slices.Backward(children) {
				open = append(open, child)
			}
		}
	}
}

type openWebUIMessage struct {
	ID, ParentID string
	Children     []string `json:"childrenIds"`
	Role         string
	Content      json.RawMessage
	Timestamp    float64
	Files        []json.RawMessage
}

// readOpenWebUI reads a chat of an export of Open WebUI.
func readOpenWebUI(raw json.RawMessage, omitted Omitted) (Chat, error) {
	var in struct {
		Title            string
		Pinned, Archived bool
		Chat             struct {
			Title, System string
			Params        struct{ System string }
			History       struct {
				Messages map[string]openWebUIMessage
				Current  string `json:"currentId"`
			}
			Messages []openWebUIMessage
		}
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Chat{Metadata: store.Metadata{Title: in.Title}}, err
	}
	c := Chat{Program: "Open WebUI", Metadata: store.Metadata{
		Title: cmp.Or(in.Title, in.Chat.Title), System: cmp.Or(in.Chat.System, in.Chat.Params.System),
		Placement: store.Placement{Pinned: in.Pinned, Archived: in.Archived},
	}}
	var nodes []node
	if len(in.Chat.History.Messages) == 0 { // older exports have the branch alone
		before := ""
		for i, m := range in.Chat.Messages {
			id := cmp.Or(m.ID, fmt.Sprint(i+1))
			nodes = append(nodes, m.node(id, before, &c, omitted))
			before = id
		}
		c.Messages, c.Leaf = tree(nodes, before)
		return c, nil
	}
	links := func(m openWebUIMessage) (string, []string) { return m.ParentID, m.Children }
	for id, m := range inOrder(in.Chat.History.Messages, links) {
		nodes = append(nodes, m.node(id, m.ParentID, &c, omitted))
	}
	c.Messages, c.Leaf = tree(nodes, in.Chat.History.Current)
	return c, nil
}

// node returns the message as a node. The first one of the system becomes the system prompt of c.
func (m *openWebUIMessage) node(id, parent string, c *Chat, omitted Omitted) node {
	n := node{id: id, parent: parent, at: seconds(m.Timestamp), text: textOf(m.Content, omitted)}
	omitted.add(files, len(m.Files))
	n.takeRole(m.Role, c)
	n.omitEmpty(omitted)
	return n
}

// takeRole sets who wrote n. The first text of the system becomes the system prompt of c, and what an answer has of thoughts
// its reasoning.
func (n *node) takeRole(role string, c *Chat) {
	switch {
	case role == "system" && c.Metadata.System == "":
		c.Metadata.System = n.text
	case role == "user":
		n.role = store.RoleUser
	case role == "assistant":
		n.role = store.RoleAssistant
		n.reasoning, n.text = thoughts(n.text)
	}
}

// readLlamaServer reads a chat of an export of the page of llama-server.
func readLlamaServer(raw json.RawMessage, omitted Omitted) (Chat, error) {
	var in struct {
		Conv struct {
			Name string
			Node identifier `json:"currNode"`
		}
		Messages []struct {
			ID, Parent       identifier
			Type, Role       string
			Timestamp        float64 // milliseconds
			Content          json.RawMessage
			Thinking         string
			ReasoningContent string
			Extra            []struct{ Type, Name, Content string }
		}
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Chat{Metadata: store.Metadata{Title: in.Conv.Name}}, err
	}
	c := Chat{Program: "llama-server", Metadata: store.Metadata{Title: in.Conv.Name}}
	var nodes []node
	for _, m := range in.Messages {
		n := node{id: string(m.ID), parent: string(m.Parent), at: seconds(m.Timestamp / 1000), text: textOf(m.Content, omitted)}
		for _, extra := range m.Extra {
			if (strings.EqualFold(extra.Type, "text") || strings.EqualFold(extra.Type, "context") || extra.Type == "TEXT") && extra.Content != "" {
				n.text += "\n\n" + fenced(extra.Name, extra.Content)
			} else {
				omitted[files]++
			}
		}
		if m.Type != "root" {
			n.takeRole(m.Role, &c)
			switch m.Role {
			case "assistant":
				n.reasoning += m.Thinking + m.ReasoningContent
			case "tool":
				omitted[calls]++
			}
		}
		n.omitEmpty(omitted)
		nodes = append(nodes, n)
	}
	c.Messages, c.Leaf = tree(nodes, string(in.Conv.Node))
	return c, nil
}

// identifier is a string, or a number as a string.
type identifier string

func (i *identifier) UnmarshalJSON(data []byte) error {
	var text *string
	if json.Unmarshal(data, &text) == nil {
		if text != nil {
			*i = identifier(*text)
		}
		return nil
	}
	var number json.Number
	if err := json.Unmarshal(data, &number); err != nil {
		return err
	}
	if *i = identifier(number); number == "-1" {
		*i = ""
	}
	return nil
}

// readLMStudio reads a conversation file of LM Studio.
func readLMStudio(raw json.RawMessage, omitted Omitted) (Chat, error) {
	var in struct {
		Name      string
		Pinned    bool
		CreatedAt float64 // milliseconds
		System    string  `json:"systemPrompt"`
		Messages  []struct {
			Selected int `json:"currentlySelected"`
			Versions []struct {
				Type, Role string
				Content    []part
				Steps      []struct {
					Type    string
					Content []part
					Style   struct{ Type string }
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Chat{Metadata: store.Metadata{Title: in.Name}}, err
	}
	c := Chat{Program: "LM Studio", Metadata: store.Metadata{Title: in.Name, System: in.System, Placement: store.Placement{Pinned: in.Pinned}}}
	var nodes []node
	before := ""
	for i, m := range in.Messages {
		next := before
		for j, v := range m.Versions {
			n := node{id: fmt.Sprintf("%d/%d", i, j), parent: before, at: seconds(in.CreatedAt / 1000), text: omitted.join(v.Content)}
			for _, s := range v.Steps {
				switch {
				case s.Type == "contentBlock" && s.Style.Type == "thinking":
					n.reasoning += omitted.join(s.Content)
				case s.Type == "contentBlock":
					n.text += omitted.join(s.Content)
				case strings.Contains(strings.ToLower(s.Type), "tool"):
					omitted[calls]++
				}
			}
			switch v.Role {
			case "user":
				n.role = store.RoleUser
			case "assistant":
				n.role = store.RoleAssistant
				if thought, text := thoughts(n.text); thought != "" {
					n.reasoning, n.text = n.reasoning+thought, text
				}
			case "system":
				if c.Metadata.System == "" {
					c.Metadata.System = n.text
				}
			}
			n.omitEmpty(omitted)
			nodes = append(nodes, n)
			if j == m.Selected || next == before {
				next = n.id
			}
		}
		before = next
	}
	c.Messages, c.Leaf = tree(nodes, before)
	return c, nil
}

func (o Omitted) add(what string, n int) {
	if n > 0 {
		o[what] += n
	}
}

// textOf returns a content: a text, or a list of parts.
func textOf(content json.RawMessage, omitted Omitted) string {
	var text string
	if len(content) == 0 || json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []part
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	return omitted.join(parts)
}

// part is a part of a content.
type part struct{ Type, Text string }

// join returns the text of parts and counts the others as files.
func (o Omitted) join(parts []part) (text string) {
	for _, p := range parts {
		if p.Type == "text" {
			text += p.Text
		} else {
			o[files]++
		}
	}
	return text
}

var (
	details = regexp.MustCompile(`(?s)^\s*<details[^>]{0,500}type="reasoning"[^>]{0,500}>\s*(?:<summary>[^<]{0,500}</summary>)?(.*?)</details>\s*`)
	think   = regexp.MustCompile(`(?s)^\s*<think>(.*?)</think>\s*`)
	quote   = regexp.MustCompile(`(?m)^> ?`)
)

// thoughts separates the reasoning at the beginning of an answer from what follows.
func thoughts(text string) (reasoning, rest string) {
	if at := details.FindStringSubmatchIndex(text); at != nil {
		return strings.TrimSpace(quote.ReplaceAllString(html.UnescapeString(text[at[2]:at[3]]), "")), text[at[1]:]
	}
	if at := think.FindStringSubmatchIndex(text); at != nil {
		return strings.TrimSpace(text[at[2]:at[3]]), text[at[1]:]
	}
	return "", text
}

// fenced returns a file as part of a message, as the page writes it.
func fenced(name, text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if name = oneLine(name); name == "" {
		name = "file " + strconv.Itoa(len(text))
	}
	return "File " + name + ":\n" + fence + "\n" + strings.TrimSuffix(text, "\n") + "\n" + fence
}
