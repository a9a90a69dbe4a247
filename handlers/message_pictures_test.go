package handlers_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/attached"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/links"
	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/picture"
)

// pngOf returns a PNG file of a size.
func pngOf(t testing.TB, width, height int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewRGBA(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// uploaded is the response to an upload.
type uploaded struct {
	Hash, Type           string
	Width, Height, Bytes int
}

// upload sends a picture file as the page does.
func upload(t testing.TB, server *httptest.Server, file string) (p uploaded) {
	t.Helper()
	got := handlerstest.Post(t, server, "/pictures", file, "Origin", server.URL, "Accept", "application/json")
	if err := json.Unmarshal([]byte(got.Body), &p); err != nil || got.Status != http.StatusCreated {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	return p
}

// askAbout sends a question with pictures and returns its chat and the request that the engine got.
func askAbout(t testing.TB, server *httptest.Server, engine *handlerstest.Script, hashes ...string) (*handlerstest.SocketClient, *handlerstest.ScriptedAnswer) {
	t.Helper()
	c := handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": "What is this?", "pictures": hashes})
	return c, engine.Next(t)
}

func TestPictures_AreUploadedSentAndServedToTheirChatAlone(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	file := pngOf(t, 5, 3)
	p := upload(t, server, file)
	if p.Width != 5 || p.Height != 3 || p.Type != "image/png" || p.Bytes != len(file) || len(p.Hash) != 64 {
		t.Errorf("got %+v", p)
	}
	if got := handlerstest.Call(t, server, http.MethodGet, "/pictures/"+p.Hash, ""); got.Status != http.StatusOK || got.Body != file || got.Header.Get("Content-Type") != "image/png" {
		t.Errorf("before it is sent: got %d, %q", got.Status, got.Header.Get("Content-Type"))
	}
	c, answer := askAbout(t, server, engine, p.Hash)
	m := answer.Request.Messages
	if len(m) != 1 || m[0].Content != chat.PictureMark+"What is this?" || len(m[0].Pictures) != 1 || string(m[0].Pictures[0]) != file {
		t.Errorf("the engine got %+v", m)
	}
	answer.Finish()
	c.Until("the answer ends", c.Ended)
	got := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/pictures/"+p.Hash, "")
	if got.Status != http.StatusOK || got.Body != file || got.Header.Get("Content-Type") != "image/png" {
		t.Errorf("got %d, %q", got.Status, got.Header.Get("Content-Type"))
	}
	if again := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/pictures/"+p.Hash, "", "If-None-Match", got.Header.Get("ETag")); again.Status != http.StatusNotModified {
		t.Errorf("a picture that the browser has: got %d", again.Status)
	}
	other := handlerstest.DialSocket(t, server)
	other.Do("send", map[string]any{"text": "Hello"})
	engine.Next(t).Finish()
	for _, path := range []string{"/c/" + other.Chat + "/pictures/" + p.Hash, "/pictures/" + p.Hash, "/c/" + c.Chat + "/pictures/" + strings.Repeat("0", 64), "/c/" + c.Chat + "/pictures/..%2f..%2fetc%2fpasswd"} {
		if got := handlerstest.Call(t, server, http.MethodGet, path, ""); got.Status != http.StatusNotFound && got.Status != http.StatusGone {
			t.Errorf("%s: got %d", path, got.Status)
		}
	}
}

func TestPictures_StayWithEditedAnsweredAndForkedMessages(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	file := pngOf(t, 5, 3)
	p := upload(t, server, file)
	c, answer := askAbout(t, server, engine, p.Hash)
	answer.Write("A", "square.")
	answer.Finish()
	c.Until("the answer ends", c.Ended)
	has := func(what string, messages int) {
		t.Helper()
		answer := engine.Next(t)
		if m := answer.Request.Messages[0]; len(m.Pictures) != 1 || string(m.Pictures[0]) != file {
			t.Errorf("%s: the engine got %+v", what, answer.Request.Messages)
		}
		answer.Write(what)
		answer.Finish()
		c.Until("the answer ends", func() bool { return len(c.Branch) == messages && c.Ended() && c.Last().Text == what })
	}
	c.Do("regenerate", map[string]any{"answer": 0})
	has("again", 2)
	c.Do("edit", map[string]any{"message": c.Branch[0], "text": "And this?", "pictures": []string{p.Hash}})
	has("edited", 2)
	c.Do("send", map[string]any{"text": "Sure?"})
	has("the next question", 4)
	forked := c.Reply(c.Send("fork", map[string]any{"message": c.Branch[0]}))
	var id string
	if err := json.Unmarshal(forked.Chat, &id); err != nil {
		t.Fatalf("%v: %+v", err, forked)
	}
	if got := handlerstest.Call(t, server, http.MethodGet, "/c/"+id+"/pictures/"+p.Hash, ""); got.Body != file {
		t.Errorf("the copy has no picture: %d", got.Status)
	}
	handlerstest.Submit(t, server, "/c/"+c.Chat+"/delete", nil)
	if got := handlerstest.Call(t, server, http.MethodGet, "/c/"+id+"/pictures/"+p.Hash, ""); got.Body != file {
		t.Errorf("the copy has lost its picture with the chat it was copied from: %d", got.Status)
	}
}

func TestPictures_WhatIsNoneOrTooMuchIsRefusedInWords(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	good := pngOf(t, 50, 30)
	for _, tc := range []struct {
		name, file string
		status     int
		says       string
	}{
		{"an empty file", "", http.StatusBadRequest, "picture"},
		{"a text", "hello, I am a text", http.StatusBadRequest, "PNG"},
		{"a PDF", "%PDF-1.7 …", http.StatusBadRequest, "PDF"},
		{"a drawing with a script", `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`, http.StatusBadRequest, "SVG"},
		{"a file that is cut off", good[:len(good)-20], http.StatusBadRequest, "damaged"},
		{"a file of many bytes", good + strings.Repeat("x", attached.MaxBytes), http.StatusRequestEntityTooLarge, ""},
		{"a picture of many pixels", string(picture.Outline(60000, 60000)), http.StatusBadRequest, "60000 x 60000 pixels"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := handlerstest.Post(t, server, "/pictures", tc.file, "Origin", server.URL, "Accept", "application/json")
			if got.Status != tc.status || !strings.Contains(got.Body, tc.says) {
				t.Errorf("got %d: %s", got.Status, got.Body)
			}
		})
	}
	c := handlerstest.DialSocket(t, server)
	hash := upload(t, server, good).Hash
	for _, tc := range []struct {
		name   string
		fields map[string]any
		code   fault.Code
	}{
		{"a thousand pictures", map[string]any{"pictures": strings.Split(strings.Repeat(hash+" ", 999)+hash, " ")}, "invalid_request"},
		{"one that nobody uploaded", map[string]any{"pictures": []string{strings.Repeat("a", 64)}}, "picture_gone"},
		{"one in a raw chat", map[string]any{"pictures": []string{hash}, "raw": true}, "invalid_request"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.fields["text"] = "What is this?"
			if f := c.Reply(c.Send("send", tc.fields)); f.Type != "error" || f.Error.Code != tc.code || f.Error.Param != "pictures" {
				t.Errorf("got %s: %+v", f.Type, f.Error)
			}
		})
	}
	c.Do("send", map[string]any{"text": "", "pictures": []string{hash}})
	answer := engine.Next(t)
	c.Until("the chat is there", func() bool { return c.Title != "" })
	if c.Title != "Picture" || answer.Request.Messages[0].Content != chat.PictureMark {
		t.Errorf("a message of a picture alone has the title %q and the content %q", c.Title, answer.Request.Messages[0].Content)
	}
	answer.Finish()
}

