package foreign

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
	"m40-llm/store"
)

const chatGPT = `[{"title":"Moss","create_time":1700000000.5,"is_archived":true,"current_node":"e","mapping":{
	"root":{"id":"root","message":null,"parent":null,"children":["s"]},
	"s":{"id":"s","parent":"root","children":["a"],"message":{"author":{"role":"system"},"content":{"content_type":"text","parts":[""]},"metadata":{"is_visually_hidden_from_conversation":true}}},
	"a":{"id":"a","parent":"s","children":["b","c"],"message":{"author":{"role":"user"},"create_time":1700000001,"recipient":"all","content":{"content_type":"multimodal_text","parts":["What is moss?",{"content_type":"image_asset_pointer"}]}}},
	"b":{"id":"b","parent":"a","children":[],"message":{"author":{"role":"assistant"},"recipient":"all","content":{"content_type":"text","parts":["A plant."]}}},
	"c":{"id":"c","parent":"a","children":["d"],"message":{"author":{"role":"assistant"},"recipient":"browser","content":{"content_type":"code","text":"search()"}}},
	"d":{"id":"d","parent":"c","children":["e"],"message":{"author":{"role":"tool"},"content":{"content_type":"text","parts":["found"]}}},
	"e":{"id":"e","parent":"d","children":[],"message":{"author":{"role":"assistant"},"recipient":"all","content":{"content_type":"text","parts":["A small ","plant."]}}}}}]`

const openWebUI = `[{"id":"x","title":"Moss","pinned":true,"archived":false,"chat":{"title":"Moss","params":{"system":"Be brief."},"history":{"currentId":"3","messages":{
	"1":{"id":"1","parentId":null,"childrenIds":["2","3"],"role":"user","content":"What is moss?","timestamp":1700000001,"files":[{"type":"image"}]},
	"2":{"id":"2","parentId":"1","childrenIds":[],"role":"assistant","content":"A plant."},
	"3":{"id":"3","parentId":"1","childrenIds":[],"role":"assistant","content":"<details type=\"reasoning\" done=\"true\" duration=\"3\">\n<summary>Thought for 3 seconds</summary>\n&gt; Hm, a <b>.\n</details>\nA small plant."}}}}}]`

const llamaServer = `{"conv":{"id":"conv-1","name":"Moss","lastModified":1700000000000,"currNode":"4"},"messages":[
	{"id":"r","convId":"conv-1","type":"root","timestamp":1700000000000,"role":"system","content":"","parent":null,"children":["1"]},
	{"id":"1","type":"text","timestamp":1700000001000,"role":"user","content":"What is moss?","parent":"r","children":["3","4"],"extra":[{"type":"TEXT","name":"a.txt","content":"green"},{"type":"IMAGE","name":"b.png"}]},
	{"id":"3","type":"text","timestamp":1700000002000,"role":"assistant","content":"A plant.","parent":"1","children":[]},
	{"id":"4","type":"text","timestamp":1700000003000,"role":"assistant","content":"A small plant.","thinking":"Hm.","parent":"1","children":[]}]}`

const lmStudio = `{"name":"Moss","pinned":false,"createdAt":1700000000000,"systemPrompt":"Be brief.","messages":[
	{"versions":[{"type":"singleStep","role":"user","content":[{"type":"text","text":"What is moss?"},{"type":"file"}]}],"currentlySelected":0},
	{"versions":[
		{"type":"multiStep","role":"assistant","steps":[{"type":"contentBlock","content":[{"type":"text","text":"A plant."}]}]},
		{"type":"multiStep","role":"assistant","steps":[{"type":"contentBlock","style":{"type":"thinking"},"content":[{"type":"text","text":"Hm."}]},{"type":"contentBlock","content":[{"type":"text","text":"A small plant."}]},{"type":"debugInfoBlock","debugInfo":"x"}]}],"currentlySelected":1},
	{"versions":[{"type":"singleStep","role":"user","content":[{"type":"text","text":"Thanks."}]}],"currentlySelected":0}]}`

