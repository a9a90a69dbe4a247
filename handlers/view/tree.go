package view

import (
	"m40-llm/handlers/live"
	"m40-llm/handlers/tree"
	"m40-llm/store"
)

// Node is a message of a chat's tree.
type Node struct {
	ID      int64            `json:"id"`
	Parent  int64            `json:"parent,omitempty"` // none: a first message
	Version int              `json:"version"`          // among those of its parent, from 1
	Role    live.Role        `json:"role"`
	State   live.AnswerState `json:"state,omitempty"` // of an answer
	Text    string           `json:"text"`            // its beginning; of a further version, from where it differs
	Tokens  int              `json:"tokens,omitempty"`
	LogProb float64          `json:"logprob,omitempty"` // sum of the natural logarithms of the probabilities of the tokens that are scored
	Scored  int              `json:"scored,omitempty"`
	Shown   bool             `json:"shown,omitempty"` // on the branch that is shown
}

// NodesOf describes a tree.
func NodesOf(nodes []tree.Node) []Node {
	list := make([]Node, len(nodes))
	for i, n := range nodes {
		list[i] = Node{ID: n.ID, Parent: n.Parent, Version: n.Version, Role: live.RoleUser, Text: n.Text, Tokens: n.Tokens, LogProb: n.LogProb, Scored: n.Scored, Shown: n.Shown}
		if n.Role == store.RoleAssistant {
			list[i].Role, list[i].State = live.RoleModel, live.AnswerState(n.State)
		}
	}
	return list
}
