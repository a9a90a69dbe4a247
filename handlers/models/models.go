// Package models lists, shows, copies, deletes, suggests and downloads the models on this machine, and has
// the loaded one loaded again with another setup. It does not depend on HTTP.
//
// A download belongs to the server, not to the page that started it: it continues when the page
// is closed. Its partial file outlives the server, so that the download can be resumed.
package models

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/suggest"
)

// Engine is the part of an engine that this package uses.
type Engine interface {
	Models(ctx context.Context) ([]infer.ModelInfo, error)
	Status() infer.Status
}

// Files are the models on the disk: *hub.Hub.
type Files interface {
	// Models lists them as the engine does, without it.
	Models(ctx context.Context) ([]infer.ModelInfo, error)
	Details(name string) (infer.ModelDetails, error)
	// Removable returns the model that Remove would delete.
	Removable(name string) (infer.ModelInfo, error)
	Remove(name string) error
	// Copy gives the model called name another name as well.
	Copy(ctx context.Context, name, as string) (infer.ModelInfo, error)
	// WriteTemplate gives a model a chat template of its own, or with an empty source takes that away.
	WriteTemplate(name, source string) error
	// Partials lists the downloads that are not complete.
	Partials() ([]infer.Download, error)
	// Discard deletes what is here of the download of a file.
	Discard(file string) error
	// Folder returns where downloads go, and the bytes free there; 0: unknown.
	Folder() (dir string, free int64)
}

// Puller downloads models: *hub.Puller. It decides which names are allowed.
type Puller interface {
	Resolve(ctx context.Context, name string) (infer.Download, error)
	Inspect(ctx context.Context, d infer.Download) (infer.Download, error)
	Pull(ctx context.Context, d infer.Download, force bool, progress func(infer.DownloadProgress)) (infer.ModelInfo, error)
}

// Loader decides which models are loaded: *fleet.Fleet. Names are those of models on this machine.
type Loader interface {
	// Load loads a model, and returns when that has started.
	Load(ctx context.Context, name string) error
	// Unload unloads a model when its answers have ended.
	Unload(ctx context.Context, name string) error
	// Pin keeps a loaded model in memory, or does not any more.
	Pin(ctx context.Context, name string, pinned bool) error
}

// conflict returns the error of a change that the current state does not allow.
func conflict(format string, args ...any) error {
	return fault.Errorf(fault.CodeConflict, format, args...)
}

// Options are what a Service works with. Without Files and Puller, models can be listed
// and nothing else.
type Options struct {
	Engine Engine
	Files  Files
	Puller Puller
	Log    *slog.Logger // default: nothing is logged

	// Suggest returns models for this machine; nil: none are suggested.
	Suggest func() ([]suggest.Suggestion, error)

	// Reload loads the model again with another setup; nil: that cannot be changed.
	Reload func(ctx context.Context, s infer.Setup) error

	// Loader loads and unloads models; nil: the engine loads one when it is asked for it, in place of another.
	Loader Loader

	// First returns the model that chats begin with unless a person chooses another, or an empty name for the
	// best that can chat; nil: always that.
	First func() string

	// RemoteVersion increases when models of other engines come or go; nil: there are none.
	RemoteVersion func() int64

	// Deleted is called when a model was deleted; nil: nothing is called.
	Deleted func(model string)

	// Changed is called when a model came or went, before the version says so; nil: nothing is called.
	Changed func(ctx context.Context)

	Patience time.Duration // longest wait for the engine to list the models, default 300 ms
}

// Service is the models of a server. Its methods may be called by any goroutine.
type Service struct {
	opt    Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // downloads

	mu        sync.Mutex
	closed    bool
	downloads map[string]*download // since the server started, by file
	version   int64
}

// New returns the models that o names.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func(context.Context) {}
	}
	if o.Patience <= 0 {
		o.Patience = 300 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Service{opt: o, ctx: ctx, cancel: cancel, downloads: map[string]*download{}, version: time.Now().UnixMicro()}
}

// Close stops the downloads and returns when what is here of them is safe.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
}

// Version increases when a model or a download is added or removed or a download changes its
// state, also over a restart.
func (s *Service) Version() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opt.RemoteVersion != nil {
		return s.version + s.opt.RemoteVersion()
	}
	return s.version
}

// List returns the models, including those that cannot be used, and those that other engines run. If
// the engine does not respond in time, because its process hangs or is being started, List reads the files
// itself; then a model may be listed as usable that the engine's device cannot run.
func (s *Service) List(ctx context.Context) ([]infer.ModelInfo, error) {
	list, err := s.here(ctx)
	if err != nil {
		return nil, err
	}
	return append(slices.Clip(list), s.opt.Engine.Status().Remote...), nil
}

// here returns the models on this machine.
func (s *Service) here(ctx context.Context) ([]infer.ModelInfo, error) {
	if s.opt.Files == nil {
		return s.opt.Engine.Models(ctx)
	}
	asked, cancel := context.WithTimeout(ctx, s.opt.Patience)
	defer cancel()
	list, err := s.opt.Engine.Models(asked)
	if err != nil && asked.Err() != nil && ctx.Err() == nil {
		return s.opt.Files.Models(ctx)
	}
	return list, err
}

