package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/units"
)

// Downloader is the part of hub.Puller that Pull uses.
type Downloader interface {
	Resolve(ctx context.Context, name string) (infer.Download, error)
	Inspect(ctx context.Context, d infer.Download) (infer.Download, error)
	Pull(ctx context.Context, d infer.Download, force bool, progress func(infer.DownloadProgress)) (infer.ModelInfo, error)
}

// Pull downloads the model called name, shows the progress, and prints the name under which
// the model can be used. A signal stops it; the part that was downloaded by then is kept.
func Pull(ctx context.Context, t *Terminal, from Downloader, name string, force bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-t.Signals:
			close(stopped)
			cancel()
		case <-ctx.Done():
		}
	}()
	d, info, err := pull(ctx, t, from, name, force)
	cancel()
	<-watched
	select {
	case <-stopped:
		if err != nil {
			return errors.New("stopped; run the same command again to resume")
		}
	default:
	}
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.CodeInvalid {
		return Usagef("%s", e.Message)
	}
	if err != nil {
		return err
	}
	if info.Error != "" {
		fmt.Fprintf(t.Err, "note: the model cannot be used: %s\n", Line(info.Error))
	}
	if info.Fit != nil && d.Fit == nil { // unknown before the download
		fmt.Fprintf(t.Err, "it %s\n", info.Fit)
	}
	_, err = fmt.Fprintln(t.Out, Line(info.Name))
	return err
}

func pull(ctx context.Context, t *Terminal, from Downloader, name string, force bool) (infer.Download, infer.ModelInfo, error) {
	bar := &progressBar{w: t.Err, redraw: IsTerminal(t.Err)}
	if bar.redraw {
		bar.show(infer.DownloadProgress{Phase: infer.PhaseResolving})
	}
	d, err := from.Resolve(ctx, name)
	if err == nil && len(d.Choices) > 0 {
		bar.erase()
		d, err = choose(ctx, t, from, d)
	}
	if err == nil {
		d, err = from.Inspect(ctx, d)
	}
	bar.erase()
	if err != nil {
		return d, infer.ModelInfo{}, err
	}
	if d.Problem == "" || force {
		describeDownload(t.Err, d)
	}
	info, err := from.Pull(ctx, d, force, bar.show)
	bar.end()
	return d, info, err
}

// choose shows the quantisations of a repository. At a terminal it asks for one; elsewhere the
// download stays as it is.
func choose(ctx context.Context, t *Terminal, from Downloader, d infer.Download) (infer.Download, error) {
	if err := quantisations(t.Err, d.Choices); err != nil {
		return d, err
	}
	if !IsTerminal(t.In) || !IsTerminal(t.Err) {
		return d, nil
	}
	lines := readLines(ctx, t.In)
	for {
		fmt.Fprintf(t.Err, "quantisation to download [%s]: ", Line(d.Quant))
		var line string
		var more bool
		select {
		case line, more = <-lines:
		case <-ctx.Done():
			return d, ctx.Err()
		}
		line = strings.TrimSpace(line)
		i := slices.IndexFunc(d.Choices, func(q infer.Quantisation) bool { return strings.EqualFold(q.Quant, line) })
		switch {
		case !more:
			return d, errors.New("nothing was downloaded")
		case line == "" || i >= 0 && d.Choices[i].Chosen:
			return d, nil
		case i >= 0:
			return from.Resolve(ctx, d.Choices[i].Name)
		}
		fmt.Fprintf(t.Err, "there is no %s; type one of the table\n", Line(strconv.Quote(line)))
	}
}

// quantisations prints a table of quantisations. The chosen one has a star.
func quantisations(w io.Writer, list []infer.Quantisation) error {
	rows := [][]string{{"", "QUANT", "SIZE", "CONTEXT", "RUNS ON", "TOK/S"}}
	for _, q := range list {
		mark := ""
		if q.Chosen {
			mark = "*"
		}
		row := []string{mark, Line(q.Quant), units.ByteSize(q.Size)}
		switch {
		case q.Fit == nil:
			row = append(row, "cannot be used: "+Line(q.Problem))
		case q.Fit.Context == 0:
			row = append(row, fmt.Sprintf("does not fit: needs %s of %s", units.ByteSize(q.Fit.Needs), units.ByteSize(q.Fit.Free)))
		default:
			row = append(row, fmt.Sprint(q.Fit.Context), Line(q.On), expectedSpeed(q.TokensPerSecond))
		}
		rows = append(rows, row)
	}
	return writeColumns(w, rows)
}

// expectedSpeed formats a speed in tokens per second; 0: unknown.
func expectedSpeed(tokens float64) string {
	if tokens == 0 {
		return "unknown"
	}
	return "about " + units.TokenRate(tokens)
}

