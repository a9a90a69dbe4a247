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

	"m40-llm/infer/fixtures"
	"m40-llm/infer/hub/hubtest"
)

// Kills pulls at random positions and lets the last one finish. Each resumes from the
// journal of the previous one.
func TestPull_ResumesAfterBeingKilled(t *testing.T) {
	kills := 10
	if fixtures.Torture() {
		kills = 200
	}
	dir := filepath.Join(t.TempDir(), "models")
	f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
	random := rand.New(rand.NewPCG(1, 2))
	var allowed atomic.Int64     // bytes that a pull receives before the server hangs; 0: all
	silent := make(chan int, 10) // offset at which the server hangs
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
	f.SetCDN(fault) // takes a lock, because the race detector does not see the order between processes
	command := func() *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), killDir+"="+dir, killEndpoint+"="+f.API.URL)
		c.Stderr = new(bytes.Buffer)
		return c
	}
	resumed := 0
	for kill := range kills {
		allowed.Store(1 + random.Int64N(2*int64(len(testModel)/kills)))
		c := command()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		select {
		case at := <-silent:
			if kill%2 == 0 { // otherwise bytes may be in flight
				waitForJournal(t, dir, int64(at))
			}
			c.Process.Kill()
			<-ended
		case err := <-ended: // it received the rest of the file
			if err != nil {
				t.Fatalf("a pull failed: %v: %s", err, c.Stderr)
			}
			if !checkLoadable(t, dir, testModel) {
				t.Fatal("a pull succeeded without a model")
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if checkLoadable(t, dir, nil) {
			t.Fatal("a killed pull left a model")
		}
		if asked := f.Requests("cdn"); asked[len(asked)-1].Header.Get("Range") != "" {
			resumed++
		}
	}
	allowed.Store(0)
	c := command()
	if err := c.Run(); err != nil {
		t.Fatalf("the last pull failed: %v: %s", err, c.Stderr)
	}
	if !checkLoadable(t, dir, testModel) || len(filesIn(t, dir)) != 1 {
		t.Errorf("got files %q", filesIn(t, dir))
	}
	if resumed < kills/3 {
		t.Errorf("only %d of %d pulls resumed after one was killed", resumed, kills)
	}
}

// Kills pulls with several connections, and lets the last one finish.
func TestPull_WithSeveralConnectionsResumesAfterBeingKilled(t *testing.T) {
	kills := 5
	if fixtures.Torture() {
		kills = 100
	}
	dir := filepath.Join(t.TempDir(), "models")
	f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
	random := rand.New(rand.NewPCG(1, 2))
	command := func() *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), killDir+"="+dir, killEndpoint+"="+f.API.URL, killSegment+"=1")
		c.Stderr = new(bytes.Buffer)
		return c
	}
	for range kills {
		most := 1 + random.IntN(8)
		silent := make(chan bool, 10)
		f.SetCDN(func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool {
			if try <= most {
				return false
			}
			silent <- true
			hubtest.Hang(r)
			return true
		})
		c := command()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		<-silent
		c.Process.Kill()
		c.Wait()
		if checkLoadable(t, dir, nil) {
			t.Fatal("a killed pull left a model")
		}
	}
	f.SetCDN(nil)
	c := command()
	if err := c.Run(); err != nil {
		t.Fatalf("the last pull failed: %v: %s", err, c.Stderr)
	}
	if !checkLoadable(t, dir, testModel) || len(filesIn(t, dir)) != 1 {
		t.Errorf("got files %q", filesIn(t, dir))
	}
}

// waitForJournal waits until the journal of a pull has the given offset.
func waitForJournal(t *testing.T, dir string, offset int64) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if readJournal(root, "org/repo/"+modelFile).Offset == offset {
			return
		}
	}
	t.Fatal("the journal was not written")
}
