package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/hub/hubtest"
)

// testSegment is the size of a segment in these tests: testModel has some twenty.
const testSegment = 16 << 10

// asked returns the ranges of testModel that the storage was asked for, sorted.
func asked(f *hubtest.Registry) (spans []span) {
	for _, r := range f.Requests("cdn") {
		start, end := hubtest.Range(&http.Request{Header: r.Header}, len(testModel))
		spans = append(spans, span{int64(start), int64(end)})
	}
	slices.SortFunc(spans, func(a, b span) int { return int(a.From - b.From) })
	return spans
}

func TestPullWithSeveralConnections(t *testing.T) {
	// meeting holds the first requests until so many wait at once.
	meeting := func(count int) func(*hubtest.Registry) {
		return func(f *hubtest.Registry) {
			var once sync.WaitGroup
			once.Add(count)
			f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
				if try > count {
					return false
				}
				start, end := hubtest.Range(r, len(data))
				w.Header().Set("Etag", `"one"`)
				w.Header().Set("Content-Length", fmt.Sprint(end-start))
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, end-1, len(data)))
				w.WriteHeader(http.StatusPartialContent)
				http.NewResponseController(w).Flush()
				once.Done()
				once.Wait()
				w.Write(data[start:end])
				return true
			}
		}
	}
	answer := func(f func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool) func(*hubtest.Registry) {
		return func(r *hubtest.Registry) { r.OnCDN = f }
	}
	for _, c := range []struct {
		name  string
		setup func(*hubtest.Registry)
		once  bool   // each byte is requested once
		err   string // part of the error; empty: the right file
	}{
		{name: "as many connections as allowed download at once, each byte once", setup: meeting(maxConnections), once: true},
		{name: "connections that break are resumed", setup: answer(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			if try%3 > 0 && try < 60 {
				hubtest.Truncate(w, r, data, testSegment/3)
			}
			return false
		})},
		{name: "a server that sends the whole file is asked by one connection", setup: answer(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			w.Write(data)
			return true
		})},
		{name: "a server that stops sending ranges is asked by one connection", setup: answer(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			if try > 5 {
				r.Header.Del("Range")
			}
			return false
		})},
		{name: "a server that accepts one connection only gets one", setup: func(f *hubtest.Registry) {
			var busy sync.Mutex
			f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
				if !busy.TryLock() {
					w.WriteHeader(http.StatusTooManyRequests)
					return true
				}
				defer busy.Unlock()
				hubtest.Serve(w, r, data, `"one"`)
				return true
			}
		}},
		{name: "a file that changes its ETag is downloaded again", setup: answer(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			if try == 7 {
				r.Header.Del("If-Range")
				hubtest.Serve(w, r, data, `"two"`)
				return true
			}
			return false
		})},
		{name: "another part than requested is not believed", setup: answer(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			if try == 4 {
				r.Header.Set("Range", "bytes=1-100")
			}
			return false
		})},
		{name: "more than requested is not believed", setup: answer(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			if start, end := hubtest.Range(r, len(data)); try == 4 && end+100 < len(data) {
				r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", start, end+100))
			}
			return false
		})},
		{name: "a flipped byte is found", setup: answer(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			wrong := slices.Clone(data)
			wrong[len(wrong)-testSegment] ^= 1
			hubtest.Serve(w, r, wrong, `"one"`)
			return true
		}), err: "has the SHA-256"},
		{name: "a server that has fewer bytes than announced is an error", setup: answer(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			hubtest.Serve(w, r, data[:len(data)/2], `"one"`)
			return true
		}), err: "but announced"},
		{name: "a server that fails is an error", setup: answer(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			if try > 6 {
				w.WriteHeader(http.StatusBadGateway)
			}
			return try > 6
		}), err: "status 502; pull again to resume"},
		{name: "a server that denies access is an error", setup: answer(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			if try > 6 {
				w.WriteHeader(http.StatusNotFound)
			}
			return try > 6
		}), err: "status 404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
			c.setup(f)
			p := newPuller(t, t.TempDir(), f.API.URL)
			p.segment = testSegment
			err := p.pull(t.Context(), "org/repo:Q8_0", false)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v", err)
			}
			if found := checkLoadable(t, p.dir, testModel); found != (c.err == "") {
				t.Errorf("model listed: %v", found)
			}
			at := int64(0)
			for _, s := range asked(f) {
				if c.once && s.From != at {
					t.Errorf("byte %d was requested, want %d", s.From, at)
				}
				at = s.To
			}
			for _, r := range f.Requests("cdn") {
				if r.Header.Get("Authorization") != "" {
					t.Error("the storage got the token")
				}
			}
		})
	}
}

