package hub

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"m40-llm/infer/hub/hubtest"
)

// TestKill kills pulls in the middle, again and again, and lets the last one end. Each
// takes up what the journal of those before it knows of.
func TestKill(t *testing.T) {
	kills := 10
	if os.Getenv("M40_LLM_TORTURE") != "" {
		kills = 200
	}
	dir := filepath.Join(t.TempDir(), "models")
	f := hubtest.New(t, map[string][]byte{modelFile: wanted}, modelFile)
	random := rand.New(rand.NewPCG(1, 2))
	var allowed atomic.Int64     // bytes that this pull gets before the server falls silent; 0: all
	silent := make(chan int, 10) // byte at which it did
	fault := func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
		start, let := hubtest.RangeStart(r), int(allowed.Load())
		if let == 0 || start+let >= len(data) {
			return false
		}
		w.Header().Set("Etag", `"one"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)-start))
		w.Header().Set("Content-Range", "bytes "+strconv.Itoa(start)+"-"+strconv.Itoa(len(data)-1)+"/"+strconv.Itoa(len(data)))
		if start > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		w.Write(data[start : start+let])
		http.NewResponseController(w).Flush()
		silent <- start + let
		hubtest.Hang(r)
		return true
	}
	f.SetCDN(fault) // the pulls are other processes, with which the race detector sees no order
	command := func() *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), killDir+"="+dir, killEndpoint+"="+f.API.URL)
		c.Stderr = new(bytes.Buffer)
		return c
	}
	resumed := 0
	for kill := range kills {
		allowed.Store(1 + random.Int64N(2*int64(len(wanted)/kills)))
		c := command()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		select {
		case at := <-silent:
			if kill%2 == 0 { // at another moment every other time: bytes may be on their way
				waitForJournal(t, dir, int64(at))
			}
			c.Process.Kill()
			<-ended
		case err := <-ended: // it got the rest of the file
			if err != nil {
				t.Fatalf("a pull failed: %v: %s", err, c.Stderr)
			}
			if !checkLoadable(t, dir, wanted) {
				t.Fatal("a pull ended well without a model")
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if checkLoadable(t, dir, nil) {
			t.Fatal("a killed pull left a model")
		}
		if asked := f.Asked("cdn"); asked[len(asked)-1].Header.Get("Range") != "" {
			resumed++
		}
	}
	allowed.Store(0)
	c := command()
	if err := c.Run(); err != nil {
		t.Fatalf("the last pull failed: %v: %s", err, c.Stderr)
	}
	if !checkLoadable(t, dir, wanted) || len(left(t, dir)) != 1 {
		t.Errorf("left are %q", left(t, dir))
	}
	if resumed < kills/3 {
		t.Errorf("only %d of %d pulls went on from where another was killed", resumed, kills)
	}
}

// waitForJournal waits until a pull has noted that it has so many bytes.
func waitForJournal(t *testing.T, dir string, offset int64) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for range 4000 {
		if readJournal(root, "org/repo/"+modelFile).Offset == offset {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("waited in vain for the journal")
}
