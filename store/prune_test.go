package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// described describes a conversation: each message with its parent and version, and the branch that is shown.
func described(t *testing.T, s *Store, owner, conversation string) string {
	t.Helper()
	list, err := s.Messages(t.Context(), owner, conversation, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range list {
		out = append(out, fmt.Sprintf("%s<%d v%d/%d", m.Text, m.Parent, m.Version, m.Versions))
	}
	branch, err := s.Branch(t.Context(), owner, conversation)
	if err != nil {
		t.Fatal(err)
	}
	shown := ""
	for _, m := range branch {
		shown += m.Text
	}
	return strings.Join(out, " ") + " shows " + shown
}

func TestDeleteBranch_RemovesAVersionWithAllThatFollowsIt(t *testing.T) {
	for _, tc := range []struct {
		name, remove, shows string
	}{
		{"the version that is shown gives way to the last one beside it", "D", "AC"},
		{"a version that is not shown leaves the branch as it is", "B", "ADE"},
		{"the end of the branch gives way to its parent", "E", "AD"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(t)
			c, err := s.CreateConversation(t.Context(), "me", Metadata{Title: "t"})
			if err != nil {
				t.Fatal(err)
			}
			ids := map[string]int64{"": 0}
			add := func(text, parent string, role Role) {
				m, err := s.AddMessage(t.Context(), "me", c.ID, NewMessage{Parent: ids[parent], Role: role, Text: text})
				if err != nil {
					t.Fatal(err)
				}
				ids[text] = m.ID
			}
			add("A", "", RoleUser)
			add("B", "A", RoleAssistant)
			add("b", "B", RoleUser)
			add("C", "A", RoleAssistant)
			add("D", "A", RoleAssistant)
			add("E", "D", RoleUser)
			if err := s.DeleteBranch(t.Context(), "me", c.ID, ids[tc.remove]); err != nil {
				t.Fatal(err)
			}
			got := described(t, s, "me", c.ID)
			if !strings.HasSuffix(got, " shows "+tc.shows) || strings.Contains(got, tc.remove+"<") || tc.remove == "B" && strings.Contains(got, "b<") {
				t.Errorf("the tree is %s, want one that shows %s", got, tc.shows)
			}
			if tc.remove == "B" && (!strings.Contains(got, "C<1 v1/2") || !strings.Contains(got, "D<1 v2/2")) {
				t.Errorf("the versions are not numbered anew: %s", got)
			}
			add("F", "A", RoleAssistant) // takes the next number
			var wrong *InvalidError
			if err := s.DeleteBranch(t.Context(), "me", c.ID, ids["A"]); !errors.As(err, &wrong) {
				t.Errorf("the only first message can be deleted: %v", err)
			}
			for _, other := range []string{"you", "me"} {
				if err := s.DeleteBranch(t.Context(), other, c.ID, 999+ids["A"]*int64(len(other)-2)); !errors.Is(err, ErrNotFound) {
					t.Errorf("%s: %v, want that it is not found", other, err)
				}
			}
		})
	}
}

func TestDeleteMessage_LeavesWhatFollowsTheOnlyVersion(t *testing.T) {
	for _, tc := range []struct{ name, remove, want string }{
		{"an answer between two messages", "C", "A<0 v1/1 b<1 v1/2 B<1 v2/2 D<3 v1/2 d<3 v2/2 E<6 v1/1 shows ABdE"},
		{"the first message, whose answers are the first then", "A", "b<0 v1/2 B<0 v2/2 C<3 v1/1 D<4 v1/2 d<4 v2/2 E<6 v1/1 shows BCdE"},
		{"the last message", "E", "A<0 v1/1 b<1 v1/2 B<1 v2/2 C<3 v1/1 D<4 v1/2 d<4 v2/2 shows ABCd"},
		{"a version goes with what follows it", "d", "A<0 v1/1 b<1 v1/2 B<1 v2/2 C<3 v1/1 D<4 v1/1 shows ABCD"},
		{"a version that is not shown", "b", "A<0 v1/1 B<1 v1/1 C<3 v1/1 D<4 v1/2 d<4 v2/2 E<6 v1/1 shows ABCdE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(t)
			c, err := s.CreateConversation(t.Context(), "me", Metadata{Title: "t"})
			if err != nil {
				t.Fatal(err)
			}
			ids := map[string]int64{"": 0}
			for _, m := range []struct {
				text, parent string
				role         Role
			}{{"A", "", RoleUser}, {"b", "A", RoleAssistant}, {"B", "A", RoleAssistant}, {"C", "B", RoleUser}, {"D", "C", RoleAssistant}, {"d", "C", RoleAssistant}, {"E", "d", RoleUser}} {
				added, err := s.AddMessage(t.Context(), "me", c.ID, NewMessage{Parent: ids[m.parent], Role: m.role, Text: m.text})
				if err != nil {
					t.Fatal(err)
				}
				ids[m.text] = added.ID
			}
			for owner, id := range map[string]int64{"you": ids[tc.remove], "me": 999} {
				if err := s.DeleteMessage(t.Context(), owner, c.ID, id); !errors.Is(err, ErrNotFound) {
					t.Errorf("%s deletes message %d: %v, want that it is not found", owner, id, err)
				}
			}
			if err := s.DeleteMessage(t.Context(), "me", c.ID, ids[tc.remove]); err != nil {
				t.Fatal(err)
			}
			if got := described(t, s, "me", c.ID); got != tc.want {
				t.Errorf("the tree is\n%s, want\n%s", got, tc.want)
			}
			branch, err := s.Branch(t.Context(), "me", c.ID)
			if err != nil {
				t.Fatal(err)
			}
			last := branch[len(branch)-1].ID
			if _, err := s.AddMessage(t.Context(), "me", c.ID, NewMessage{Parent: last, Role: RoleUser, Text: "F"}); err != nil {
				t.Errorf("the chat does not go on: %v", err)
			}
		})
	}
}

func TestDeleteMessage_RefusesTheOnlyMessage(t *testing.T) {
	s := newStore(t)
	c, err := s.CreateConversation(t.Context(), "me", Metadata{Title: "t"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.AddMessage(t.Context(), "me", c.ID, NewMessage{Role: RoleUser, Text: "A"})
	if err != nil {
		t.Fatal(err)
	}
	var wrong *InvalidError
	if err := s.DeleteMessage(t.Context(), "me", c.ID, m.ID); !errors.As(err, &wrong) {
		t.Errorf("got %v, want that it is refused", err)
	}
}
