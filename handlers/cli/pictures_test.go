package cli

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
)

const mark = chat.PictureMark

// writePicture writes a picture with so many pixels a side, and returns its file.
func writePicture(t *testing.T, path string, side int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, side, side))); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPathsInALineAttachPictures(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	one, two, home := writePicture(t, "one.png", 1), writePicture(t, "my pictures/two.PNG", 2), writePicture(t, "home/three.png", 3)
	if err := os.WriteFile("damaged.png", []byte("no picture"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, line string
		content    string
		pictures   [][]byte
		says       string
	}{
		{"a question", "What is in ./one.png?", "What is in " + mark + "?", [][]byte{one}, "./one.png is attached, 1 x 1 pixels"},
		{"a path alone", dir + "/one.png", mark, [][]byte{one}, "is attached"},
		{"a file with a space that was dropped", dir + `/my\ pictures/two.PNG and ./one.png`, mark + " and " + mark, [][]byte{two, one}, "two.PNG is attached, 2 x 2 pixels"},
		{"a path in quotes", `Look: './my pictures/two.PNG', please`, "Look: " + mark + ", please", [][]byte{two}, "is attached"},
		{"a path in the folder of the person", "~/three.png", mark, [][]byte{home}, "three.png is attached"},
		{"marks of pictures in the text", "./one.png " + mark, mark + " \uFFFD", [][]byte{one}, ""},
		{"a name without a folder", "What is one.png?", "What is one.png?", nil, ""},
		{"a file that does not exist", "What is ./four.png?", "What is ./four.png?", nil, "there is no file ./four.png; its name is sent as text"},
		{"a file of another kind", "What is ./notes.txt?", "What is ./notes.txt?", nil, ""},
		{"a quoted message", `"""What is ./one.png?"""`, "What is ./one.png?", nil, ""},
		{"quotes and backslashes that belong to no path", `it's a \ "b`, `it's a \ "b`, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			term, _, errs := terminal(c.line + "\n")
			term.Env = func(name string) string { return map[string]string{"HOME": dir + "/home"}[name] }
			engine := says("x")
			if err := (&Chat{Engine: engine, Request: infer.DefaultRequest(), Terminal: term}).Loop(context.Background()); err != nil {
				t.Fatal(err)
			}
			if len(engine.asked) != 1 {
				t.Fatalf("asked %d times: %s", len(engine.asked), errs())
			}
			m := engine.asked[0].Messages[0]
			if m.Content != c.content || !reflect.DeepEqual(m.Pictures, c.pictures) || !strings.Contains(errs(), c.says) {
				t.Errorf("got %q with %d pictures, and wrote %q; want %q with %d and %q", m.Content, len(m.Pictures), errs(), c.content, len(c.pictures), c.says)
			}
		})
	}
	t.Run("a message with a damaged picture is not sent", func(t *testing.T) {
		term, _, errs := terminal("What is ./damaged.png?\nWhat is ./one.png?\n")
		engine := says("x")
		if err := (&Chat{Engine: engine, Request: infer.DefaultRequest(), Terminal: term}).Loop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if len(engine.asked) != 1 || len(engine.asked[0].Messages) != 1 || !strings.Contains(errs(), "the message is not sent: ./damaged.png cannot be read: ") {
			t.Errorf("asked %+v, and wrote %q", engine.asked, errs())
		}
	})
	t.Run("a model without a chat template gets the text alone", func(t *testing.T) {
		term, _, _ := terminal("In ./one.png\n")
		engine := says("x")
		if err := (&Chat{Engine: engine, Request: infer.DefaultRequest(), Continue: true, Terminal: term}).Loop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := engine.asked[0].Prompt; got != "In ./one.png" {
			t.Errorf("the prompt is %q", got)
		}
	})
}

func TestTheDetailOfPicturesGoesWithThem(t *testing.T) {
	t.Chdir(t.TempDir())
	file := writePicture(t, "one.png", 1)
	term, _, errs := terminal("first\n/detail medium\n./one.png\n/detail full\n./one.png\n/detail blurred\n/detail\n")
	engine := says("x")
	if err := (&Chat{Engine: engine, Request: infer.DefaultRequest(), Pictures: [][]byte{file, file}, Detail: chat.Low, Terminal: term}).Loop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(engine.asked) != 3 {
		t.Fatalf("asked %d times: %s", len(engine.asked), errs())
	}
	messages := engine.asked[2].Messages
	for i, want := range map[int][]chat.Detail{0: {chat.Low, chat.Low}, 2: {chat.Medium}, 4: {chat.Full}} {
		m := messages[i]
		if len(m.Pictures) != len(want) {
			t.Fatalf("message %d has %d pictures, want %d", i, len(m.Pictures), len(want))
		}
		for k, detail := range want {
			if m.DetailOf(k) != detail {
				t.Errorf("picture %d of message %d has the detail %q, want %q", k, i, m.DetailOf(k), detail)
			}
		}
	}
	if messages[0].Content != mark+mark+"first" {
		t.Errorf("the first message is %q", messages[0].Content)
	}
	for _, name := range []string{`"blurred"`, `""`} {
		if want := "the detail of pictures is " + name + ", and must be low, medium or full"; !strings.Contains(errs(), want) {
			t.Errorf("wrote %q, want %q", errs(), want)
		}
	}
}
