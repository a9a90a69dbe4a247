package foreign

import (
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"

	"m40-llm/store"
)

// readChatGPT reads a chat of conversations.json in an export of ChatGPT.
func readChatGPT(raw json.RawMessage, omitted Omitted) (Chat, error) {
	var in struct {
		Title    string
		Archived bool   `json:"is_archived"`
		Current  string `json:"current_node"`
		Mapping  map[string]struct {
			Parent   string
			Children []string
			Message  *struct {
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
		}
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Chat{Metadata: store.Metadata{Title: in.Title}}, err
	}
	c := Chat{Program: "ChatGPT", Metadata: store.Metadata{Title: in.Title, Placement: store.Placement{Archived: in.Archived}}}
	var nodes []node
	add := func(id, parent string) {
		n := node{id: id, parent: parent}
		if m := in.Mapping[id].Message; m != nil && !m.Metadata.Hidden {
			text := m.Content.Text
			for _, part := range m.Content.Parts {
				var s string
				if json.Unmarshal(part, &s) != nil {
					omitted[files]++
					continue
				}
				text += s
			}
			n.text, n.at = text, seconds(m.Create)
			switch role := m.Author.Role; {
			case role == "system" && strings.TrimSpace(text) != "" && c.Metadata.System == "":
				c.Metadata.System = text
			case role == "user" && m.Content.Type != "user_editable_context":
				n.role = store.RoleUser
			case role == "tool", role == "assistant" && m.Recipient != "" && m.Recipient != "all", m.Content.Type == "code" && role == "assistant":
				omitted[calls]++
			case role == "assistant" && (m.Content.Type == "text" || m.Content.Type == "multimodal_text"):
				n.role = store.RoleAssistant
			}
			if n.role != "" && strings.TrimSpace(text) == "" {
				n.role = ""
				omitted[orphaned]++
			}
		}
		nodes = append(nodes, n)
	}
	// Children are in the order of versions, which a map of Go is not.
	var roots []string
	for id, n := range in.Mapping {
		if _, there := in.Mapping[n.Parent]; n.Parent == "" || !there {
			roots = append(roots, id)
		}
	}
	open, seen := roots, map[string]bool{}
	for len(open) > 0 {
		id := open[len(open)-1]
		open = open[:len(open)-1]
		if _, there := in.Mapping[id]; !there || seen[id] {
			continue
		}
		seen[id] = true
		add(id, in.Mapping[id].Parent)
		children := in.Mapping[id].Children
		for i := len(children) - 1; i >= 0; i-- {
			open = append(open, children[i])
		}
	}
	c.Messages, c.Leaf = tree(nodes, in.Current)
	return c, nil
}

// readOpenWebUI reads a chat of an export of Open WebUI.
func readOpenWebUI(raw json.RawMessage, omitted Omitted) (Chat, error) {
	type message struct {
		ID, ParentID string
		Children     []string `json:"childrenIds"`
		Role         string
		Content      json.RawMessage
		Timestamp    float64
		Files        []json.RawMessage
	}
	var in struct {
		Title            string
		Pinned, Archived bool
		Chat             struct {
			Title, System string
			Params        struct{ System string }
			History       struct {
				Messages map[string]message
				Current  string `json:"currentId"`
			}
			Messages []message
		}
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Chat{Metadata: store.Metadata{Title: in.Title}}, err
	}
	c := Chat{Program: "Open WebUI", Metadata: store.Metadata{Title: in.Title, System: in.Chat.System, Placement: store.Placement{Pinned: in.Pinned, Archived: in.Archived}}}
	if c.Metadata.Title == "" {
		c.Metadata.Title = in.Chat.Title
	}
	if c.Metadata.System == "" {
		c.Metadata.System = in.Chat.Params.System
	}
	var nodes []node
	add := func(m message, parent string) {
		n := node{id: m.ID, parent: parent, at: seconds(m.Timestamp)}
		n.text = textOf(m.Content, omitted)
		omitted.add(files, len(m.Files))
		switch {
		case m.Role == "system" && c.Metadata.System == "":
			c.Metadata.System = n.text
		case m.Role == "user":
			n.role = store.RoleUser
		case m.Role == "assistant":
			n.role = store.RoleAssistant
			n.reasoning, n.text = thoughts(n.text)
		}
		if n.role != "" && strings.TrimSpace(n.text+n.reasoning) == "" {
			n.role = ""
			omitted[orphaned]++
		}
		nodes = append(nodes, n)
	}
	history := in.Chat.History.Messages
	if len(history) == 0 { // older exports have the branch alone
		before := ""
		for i, m := range in.Chat.Messages {
			if m.ID == "" {
				m.ID = fmt.Sprint(i + 1)
			}
			add(m, before)
			before = m.ID
		}
		c.Messages, c.Leaf = tree(nodes, before)
		return c, nil
	}
	var open []string
	for id, m := range history {
		if _, there := history[m.ParentID]; m.ParentID == "" || !there {
			open = append(open, id)
		}
	}
	seen := map[string]bool{}
	for len(open) > 0 {
		id := open[len(open)-1]
		open = open[:len(open)-1]
		m, there := history[id]
		if !there || seen[id] {
			continue
		}
		seen[id] = true
		m.ID = id
		add(m, m.ParentID)
		for i := len(m.Children) - 1; i >= 0; i-- {
			open = append(open, m.Children[i])
		}
	}
	c.Messages, c.Leaf = tree(nodes, in.Chat.History.Current)
	return c, nil
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
		switch {
		case m.Type == "root":
		case m.Role == "system" && c.Metadata.System == "":
			c.Metadata.System = n.text
		case m.Role == "user":
			n.role = store.RoleUser
		case m.Role == "assistant":
			n.role = store.RoleAssistant
			n.reasoning, n.text = thoughts(n.text)
			n.reasoning += m.Thinking + m.ReasoningContent
		case m.Role == "tool":
			omitted[calls]++
		}
		if n.role != "" && strings.TrimSpace(n.text+n.reasoning) == "" {
			n.role = ""
			omitted[orphaned]++
		}
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
	type content []struct{ Type, Text string }
	var in struct {
		Name      string
		Pinned    bool
		CreatedAt float64 // milliseconds
		System    string  `json:"systemPrompt"`
		Messages  []struct {
			Selected int `json:"currentlySelected"`
			Versions []struct {
				Type, Role string
				Content    content
				Steps      []struct {
					Type    string
					Content content
					Style   struct{ Type string }
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Chat{Metadata: store.Metadata{Title: in.Name}}, err
	}
	c := Chat{Program: "LM Studio", Metadata: store.Metadata{Title: in.Name, System: in.System, Placement: store.Placement{Pinned: in.Pinned}}}
	join := func(parts content) (text string) {
		for _, p := range parts {
			if p.Type == "text" {
				text += p.Text
			} else {
				omitted[files]++
			}
		}
		return text
	}
	var nodes []node
	before := ""
	for i, m := range in.Messages {
		next := before
		for j, v := range m.Versions {
			n := node{id: fmt.Sprintf("%d/%d", i, j), parent: before, at: seconds(in.CreatedAt / 1000), text: join(v.Content)}
			for _, s := range v.Steps {
				switch {
				case s.Type == "contentBlock" && s.Style.Type == "thinking":
					n.reasoning += join(s.Content)
				case s.Type == "contentBlock":
					n.text += join(s.Content)
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
			if n.role != "" && strings.TrimSpace(n.text+n.reasoning) == "" {
				n.role = ""
				omitted[orphaned]++
			}
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
	var parts []struct{ Type, Text string }
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	for _, p := range parts {
		if p.Type == "text" {
			text += p.Text
		} else {
			omitted[files]++
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