// described describes a chat: each message with its parent, and the one that is shown last.
func described(c Chat) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %q system=%q pinned=%v archived=%v", c.Program, c.Metadata.Title, c.Metadata.System, c.Metadata.Pinned, c.Metadata.Archived)
	for _, m := range c.Messages {
		fmt.Fprintf(&out, " %d<%d %s %q", m.ID, m.Parent, m.Role, m.Text)
		if m.Reasoning != "" {
			fmt.Fprintf(&out, " (%s)", m.Reasoning)
		}
	}
	fmt.Fprintf(&out, " shows %d", c.Leaf)
	return out.String()
}

func readAll(file string) (chats []Chat, omitted Omitted, errs []error) {
	omitted = Omitted{}
	for c, err := range Read(strings.NewReader(file), int64(len(file)), omitted) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		chats = append(chats, c)
	}
	return chats, omitted, errs
}

func TestRead_RecognisesProgramsAndKeepsBranches(t *testing.T) {
	const moss = `1<0 user "What is moss?" 2<1 assistant "A plant." 3<1 assistant "A small plant."`
	for _, tc := range []struct {
		name, file, want string
		omitted          Omitted
	}{
		{"ChatGPT", chatGPT, `ChatGPT "Moss" system="" pinned=false archived=true ` + moss + ` shows 3`, Omitted{files: 1, calls: 2}},
		{"ChatGPT's archive", string(fixtures.Zip(t, "chat.html", "<html>", "user.json", `{"id":"u"}`, "conversations.json", chatGPT)), `ChatGPT "Moss" system="" pinned=false archived=true ` + moss + ` shows 3`, Omitted{files: 1, calls: 2}},
		{"Open WebUI", openWebUI, `Open WebUI "Moss" system="Be brief." pinned=true archived=false ` + moss + ` (Hm, a <b>.) shows 3`, Omitted{files: 1}},
		{"llama-server", llamaServer, `llama-server "Moss" system="" pinned=false archived=false 1<0 user "What is moss?\n\nFile a.txt:\n` + "```" + `\ngreen\n` + "```" + `" 2<1 assistant "A plant." 3<1 assistant "A small plant." (Hm.) shows 3`, Omitted{files: 1}},
		{"a list of llama-server", "\ufeff [" + llamaServer + "]", `llama-server "Moss" system="" pinned=false archived=false 1<0 user "What is moss?\n\nFile a.txt:\n` + "```" + `\ngreen\n` + "```" + `" 2<1 assistant "A plant." 3<1 assistant "A small plant." (Hm.) shows 3`, Omitted{files: 1}},
		{"LM Studio", lmStudio, `LM Studio "Moss" system="Be brief." pinned=false archived=false ` + moss + ` (Hm.) 4<3 user "Thanks." shows 4`, Omitted{files: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !Known([]byte(tc.file[:min(len(tc.file), 512)])) {
				t.Error("it is taken for an export of this program")
			}
			chats, omitted, errs := readAll(tc.file)
			if len(chats) != 1 || len(errs) > 0 {
				t.Fatalf("got %d chats and %v", len(chats), errs)
			}
			if got := described(chats[0]); got != tc.want {
				t.Errorf("got\n%s, want\n%s", got, tc.want)
			}
			if fmt.Sprint(omitted) != fmt.Sprint(tc.omitted) {
				t.Errorf("left out %v, want %v", omitted, tc.omitted)
			}
		})
	}
}

func TestRead_LeavesOutOneChatAndSaysWhy(t *testing.T) {
	good := strings.Trim(chatGPT, "[]")
	chats, _, errs := readAll(`[{"title":"Empty","mapping":{}},` + good + `,{"title":"Odd","mapping":{"a":7}},` + good + `]`)
	if len(chats) != 2 || len(errs) != 2 {
		t.Fatalf("got %d chats and %v", len(chats), errs)
	}
	for i, want := range []string{"the chat “Empty” was left out: it has no messages", "the chat “Odd” was left out: "} {
		if !strings.HasPrefix(errs[i].Error(), want) {
			t.Errorf("got %v, want %s", errs[i], want)
		}
	}
}