func TestPictures_AreSentByAFormWithoutScripts(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	send := func(file, detail string) handlerstest.Response {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		_ = form.WriteField("text", "What is this?")
		_ = form.WriteField("detail", detail)
		part, _ := form.CreateFormFile("pictures", "cat.png")
		_, _ = part.Write([]byte(file))
		_ = form.Close()
		return handlerstest.Post(t, server, "/", body.String(), "Origin", server.URL, "Content-Type", form.FormDataContentType(), "Accept", handlerstest.BrowserAccept)
	}
	if got := send("no picture", "medium"); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "What is this?</textarea>") || !strings.Contains(got.Body, `<option value="medium" selected>`) {
		t.Errorf("got %d, and the text or the detail is lost: %.300s", got.Status, got.Body)
	}
	file := pngOf(t, 1200, 900)
	if got := send(file, "blurred"); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "detail &#34;blurred&#34;") {
		t.Errorf("an unknown detail: got %d: %.300s", got.Status, got.Body)
	}
	id := ""
	for _, detail := range []chat.Detail{chat.Low, chat.Medium, chat.Full} {
		id = handlerstest.ChatOf(t, send(file, string(detail)))
		answer := engine.Next(t)
		if m := answer.Request.Messages[0]; len(m.Pictures) != 1 || string(m.Pictures[0]) != file || m.DetailOf(0) != detail {
			t.Errorf("the engine got %d pictures, the first in the detail %q, want %q", len(m.Pictures), m.DetailOf(0), detail)
		}
		answer.Finish()
	}
	page := handlerstest.Call(t, server, http.MethodGet, "/c/"+id, "", "Accept", handlerstest.BrowserAccept).Body
	if !strings.Contains(page, `src="/c/`+id+`/pictures/`) {
		t.Errorf("the page does not show the picture")
	}
}