// Folder returns where downloads go, and the bytes free there; 0: unknown.
func (s *Service) Folder() (dir string, free int64) {
	if s.opt.Files == nil {
		return "", 0
	}
	return s.opt.Files.Folder()
}

// Details returns the properties and metadata of a model's file.
func (s *Service) Details(name string) (infer.ModelDetails, error) {
	if s.opt.Files == nil {
		return infer.ModelDetails{}, errNoFiles
	}
	return s.opt.Files.Details(name)
}

var errNoFiles = conflict("this server was started without a models folder")

// Deletable returns an error if the model called name cannot be deleted now.
func (s *Service) Deletable(name string) error {
	_, err := s.deletable(name)
	return err
}

func (s *Service) deletable(name string) (infer.ModelInfo, error) {
	if s.opt.Files == nil {
		return infer.ModelInfo{}, errNoFiles
	}
	info, err := s.opt.Files.Removable(name)
	if known := (*fault.Error)(nil); errors.As(err, &known) && known.Code == fault.CodeModelFile {
		return info, conflict("%s", known.Message)
	}
	if err != nil {
		return info, err
	}
	status := s.opt.Engine.Status()
	for _, loaded := range status.Loaded() {
		switch {
		case loaded.Model.Path != info.Path:
		case s.opt.Loader != nil:
			return info, conflict("%s is loaded: unload it, then delete it", loaded.Model.Name)
		default:
			return info, conflict("%s is loaded: let another model answer, then delete it", loaded.Model.Name)
		}
	}
	return info, nil
}

// Delete deletes the file of a model in the models folder.
func (s *Service) Delete(name string) error {
	info, err := s.deletable(name)
	if err != nil {
		return err
	}
	if err := s.opt.Files.Remove(info.Name); err != nil {
		return conflict("%v", err)
	}
	if s.opt.Deleted != nil {
		s.opt.Deleted(info.Name)
	}
	s.changed()
	return nil
}

// WriteTemplate gives the model called name a chat template of its own; with an empty source that of its file again. The
// next request to the model uses it.
func (s *Service) WriteTemplate(name, source string) error {
	if s.opt.Files == nil {
		return errNoFiles
	}
	if err := s.opt.Files.WriteTemplate(name, source); err != nil {
		if known, ok := errors.AsType[*fault.Error](err); ok && known.Code != fault.CodeModelFile {
			return err
		}
		return conflict("%v", err)
	}
	s.changed()
	return nil
}

// Copy gives the model called name another name as well.
func (s *Service) Copy(ctx context.Context, name, as string) error {
	if s.opt.Files == nil {
		return errNoFiles
	}
	if _, err := s.opt.Files.Copy(ctx, name, as); err != nil {
		if known, ok := errors.AsType[*fault.Error](err); ok && known.Code != fault.CodeModelFile {
			return err
		}
		return conflict("%v", err)
	}
	s.changed()
	return nil
}

// Suggestions returns models for this machine while only built-in models are here.
func (s *Service) Suggestions(here []infer.ModelInfo) ([]suggest.Suggestion, error) {
	if s.opt.Suggest == nil || slices.ContainsFunc(here, func(m infer.ModelInfo) bool { return (m.Path != "" || m.Upstream != nil) && m.Error == "" }) {
		return nil, nil
	}
	return s.opt.Suggest()
}

// Reloads reports whether the setup can be changed.
func (s *Service) Reloads() bool { return s.opt.Reload != nil }

// Reload loads the model again with another setup, when the running answers have ended. It waits for
// that a moment, so that the caller sees the result if it is quick.
func (s *Service) Reload(ctx context.Context, setup infer.Setup) error {
	if s.opt.Reload == nil {
		return conflict("the engine of this server cannot change how models are loaded")
	}
	if err := s.opt.Reload(ctx, setup); err != nil {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, s.opt.Patience)
	defer cancel()
	tick := time.NewTicker(s.opt.Patience / 20)
	defer tick.Stop()
	for now := s.opt.Engine.Status(); now.Reload != nil || now.State == infer.StateLoading; now = s.opt.Engine.Status() {
		select {
		case <-tick.C:
		case <-asked.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Loads reports whether models can be loaded, unloaded and pinned.
func (s *Service) Loads() bool { return s.opt.Loader != nil }

var errOneModel = conflict("this server runs one model in its own process (--worker never): it loads the model that a request names")

// Load loads the model called name, and returns when that has started.
func (s *Service) Load(ctx context.Context, name string) error {
	if s.opt.Loader == nil {
		return errOneModel
	}
	return s.opt.Loader.Load(ctx, name)
}

// Unload unloads the model called name when its answers have ended.
func (s *Service) Unload(ctx context.Context, name string) error {
	if s.opt.Loader == nil {
		return errOneModel
	}
	return s.opt.Loader.Unload(ctx, name)
}

// Pin keeps the model called name in memory, or does not any more.
func (s *Service) Pin(ctx context.Context, name string, pinned bool) error {
	if s.opt.Loader == nil {
		return errOneModel
	}
	return s.opt.Loader.Pin(ctx, name, pinned)
}

func (s *Service) changed() {
	s.opt.Changed(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
}
