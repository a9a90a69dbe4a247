package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/chatformat"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/picture"
	"m40-llm/infer/tokenizer"
)

// openModel is an opened model with everything that needs no device: its tokenizer, its template
// and its grammars. It is immutable but for the fields said otherwise, so any goroutine may use
// it.
type openModel struct {
	name        string // as it was requested
	device      string // kind of the only device that it may use; empty: any
	info        infer.ModelInfo
	file        *gguf.File
	config      model.Config
	tokenizer   *tokenizer.Tokenizer
	format      *chatformat.Format
	constraints *constraints
	classifier  *model.Classifier // of a model that ranks documents; else nil
	rankParts   []rankPart        // of its template for a query and a document; nil: it has none
	vision      *vision           // nil: it cannot read pictures
	blind       string            // why its companion file cannot be used; empty: it can, or there is none

	hash string // SHA-256 of the file's header and size

	readErr *fault.Error // the file became unreadable; owned by the loop

	users int           // guarded by sources.mu
	ready chan struct{} // closed when the file is opened or err is set
	err   error
}

// key identifies the model: two names of one file give one key, a replaced file of the same name
// another, as does another chat template, and a model that may use one device alone a third.
func (m *openModel) key() string {
	return m.info.Name + "@" + m.hash + m.format.TemplateHash() + m.device
}

// vocabulary implements sample's vocabulary.
type vocabulary struct{ *openModel }

// Size returns the rows of the output matrix, which may be more than the tokenizer has tokens.
func (v vocabulary) Size() int { return v.config.Vocab }

func (v vocabulary) Piece(id int32) []byte { return v.tokenizer.Piece(id, true) }

// openModels shares opened models among their users. A file stays open as long as it has one.
type openModels struct {
	catalog infer.Catalog
	log     *slog.Logger

	openTower    func(*gguf.File) (device.Device, error) // see Options.OpenTower
	openFirst    func(*gguf.File) (device.Device, error) // see Options.OpenDevice
	betweenSteps func(ctx context.Context, f func() error) error
	limits       picture.Options // see Options.Pictures
	pictures     *seenPictures

	mu   sync.Mutex
	open map[openName]*openModel // by the requested name, and by the model's own
}

// openName is the name of a model, with the device that it may use.
type openName struct{ name, device string }

// acquire returns the model called name, opening it unless it is open. It may use devices of one kind only,
// unless device is empty. The caller releases it.
func (l *openModels) acquire(ctx context.Context, name, device string) (*openModel, error) {
	l.mu.Lock()
	m, ok := l.open[openName{name, device}]
	if ok && l.templateChanged(m) {
		l.withdraw(m) // those who use it go on
		ok = false
	}
	if !ok {
		m = &openModel{name: name, device: device, ready: make(chan struct{})}
		l.open[openName{name, device}] = m
	}
	m.users++
	l.mu.Unlock()
	if !ok {
		m.err = contain(l.log, func() error {
			if err := m.read(l.catalog); err != nil {
				return err
			}
			l.openVision(m)
			m.info.Vision = m.vision != nil
			return nil
		})
		l.publish(m)
	}
	select {
	case <-m.ready:
	case <-ctx.Done():
		l.release(m)
		return nil, ctx.Err()
	}
	if m.err != nil {
		err := m.err
		l.release(m)
		return nil, err
	}
	return m, nil
}

// templateChanged reports whether another chat template was put next to an open model since it was opened.
func (l *openModels) templateChanged(m *openModel) bool {
	select {
	case <-m.ready:
	default:
		return false
	}
	if m.err != nil {
		return false
	}
	source, err := l.catalog.OwnTemplate(m.info)
	return err != nil || source != m.info.ChatTemplate
}

// publish wakes those who wait for m. The model is found under its own name too, unless that is
// taken.
func (l *openModels) publish(m *openModel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.err != nil {
		delete(l.open, openName{m.name, m.device}) // so that the next request tries again
	} else if own := (openName{m.info.Name, m.device}); l.open[own] == nil {
		l.open[own] = m
	}
	close(m.ready)
}

// retain adds a user to a model that has one.
func (l *openModels) retain(m *openModel) *openModel {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.users++
	return m
}

func (l *openModels) release(m *openModel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.users--; m.users > 0 {
		return
	}
	l.withdraw(m)
	m.vision.close()
	if m.file != nil {
		m.file.Close()
	}
}

// forget makes the next acquire of m open its file again.
func (l *openModels) forget(m *openModel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.withdraw(m)
}

func (l *openModels) withdraw(m *openModel) {
	maps.DeleteFunc(l.open, func(_ openName, other *openModel) bool { return other == m })
}

func (m *openModel) read(c infer.Catalog) (err error) {
	if m.file, m.info, err = c.Open(m.name); err != nil {
		return fault.Of(fault.CodeModelFile, err)
	}
	if m.config, err = model.ReadConfig(m.file); err == nil {
		m.tokenizer, err = tokenizer.New(m.file)
	}
	if err == nil && m.config.Ranks() {
		err = m.readRanker()
	}
	if err != nil {
		return fault.Errorf(fault.CodeModelFile, "cannot use model %q: %s", m.info.Name, err)
	}
	m.hash = headerHash(m.file)
	m.constraints = newConstraints(m)
	m.format = chatformat.Read(m.file, m.tokenizer, m.info.ChatTemplate)
	return nil
}

// withTemplate returns the model with another chat template, for a preview. The model must have a user as long as that
// is used.
func (m *openModel) withTemplate(source string) (*openModel, error) {
	format := chatformat.Read(m.file, m.tokenizer, source)
	if format.TemplateHash() == "" {
		return nil, fault.Invalid("chat_template", "%s", format.Notice())
	}
	return &openModel{name: m.name, info: m.info, file: m.file, config: m.config, tokenizer: m.tokenizer, format: format, vision: m.vision, blind: m.blind}, nil
}

