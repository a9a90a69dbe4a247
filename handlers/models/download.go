package models

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime/debug"
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// State is the state of a download.
type State string

const (
	Running State = "running"
	Paused  State = "paused" // by a person or by the end of the server; it can be resumed
	Failed  State = "failed" // it can be tried again
	Done    State = "done"   // the model is stored and was checked
)

// Download is a snapshot of a download.
type Download struct {
	infer.Download
	State    State
	Progress infer.DownloadProgress
	Error    string          // while Failed: why
	Model    infer.ModelInfo // while Done
}

// download is a download that this server has started.
type download struct {
	Download
	cancel context.CancelFunc
	done   chan struct{} // closed when it does not run any more
}

// mostRunning is how many downloads may run at once. More would only share the bandwidth.
const mostRunning = 3

// Find returns the file that a name refers to and whether it would fit, without downloading it.
func (s *Service) Find(ctx context.Context, name string) (infer.Download, error) {
	d, err := s.resolve(ctx, name)
	if err != nil {
		return d, err
	}
	return s.opt.Puller.Inspect(ctx, d)
}

func (s *Service) resolve(ctx context.Context, name string) (infer.Download, error) {
	if s.opt.Puller == nil {
		return infer.Download{}, errNoFiles
	}
	d, err := s.opt.Puller.Resolve(ctx, name)
	if known := (*fault.Error)(nil); err != nil && !errors.As(err, &known) && ctx.Err() == nil {
		err = fault.Errorf(fault.CodeRegistry, "%s", err)
	}
	return d, err
}

// Start downloads the file that name refers to. size, in bytes, is what the person was shown:
// if the file has another size now, Start returns an error.
func (s *Service) Start(ctx context.Context, name string, size int64) error {
	d, err := s.resolve(ctx, name)
	switch {
	case err != nil:
		return err
	case d.Problem != "":
		return conflict("%s", d.Problem)
	case d.Size != size:
		return conflict("%s has %d bytes now and had %d: look at it again", name, d.Size, size)
	}
	return s.begin(d)
}

// Pull downloads the file that name refers to, if it would work here. started is false if it was being
// downloaded already. Progress says how far it is.
func (s *Service) Pull(ctx context.Context, name string) (d infer.Download, started bool, err error) {
	if d, err = s.Find(ctx, name); err != nil {
		return d, false, err
	}
	if d.Problem != "" {
		return d, false, conflict("%s", d.Problem)
	}
	if now, err := s.Progress(d.File); err == nil && now.State == Running {
		return d, false, nil
	}
	return d, true, s.begin(d)
}

// Progress returns the download of a file that this server has started. If it failed, the error says
// why.
func (s *Service) Progress(file string) (Download, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.downloads[file]
	switch {
	case p == nil:
		return Download{}, &fault.Error{Code: fault.CodeNotFound, Param: "file", Message: "the download was cancelled"}
	case p.State == Failed:
		return p.Download, fault.New(fault.CodeRegistry, p.Error)
	}
	return p.Download, nil
}

// Resume continues a download that is not running.
func (s *Service) Resume(ctx context.Context, file string) error {
	old, err := s.find(file)
	switch {
	case err != nil:
		return err
	case old.State == Running:
		return nil
	case old.Name == "":
		return conflict("the name under which %s was requested is unknown: cancel it, and look the model up again", file)
	}
	d, err := s.resolve(ctx, old.Name)
	switch {
	case err != nil:
		return err
	case d.File != file:
		return conflict("%s stands for another file now, %s: cancel this one, and look the model up again", old.Name, d.File)
	}
	return s.begin(d)
}