// Stops a pull while bytes after the first missing one are there, and checks that the next one
// requests the missing bytes only.
func TestAStoppedPullWithSeveralConnectionsResumesAtTheByte(t *testing.T) {
	f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
	const early, late = testSegment / 2, 5 * testSegment // the first segment stops early, and one late
	f.OnCDN = func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
		start, end := hubtest.Range(r, len(data))
		if start != 0 && start < late {
			return false
		}
		w.Header().Set("Etag", `"one"`)
		w.Header().Set("Content-Length", fmt.Sprint(end-start))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, end-1, len(data)))
		w.WriteHeader(http.StatusPartialContent)
		w.Write(data[start : start+early])
		http.NewResponseController(w).Flush()
		hubtest.Hang(r)
		return true
	}
	p := newPuller(t, t.TempDir(), f.API.URL)
	p.segment = testSegment
	p.options.Now = advancingClock()
	d, err := p.Resolve(t.Context(), "org/repo:Q8_0")
	if err != nil {
		t.Fatal(err)
	}
	const there = early + 4*testSegment + 3*early // of the segments 0, 1 to 4, and 5 to 7
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = p.Pull(ctx, d, false, func(g infer.DownloadProgress) {
		if g.Done == there {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	first := len(f.Requests("cdn"))
	f.SetCDN(nil)
	if d, err = p.Resolve(t.Context(), "org/repo:Q8_0"); err != nil || d.Partial != there {
		t.Fatalf("%d bytes are there, %v; want %d", d.Partial, err, there)
	}
	if list, err := p.hub.Partials(); err != nil || len(list) != 1 || list[0].Partial != there {
		t.Errorf("listed %+v, %v", list, err)
	}
	if _, err := p.Pull(t.Context(), d, false, nil); err != nil || !checkLoadable(t, p.dir, testModel) {
		t.Fatal(err)
	}
	bytes := int64(0)
	for _, r := range f.Requests("cdn")[first:] {
		start, end := hubtest.Range(&http.Request{Header: r.Header}, len(testModel))
		bytes += int64(end - start)
	}
	if want := int64(len(testModel)) - there; bytes != want {
		t.Errorf("requested %d bytes, want %d", bytes, want)
	}
}

func TestMerged(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		const size = 40
		var have [size]bool
		var spans []span
		for range 10 {
			from := random.IntN(size)
			to := from
			for to < size && !have[to] && to-from < 5 {
				have[to] = true
				to++
			}
			if to > from {
				spans = merged(spans, span{int64(from), int64(to)})
			}
		}
		var want []span
		for i := 0; i < size; i++ {
			switch {
			case !have[i]:
			case i > 0 && have[i-1]:
				want[len(want)-1].To++
			default:
				want = append(want, span{int64(i), int64(i + 1)})
			}
		}
		if !reflect.DeepEqual(spans, want) {
			t.Fatalf("got %v, want %v", spans, want)
		}
	}
}

func TestAFullDiskDropsWhatIsAhead(t *testing.T) {
	d := infer.Download{File: "org/repo/" + modelFile, Size: int64(len(testModel)), SHA256: hubtest.Sum(testModel)}
	part := writePartial(t, t.TempDir(), d, testModel[:200<<10])
	defer part.close()
	if err := errors.Join(part.writeAt(testModel[250<<10:260<<10], 250<<10), part.save()); err != nil {
		t.Fatal(err)
	}
	if j := readJournal(part.root, d.File); len(j.Ahead) != 1 {
		t.Fatalf("got journal %+v", j)
	}
	part.makeRoom()
	if j := readJournal(part.root, d.File); j.Offset != 136<<10 || len(j.Ahead) > 0 || !j.resumes(d) {
		t.Errorf("got journal %+v", j)
	}
}
