package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAnswer_KeepsEveryField(t *testing.T) {
	s := newStore(t)
	q, a := talk(t, s, "x", "a question", "an answer")
	want := receipt()
	tokens := want.Tokens
	want.Tokens = nil
	for name, m := range map[string]Message{
		"returned": a,
		"read":     must[Message](t)(s.Message(ctx, me, "x", a.ID)),
		"in page":  must[[]Message](t)(s.Page(ctx, me, "x", 0, 0))[1],
	} {
		if !reflect.DeepEqual(*m.Answer, want) {
			t.Errorf("%s: %+v\nwant %+v", name, *m.Answer, want)
		}
		m.Answer, m.Created = nil, q.Created
		if w := (Message{ID: a.ID, Parent: q.ID, Version: 1, Versions: 1, Role: RoleAssistant, State: Done, Text: "an answer", Created: q.Created}); !reflect.DeepEqual(m, w) {
			t.Errorf("%s: %+v, want %+v", name, m, w)
		}
	}
	if got := must[[]int32](t)(s.Tokens(ctx, me, "x", a.ID)); !slices.Equal(got, tokens) {
		t.Errorf("tokens %v, want %v", got, tokens)
	}
	c, tree, err := tree(s, ctx, me, "x")
	mustDo(t, err)
	if c.Leaf != a.ID || len(tree) != 2 || tree[0].Answer != nil || !slices.Equal(tree[1].Answer.Tokens, tokens) {
		t.Errorf("the tree is %+v with leaf %d", tree, c.Leaf)
	}
	if _, err := s.Tokens(ctx, me, "x", q.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("tokens of a question: %v", err)
	}
	for name, change := range map[string]func(*Answer){
		"settings that are not JSON":      func(a *Answer) { a.Settings = json.RawMessage("{") },
		"a chain of no numbers":           func(a *Answer) { a.Receipt.Params.TopP = math.Inf(1) },
		"an error that is not JSON":       func(a *Answer) { a.Error = json.RawMessage("[1,") },
		"a model that is not UTF-8":       func(a *Answer) { a.Receipt.Model = "\xff" },
		"a probability that is not one":   func(a *Answer) { a.EndProb = math.NaN() },
		"a beginning before the text":     func(a *Answer) { a.Prefix = -1 },
		"a system prompt that is a flood": func(a *Answer) { a.System = strings.Repeat("x", MaxText+1) },
	} {
		_, running := start(t, s, NewID(), "hello")
		bad := receipt()
		change(&bad)
		before := dump(t, s.opt.Path)
		_, err := s.AddAnswer(ctx, me, "x", NewAnswer{Parent: q.ID, Answer: bad})
		var invalid *InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s was taken: %v", name, err)
		}
		if _, err = s.FinishAnswer(ctx, me, "x", running.ID, Finish{State: Done, Answer: bad}); err == nil {
			t.Errorf("%s was taken at the end", name)
		}
		if dump(t, s.opt.Path) != before {
			t.Errorf("%s changed the database", name)
		}
	}
}