func TestPictures_AreExportedAndImported(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	file := pngOf(t, 5, 3)
	p := upload(t, server, file)
	c, answer := askAbout(t, server, engine, p.Hash)
	answer.Finish()
	c.Until("the answer ends", c.Ended)
	text := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/export.md", "").Body
	if want := "![Picture 1](data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(file)) + ")\n\nWhat is this?"; !strings.Contains(text, want) {
		t.Errorf("the Markdown lacks the picture: %s", text)
	}
	exported := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/export.json", "").Body
	imported := handlerstest.PostScripted(t, server, "/import", exported)
	var made struct{ Chat string }
	if err := json.Unmarshal([]byte(imported.Body), &made); err != nil || imported.Status != http.StatusCreated {
		t.Fatalf("got %d: %s", imported.Status, imported.Body)
	}
	if got := handlerstest.Call(t, server, http.MethodGet, "/c/"+made.Chat+"/pictures/"+p.Hash, ""); got.Body != file {
		t.Errorf("the imported chat has no picture: %d", got.Status)
	}
	broken := strings.Replace(exported, base64.StdEncoding.EncodeToString([]byte(file)), base64.StdEncoding.EncodeToString([]byte("no picture")), 1)
	if got := handlerstest.PostScripted(t, server, "/import", broken); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "pictures[0]") {
		t.Errorf("a file with what is no picture: got %d: %s", got.Status, got.Body)
	}
	for _, language := range []string{"curl", "python", "javascript"} {
		code := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/code/"+lastAnswer(c)+"?as="+language, "").Body
		if !strings.Contains(code, `"image_url"`) || strings.Contains(code, chat.PictureMark) {
			t.Errorf("%s has no picture: %.400s", language, code)
		}
	}
}

