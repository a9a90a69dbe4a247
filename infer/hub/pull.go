package hub

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
	"m40-llm/infer/placement"
	"m40-llm/infer/units"
)

const (
	defaultEndpoint = "https://huggingface.co"
	defaultLibrary  = "https://registry.ollama.ai"
	defaultStall    = 30 * time.Second

	// Number of retries without progress. The waits start at firstWait and double.
	lookupRetries = 2
	pullRetries   = 6
	firstWait     = time.Second

	// diskReserve is the number of bytes that a download leaves free on the disk.
	diskReserve = 1 << 30
)

// PullOptions configures a Puller. The comments give the defaults of zero values.
type PullOptions struct {
	Endpoint   string       // https://huggingface.co; another one may use http or be in a private network
	Library    string       // https://registry.ollama.ai; as Endpoint
	Token      string       // none; sent to Endpoint only
	Version    string       // "dev"; of this program, in the User-Agent
	Addresses  bool         // false: only names; true (command line): also addresses of files
	FreeMemory func() int64 // unknown

	// ReadBandwidth measures the read bandwidth of the memory of each of a machine's devices, in
	// bytes per second; 0: unknown. It is called before quantisations are compared; nil: unknown.
	ReadBandwidth func(ctx context.Context, m placement.Machine) []float64

	Stall time.Duration // 30 s; a request without data for so long is cancelled

	Proxy    func(*http.Request) (*url.URL, error)            // http.ProxyFromEnvironment
	FreeDisk func(dir string) (int64, error)                  // statfs
	Now      func() time.Time                                 // time.Now
	Sleep    func(ctx context.Context, d time.Duration) error // a timer
}

// Puller downloads models into the folder of a Hub. It is safe for concurrent use.
type Puller struct {
	hub      *Hub
	endpoint *url.URL // of Hugging Face
	library  *url.URL // of the Ollama library
	trusted  []string // hosts of those of them that are not the default
	options  PullOptions

	tls          *tls.Config // nil: the system's
	segment      int64       // bytes of a file that one of several connections requests
	journalEvery time.Duration
}

// NewPuller returns a Puller that downloads into the models folder of h.
func NewPuller(h *Hub, o PullOptions) (*Puller, error) {
	p := &Puller{hub: h, options: o, segment: segmentSize, journalEvery: journalEvery}
	var err error
	if p.endpoint, err = p.registryURL("HF_ENDPOINT", o.Endpoint, defaultEndpoint); err != nil {
		return nil, err
	}
	if p.library, err = p.registryURL("OLLAMA_REGISTRY", o.Library, defaultLibrary); err != nil {
		return nil, err
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, invalidName("HF_TOKEN has invalid characters; check for spaces and line breaks")
	}
	if p.options.Stall == 0 {
		p.options.Stall = defaultStall
	}
	if p.options.Proxy == nil {
		p.options.Proxy = http.ProxyFromEnvironment
	}
	if p.options.FreeDisk == nil {
		p.options.FreeDisk = freeDisk
	}
	if p.options.Now == nil {
		p.options.Now = time.Now
	}
	if p.options.Sleep == nil {
		p.options.Sleep = sleep
	}
	return p, nil
}

// registryURL parses the address of a registry that was set in variable, and trusts its host.
func (p *Puller) registryURL(variable, set, standard string) (*url.URL, error) {
	u, err := url.Parse(cmp.Or(set, standard))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil {
		return nil, invalidName("%s %.200q is not an address such as %s", variable, set, standard)
	}
	if set != "" {
		p.trusted = append(p.trusted, u.Hostname())
	}
	return u, nil
}

