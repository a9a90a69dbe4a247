// Package tree describes the messages of all branches of a chat in few words.
package tree

import (
	"iter"
	"strings"
	"unicode/utf8"

	"m40-llm/store"
)

const (
	maxNodes = 2000 // messages that are described
	maxText  = 90   // characters of a text
)

// Node is a message of a chat's tree, in few words.
type Node struct {
	ID      int64
	Parent  int64 // 0: none
	Version int   // among those of its parent, from 1
	Role    store.Role
	State   store.State // of an answer
	Text    string      // the beginning of it; of a version, from where it differs from the one before
	Tokens  int         // of an answer
	LogProb float64     // sum of the log probabilities of Scored of them
	Scored  int
	Shown   bool // it is on the branch that is shown
}

// Nodes describes messages, parents before their children, and reports whether there are more of them than it describes.
// shown has those of the branch that is shown.
func Nodes(messages iter.Seq2[store.Message, error], shown map[int64]bool) (nodes []Node, more bool, err error) {
	last := map[int64]string{} // text of the version read last, by parent
	for m, err := range messages {
		if err != nil {
			return nil, false, err
		}
		if len(nodes) == maxNodes {
			return nodes, true, nil
		}
		n := Node{ID: m.ID, Parent: m.Parent, Version: m.Version, Role: m.Role, State: m.State, Text: beginning(m.Text, last[m.Parent]), Shown: shown[m.ID]}
		last[m.Parent] = m.Text
		if m.Answer != nil {
			n.Tokens, n.LogProb, n.Scored = m.Answer.Usage.CompletionTokens, m.Answer.LogProb, m.Answer.Scored
		}
		nodes = append(nodes, n)
	}
	return nodes, false, nil
}

// beginning returns the first words of a text, from where it differs from another version.
func beginning(text, other string) string {
	same := 0
	for same < min(len(text), len(other)) && text[same] == other[same] {
		same++
	}
	if same == len(text) {
		same = 0
	}
	from := strings.LastIndexAny(text[:same], " \n") + 1
	if before := strings.LastIndexAny(text[:max(0, from-1)], " \n") + 1; before > 0 {
		from = before // one word that both have
	}
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	short := []rune(strings.Join(strings.Fields(text[from:min(len(text), from+8*maxText)]), " "))
	if from > 0 {
		short = append([]rune("… "), short...)
	}
	if len(short) > maxText {
		short = append(short[:maxText], '…')
	}
	return strings.ToValidUTF8(string(short), "")
}
