package models

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an engine, a models folder and a registry whose downloads a test steers.
type world struct {
	mu       sync.Mutex
	status   infer.Status
	partials map[string]infer.Download
	removed  []string
	answers  map[string]infer.Download // by name
	asked    chan *pulling
	discard  func() // called when a download was thrown away
}

// pulling is a download that waits for the test.
type pulling struct {
	download infer.Download
	progress func(infer.DownloadProgress)
	end      chan error
}

func newWorld(t *testing.T) (*world, *Service) {
	w := &world{partials: map[string]infer.Download{}, answers: map[string]infer.Download{}, asked: make(chan *pulling, 10)}
	for _, n := range []string{"a", "b", "c", "d"} {
		w.answers["org/"+n] = infer.Download{Name: "org/" + n, File: "org/" + n + ".gguf", Size: 100}
	}
	s := New(Options{Engine: w, Files: w, Puller: w})
	t.Cleanup(s.Close)
	return w, s
}

func (w *world) Models(context.Context) ([]infer.ModelInfo, error) { return nil, nil }

// stopped is an engine whose process is: it lists nothing.
type stopped struct{ *world }

func (stopped) Models(ctx context.Context) ([]infer.ModelInfo, error) {
	if _, limited := ctx.Deadline(); !limited {
		return nil, errors.New("asked without a limit")
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// onDisk lists one model.
type onDisk struct{ *world }

func (onDisk) Models(context.Context) ([]infer.ModelInfo, error) {
	return []infer.ModelInfo{{Name: "mine"}}, nil
}

func TestService_ListsTheModelsOfAnEngineThatHangs(t *testing.T) {
	w, _ := newWorld(t)
	s := New(Options{Engine: stopped{w}, Files: onDisk{w}, Patience: time.Millisecond})
	defer s.Close()
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "mine" {
		t.Errorf("got %v, %v, want the model of the folder", list, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("whoever left gets %v", err)
	}
}

func (w *world) Status() infer.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

func (w *world) Details(string) (infer.ModelDetails, error) { return infer.ModelDetails{}, nil }

func (w *world) Removable(name string) (infer.ModelInfo, error) {
	switch name {
	case "guide":
		return infer.ModelInfo{}, &fault.Error{Code: fault.CodeModelFile, Message: "guide is built in"}
	case "mine":
		return infer.ModelInfo{Name: "folder/mine", Path: "/models/mine.gguf"}, nil
	}
	return infer.ModelInfo{}, &fault.Error{Code: fault.CodeNotFound, Message: "there is none"}
}

func (w *world) Remove(name string) error {
	w.removed = append(w.removed, name)
	return nil
}

func (w *world) Partials() (list []infer.Download, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.partials {
		list = append(list, d)
	}
	return list, nil
}

func (w *world) WriteTemplate(string, string) error { return nil }

func (w *world) Copy(context.Context, string, string) (infer.ModelInfo, error) {
	return infer.ModelInfo{}, nil
}

func (w *world) Discard(file string) error {
	w.mu.Lock()
	delete(w.partials, file)
	w.mu.Unlock()
	if w.discard != nil {
		w.discard()
	}
	return nil
}

func (w *world) Folder() (string, int64) { return "/models", 0 }

func (w *world) Resolve(ctx context.Context, name string) (infer.Download, error) {
	if d, ok := w.answers[name]; ok {
		return d, ctx.Err()
	}
	return infer.Download{}, errors.New("the registry is away")
}

func (w *world) Inspect(_ context.Context, d infer.Download) (infer.Download, error) { return d, nil }

func (w *world) Pull(ctx context.Context, d infer.Download, force bool, progress func(infer.DownloadProgress)) (infer.ModelInfo, error) {
	p := &pulling{d, progress, make(chan error)}
	w.asked <- p
	select {
	case err := <-p.end:
		return infer.ModelInfo{Name: strings.TrimSuffix(d.File, ".gguf")}, err
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		d.Partial = 40
		w.partials[d.File] = d
		return infer.ModelInfo{}, ctx.Err()
	}
}

func (w *world) next(t *testing.T) *pulling {
	t.Helper()
	select {
	case p := <-w.asked:
		return p
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing is downloaded")
		return nil
	}
}

// states are the downloads as "file state done".
func states(t *testing.T, s *Service) (list []string) {
	t.Helper()
	all, err := s.Downloads()
	must(t, err)
	for _, d := range all {
		list = append(list, fmt.Sprint(d.File, " ", d.State, " ", d.Progress.Done))
	}
	return list
}

func expect(t *testing.T, s *Service, want ...string) {
	t.Helper()
	var got []string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if got = states(t, s); slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("the downloads are %q, want %q", got, want)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isConflict(err error, says string) bool {
	known, ok := errors.AsType[*fault.Error](err)
	return ok && known.Code == fault.CodeConflict && strings.Contains(err.Error(), says)
}

func TestADownloadFromItsStartToItsEnd(t *testing.T) {
	w, s := newWorld(t)
	version := s.Version()
	must(t, s.Start(t.Context(), "org/a", 100))
	p := w.next(t)
	if s.Version() == version {
		t.Error("the version does not tell of the start")
	}
	p.progress(infer.DownloadProgress{Phase: infer.PhaseDownloading, Done: 30, Total: 100})
	expect(t, s, "org/a.gguf running 30")
	must(t, s.Start(t.Context(), "org/a", 100)) // a second window
	must(t, s.Resume(t.Context(), "org/a.gguf"))

	must(t, s.Pause(t.Context(), "org/a.gguf"))
	expect(t, s, "org/a.gguf paused 40")
	must(t, s.Pause(t.Context(), "org/a.gguf"))
	must(t, s.Resume(t.Context(), "org/a.gguf"))
	p = w.next(t)
	version = s.Version()
	p.end <- nil
	expect(t, s, "org/a.gguf done 0")
	if list := s.Active(); list[0].Model.Name != "org/a" || s.Version() == version {
		t.Errorf("it ended as %+v", list)
	}
	must(t, s.Cancel(t.Context(), "org/a.gguf"))
	expect(t, s)
	if len(w.asked) != 0 {
		t.Error("it was downloaded twice at once")
	}
}

func TestADownloadThatFailsIsTriedAgainOrCancelled(t *testing.T) {
	w, s := newWorld(t)
	must(t, s.Start(t.Context(), "org/a", 100))
	w.next(t).end <- errors.New("the disk is full")
	expect(t, s, "org/a.gguf failed 0")
	if got := s.Active()[0].Error; got != "the disk is full" {
		t.Errorf("it failed with %q", got)
	}
	must(t, s.Resume(t.Context(), "org/a.gguf"))
	w.next(t)
	must(t, s.Cancel(t.Context(), "org/a.gguf"))
	expect(t, s)
	if len(w.partials) != 0 {
		t.Error("something of it is left")
	}
}

func TestDownloadsOfAnEarlierServerAreThere(t *testing.T) {
	w, s := newWorld(t)
	w.partials["org/b.gguf"] = infer.Download{Name: "org/b", File: "org/b.gguf", Size: 100, Partial: 70}
	w.partials["x.gguf"] = infer.Download{File: "x.gguf", Size: 100, Partial: 7}
	w.partials["org/c.gguf"] = infer.Download{Name: "org/a", File: "org/c.gguf", Size: 100, Partial: 7}
	w.partials["org/gone.gguf"] = infer.Download{Name: "org/gone", File: "org/gone.gguf", Size: 100, Partial: 7}
	expect(t, s, "org/b.gguf paused 70", "org/c.gguf paused 7", "org/gone.gguf paused 7", "x.gguf paused 7")
	must(t, s.Resume(t.Context(), "org/b.gguf"))
	w.next(t)
	if err := s.Resume(t.Context(), "x.gguf"); !isConflict(err, "was requested is unknown") {
		t.Errorf("one without a name: %v", err)
	}
	if err := s.Resume(t.Context(), "org/c.gguf"); !isConflict(err, "another file") {
		t.Errorf("one whose name stands for another file: %v", err)
	}
	if known, _ := errors.AsType[*fault.Error](s.Resume(t.Context(), "org/gone.gguf")); known == nil || known.Code != fault.CodeRegistry {
		t.Error("one that the registry does not tell of was resumed")
	}
	must(t, s.Cancel(t.Context(), "x.gguf"))
	must(t, s.Cancel(t.Context(), "org/c.gguf"))
	must(t, s.Cancel(t.Context(), "org/gone.gguf"))
	expect(t, s, "org/b.gguf running 0")
}

func TestWhatCannotBeStarted(t *testing.T) {
	w, s := newWorld(t)
	if err := s.Start(t.Context(), "org/a", 99); !isConflict(err, "has 100 bytes now and had 99") {
		t.Errorf("another size: %v", err)
	}
	w.answers["org/bad"] = infer.Download{Name: "org/bad", File: "bad.gguf", Size: 1, Problem: "no kernels"}
	if err := s.Start(t.Context(), "org/bad", 1); !isConflict(err, "no kernels") {
		t.Errorf("of no use: %v", err)
	}
	if known, _ := errors.AsType[*fault.Error](s.Start(t.Context(), "org/none", 1)); known == nil || known.Code != fault.CodeRegistry {
		t.Error("what cannot be looked up was started")
	}
	for _, n := range []string{"a", "b", "c"} {
		must(t, s.Start(t.Context(), "org/"+n, 100))
		w.next(t)
	}
	if err := s.Start(t.Context(), "org/d", 100); !isConflict(err, "3 downloads run already") {
		t.Errorf("a fourth: %v", err)
	}
	must(t, s.Pause(t.Context(), "org/b.gguf"))
	must(t, s.Start(t.Context(), "org/d", 100))
	for _, do := range []func(context.Context, string) error{s.Pause, s.Resume, s.Cancel} {
		if known, ok := errors.AsType[*fault.Error](do(t.Context(), "nothing.gguf")); !ok || known.Code != fault.CodeNotFound {
			t.Error("a download that there is not was changed")
		}
	}
}

func TestTheEndOfTheServerPausesDownloads(t *testing.T) {
	w, s := newWorld(t)
	must(t, s.Start(t.Context(), "org/a", 100))
	w.next(t)
	s.Close()
	if got := states(t, s); !slices.Equal(got, []string{"org/a.gguf paused 40"}) {
		t.Errorf("after the end: %q", got)
	}
	if known, ok := errors.AsType[*fault.Error](s.Start(t.Context(), "org/b", 100)); !ok || known.Code != fault.CodeClosed {
		t.Error("a download was started after the end")
	}
}

// explosive panics when it is to download.
type explosive struct{ *world }

func (explosive) Pull(context.Context, infer.Download, bool, func(infer.DownloadProgress)) (infer.ModelInfo, error) {
	panic("boom")
}

func TestAPanicEndsOneDownload(t *testing.T) {
	w, _ := newWorld(t)
	s := New(Options{Engine: w, Files: w, Puller: explosive{w}})
	defer s.Close()
	must(t, s.Start(t.Context(), "org/a", 100))
	expect(t, s, "org/a.gguf failed 0")
}

func TestDelete(t *testing.T) {
	w, s := newWorld(t)
	if err := s.Delete("guide"); !isConflict(err, "built in") {
		t.Errorf("the built-in model: %v", err)
	}
	if known, ok := errors.AsType[*fault.Error](s.Delete("none")); !ok || known.Code != fault.CodeNotFound {
		t.Error("a model that there is not was deleted")
	}
	for _, state := range []infer.State{infer.StateLoading, infer.StateReady} {
		w.status = infer.Status{State: state, Model: infer.ModelInfo{Name: "mine", Path: "/models/mine.gguf"}}
		if err := s.Delete("mine"); !isConflict(err, "mine is loaded") {
			t.Errorf("while it is %s: %v", state, err)
		}
	}
	w.status.State = infer.StateFailed
	version := s.Version()
	must(t, s.Delete("mine"))
	if !slices.Equal(w.removed, []string{"folder/mine"}) || s.Version() == version {
		t.Errorf("removed %q", w.removed)
	}
}

func TestADownloadThatIsBegunAnewWhileItIsCancelledIsListed(t *testing.T) {
	w, s := newWorld(t)
	if err := s.Start(t.Context(), "org/a", 100); err != nil {
		t.Fatal(err)
	}
	w.next(t)
	w.discard = func() {
		if err := s.Start(t.Context(), "org/a", 100); err != nil {
			t.Error(err)
		}
	}
	if err := s.Cancel(t.Context(), "org/a.gguf"); err != nil {
		t.Fatal(err)
	}
	w.next(t)
	if list := s.Active(); len(list) != 1 || list[0].State != Running {
		t.Errorf("the downloads are %+v", list)
	}
}

func TestWithoutAFolderNothingIsChanged(t *testing.T) {
	w, _ := newWorld(t)
	s := New(Options{Engine: w})
	defer s.Close()
	for name, err := range map[string]error{
		"find":   func() error { _, err := s.Find(t.Context(), "org/a"); return err }(),
		"start":  s.Start(t.Context(), "org/a", 100),
		"delete": s.Delete("mine"),
		"show":   func() error { _, err := s.Details("mine"); return err }(),
	} {
		if !isConflict(err, "without a models folder") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := s.Downloads(); err != nil || len(list) != 0 {
		t.Errorf("downloads %v, %v", list, err)
	}
}

func TestAModelThatCameOrWentIsToldBeforeTheVersionSaysSo(t *testing.T) {
	w, _ := newWorld(t)
	var s *Service
	var versions []int64 // when it was told
	s = New(Options{Engine: w, Files: w, Puller: w, Changed: func(context.Context) { versions = append(versions, s.Version()) }})
	defer s.Close()
	told := func(what string, want int) {
		t.Helper()
		if len(versions) != want || want > 0 && versions[want-1] >= s.Version() {
			t.Errorf("after %s, it was told at the versions %v; now there is %d", what, versions, s.Version())
		}
	}
	must(t, s.Start(t.Context(), "org/a", 100))
	w.next(t).end <- errors.New("the disk is full")
	expect(t, s, "org/a.gguf failed 0")
	told("a download that failed", 0)
	must(t, s.Resume(t.Context(), "org/a.gguf"))
	w.next(t).end <- nil
	expect(t, s, "org/a.gguf done 0")
	told("a download", 1)
	must(t, s.Copy(t.Context(), "org/a", "b"))
	told("a copy", 2)
	must(t, s.Delete("mine"))
	told("a deletion", 3)
}
