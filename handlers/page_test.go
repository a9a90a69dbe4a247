package handlers_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/handlers/view"
	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/web"
)

func get(t *testing.T, url string, header ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultTransport.(*http.Transport).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return response, body
}

func squeezed(body []byte) int {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = z.Write(body)
	_ = z.Close()
	return buf.Len()
}

var (
	assetAddress = regexp.MustCompile(`"(/static/[^"]+)"`)
	inlineCode   = regexp.MustCompile(`(?i)<script(?:\s+type="[^"]*")?\s*>|<style|\sstyle=|\son[a-z]+=|javascript:`)
)

func TestPage_NeedsNothingButItself(t *testing.T) {
	server := handlerstest.Serve(t, handlerstest.NewScript())
	response, body := get(t, server.URL+"/")
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("got %d, %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
	if found := inlineCode.Find(body); found != nil {
		t.Errorf("the page has %q, which its own policy forbids", found)
	}
	if regexp.MustCompile(`(?:src|href)="(?:https?:)?//`).Match(body) {
		t.Error("the page names another server")
	}
	total := squeezed(body)
	for _, address := range assetAddress.FindAllSubmatch(body, -1) {
		response, asset := get(t, server.URL+string(address[1]), "Accept-Encoding", "gzip")
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", address[1], response.StatusCode)
		}
		if got := response.Header.Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
			t.Errorf("%s: Cache-Control %q", address[1], got)
		}
		total += len(asset)
	}
	if total > 150<<10 {
		t.Errorf("the first load is %d bytes, compressed", total)
	}
}