func TestText_IsKeptByteForByte(t *testing.T) {
	s := newStore(t)
	for i, text := range []string{"", "a\x00b\x00", "\x00", "'; DROP TABLE messages; --", "\ufeff\u202e\u2028", strings.Repeat("é\n", 100_000), "𝔘𝔫𝔦"} {
		id := fmt.Sprint("c", i)
		_, a := start(t, s, id, text)
		mustDo(t, second(s.SaveProgress(ctx, []Progress{{me, id, a.ID, text + "!", "", nil, nil}})))
		if m := must[Message](t)(s.Message(ctx, me, id, a.ID)); m.Text != text+"!" {
			t.Errorf("%.20q: progress reads %.20q", text, m.Text)
		}
		must[Message](t)(s.FinishAnswer(ctx, me, id, a.ID, Finish{State: Done, Text: text}))
		for _, m := range must[[]Message](t)(s.Branch(ctx, me, id)) {
			if m.Text != text {
				t.Errorf("%.20q reads %.20q", text, m.Text)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestFinishAnswer_OnlyOnce(t *testing.T) {
	s := newStore(t)
	q, a := talk(t, s, "x", "a question", "an answer")
	for _, c := range []struct {
		name string
		id   int64
		want error
	}{{"an answer that has ended", a.ID, ErrConflict}, {"a question", q.ID, ErrConflict}, {"nothing", 99, ErrNotFound}} {
		if _, err := s.FinishAnswer(ctx, me, "x", c.id, Finish{State: Stopped, Text: "other"}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if ended := must[[]int64](t)(s.SaveProgress(ctx, []Progress{{me, "x", a.ID, "late", "", nil, nil}})); !slices.Equal(ended, []int64{a.ID}) {
		t.Errorf("progress after the end was taken: %v", ended)
	}
	if m := must[Message](t)(s.Message(ctx, me, "x", a.ID)); m.Text != "an answer" || m.State != Done {
		t.Errorf("the answer is %+v", m)
	}
}

func TestSaveProgress_TakesManyChatsAtOnce(t *testing.T) {
	s := newStore(t)
	var batch []Progress
	for i := range 64 {
		id := fmt.Sprint("c", i)
		_, a := start(t, s, id, "hello")
		batch = append(batch, Progress{me, id, a.ID, fmt.Sprint("text ", i), "", []int32{int32(i)}, nil})
	}
	batch = append(batch, Progress{Owner: me, Conversation: "c0", Message: 9999})
	if ended := must[[]int64](t)(s.SaveProgress(ctx, batch)); !slices.Equal(ended, []int64{9999}) {
		t.Errorf("not taken: %v", ended)
	}
	for i, p := range batch[:64] {
		if m := must[Message](t)(s.Message(ctx, me, p.Conversation, p.Message)); m.Text != p.Text || m.State != Running {
			t.Errorf("answer %d is %+v", i, m)
		}
		if tokens := must[[]int32](t)(s.Tokens(ctx, me, p.Conversation, p.Message)); !slices.Equal(tokens, p.Tokens) {
			t.Errorf("answer %d has tokens %v", i, tokens)
		}
	}
	if second(s.SaveProgress(ctx, []Progress{{me, "c1", batch[1].Message, "\xff", "", nil, nil}})) == nil {
		t.Error("text that is not UTF-8 was taken")
	}
}

func TestPage_JoinsToTheWholeBranch(t *testing.T) {
	s := newStore(t)
	parent := int64(0)
	var want []int64
	must[Conversation](t)(s.CreateConversation(ctx, me, Metadata{ID: "long"}))
	if page := must[[]Message](t)(s.Page(ctx, me, "long", 0, 0)); len(page) != 0 {
		t.Errorf("an empty conversation has the page %+v", page)
	}
	for i := range 250 {
		m := must[Message](t)(s.AddMessage(ctx, me, "long", NewMessage{Parent: parent, Role: RoleUser, Text: fmt.Sprint(i)}))
		must[Message](t)(s.AddMessage(ctx, me, "long", NewMessage{Parent: parent, Role: RoleUser, Text: "a version not shown"}))
		must[int64](t)(s.Select(ctx, me, "long", m.ID))
		parent = m.ID
		want = append(want, m.ID)
	}
	var got []int64
	var sizes []int
	for before := int64(0); ; {
		page := must[[]Message](t)(s.Page(ctx, me, "long", before, 0))
		if len(page) == 0 {
			break
		}
		sizes = append(sizes, len(page))
		var ids []int64
		for _, m := range page {
			if m.Version != 1 || m.Versions != 2 {
				t.Errorf("message %d is version %d of %d", m.ID, m.Version, m.Versions)
			}
			ids = append(ids, m.ID)
		}
		got = append(ids, got...)
		before = page[0].ID
	}
	if !slices.Equal(got, want) || !slices.Equal(sizes, []int{100, 100, 50}) {
		t.Errorf("pages of %v hold %v, want %v", sizes, got, want)
	}
	if branch := must[[]Message](t)(s.Branch(ctx, me, "long")); len(branch) != 250 {
		t.Errorf("the branch has %d messages", len(branch))
	}
	if page := must[[]Message](t)(s.Page(ctx, me, "long", 0, 10_000)); len(page) != 250 {
		t.Errorf("a page of %d", len(page))
	}
}

// twin is a conversation in memory: what the store must say of it.
type twin struct {
	nodes []*node // by time
	leaf  *node
}

type node struct {
	id       int64
	parent   *node
	children []*node
	chosen   *node
	role     Role
	state    State
	text     string
}

func (w *twin) siblings(n *node) (list []*node) {
	for _, other := range w.nodes {
		if other.parent == n.parent {
			list = append(list, other)
		}
	}
	return list
}

func (w *twin) add(parent *node, m Message) *node {
	n := &node{id: m.ID, parent: parent, role: m.Role, state: m.State, text: m.Text}
	w.nodes = append(w.nodes, n)
	if parent != nil {
		parent.children = append(parent.children, n)
	}
	w.show(n)
	return n
}

func (w *twin) show(n *node) {
	if n.parent != nil {
		n.parent.chosen = n
	}
	for w.leaf = n; w.leaf.chosen != nil; {
		w.leaf = w.leaf.chosen
	}
}

func (w *twin) describe(n *node) string {
	parent, versions := int64(0), w.siblings(n)
	if n.parent != nil {
		parent = n.parent.id
	}
	return fmt.Sprint(n.id, parent, slices.Index(versions, n)+1, len(versions), len(n.children), n.role, n.state, n.text)
}

func describe(m Message) string {
	return fmt.Sprint(m.ID, m.Parent, m.Version, m.Versions, m.Children, m.Role, m.State, m.Text)
}

func (w *twin) branch() (list []string) {
	for n := w.leaf; n != nil; n = n.parent {
		list = append(list, w.describe(n))
	}
	slices.Reverse(list)
	return list
}

// TestTree_IsWhatATwinInMemorySays makes any conversation by any commands, two at a
// time in one store, and compares after each.
func TestTree_IsWhatATwinInMemorySays(t *testing.T) {
	s := newStore(t)
	rapid.Check(t, func(t *rapid.T) {
		twins := map[string]*twin{NewID(): {}, NewID(): {}}
		var names []string
		for id := range twins {
			if _, err := s.CreateConversation(ctx, me, Metadata{ID: id}); err != nil {
				t.Fatal(err)
			}
			names = append(names, id)
		}
		slices.Sort(names)
		var id string
		var w *twin
		pick := func(t *rapid.T, what string, fits func(*node) bool) *node {
			var list []*node
			for _, n := range w.nodes {
				if fits(n) {
					list = append(list, n)
				}
			}
			if len(list) == 0 {
				t.Skip()
			}
			return rapid.SampledFrom(list).Draw(t, what)
		}
		any := func(*node) bool { return true }
		running := func(n *node) bool { return n.state == Running }
		text := rapid.StringN(0, 20, 60)
		// Actions turn conversations by their own draw.
		turn := func(f func(t *rapid.T)) func(t *rapid.T) {
			return func(t *rapid.T) {
				id = rapid.SampledFrom(names).Draw(t, "conversation")
				w = twins[id]
				f(t)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": turn(func(t *rapid.T) {
				q, a, err := s.Ask(ctx, me, id, NewMessage{Parent: idOf(w.leaf), Role: RoleUser, Text: text.Draw(t, "question")}, NewAnswer{})
				if err != nil {
					t.Fatal(err)
				}
				w.add(w.add(w.leaf, q), a)
			}),
			"edit": turn(func(t *rapid.T) {
				of := pick(t, "message", any)
				m, err := s.AddMessage(ctx, me, id, NewMessage{Parent: idOf(of.parent), Role: of.role, Text: text.Draw(t, "text")})
				if err != nil {
					t.Fatal(err)
				}
				w.add(of.parent, m)
			}),
			"answer again": turn(func(t *rapid.T) {
				parent := pick(t, "parent", any)
				prefix := text.Draw(t, "prefix")
				m, err := s.AddAnswer(ctx, me, id, NewAnswer{Parent: parent.id, Text: prefix})
				if err != nil {
					t.Fatal(err)
				}
				if m.Text != prefix {
					t.Fatalf("the answer begins with %q, want %q", m.Text, prefix)
				}
				w.add(parent, m)
			}),
			"write": turn(func(t *rapid.T) {
				n := pick(t, "answer", running)
				n.text = text.Draw(t, "text")
				ended, err := s.SaveProgress(ctx, []Progress{{Owner: me, Conversation: id, Message: n.id, Text: n.text}})
				if err != nil || len(ended) > 0 {
					t.Fatal(ended, err)
				}
			}),
			"finish": turn(func(t *rapid.T) {
				n := pick(t, "answer", running)
				n.text = text.Draw(t, "text")
				n.state = rapid.SampledFrom([]State{Done, Stopped, Failed}).Draw(t, "state")
				if _, err := s.FinishAnswer(ctx, me, id, n.id, Finish{State: n.state, Text: n.text}); err != nil {
					t.Fatal(err)
				}
			}),
			"select": turn(func(t *rapid.T) {
				n := pick(t, "message", any)
				leaf, err := s.Select(ctx, me, id, n.id)
				w.show(n)
				if err != nil || leaf != w.leaf.id {
					t.Fatalf("selecting %d shows %d, %v; want %d", n.id, leaf, err, w.leaf.id)
				}
			}),
			"sibling": turn(func(t *rapid.T) {
				n := pick(t, "message", any)
				versions := w.siblings(n)
				version := rapid.IntRange(-1, len(versions)+1).Draw(t, "version")
				got, err := s.Sibling(ctx, me, id, n.id, version)
				if version < 1 || version > len(versions) {
					if !errors.Is(err, ErrNotFound) {
						t.Fatalf("version %d of %d: %d, %v", version, len(versions), got, err)
					}
				} else if err != nil || got != versions[version-1].id {
					t.Fatalf("version %d is %d, %v; want %d", version, got, err, versions[version-1].id)
				}
			}),
			"": func(t *rapid.T) {
				for id, w := range twins {
					got, err := s.Branch(ctx, me, id)
					if err != nil {
						t.Fatal(err)
					}
					var shown []string
					for _, m := range got {
						shown = append(shown, describe(m))
					}
					if want := w.branch(); !slices.Equal(shown, want) {
						t.Fatalf("%s shows\n%q, want\n%q", id, shown, want)
					}
					c, tree, err := tree(s, ctx, me, id)
					if err != nil || c.Leaf != idOf(w.leaf) || len(tree) != len(w.nodes) {
						t.Fatalf("%s: leaf %d and %d messages, %v", id, c.Leaf, len(tree), err)
					}
					for i, m := range tree {
						if got, want := describe(m), w.describe(w.nodes[i]); got != want {
							t.Fatalf("%s: message %q, want %q", id, got, want)
						}
					}
				}
			},
		})
	})
	if detail, err := check(ctx, s.readers); detail != "" || err != nil {
		t.Errorf("the database is damaged: %s %v", detail, err)
	}
}

func idOf(n *node) int64 {
	if n == nil {
		return 0
	}
	return n.id
}