func TestRead_SaysWhatIsWrongWithAFile(t *testing.T) {
	var circle strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&circle, `,"%d":{"parent":"%d","children":["%d"],"message":{"author":{"role":"user"},"content":{"content_type":"text","parts":["x"]}}}`, i, (i+1)%2000, (i+1)%2000)
	}
	for name, tc := range map[string]struct{ file, want string }{
		"no chats":                             {`[1,2]`, "no chats that this program knows"},
		"another list":                         {`[{"a":1}]`, "no chats that this program knows"},
		"an empty list":                        {`[]`, "empty list"},
		"a truncated list":                     {chatGPT[:len(chatGPT)-20], "ends too early"},
		"no JSON":                              {`[nothing`, "not valid JSON"},
		"an archive of pictures":               {string(fixtures.Zip(t, "a.png", "x")), "no chats that this program knows"},
		"a part of an archive":                 {string(fixtures.Zip(t, "conversations.json", chatGPT)[:200]), "broken, or only a part of it"},
		"a chat that is too long":              {`[{"title":"` + strings.Repeat("x", maxChat+1<<20) + `"}]`, "longer than 32 MiB"},
		"messages in a circle":                 {`[{"title":"Circle","mapping":{` + circle.String()[1:] + `}}]`, "it has no messages"},
		"an archive that unpacks to much more": {string(fixtures.Zip(t, "conversations.json", `["`+strings.Repeat("x", 2*maxChat)+`"]`)), "longer than 32 MiB"},
		"white space without end":              {"[" + strings.Repeat(" ", 16<<20) + "]", "white space"},
	} {
		t.Run(name, func(t *testing.T) {
			chats, _, errs := readAll(tc.file)
			if len(chats) > 0 || len(errs) == 0 || !strings.Contains(errs[0].Error(), tc.want) {
				t.Errorf("got %d chats and %v, want that it %q", len(chats), errs, tc.want)
			}
		})
	}
}

func TestKnown_LeavesExportsOfThisProgramToTheirReader(t *testing.T) {
	for text, want := range map[string]bool{
		`{"format":"m40-llm-chat-1","title":"x"`: false,
		`# notes`:                                false,
		``:                                       false,
		`{"name":"x"`:                            true,
		"  [":                                    true,
	} {
		if got := Known([]byte(text)); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestRead_TakesEveryMutationOfAFile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	files := []string{chatGPT, openWebUI, llamaServer, lmStudio, string(fixtures.Zip(t, "conversations.json", chatGPT))}
	for i := range 500 {
		file := []byte(files[i%len(files)])
		for range 1 + random.IntN(8) {
			at := random.IntN(len(file))
			to := min(len(file), at+1+random.IntN(16))
			switch random.IntN(3) {
			case 0:
				file[at] = byte(random.IntN(256))
			case 1:
				file = append(file[:at:at], file[to:]...)
			case 2:
				file = append(file[:to:to], append(bytes.Clone(file[at:to]), file[to:]...)...)
			}
		}
		chats, _, errs := readAll(string(file))
		if len(chats)+len(errs) == 0 {
			t.Errorf("mutation %d has neither chats nor an error", i)
		}
		for _, c := range chats {
			for at, m := range c.Messages {
				if m.ID != int64(at+1) || m.Parent >= m.ID || m.Role == store.RoleSystem {
					t.Errorf("mutation %d: message %d is %+v", i, at, m)
				}
			}
			if c.Leaf > int64(len(c.Messages)) {
				t.Errorf("mutation %d shows message %d of %d", i, c.Leaf, len(c.Messages))
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, file := range []string{chatGPT, openWebUI, llamaServer, lmStudio} {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file string) {
		if chats, _, errs := readAll(file); len(chats)+len(errs) == 0 {
			t.Error("it has neither chats nor an error")
		}
	})
}