func TestPage_AssetsKeepTheirAddressOnlyWhileTheyAreTheSame(t *testing.T) {
	server := handlerstest.Serve(t, handlerstest.NewScript())
	address := server.URL + web.AssetPath("app.css")
	_, plain := get(t, address, "Accept-Encoding", "identity")
	response, packed := get(t, address, "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatalf("%v (Content-Encoding %q)", err, response.Header.Get("Content-Encoding"))
	}
	if unpacked, err := io.ReadAll(z); err != nil || !bytes.Equal(unpacked, plain) {
		t.Errorf("the compressed asset is another one: %v", err)
	}
	for _, path := range []string{"/static/000000000000/app.css", "/static/app.css", "/static/", web.AssetPath("none.css"), web.AssetPath("../page.templ"), web.AssetPath("%2e%2e/view.go")} {
		if response, _ := get(t, server.URL+path); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
}

func TestPage_TitlesAreText(t *testing.T) {
	engine := handlerstest.NewScript()
	chats := live.New(engine, live.Options{})
	defer chats.Close()
	server := handlerstest.Server(t, engine, func(c *handlers.Config) { c.Live = chats })
	chat, err := chats.Start(context.Background(), access.Local, live.Question{Text: `</title><script>pwned=1</script>`, Settings: setting.Default()}, false)
	if err != nil {
		t.Fatal(err)
	}
	_, body := get(t, server.URL+"/c/"+chat.ID())
	if bytes.Contains(body, []byte("<script>pwned")) {
		t.Error("a title became an element")
	}
	if response, _ := get(t, server.URL+"/c/nowhere"); response.StatusCode != http.StatusNotFound {
		t.Errorf("a chat that is not there: %d", response.StatusCode)
	}
	if response, body := get(t, server.URL+`/c/%22%3E%3Cscript%3Epwned=1%3C%2Fscript%3E`); bytes.Contains(body, []byte("<script>pwned")) {
		t.Errorf("an id became an element: %d", response.StatusCode)
	}
}

func TestPage_EngineInWords(t *testing.T) {
	ready := handlerstest.NewScript().Current
	for _, c := range []struct {
		name   string
		change func(*infer.Status)
		check  func(web.Engine) bool
	}{
		{"the built-in model is a demo", func(*infer.Status) {}, func(e web.Engine) bool {
			return e.Tag == "demo" && e.Model == "guide, 14.2 M parameters, Q8_0" && e.Ready == "Ready in 0.2 s. No download needed." && e.Queue == "empty"
		}},
		{"another model is not", func(s *infer.Status) {
			s.Model = infer.ModelInfo{Name: "llama", Quant: "Q4_K", Parameters: 8_030_000_000}
		}, func(e web.Engine) bool {
			return e.Tag == "Q4_K" && e.Headline == "llama" && e.Intro == "Good at explaining, rewriting and short code. Check its facts and long sums." && e.Model == "llama, 8.0 B parameters, Q4_K"
		}},
		{"loading has its share", func(s *infer.Status) {
			s.State, s.Loading = infer.StateLoading, infer.Loading{Done: 3_200_000_000, Total: 4_920_000_000}
		}, func(e web.Engine) bool {
			return e.StateText == "loading, 65 %" && e.Loading == 65 && e.Amount == "3.2 GB of 4.9 GB"
		}},
		{"compiling kernels has its own", func(s *infer.Status) {
			s.State, s.Loading = infer.StateLoading, infer.Loading{Done: 4_920_000_000, Total: 4_920_000_000, Kernels: 3, KernelsTotal: 12}
		}, func(e web.Engine) bool {
			return e.StateText == "compiling kernels" && e.Loading == 25 && strings.HasPrefix(e.Amount, "compiling kernels for this GPU, 3 of 12")
		}},
		{"the cache shows what it takes of what is planned", func(s *infer.Status) {
			s.Cache = infer.Cache{Planned: 4_831_838_208, Used: 35_700_000}
		}, func(e web.Engine) bool { return e.Cache == "35.7 MB of 4.8 GB used" }},
		{"a failure says why", func(s *infer.Status) {
			s.State, s.Error = infer.StateFailed, &fault.Error{Code: fault.CodeModelFile, Message: "the file ends early; download it again"}
		}, func(e web.Engine) bool {
			return e.StateText == "failed" && e.Error == "The file ends early; download it again."
		}},
		{"a failure inside keeps its secrets", func(s *infer.Status) {
			s.State, s.Error = infer.StateFailed, &fault.Error{Code: fault.CodeInternal, Message: "/root/secret"}
		}, func(e web.Engine) bool { return !strings.Contains(e.Error, "secret") && e.Error != "" }},
		{"writing has a speed", func(s *infer.Status) { s.Running, s.Queued, s.Decode = 2, 1, 38.24 }, func(e web.Engine) bool {
			return e.State == "writing" && e.Rate == "38.2" && e.Queue == "1 waiting, 2 running" && e.Summary == "guide · demo · writing"
		}},
		{"a GPU says how it runs steps, and how often it was wrong about tokens", func(s *infer.Status) {
			s.Device.Decode, s.Ahead = device.DecodeGraph, infer.Ahead{On: true, Tokens: 1030, Missed: 5, Dropped: 30}
		}, func(e web.Engine) bool { return e.Decode == "graph" && e.Ahead == "1,030 tokens, 0.5 % wrong" }},
		{"a GPU that has drawn no token yet says so", func(s *infer.Status) { s.Ahead.On = true }, func(e web.Engine) bool {
			return e.Ahead == "none yet"
		}},
		{"another device says nothing about that", func(*infer.Status) {}, func(e web.Engine) bool { return e.Decode == "" && e.Ahead == "" }},
		{"weights that are copied between steps have a progress", func(s *infer.Status) { s.Packing = infer.Packing{Done: 999, Total: 1000} }, func(e web.Engine) bool {
			return e.Packing == "99 %"
		}},
		{"weights that are all copied say nothing", func(*infer.Status) {}, func(e web.Engine) bool { return e.Packing == "" }},
		{"who waits is told for how long", func(s *infer.Status) { s.Running, s.Queued, s.WaitS = 2, 3, 40 }, func(e web.Engine) bool {
			return e.Queue == "3 waiting about 40 s, 2 running"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status := ready
			c.change(&status)
			if e := view.Engine(t.Context(), status); !c.check(e) {
				t.Errorf("got %+v", e)
			}
		})
	}
}
