package upstream

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
)

// pictureFiles are two picture files.
func pictureFiles(t *testing.T) (first, second []byte) {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, 5, 3))
	var a, b bytes.Buffer
	if err := png.Encode(&a, img); err != nil {
		t.Fatal(err)
	}
	if err := jpeg.Encode(&b, img, nil); err != nil {
		t.Fatal(err)
	}
	return a.Bytes(), b.Bytes()
}

// seenConversation is a chat about two pictures, of which the second message has one in low detail behind its text.
func seenConversation(t *testing.T) infer.Request {
	first, second := pictureFiles(t)
	r := question("")
	asked := chat.Message{Role: "user", Content: chat.PictureMark + "What is this?"}
	asked.AddPicture(first, chat.Medium)
	next := chat.Message{Role: "user", Content: "And here " + chat.PictureMark}
	next.AddPicture(second, chat.Low)
	r.Messages = []chat.Message{{Role: "system", Content: "Be brief."}, asked, {Role: "assistant", Content: "A square."}, next}
	return r
}

// TestPicturesReachEnginesThatTakeNoFieldThatTheyDoNotKnow sends a conversation with pictures to each strict stand-in.
func TestPicturesReachEnginesThatTakeNoFieldThatTheyDoNotKnow(t *testing.T) {
	first, second := pictureFiles(t)
	url := func(kind string, data []byte) string {
		return "data:image/" + kind + ";base64," + base64.StdEncoding.EncodeToString(data)
	}
	want := `[{"content":"Be brief.","role":"system"},` +
		`{"content":[{"image_url":{"url":"` + url("png", first) + `"},"type":"image_url"},{"text":"What is this?","type":"text"}],"role":"user"},` +
		`{"content":"A square.","role":"assistant"},` +
		`{"content":[{"text":"And here ","type":"text"},{"image_url":{"detail":"low","url":"` + url("jpeg", second) + `"},"type":"image_url"}],"role":"user"}]`
	for _, engine := range []*strict{llamaServer(true), llamaServer(false), vLLM(), openAI()} {
		t.Run(engine.name, func(t *testing.T) {
			s := engine.serve(t, engine.greets)
			got := write(t, routerTo(t, s), seenConversation(t))
			if got.err != nil || got.text != "Hello there" {
				t.Fatalf("got %q, %v", got.text, got.err)
			}
			if sent := string(must(json.Marshal(s.last()["messages"]))); sent != want {
				t.Errorf("got %s, want %s", sent, want)
			}
		})
	}
}

func TestPicturesAndTheirDetailsReachAnotherServerOfThisProgram(t *testing.T) {
	first, second := pictureFiles(t)
	engine := m40()
	s := engine.serve(t, engine.greets)
	r := routerTo(t, s)
	if got := write(t, r, seenConversation(t)); got.err != nil {
		t.Fatal(got.err)
	}
	var sent infer.Request
	if err := json.Unmarshal(must(json.Marshal(s.last())), &sent); err != nil {
		t.Fatal(err)
	}
	list, _ := sent.AllPictures()
	if len(list) != 2 || !bytes.Equal(list[0].File, first) || !bytes.Equal(list[1].File, second) || list[0].Detail != chat.Medium || list[1].Detail != chat.Low {
		t.Errorf("got %d pictures: %v", len(list), list)
	}
	raw := question("")
	raw.Messages, raw.ParseReply, raw.Prompt, raw.Pictures = nil, false, "What is "+chat.PictureMark, [][]byte{first}
	if got := write(t, r, raw); got.err != nil {
		t.Fatal(got.err)
	}
	if err := json.Unmarshal(must(json.Marshal(s.last())), &sent); err != nil || sent.Prompt != raw.Prompt || len(sent.Pictures) != 1 || !bytes.Equal(sent.Pictures[0], first) {
		t.Errorf("got %q with %d pictures, %v", sent.Prompt, len(sent.Pictures), err)
	}
}

func TestPicturesOfAPromptAreRefusedForEnginesThatReadThemInConversationsAlone(t *testing.T) {
	first, _ := pictureFiles(t)
	for _, engine := range []*strict{llamaServer(true), vLLM(), openAI()} {
		t.Run(engine.name, func(t *testing.T) {
			s := engine.serve(t, engine.greets)
			r := question("")
			r.Messages, r.ParseReply, r.Prompt, r.Pictures = nil, false, "What is "+chat.PictureMark, [][]byte{first}
			code, message := write(t, routerTo(t, s), r).code()
			if code != fault.CodeInvalid || !strings.Contains(message, "reads pictures in conversations alone") || strings.Contains(string(must(json.Marshal(s.last()))), "What is") {
				t.Errorf("got %s %q; the engine got %v", code, message, s.last())
			}
		})
	}
}
