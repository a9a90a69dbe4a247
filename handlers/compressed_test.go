package handlers_test

import (
	"context"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/fixtures"
)

// noise is a text of n bytes that shrinks to about half its size.
func noise(n int) string {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdef"[random.IntN(16)]
	}
	return string(b)
}

func TestBody_Compressed(t *testing.T) {
	const mib = 1 << 20
	body := fixtures.Gzip(t, `{"content":"hello"}`)
	gz := []string{"Content-Encoding", "gzip"}
	said := &handlerstest.FakeEngine{OnTokenize: func(_, text string, _, _ bool) ([]int32, error) { return []int32{int32(len(text))}, nil }}
	text := func(size int) string { return `{"content":"` + noise(size-len(`{"content":""}`)) + `"}` }
	runScenarios(t, []scenario{
		{name: "a gzip body is read", path: "/tokenize", body: body, header: gz, engine: said, status: 200, want: []string{`{"tokens":[5]}`}},
		{name: "its old name is known", path: "/tokenize", body: body, header: []string{"Content-Encoding", "X-Gzip"}, engine: said, status: 200},
		{name: "several members are one body", path: "/tokenize", body: fixtures.Gzip(t, `{"content":`) + fixtures.Gzip(t, `"hello"}`), header: gz, engine: said, status: 200, want: []string{`[5]`}},
		{name: "one that becomes as large as the limit is read", path: "/tokenize", body: fixtures.Gzip(t, text(mib)), header: gz, engine: said, status: 200},
		{name: "one that becomes larger is refused", path: "/tokenize", body: fixtures.Gzip(t, text(mib+1)), header: gz, status: 413, want: []string{"larger than the 1048576 bytes", "body_too_large"}},
		{name: "a bomb is refused by its growth", path: "/v1/chat/completions", body: fixtures.Gzip(t, `{"a":"`+strings.Repeat("x", 7*mib)+`"}`), header: gz, status: 413, want: []string{"more than 200 times", "body_too_large"}},
		{name: "small bodies may shrink as they like", path: "/tokenize", body: fixtures.Gzip(t, `{"content":"`+strings.Repeat("x", mib/2)+`"}`), header: gz, engine: said, status: 200},
		{name: "a body that is cut off is refused", path: "/tokenize", body: body[:len(body)-9], header: gz, status: 400, want: []string{"truncated", "invalid_encoding"}},
		{name: "one whose checksum is wrong is refused", path: "/tokenize", body: body[:len(body)-8] + "\x00\x00\x00\x00" + body[len(body)-4:], header: gz, status: 400, want: []string{"not valid gzip"}},
		{name: "one that is not gzip is refused", path: "/tokenize", body: `{"content":"hello"}`, header: gz, status: 400, want: []string{"not valid gzip"}},
		{name: "something behind it is refused", path: "/tokenize", body: body + "{}", header: gz, status: 400},
		{name: "an empty one is no object", path: "/tokenize", header: gz, status: 400, want: []string{"must be a JSON object"}},
		{name: "gzip twice is refused", path: "/tokenize", body: body, header: []string{"Content-Encoding", "gzip, gzip"}, status: 415},
		{name: "br is refused with what is taken", path: "/tokenize", body: body, header: []string{"Content-Encoding", "br"}, status: 415, want: []string{`\"br\"`, "gzip or uncompressed"}},
	})
	got := handlerstest.Post(t, handlerstest.Server(t, &handlerstest.FakeEngine{}), "/tokenize", body, "Content-Encoding", "zstd")
	if got.Header.Get("Accept-Encoding") != "gzip" {
		t.Errorf("Accept-Encoding of the refusal is %q", got.Header.Get("Accept-Encoding"))
	}
}

func TestBody_CompressedChat(t *testing.T) {
	var asked infer.Request
	engine := &handlerstest.FakeEngine{OnGenerate: func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		asked = r
		return handlerstest.Replay(handlerstest.WordEvent(1, "Hi"), handlerstest.DoneEvent(infer.FinishStop))
	}}
	s := handlerstest.Server(t, engine)
	for _, stream := range []string{"false", "true"} {
		r, err := http.NewRequest(http.MethodPost, s.URL+"/v1/chat/completions", io.MultiReader(strings.NewReader(fixtures.Gzip(t, chatBody(`"stream":`+stream))))) // chunked
		if err != nil {
			t.Fatal(err)
		}
		got := handlerstest.Do(t, s, r, "Content-Encoding", "gzip")
		if got.Status != http.StatusOK || !strings.Contains(got.Body, "Hi") || asked.Messages[0].Content != "Hello" {
			t.Errorf("got %d: %s", got.Status, got.Body)
		}
	}
}