func TestPictures_OfASharedChatAreServedToItsGuestsAlone(t *testing.T) {
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	first, second, private := upload(t, server, pngOf(t, 5, 3)), upload(t, server, pngOf(t, 6, 3)), upload(t, server, pngOf(t, 7, 3))
	c, answer := askAbout(t, server, engine, first.Hash)
	answer.Write("One.")
	answer.Finish()
	c.Until("the answer ends", c.Ended)
	c.Do("send", map[string]any{"text": "And this?", "pictures": []string{second.Hash}})
	answer = engine.Next(t)
	answer.Write("Two.")
	answer.Finish()
	c.Until("the answer ends", func() bool { return len(c.Branch) == 4 && c.Ended() })
	_, other := askAbout(t, server, engine, private.Hash)
	other.Finish()
	share, err := chats.Links.Add(t.Context(), access.Local, c.Chat, links.Wanted{First: c.Branch[2]})
	if err != nil {
		t.Fatal(err)
	}
	for hash, want := range map[string]int{second.Hash: http.StatusOK, first.Hash: http.StatusNotFound, private.Hash: http.StatusNotFound} {
		if got := handlerstest.Call(t, server, http.MethodGet, "/s/"+share.Token+"/pictures/"+hash, ""); got.Status != want {
			t.Errorf("picture %s: got %d, want %d", hash, got.Status, want)
		}
	}
	page := handlerstest.Call(t, server, http.MethodGet, "/s/"+share.Token, "", "Accept", handlerstest.BrowserAccept).Body
	if !strings.Contains(page, `src="/s/`+share.Token+`/pictures/`+second.Hash) || strings.Contains(page, first.Hash) {
		t.Error("the page of the link does not show the picture, or shows one before its first message")
	}
	if err := chats.Links.End(t.Context(), access.Local, c.Chat, share.ID); err != nil {
		t.Fatal(err)
	}
	if got := handlerstest.Call(t, server, http.MethodGet, "/s/"+share.Token+"/pictures/"+second.Hash, ""); got.Status != http.StatusNotFound {
		t.Errorf("after the link has ended: got %d", got.Status)
	}
}

func TestPictures_AModelThatCannotSeeIsRefusedWithOneThatCan(t *testing.T) {
	engine := handlerstest.NewScript()
	engine.Set(func(s *infer.Status) { s.Model.Name = "textonly" })
	engine.List(infer.ModelInfo{Name: "textonly"}, infer.ModelInfo{Name: "seer", Vision: true})
	chats := live.New(engine, live.Options{Store: handlerstest.OpenStore(t), Sight: models.New(models.Options{Engine: engine}).Sight})
	t.Cleanup(chats.Close)
	server := handlerstest.ServeChats(t, engine, chats)
	hash := upload(t, server, pngOf(t, 5, 3)).Hash
	c := handlerstest.DialSocket(t, server)
	question := map[string]any{"text": "What is this?", "pictures": []string{hash}}
	f := c.Reply(c.Send("send", question))
	if f.Type != "error" || f.Error.Param != "pictures" || !strings.Contains(f.Error.Message, "textonly") || !strings.Contains(f.Error.Message, `"seer"`) {
		t.Fatalf("got %s: %+v", f.Type, f.Error)
	}
	question["model"] = "seer" // nothing is lost: the picture is still there
	c.Do("send", question)
	answer := engine.Next(t)
	if m := answer.Request.Messages[0]; len(m.Pictures) != 1 {
		t.Errorf("the engine got %d pictures", len(m.Pictures))
	}
	answer.Finish()
}

func TestPictures_OfTemporaryChatsAreStoredNowhere(t *testing.T) {
	engine := handlerstest.NewScript()
	db := handlerstest.OpenStore(t)
	chats := live.New(engine, live.Options{Store: db})
	t.Cleanup(chats.Close)
	server := handlerstest.ServeChats(t, engine, chats)
	file := pngOf(t, 5, 3)
	hash := upload(t, server, file).Hash
	c := handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": "What is this?", "pictures": []string{hash}, "temporary": true})
	answer := engine.Next(t)
	if m := answer.Request.Messages[0]; len(m.Pictures) != 1 || string(m.Pictures[0]) != file {
		t.Errorf("the engine got %+v", answer.Request.Messages)
	}
	answer.Finish()
	c.Until("the answer ends", c.Ended)
	if got := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/pictures/"+hash, ""); got.Body != file {
		t.Errorf("the chat does not show its picture: %d", got.Status)
	}
	if used, _, err := db.PictureBytes(t.Context(), access.Local.Owner); err != nil || used != 0 {
		t.Errorf("%d bytes of pictures are stored, %v", used, err)
	}
	handlerstest.Submit(t, server, "/c/"+c.Chat+"/delete", nil)
	if got := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/pictures/"+hash, ""); got.Status != http.StatusNotFound {
		t.Errorf("after the chat was deleted: got %d", got.Status)
	}
}