// notices returns what a user should know of the model.
func (m *openModel) notices() string {
	notices := []string{m.tokenizer.Notice()}
	if !m.config.Embeds() { // else it has no conversations
		notices = slices.Insert(notices, 0, m.format.Notice())
	}
	if m.blind != "" {
		notices = append(notices, "pictures are not read: "+m.blind)
	}
	if model.IsTextOnly(m.file) {
		notices = append(notices, "text only: the file's encoders of images and audio are not used")
	}
	if m.info.Sampling != nil {
		notices = append(notices, m.info.Sampling.Ignored...)
	}
	return strings.Join(slices.DeleteFunc(notices, func(s string) bool { return s == "" }), "; ")
}

func headerHash(f *gguf.File) string {
	h := sha256.New()
	h.Write(f.Header())
	fmt.Fprintf(h, "%d", f.Size())
	return hex.EncodeToString(h.Sum(nil))
}

// prompt is what an answer continues.
type prompt struct {
	text      string // the text of tokens; empty if the request gave tokens
	tokens    []int32
	notes     []string // how it differs from the conversation
	continued *reader  // after the tokens of the answer that is continued; nil: a new answer
	public    int      // leading tokens that say nothing of the request; see publicTokens

	pictures []pictureSpan
}

// prompt returns the tokens of the input of r.
func (m *openModel) prompt(ctx context.Context, r infer.Request, now time.Time) (p prompt, err error) {
	switch {
	case len(r.Tokens) > 0:
		p.tokens = slices.Clone(r.Tokens)
	case r.Prompt != "":
		if p.text, err = m.rawPrompt(&r); err != nil {
			return p, err
		}
		p.tokens, err = m.tokenizer.Encode(ctx, p.text, tokenizer.Options{AddSpecial: true, ParseSpecial: true})
	default:
		if p = m.resume(ctx, r, now); p.continued == nil {
			var rendered chatformat.Prompt
			rendered, err = m.conversation(ctx, r, now)
			p.text, p.tokens, p.notes = rendered.Text, rendered.Tokens, rendered.Notes
		}
		p.public = m.publicTokens(ctx, r, p.tokens, now)
	}
	if err != nil && ctx.Err() == nil {
		err = fault.Of(fault.CodeInternal, err)
	}
	if err == nil && len(p.tokens) == 0 {
		err = fault.Invalid("prompt", "the prompt has no tokens")
	}
	p.tokens = append(slices.Clip(p.tokens), r.Answered...)
	if err == nil {
		err = inVocabulary("follow", r.Follow, m.config.Vocab)
	}
	if err == nil {
		// A file may have tokens for which its model has no row.
		err = inVocabulary("tokens", p.tokens, m.config.Vocab)
	}
	return p, err
}

// formatOf returns the format of the prompt and the reply of r.
func (m *openModel) formatOf(r infer.Request) *chatformat.Format {
	hasCalls := slices.ContainsFunc(r.Messages, func(message chat.Message) bool { return len(message.ToolCalls) > 0 || message.Role == "tool" })
	offersTools := len(r.Tools) > 0 && r.ToolChoice != infer.ToolChoiceNone
	documents := strings.TrimSpace(string(r.TemplateVars["documents"]))
	return m.format.For(offersTools || hasCalls, documents != "" && documents != "null" && documents != "[]")
}

// stops returns the texts that end the answer to r: its stop strings, and the end markers of a template
// that was chosen for the model, unless end tokens do not end the answer either.
func (m *openModel) stops(r infer.Request) []string {
	if len(r.Messages) == 0 || r.IgnoreEOS || len(r.BannedEnds) > 0 {
		return r.Stop
	}
	return slices.Concat(r.Stop, m.formatOf(r).EndMarkers())
}

// conversation renders and encodes the messages of r.
func (m *openModel) conversation(ctx context.Context, r infer.Request, now time.Time) (chatformat.Prompt, error) {
	pictures, err := m.picturesOf(&r)
	if err != nil {
		return chatformat.Prompt{}, err
	}
	if r.ToolChoice == infer.ToolChoiceNone {
		r.Tools = nil
	}
	prompt, err := m.formatOf(r).Prompt(ctx, chat.Input{Messages: r.Messages, Tools: r.Tools, Continue: r.Continue, Vars: r.TemplateVars, Now: now}, pictures)
	return prompt, conversationError(err)
}

func conversationError(err error) error {
	if wrong, ok := errors.AsType[*chatformat.MessageError](err); ok {
		return fault.Invalid("messages", "%s", wrong)
	}
	if failed, ok := errors.AsType[*chatformat.TemplateError](err); ok {
		return &fault.Error{Code: fault.CodeTemplate, Message: failed.Error(), Param: "messages"}
	}
	if errors.Is(err, chatformat.ErrNoTemplate) {
		return &fault.Error{Code: fault.CodeTemplate, Message: err.Error()}
	}
	return err
}

// opening returns reply.Options.Prompt for the reply to r.
func (m *openModel) opening(r infer.Request, prompt string) string {
	if !r.Continue {
		return prompt
	}
	return m.formatOf(r).Continued(r.Messages[len(r.Messages)-1], prompt)
}

// inVocabulary returns an error that names the first of ids that is not a token.
func inVocabulary(param string, ids []int32, vocab int) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fault.Invalid(param, "%s: number %d is %d, but the model's tokens are 0 to %d", param, i+1, id, vocab-1)
		}
	}
	return nil
}