// begin starts the download of d, unless it is running already.
func (s *Service) begin(d infer.Download) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := 0
	for _, other := range s.downloads {
		if other.State == Running {
			running++
		}
	}
	old := s.downloads[d.File]
	switch {
	case s.closed:
		return &fault.Error{Code: fault.CodeClosed, Message: "the server is shutting down"}
	case old != nil && old.State == Running:
		return nil
	case running >= mostRunning:
		return conflict("%d downloads run already: wait for one to end, or pause one", running)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	p := &download{
		Download: Download{
			Download: d, State: Running,
			Progress: infer.DownloadProgress{Phase: infer.PhaseResolving, File: d.File, Done: d.Partial, Total: d.Size},
		},
		cancel: cancel,
		done:   make(chan struct{}),
	}
	s.downloads[d.File] = p
	s.version++
	s.wg.Go(func() {
		defer close(p.done)
		defer cancel()
		info, err := s.pull(ctx, p)
		if err == nil {
			s.opt.Changed(ctx)
		}
		s.settle(ctx, p, info, err)
	})
	return nil
}

// pull runs a download. A panic ends the download, not the server.
func (s *Service) pull(ctx context.Context, p *download) (info infer.ModelInfo, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.opt.Log.Error("a download panicked", "panic", v, "stack", string(debug.Stack()))
			err = errors.New("internal error in the download; the server's log says more")
		}
	}()
	return s.opt.Puller.Pull(ctx, p.Download.Download, false, func(progress infer.DownloadProgress) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.Progress = progress
	})
}

func (s *Service) settle(ctx context.Context, p *download, info infer.ModelInfo, err error) {
	stored := s.partial(p.File)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	switch {
	case err == nil:
		p.State, p.Model = Done, info
	case ctx.Err() != nil:
		p.State, p.Progress.Done = Paused, stored
	default:
		p.State, p.Progress.Done, p.Error = Failed, stored, err.Error()
		s.opt.Log.Warn("a download failed", "file", p.File, "error", err)
	}
}

// partial returns how many bytes of an incomplete download are stored.
func (s *Service) partial(file string) int64 {
	partials, err := s.opt.Files.Partials()
	if err != nil {
		return 0
	}
	for _, d := range partials {
		if d.File == file {
			return d.Partial
		}
	}
	return 0
}

// Pause stops a download and keeps its partial file.
func (s *Service) Pause(ctx context.Context, file string) error {
	s.mu.Lock()
	p := s.downloads[file]
	s.mu.Unlock()
	if p == nil {
		_, err := s.find(file)
		return err // it does not run
	}
	p.cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cancel stops a download and deletes its partial file. A download that has ended is removed from
// the list; its model stays.
func (s *Service) Cancel(ctx context.Context, file string) error {
	if err := s.Pause(ctx, file); err != nil {
		return err
	}
	if err := s.opt.Files.Discard(file); err != nil {
		return conflict("%v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.downloads[file]; p != nil && p.State == Running {
		return nil // somebody began it anew meanwhile
	}
	delete(s.downloads, file)
	s.version++
	return nil
}

// Active returns the downloads since the server started, by file.
func (s *Service) Active() []Download {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Download, 0, len(s.downloads))
	for _, file := range slices.Sorted(maps.Keys(s.downloads)) {
		list = append(list, s.downloads[file].Download)
	}
	return list
}

// Downloads returns these and those that were stopped before, by file.
func (s *Service) Downloads() ([]Download, error) {
	if s.opt.Files == nil {
		return nil, nil
	}
	partials, err := s.opt.Files.Partials() // first: what completes meanwhile is among the active ones then
	if err != nil {
		return nil, err
	}
	list := s.Active()
	for _, d := range partials {
		if slices.ContainsFunc(list, func(other Download) bool { return other.File == d.File }) {
			continue
		}
		list = append(list, Download{Download: d, State: Paused,
			Progress: infer.DownloadProgress{Phase: infer.PhaseDownloading, File: d.File, Done: d.Partial, Total: d.Size}})
	}
	slices.SortFunc(list, func(a, b Download) int { return cmp.Compare(a.File, b.File) })
	return list, nil
}

func (s *Service) find(file string) (Download, error) {
	list, err := s.Downloads()
	if err != nil {
		return Download{}, err
	}
	for _, d := range list {
		if d.File == file {
			return d, nil
		}
	}
	return Download{}, &fault.Error{Code: fault.CodeNotFound, Param: "file", Message: "the download does not exist: it is complete, or it was cancelled"}
}