func TestPictures_KeepTheDetailOfTheirMessage(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	p, other := upload(t, server, pngOf(t, 5, 3)), upload(t, server, pngOf(t, 6, 3))
	count := func(names ...string) (n struct {
		Tokens, Draft int
		Pictures      []int
		Details       []infer.PictureTokens
	}) {
		t.Helper()
		body, _ := json.Marshal(map[string]any{"text": "What is this?", "pictures": names})
		got := handlerstest.Post(t, server, "/count", string(body), "Origin", server.URL, "Accept", "application/json", "Content-Type", "application/json")
		if err := json.Unmarshal([]byte(got.Body), &n); err != nil || got.Status != http.StatusOK {
			t.Fatalf("got %d: %s", got.Status, got.Body)
		}
		return n
	}
	if got := count(p.Hash+":low", other.Hash); fmt.Sprint(got.Pictures) != "[64 256]" || got.Draft != 3+64+256 || len(got.Details) != 2 || got.Details[0] != (infer.PictureTokens{Low: 64, Medium: 128, Full: 256}) {
		t.Errorf("got %+v", got)
	}
	c, answer := askAbout(t, server, engine, p.Hash+":low", other.Hash)
	read := func(what string, answer *handlerstest.ScriptedAnswer, want ...chat.Detail) {
		t.Helper()
		if m := answer.Request.Messages[0]; len(m.Pictures) != 2 || !slices.Equal(m.Details, want) {
			t.Errorf("%s: the engine got %d pictures in the details %q, want %q", what, len(m.Pictures), m.Details, want)
		}
		answer.Write(what)
		answer.Finish()
		c.Until("the answer ends", func() bool { return c.Ended() && c.Last().Text == what })
	}
	read("first", answer, chat.Low, chat.Full)
	c.Do("regenerate", map[string]any{"answer": 0})
	read("again", engine.Next(t), chat.Low, chat.Full)
	reloaded := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat, "", "Accept", handlerstest.BrowserAccept).Body
	if !strings.Contains(reloaded, "5 × 3 pixels, read in low detail") || !strings.Contains(reloaded, "6 × 3 pixels\"") {
		t.Error("the page does not say in which detail the pictures are read")
	}
	exported := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/export.json", "").Body
	if strings.Count(exported, `"detail": "low"`) != 1 {
		t.Errorf("the export lacks the detail: %.600s", exported)
	}
	var made struct{ Chat string }
	imported := handlerstest.PostScripted(t, server, "/import", exported)
	if err := json.Unmarshal([]byte(imported.Body), &made); err != nil || imported.Status != http.StatusCreated {
		t.Fatalf("got %d: %s", imported.Status, imported.Body)
	}
	if again := handlerstest.Call(t, server, http.MethodGet, "/c/"+made.Chat+"/export.json", "").Body; strings.Count(again, `"detail": "low"`) != 1 {
		t.Errorf("the imported chat lacks the detail: %.600s", again)
	}
	if got := handlerstest.PostScripted(t, server, "/import", strings.Replace(exported, `"detail": "low"`, `"detail": "huge"`, 1)); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "pictures[0].detail must be low, medium or missing") {
		t.Errorf("got %d: %s", got.Status, got.Body)
	}
	if code := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/code/"+lastAnswer(c)+"?as=python", "").Body; strings.Count(code, `"detail": "low"`) != 1 {
		t.Errorf("the code lacks the detail: %.600s", code)
	}
	c.Do("edit", map[string]any{"message": c.Branch[0], "text": "And now?", "pictures": []string{p.Hash + ":medium", other.Hash + ":low"}})
	read("edited", engine.Next(t), chat.Medium, chat.Low)
	if f := c.Reply(c.Send("send", map[string]any{"text": "x", "pictures": []string{p.Hash + ":huge"}})); f.Type != "error" || f.Error.Param != "pictures" || !strings.Contains(f.Error.Message, `detail "huge"`) {
		t.Errorf("got %s: %+v", f.Type, f.Error)
	}
}

// lastAnswer returns the id of the last message that c shows.
func lastAnswer(c *handlerstest.SocketClient) string { return fmt.Sprint(c.Branch[len(c.Branch)-1]) }