// describeDownload prints what will be downloaded and whether it fits into memory.
func describeDownload(w io.Writer, d infer.Download) {
	line := fmt.Sprintf("%s, %s", Line(d.File), units.ByteSize(d.Size))
	if n := len(d.Parts); n > 0 {
		line += fmt.Sprintf(" in %d files", n)
	}
	if d.Partial > 0 {
		line += fmt.Sprintf(", %s already downloaded", units.ByteSize(d.Partial))
	}
	if d.DiskFree > 0 {
		line += fmt.Sprintf("; free on the disk: %s", units.ByteSize(d.DiskFree))
	}
	if d.MemoryFree > 0 && d.Fit == nil {
		line += fmt.Sprintf("; free memory: %s", units.ByteSize(d.MemoryFree))
	}
	fmt.Fprintln(w, line)
	switch {
	case d.Fit != nil:
		fmt.Fprintf(w, "it %s\n", d.Fit)
	case d.MemoryFree > 0 && d.Size > d.MemoryFree:
		fmt.Fprintln(w, "note: the weights need more memory than is free now; a smaller quantisation or model needs less")
	case d.MemoryFree > 0:
		fmt.Fprintln(w, "note: this is the size of the weights only; the memory for the context is known after the download")
	}
	for _, note := range []string{d.Notice, d.Problem} {
		if note != "" {
			fmt.Fprintf(w, "note: %s\n", Line(note))
		}
	}
}

// progressBar shows the progress of a download: on a terminal in one line that is redrawn,
// elsewhere in a line for each tenth.
type progressBar struct {
	w      io.Writer
	redraw bool
	phase  infer.DownloadPhase // shown last
	tenth  int64               // shown last
	open   bool                // the current line has no line break yet
}

func (b *progressBar) show(p infer.DownloadProgress) {
	line := progressLine(p)
	if b.redraw && p.Phase != infer.PhaseWaiting {
		fmt.Fprintf(b.w, "\r%s\x1b[K", line)
		b.open = true
		return
	}
	b.end()
	tenth := p.Done * 10 / max(p.Total, 1)
	if p.Phase != b.phase || tenth != b.tenth || p.Notice != "" {
		fmt.Fprintln(b.w, line)
	}
	b.phase, b.tenth = p.Phase, tenth
}

// end ends the current line with a line break.
func (b *progressBar) end() {
	if b.open {
		fmt.Fprintln(b.w)
		b.open = false
	}
}

// erase removes the current line.
func (b *progressBar) erase() {
	if b.open {
		fmt.Fprint(b.w, "\r\x1b[K")
		b.open = false
	}
}

func progressLine(p infer.DownloadProgress) string {
	if p.Phase == infer.PhaseResolving {
		return "looking it up"
	}
	line := fmt.Sprintf("%-11s %3d%%  %s of %s", p.Phase, p.Done*100/max(p.Total, 1), units.ByteSize(p.Done), units.ByteSize(p.Total))
	if p.BytesPerSecond >= 1 && p.Phase != infer.PhaseDone {
		line += fmt.Sprintf("  %s/s", units.ByteSize(int64(p.BytesPerSecond)))
		if p.ETASeconds > 0 {
			line += "  " + remaining(p.ETASeconds)
		}
	}
	if p.Notice != "" {
		line += "  " + Line(p.Notice)
	}
	return line
}

// remaining formats the remaining time of a download.
func remaining(seconds float64) string {
	const day = 24 * 3600
	if seconds >= 100*day {
		return "very long left"
	}
	d := time.Duration(seconds) * time.Second
	switch {
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm left", int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%02ds left", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%ds left", int(d.Seconds()))
}

// Remove deletes a model with remove. At a terminal it asks first, unless confirmed.
func Remove(ctx context.Context, t *Terminal, m infer.ModelInfo, confirmed bool, remove func(name string) error) error {
	if !confirmed && IsTerminal(t.In) {
		fmt.Fprintf(t.Err, "remove %s (%s, %s)? [y/N] ", Line(m.Name), units.ByteSize(m.Size), Line(m.Path))
		var reply string
		select {
		case reply = <-readLines(ctx, t.In):
		case <-t.Signals:
			fmt.Fprintln(t.Err)
		}
		if reply = strings.ToLower(strings.TrimSpace(reply)); reply != "y" && reply != "yes" {
			return errors.New("nothing was removed")
		}
	}
	if err := remove(m.Name); err != nil {
		return err
	}
	_, err := fmt.Fprintf(t.Out, "removed %s (%s)\n", Line(m.Name), units.ByteSize(m.Size))
	return err
}
