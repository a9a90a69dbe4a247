package upstream

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/infer/fault"
)

const secret = "sk-proj-0123456789abcdefghijklmnop"

func TestAKeyIsInNothingThatIsQuotedOfAServer(t *testing.T) {
	said := "Incorrect API key provided: " + secret + ". Or Bearer " + secret + "; it begins with " + secret[:20] + " and ends with " + secret[14:]
	quoted := string(must(json.Marshal(said)))
	body := func(status int, kind, text string) func(http.ResponseWriter, *http.Request, map[string]any) {
		return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			io.WriteString(w, text)
		}
	}
	event := func(text string) func(http.ResponseWriter, *http.Request, map[string]any) {
		return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { stream(w, text) }
	}
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request, map[string]any){
		"a 401":                     body(401, "application/json", `{"error":{"message":`+quoted+`}}`),
		"a 400 in plain text":       body(400, "text/plain", said),
		"a 400 cut in the key":      body(400, "text/plain", strings.Repeat("x", maxSaid-20)+secret),
		"a 404":                     body(404, "application/json", `{"detail":`+quoted+`}`),
		"a 429":                     body(429, "application/json", `{"error":`+quoted+`}`),
		"a 500 of its own form":     body(500, "application/json", `{"oops":`+quoted+`}`),
		"a stream of another kind":  body(200, "text/"+secret, said),
		"an error in the stream":    event(`{"error":{"message":` + quoted + `}}`),
		"a refusal in the stream":   event(`{"error":{"message":` + quoted + `,"code":400}}`),
		"an event that is no JSON":  event(said),
		"something else than HTTP":  func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { raw(w, secret+"\r\n\r\n") },
		"an m40-llm's error":        body(400, "application/json", `{"error":{"code":"invalid_request","param":"`+secret+`","message":`+quoted+`}}`),
		"an m40-llm's other error":  body(500, "application/json", `{"error":{"code":"device","message":`+quoted+`}}`),
		"an m40-llm's unknown code": body(500, "application/json", `{"error":{"code":"`+secret+`","message":`+quoted+`}}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t, answer)
			s.models = `{"data":[{"id":"m","owned_by":"` + secret + `"},{"id":"` + secret + `"}]}`
			if strings.HasPrefix(name, "an m40") {
				s.extra = map[string]string{"/v1/status": `{"state":"ready","step":{},"setup":{}}`}
			}
			address := mustParse(s.URL)
			address.Key = secret
			var mu sync.Mutex
			var log bytes.Buffer
			locked := writerFunc(func(p []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return log.Write(p)
			})
			r := New(Options{Local: &localEngine{}, Servers: []Address{address}, CheckEvery: time.Hour, Pauses: []time.Duration{0}, Log: slog.New(slog.NewTextHandler(locked, nil)), Notice: func(line string) { io.WriteString(locked, line) }})
			defer r.Close()
			eventually(t, "the model is listed", func() bool { return len(r.Status().Remote) > 0 })
			got := write(t, r, question("Hi"))
			known, ok := got.err.(*fault.Error)
			if !ok {
				t.Fatalf("got %v", got.err)
			}
			status := string(must(json.Marshal(r.Status())))
			mu.Lock()
			defer mu.Unlock()
			for place, text := range map[string]string{"the error": known.Message, "its field": known.Param, "its code": string(known.Code), "the log": log.String(), "the status": status} {
				for at := 0; at+17 <= len(secret); at++ {
					if strings.Contains(text, secret[at:at+17]) {
						t.Fatalf("%s has %s of the key: %s", place, secret[at:at+17], text)
					}
				}
			}
		})
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestTheKeyAndItsPartsAreTakenOutOfAText(t *testing.T) {
	for _, c := range []struct{ key, text, want string }{
		{"", "anything", "anything"},
		{"abc", "an abc, ab", "an [key], ab"},
		{"EMPTY", "the key EMPTY is wrong", "the key [key] is wrong"},
		{"sk-0123456789", "sk-0123456789", "[key]"},
		{"sk-0123456789", "sk-01234 and 23456789", "[key] and [key]"},
		{"sk-0123456789", "sk-0123", "sk-0123"},
		{"sk-0123456789abcdef", "SK-0123456789ABCDEF", "[key]"},
		{"sk/0123456789+abcdef=", "?key=sk%2F0123456789%2babcdef%3D&x", "?key=[key]&x"},
		{"sk-0123456789abcdef", "Basic " + base64.StdEncoding.EncodeToString([]byte("sk-0123456789abcdef")) + ".", "Basic [key]g==."},
		{"sk-0123456789abcdef", base64.StdEncoding.EncodeToString([]byte("u:sk-0123456789abcdef")), "dTp[key]"},
		{"sk-0123456789abcdef", base64.StdEncoding.EncodeToString([]byte("Bearer sk-0123456789abcdef")), "QmVhcmVyIH[key]Y="},
		{"EMPTY", "an empty text", "an empty text"},
		{"sk-0123456789", "xsk-0123456789sk-0123456789x", "x[key][key]x"},
	} {
		if got := withoutKey(c.text, c.key); got != c.want {
			t.Errorf("%q without %q is %q, want %q", c.text, c.key, got, c.want)
		}
	}
}