func freeDisk(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// client returns a client to download n. If n is an address on this machine, it is trusted
// like an explicit endpoint.
func (p *Puller) client(n name) *client {
	trusted := slices.Clone(p.trusted)
	if n.address != nil && isLoopback(n.address.Hostname()) {
		trusted = append(trusted, n.address.Hostname())
	}
	agent := "m40-llm/" + cmp.Or(p.options.Version, "dev") + " (GGUF; like llama-cpp)"
	return newClient(p.endpoint, trusted, p.options.Token, agent, p.options.Stall, p.tls, p.options.Proxy)
}

func (p *Puller) parse(s string) (name, error) {
	n, err := parseName(s)
	if err == nil && n.address != nil && !p.options.Addresses {
		return name{}, invalidName("only names such as org/repo:quant or model:tag can be pulled here; pull addresses on the command line, with m40-llm pull")
	}
	return n, err
}

// Resolve looks up the file that name refers to, without downloading it. Names are
// org/repo[:quant], hf.co/org/repo[:quant], model[:tag], ollama.com/namespace/model[:tag] and, with
// PullOptions.Addresses, the address of a .gguf file. It returns a *fault.Error with CodeInvalid for a malformed name, CodeNotFound
// if there is no such file, and CodeModelFile if it cannot be pulled.
func (p *Puller) Resolve(ctx context.Context, name string) (infer.Download, error) {
	n, err := p.parse(name)
	if err != nil {
		return infer.Download{}, err
	}
	c := p.client(n)
	defer c.close()
	var d infer.Download
	switch {
	case n.address != nil:
		d, err = p.resolveAddress(ctx, c, n)
	case n.tag != "":
		d, err = p.resolveLibrary(ctx, c, n)
	default:
		d, err = p.resolveRepository(ctx, c, n)
	}
	if err != nil {
		return infer.Download{}, err
	}
	d.Name = name
	if i := slices.IndexFunc(d.Choices, func(q infer.Quantisation) bool { return q.Chosen }); i >= 0 {
		d.Name = d.Choices[i].Name // so that the same file is found again
	}
	if p.options.FreeMemory != nil {
		d.MemoryFree = p.options.FreeMemory()
	}
	p.addLocalState(&d)
	return d, nil
}

func (p *Puller) resolveRepository(ctx context.Context, c *client, n name) (infer.Download, error) {
	r := &registry{client: c, try: p.tryLookup}
	unsupported := p.unsupported(ctx, r, n)
	chosen, err := p.choose(ctx, r, n, unsupported == nil)
	if err != nil {
		return infer.Download{}, err
	}
	d := p.downloadOf(n, chosen.listedFile)
	d.Notice, d.Problem, d.Works, d.Choices = chosen.notice, chosen.problem, chosen.supported, chosen.choices
	if f, ok := r.companionOf(ctx, n, chosen.Path); ok {
		d.Companion = new(p.partOf(n, f))
		d.Size += f.Size
		d.Notice = strings.TrimPrefix(d.Notice+fmt.Sprintf("; it reads pictures, with %s of %s", path.Base(f.Path), units.ByteSize(f.Size)), "; ")
	}
	if unsupported != nil {
		d.Problem, d.Works = unsupported.Error(), nil
	}
	return d, nil
}

// downloadOf returns the download of a file of a repository, with its parts.
func (p *Puller) downloadOf(n name, f listedFile) infer.Download {
	d := infer.Download{
		File:   n.folder() + "/" + path.Base(f.Path),
		Source: fileAddress(p.endpoint, n, f.Path).String(),
		Size:   f.Size,
		SHA256: f.SHA,
		Quant:  quantOf(f.Path),
	}
	for _, part := range f.Parts {
		d.Parts = append(d.Parts, p.partOf(n, part))
	}
	return d
}

func (p *Puller) partOf(n name, f listedFile) infer.DownloadPart {
	return infer.DownloadPart{File: n.folder() + "/" + path.Base(f.Path), Source: fileAddress(p.endpoint, n, f.Path).String(), Size: f.Size, SHA256: f.SHA}
}

// resolveAddress asks for the sizes of a model's files.
func (p *Puller) resolveAddress(ctx context.Context, c *client, n name) (infer.Download, error) {
	var files []infer.Download
	size := int64(0)
	for _, address := range n.addresses() {
		f, err := p.resolveFile(ctx, c, n, address)
		if err != nil {
			return infer.Download{}, err
		}
		size += f.Size
		files = append(files, f)
	}
	d := files[0]
	if len(files) > 1 {
		for _, f := range files {
			d.Parts = append(d.Parts, infer.DownloadPart{File: f.File, Source: f.Source, Size: f.Size, SHA256: f.SHA256})
		}
		d.Size, d.SHA256 = size, ""
	}
	d.Quant = quantOf(path.Base(d.File))
	if supportOf(d.Quant, p.hub.types) == unsupported {
		d.Problem = fmt.Sprintf("weights in %s are not supported yet", d.Quant)
	}
	if !d.Verifiable() {
		d.Notice = "the server gives no SHA-256: only the size and the header of the model can be checked"
	}
	return d, nil
}

// resolveFile requests the first byte of a file to get its size.
func (p *Puller) resolveFile(ctx context.Context, c *client, n name, address *url.URL) (infer.Download, error) {
	d := infer.Download{File: n.folder() + "/" + path.Base(address.Path), Source: address.String()}
	err := p.tryLookup(ctx, func(ctx context.Context) error {
		a, err := c.get(ctx, d.Source, http.Header{"Range": {"bytes=0-0"}})
		if err != nil {
			return err
		}
		switch a.StatusCode {
		case http.StatusOK:
			d.Size = a.ContentLength
		case http.StatusPartialContent:
			_, d.Size, _ = contentRange(a.Header)
		default:
			return a.asError()
		}
		a.Body.Close()
		d.SHA256 = a.linkedSHA
		if a.linkedSize > 0 && a.linkedSize != d.Size {
			return permanent("%s has %d bytes and %s announced %d", a.Request.URL.Hostname(), d.Size, n.address.Hostname(), a.linkedSize)
		}
		return nil
	})
	if err != nil {
		if status := (*statusError)(nil); errors.As(err, &status) && status.status < 500 {
			return d, nameNotFound("%s does not have the file, or requires a login (status %d)", n.address.Hostname(), status.status)
		}
		return d, fmt.Errorf("failed to look up %s: %w", path.Base(d.File), err)
	}
	if d.Size <= 0 || d.Size > maxSize {
		return d, fmt.Errorf("%s does not give the size of the file, which is needed to check it; download it in another way and put it into the models folder", n.address.Hostname())
	}
	return d, nil
}

// tryLookup calls ask and retries it after transient errors.
func (p *Puller) tryLookup(ctx context.Context, ask func(context.Context) error) error {
	for failures := 0; ; failures++ {
		limited, cancel := context.WithTimeoutCause(ctx, p.options.Stall, p.stallError())
		err := ask(limited)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var t *transientError
		if !errors.As(err, &t) || failures == lookupRetries {
			return err
		}
		if err := p.options.Sleep(ctx, max(firstWait<<failures, t.after)); err != nil {
			return err
		}
	}
}

func (p *Puller) stallError() error {
	return &transientError{err: fmt.Errorf("no data was received for %s", p.options.Stall)}
}

// addLocalState sets what was already downloaded of d, and the disk space.
func (p *Puller) addLocalState(d *infer.Download) {
	dir := p.hub.dir
	d.DiskNeed = d.Size + diskReserve
	if free, err := p.options.FreeDisk(existingParent(dir)); err == nil {
		d.DiskFree = free
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return // nothing was downloaded yet
	}
	defer root.Close()
	complete := 0
	for _, f := range d.Files() {
		j := readJournal(root, f.File)
		switch {
		case isComplete(root, f):
			complete++
			if len(d.Files()) > 1 {
				d.Partial += f.Size
			}
		case j.resumes(f):
			d.Partial += j.done()
		}
	}
	d.DiskNeed -= d.Partial
	if d.Present = complete == len(d.Files()); d.Present {
		d.Partial = 0
	}
}

// isComplete reports whether a file of that size exists.
func isComplete(root *os.Root, f infer.Download) bool {
	stat, err := root.Stat(f.File)
	return err == nil && stat.Mode().IsRegular() && stat.Size() == f.Size
}

// existingParent returns dir, or its nearest parent that exists.
func existingParent(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// checkDownload returns an error unless d could be a result of Resolve: it may come from a
// client.
func (p *Puller) checkDownload(d infer.Download) (name, error) {
	n, err := p.parse(d.Name)
	if err != nil {
		return name{}, err
	}
	for _, f := range d.Files() {
		if err := checkFile(path.Base(f.File)); err != nil {
			return name{}, invalidName("cannot be pulled: %v", err)
		}
	}
	if !p.resolvesTo(n, d) {
		return name{}, invalidName("the download of %q differs from what it resolves to; resolve it again", d.Name)
	}
	return n, nil
}

// resolvesTo reports whether n may resolve to d.
func (p *Puller) resolvesTo(n name, d infer.Download) bool {
	var files []string
	size := int64(0)
	for _, f := range d.Files() {
		if !p.isFileOf(n, f) {
			return false
		}
		files, size = append(files, f.File), size+f.Size
	}
	if d.Companion != nil {
		last := len(files) - 1
		if _, ok := companionStem(path.Base(files[last])); !ok {
			return false
		}
		files = files[:last]
	}
	return size == d.Size && d.File == files[0] && slices.Equal(files, gguf.Parts(d.File))
}

// isFileOf reports whether n may resolve to a file with that place, size, digest and source.
func (p *Puller) isFileOf(n name, f infer.Download) bool {
	own := join(p.endpoint, n.org, n.repo, "resolve").String() + "/"
	switch {
	case f.File != n.folder()+"/"+path.Base(f.File),
		f.Size <= 0 || f.Size > maxSize,
		f.SHA256 != "" && !digest.MatchString(f.SHA256):
		return false
	case n.tag != "":
		return f.SHA256 != "" && f.File == n.folder()+"/"+n.libraryFile() && f.Source == p.blobAddress(n, f.SHA256)
	case n.address != nil:
		return slices.ContainsFunc(n.addresses(), func(address *url.URL) bool { return f.Source == address.String() })
	}
	return f.SHA256 != "" && strings.HasPrefix(f.Source, own)
}

// Pull downloads what Resolve returned into the models folder and returns the model. It
// resumes an incomplete download. With force, it also downloads models that are not
// supported. progress, which may be nil, is called from this goroutine at each change of the
// phase and a few times a second. If ctx ends, the next Pull can resume.
func (p *Puller) Pull(ctx context.Context, d infer.Download, force bool, progress func(infer.DownloadProgress)) (infer.ModelInfo, error) {
	n, err := p.checkDownload(d)
	if err != nil {
		return infer.ModelInfo{}, err
	}
	if d.Problem != "" && !force {
		return infer.ModelInfo{}, p.unsupportedError(d)
	}
	if p.hub.dir == "" {
		return infer.ModelInfo{}, errors.New("there is no models folder to download to; set one with --models")
	}
	if err := os.MkdirAll(p.hub.dir, 0o700); err != nil {
		return infer.ModelInfo{}, fmt.Errorf("failed to create the models folder: %w", err)
	}
	root, err := os.OpenRoot(p.hub.dir)
	if err != nil {
		return infer.ModelInfo{}, fmt.Errorf("failed to open the models folder: %w", err)
	}
	defer root.Close()
	c := p.client(n)
	defer c.close()
	meter := newMeter(d, p.options.Now, progress)
	for _, f := range d.Files() {
		here, err := isPresent(ctx, root, f, meter)
		if err == nil && !here {
			err = (&transfer{puller: p, client: c, download: f, whole: d, force: force, meter: meter}).run(ctx, root)
		}
		if err != nil {
			return infer.ModelInfo{}, err
		}
		meter.before += f.Size
	}
	meter.before = 0
	meter.report(infer.PhaseDone, d.Size, "")
	return p.hub.modelAt(filepath.Join(p.hub.dir, filepath.FromSlash(d.File)))
}

func (p *Puller) unsupportedError(d infer.Download) error {
	advice := "; on the command line, --force downloads it anyway"
	if len(d.Works) > 0 {
		advice = fmt.Sprintf("; the same repository has %s, which can be used%s", strings.Join(d.Works, ", "), advice)
	}
	return unusable("%s: %s%s", path.Base(d.File), d.Problem, advice)
}

// transfer is the download of one file.
type transfer struct {
	puller   *Puller
	client   *client
	part     *partial
	download infer.Download // of the file
	whole    infer.Download // of the model
	force    bool
	retries  retries // of the only connection, or the first

	segments segments
	single   bool   // one connection requests all bytes
	ranged   func() // begins further connections; called when the server sends ranges

	mu              sync.Mutex // of what follows, while connections download
	meter           *meter
	nextHeaderCheck int64 // the header is checked when so many bytes were downloaded
	headerChecked   bool
}

// run downloads and verifies the file, and commits it as a model.
func (t *transfer) run(ctx context.Context, root *os.Root) error {
	var err error
	if t.part, err = openPartial(root, t.download, t.whole.Size); err != nil {
		return err
	}
	defer t.part.close()
	err = t.part.resume(ctx, func(done int64) { t.meter.report(infer.PhaseVerifying, done, "") })
	if err == nil {
		err = t.checkDisk(root)
	}
	if err == nil {
		err = t.fetch(ctx)
	}
	if err == nil {
		err = t.verify()
	}
	if err == nil {
		return t.part.commit()
	}
	wrong := (*wrongFile)(nil)
	if errors.As(err, &wrong) || t.part.done() == 0 { // nothing to resume from
		if left := t.part.discard(); left != nil {
			return fmt.Errorf("%w; deleting the partial file failed: %w", err, left)
		}
		removeEmpty(root, path.Dir(t.download.File))
		return err
	}
	if t.part.save() != nil {
		t.part.makeRoom()
	}
	return err
}

// isPresent reports whether the complete model file already exists.
func isPresent(ctx context.Context, root *os.Root, d infer.Download, m *meter) (bool, error) {
	f, err := root.OpenFile(d.File, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("failed to open the existing model: %w", err)
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !stat.Mode().IsRegular() {
		return false, fmt.Errorf("%s exists and is not a regular file; remove it", d.File)
	}
	if stat.Size() != d.Size {
		return false, nil
	}
	if d.SHA256 == "" {
		return true, nil
	}
	h := sha256.New()
	if err := hashFile(ctx, h, f, stat.Size(), func(done int64) { m.report(infer.PhaseVerifying, done, "") }); err != nil {
		return false, err
	}
	return hex.EncodeToString(h.Sum(nil)) == d.SHA256, nil
}

// checkDisk returns an error if the disk has no room for what is missing of the model.
func (t *transfer) checkDisk(root *os.Root) error {
	free, err := t.puller.options.FreeDisk(t.puller.hub.dir)
	if err != nil {
		return nil // unknown; Write reports a full disk
	}
	need := t.download.Size - t.part.allocated() + diskReserve
	for _, f := range t.whole.Files() {
		if f.File != t.download.File && !isComplete(root, f) {
			need += f.Size
		}
	}
	if need > free {
		return fmt.Errorf("the disk of the models folder has %.1f GB free and the download needs %.1f GB, of which 1.1 GB stay free; free some space or choose another disk with --models",
			float64(free)/1e9, float64(need)/1e9)
	}
	return nil
}

// wrongFile is an error after which the partial file is deleted, because its bytes are wrong.
type wrongFile struct{ reason string }

func (w *wrongFile) Error() string { return w.reason }

// checkHeader checks the model as soon as its header is complete, so that a model that cannot
// be used is not downloaded to the end.
func (t *transfer) checkHeader() error {
	const firstLook = 64 << 10
	if t.headerChecked || t.part.offset < max(4, t.nextHeaderCheck) {
		return nil
	}
	if err := t.checkMagic(); err != nil {
		return err
	}
	t.nextHeaderCheck = max(2*t.part.offset, firstLook)
	f, err := t.part.header()
	if err != nil {
		return nil // the header may be incomplete; verify checks the whole file
	}
	defer f.Close()
	return t.checkModel(f)
}

// checkModel returns an error if the model cannot be used, unless force is set.
func (t *transfer) checkModel(f *gguf.File) error {
	t.headerChecked = true
	if t.force {
		return nil
	}
	var err error
	if t.whole.Companion != nil && t.download.File == t.whole.Companion.File {
		return nil // if its tower is not supported, the model says so, and reads text
	}
	if len(t.whole.Parts) > 0 { // the other files say the rest
		err = checkTypes(f.Tensors(), t.puller.hub.types)
	} else {
		err = readHeader(new(infer.ModelInfo), f, t.puller.hub.types)
	}
	if err != nil {
		return &wrongFile{fmt.Sprintf("%s cannot be used here: it %v; on the command line, --force downloads it anyway", path.Base(t.download.File), err)}
	}
	return nil
}

func (t *transfer) checkMagic() error {
	var start [8]byte
	n, err := t.part.file.ReadAt(start[:min(8, t.part.offset)], 0)
	if err != nil {
		return fmt.Errorf("failed to read the partial file: %w", err)
	}
	if string(start[:4]) != "GGUF" {
		return &wrongFile{fmt.Sprintf("the downloaded file is not a GGUF file: it starts with %q", start[:n])}
	}
	return nil
}

// verify checks the digest and the header of the whole file.
func (t *transfer) verify() error {
	if sum := t.part.sha256(); t.download.SHA256 != "" && sum != t.download.SHA256 {
		return &wrongFile{fmt.Sprintf("%s has the SHA-256 %s instead of %s as in the registry; it was deleted, pull it again", path.Base(t.download.File), sum, t.download.SHA256)}
	}
	f, err := t.part.header()
	if err != nil {
		return &wrongFile{err.Error()}
	}
	defer f.Close()
	return t.checkModel(f)
}

// meter reports the progress of a download.
type meter struct {
	download infer.Download
	now      func() time.Time
	progress func(infer.DownloadProgress)

	phase  infer.DownloadPhase
	last   time.Time // of the last report
	done   int64     // then
	before int64     // bytes of the files before this one
	rate   float64   // bytes per second, smoothed
}

// reportEvery is the shortest time between reports of one phase.
const reportEvery = 200 * time.Millisecond

func newMeter(d infer.Download, now func() time.Time, progress func(infer.DownloadProgress)) *meter {
	if progress == nil {
		progress = func(infer.DownloadProgress) {}
	}
	return &meter{download: d, now: now, progress: progress}
}

// report calls progress if the phase changed, notice is set or reportEvery has passed.
func (m *meter) report(phase infer.DownloadPhase, done int64, notice string) {
	now := m.now()
	done += m.before
	changed := phase != m.phase || notice != ""
	passed := now.Sub(m.last)
	if !changed && passed < reportEvery {
		return
	}
	switch {
	case phase != m.phase:
		m.rate = 0
	case passed > 0:
		const weight = 0.2 // of the newest measurement
		if newest := float64(done-m.done) / passed.Seconds(); newest < 0 || m.rate == 0 {
			m.rate = max(newest, 0) // the first measurement, or after a restart
		} else {
			m.rate += weight * (newest - m.rate)
		}
	}
	m.phase, m.last, m.done = phase, now, done
	p := infer.DownloadProgress{Phase: phase, File: m.download.File, Done: done, Total: m.download.Size, BytesPerSecond: m.rate, Notice: notice}
	if m.rate > 0 {
		p.ETASeconds = float64(m.download.Size-done) / m.rate
	}
	m.progress(p)
}
