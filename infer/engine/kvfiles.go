package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/kvfile"
)

// kvFiles copies blocks of the KV cache to the files of chats after their answers, and back before the
// next ones, if the cache does not have them any more. The step loop calls it and copies the blocks, a few
// between two steps; a goroutine of each job reads or writes the file, so that no step waits for the disk.
// One job runs at a time. Blocks that are restored become idle blocks of the cache, as those of an answer
// that has ended, so the scheduler finds them as any common prefix.
type kvFiles struct {
	dir     *kvfile.Dir // nil: none
	log     *slog.Logger
	wake    func() // wakes the loop; a job calls it when it has done something
	current *kvJob
	ending  <-chan struct{} // done of a job that the loop has left; nil: there is none
	queue   []*kvJob
	saves   int // completed ones
	running sync.WaitGroup
}

// kvJob saves or restores the cache of one chat.
type kvJob struct {
	file   infer.KVFile
	id     kvfile.Identity
	tokens []int32 // of whole blocks

	audience audience // of the chat

	contents []*content // of a job that saves: what the blocks hold
	needs    []int      // for each cache group, the first block that rows after contents, or after the blocks of have, read

	// Recurrent state of the model, nil if it has none: a record has it as a block of one more cache group, if
	// it was after the record's tokens. A job that saves stores it after the blocks worth, and a restored
	// cache ends after a block that has it.
	states *states
	worth  []int

	// Of a job that restores.
	seq   *sequence  // that waits for it; nil: the job saves
	table blockTable // what the cache has up to its last snapshot of recurrent state, and then what is restored
	have  int        // blocks that the cache had when the job began

	alarm *time.Timer // nil: no sequence waits for the job
	late  atomic.Bool // the disk took too long

	next   int           // block that is copied next; -1: not known yet
	free   chan []byte   // buffers
	blocks chan kvRecord // in order: to the goroutine that saves, or from the one that restores
	first  chan int      // where to begin to save
	stop   chan struct{}
	done   chan struct{} // closed when the goroutine has ended
	sent   bool          // of a save: the loop has closed blocks
	paused bool          // of a save: it ended early, for a chat that waits
}

// kvRecord are the blocks of some tokens.
type kvRecord struct {
	data   []byte // one block after the other
	has    kvfile.Groups
	use    kvfile.Groups // of a job that restores: those that the rows after the last block read
	buffer []byte        // of the job; data is in it, unless it has recurrent state
}

const (
	// kvBuffers is how many blocks are between the loop and the goroutine of a job.
	kvBuffers = 4

	// kvBufferBytes is how much memory they take at most, unless one alone takes more. The recurrent state of a
	// record takes as much again as it has, until the record is written or restored.
	kvBufferBytes = 64 << 20

	// kvStepBytes is how much is copied between two steps, or the recurrent state of one record.
	kvStepBytes = 8 << 20

	// kvPatience is how long a restore may make no progress before the prompt is computed instead. Recurrent state
	// may take longer, as it is read at once: as long as a disk that reads kvDiskRate bytes a second takes.
	kvPatience = 2 * time.Second
	kvDiskRate = 50e6

	// kvFinish is how long saves may take before a model is unloaded and when the engine closes.
	kvFinish = time.Second

	// kvSpare is what files leave free on their disk, in bytes: the chats are stored there too.
	kvSpare = 1 << 30
)

// active reports whether there are jobs.
func (k *kvFiles) active() bool { return k.current != nil || len(k.queue) > 0 }

// save queues a save of the first blocks of an answer that ends.
func (k *kvFiles) save(file infer.KVFile, id kvfile.Identity, b *blocks, states *states, q *sequence) {
	n := min(len(q.table.chain), q.computed/b.size)
	if k.dir == nil || id.Key == "" || n == 0 || len(q.pictures) > 0 { // numbers of pictures have no meaning in a file
		return
	}
	var worth []int
	if states != nil {
		if worth = states.worthStoring(q.ids(n*b.size), q.prompt, q.audience.scope); len(worth) == 0 {
			return
		}
		n = worth[len(worth)-1] + 1 // blocks after the last state would be computed again
	}
	j := newKVJob(file, id, states, q.ids(n*b.size), q.audience)
	j.contents = slices.Clone(q.table.chain[:n])
	j.needs, j.worth = b.needs(n), worth
	k.queue = slices.DeleteFunc(k.queue, func(other *kvJob) bool { return other.seq == nil && other.file.Name == file.Name })
	k.queue = append(k.queue, j)
}

// restore queues a restore for q, which waits for it, unless the cache has all that the file could have.
func (k *kvFiles) restore(file infer.KVFile, id kvfile.Identity, b *blocks, states *states, q *sequence) {
	n := q.reusable() / b.size
	saving := func(j *kvJob) bool { return j != nil && j.seq == nil && j.file.Name == file.Name }
	if k.dir == nil || id.Key == "" || n == 0 || len(q.pictures) > 0 || b.cachedBlocks(states.reusable(q.ids(n*b.size), q.audience.scope), q.audience.scope) == n || saving(k.current) || slices.ContainsFunc(k.queue, saving) {
		return
	}
	j := newKVJob(file, id, states, q.ids(n*b.size), q.audience)
	j.seq, q.restoring = q, true
	// A chat that waits comes before those that are saved.
	at := slices.IndexFunc(k.queue, func(other *kvJob) bool { return other.seq == nil })
	if at < 0 {
		at = len(k.queue)
	}
	k.queue = slices.Insert(k.queue, at, j)
}

func newKVJob(file infer.KVFile, id kvfile.Identity, states *states, tokens []int32, audience audience) *kvJob {
	return &kvJob{
		file: file, id: id, states: states, tokens: slices.Clone(tokens), audience: audience, next: -1,
		blocks: make(chan kvRecord, kvBuffers), first: make(chan int, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// progress copies what can be copied without waiting, at most some megabytes, and reports whether
// anything was done.
func (k *kvFiles) progress(b *blocks, forward forwarder) (moved bool, err error) {
	if k.current == nil && len(k.queue) > 0 {
		if moved = k.ended(); moved {
			k.start(b)
		}
	}
	j := k.current
	switch {
	case j == nil:
		return moved, nil
	case j.seq != nil:
		more, err := k.restoreSome(j, b, forward)
		return moved || more, err
	}
	more, err := k.saveSome(j, b, forward)
	return moved || more, err
}

// ended reports whether the goroutine of the last job has ended. As long as it has not, since the disk is
// slow, no sequence waits for the disk.
func (k *kvFiles) ended() bool {
	select {
	case <-k.ending:
		k.ending = nil
	default:
	}
	if k.ending != nil {
		k.dropRestores()
	}
	return k.ending == nil && len(k.queue) > 0
}

// dropRestores takes the jobs for which sequences wait out of the queue.
func (k *kvFiles) dropRestores() {
	k.queue = slices.DeleteFunc(k.queue, func(j *kvJob) bool {
		if j.seq != nil {
			j.seq.restoring = false
		}
		return j.seq != nil
	})
}

// start begins the first job of the queue.
func (k *kvFiles) start(b *blocks) {
	j := k.queue[0]
	k.queue, k.current = k.queue[1:], j
	j.free = make(chan []byte, kvBuffers)
	record := j.blockBytes()
	for range max(1, min(kvBuffers, kvBufferBytes/max(1, record))) {
		j.free <- make([]byte, record)
	}
	work := k.write
	if j.seq != nil {
		work = func(j *kvJob) error { return k.read(j, b) }
		j.table = b.share(b.match(j.states.reusable(j.tokens, j.audience.scope), j.audience.scope), j.audience)
		j.have, j.needs = len(j.table.chain), b.needs(len(j.table.chain))
		k.setAlarm(j)
	}
	k.running.Go(func() {
		defer k.wake()
		defer close(j.done)
		if err := contain(k.log, func() error { return work(j) }); err != nil {
			k.log.Warn("KV cache of a chat not stored or restored", "chat", j.file.Name, "error", err)
		}
	})
}

// blockBytes is the size of the blocks of a record without recurrent state.
func (j *kvJob) blockBytes() int {
	has := ^kvfile.Groups(0)
	if j.states != nil {
		has = kvfile.Groups(1)<<j.stateGroup() - 1
	}
	return j.id.DataBytes(has)
}

// patience returns how long the disk may take for a record.
func (j *kvJob) patience() time.Duration {
	if j.states == nil {
		return kvPatience
	}
	return kvPatience + time.Duration(float64(j.id.BlockBytes[j.stateGroup()])/kvDiskRate*float64(time.Second))
}

// setAlarm wakes the loop if j makes no progress for as long as it may.
func (k *kvFiles) setAlarm(j *kvJob) {
	j.alarm = time.AfterFunc(j.patience(), func() { j.late.Store(true); k.wake() })
}

// saveSome hands blocks to the goroutine that saves, and ends the job when that has ended.
func (k *kvFiles) saveSome(j *kvJob, b *blocks, forward forwarder) (moved bool, err error) {
	if !j.sent {
		if moved, err = k.feed(j, b, forward); err != nil {
			return moved, err
		}
	}
	if j.alarm == nil && len(k.queue) > 0 && k.queue[0].seq != nil {
		k.setAlarm(j)
	}
	select {
	case <-j.done:
	default:
		if !j.late.Load() {
			return moved, nil
		}
		k.log.Warn("stored KV cache of a chat not used: the disk is too slow", "chat", k.queue[0].file.Name)
		k.leave(j)
		k.dropRestores()
		return true, nil
	}
	k.current = nil
	if j.alarm != nil {
		j.alarm.Stop()
	}
	if j.paused && len(j.contents) > 0 {
		again := newKVJob(j.file, j.id, j.states, j.tokens[:len(j.contents)*b.size], j.audience)
		again.contents, again.needs, again.worth = j.contents, j.needs, j.worth
		k.queue = append(k.queue, again)
	} else {
		k.saves++
	}
	return true, nil
}

// feed hands blocks to the goroutine that saves, as long as it has buffers for them and no chat waits to be
// restored.
func (k *kvFiles) feed(j *kvJob, b *blocks, forward forwarder) (moved bool, err error) {
	for copied := 0; copied < kvStepBytes; {
		if j.paused = len(k.queue) > 0 && k.queue[0].seq != nil; j.paused {
			break
		}
		if j.next < 0 {
			select {
			case j.next = <-j.first:
			default:
				return moved, nil
			}
		}
		if j.dropLost(b); j.complete() {
			break
		}
		var buffer []byte
		select {
		case buffer = <-j.free:
		default:
			return moved, nil
		}
		r := kvRecord{data: buffer[:0], buffer: buffer}
		if err := j.readBlocks(&r, b.size, forward); err != nil {
			return moved, err
		}
		copied += len(r.data)
		j.blocks <- r
		j.next, moved = j.next+1, true
	}
	if j.paused || j.next >= 0 && j.complete() {
		j.sent, moved = true, true
		close(j.blocks)
	}
	return moved, nil
}

// readBlocks adds the contents of the next block to r, and the recurrent state after it.
func (j *kvJob) readBlocks(r *kvRecord, size int, forward forwarder) error {
	add := func(g int) []byte {
		from := len(r.data)
		r.has, r.data = r.has.With(g), slices.Grow(r.data, j.id.BlockBytes[g])[:from+j.id.BlockBytes[g]]
		return r.data[from:]
	}
	for g, id := range j.contents[j.next].blocks {
		if j.next < j.needs[g] {
			continue
		}
		if err := forward.ReadBlock(add(g), g, id); err != nil {
			return err
		}
	}
	if !slices.Contains(j.worth, j.next) {
		return nil
	}
	if slot := j.stateAfter(j.next, size); slot != noSlot {
		return forward.ReadState(add(j.stateGroup()), slot)
	}
	return nil
}

// stateAfter returns the slot of the snapshot after a block; noSlot if something else has taken it since.
func (j *kvJob) stateAfter(block, size int) int32 {
	tokens := j.tokens[:(block+1)*size]
	if slot, length := j.states.snapshot(tokens, j.audience.scope); length == len(tokens) {
		return slot
	}
	return noSlot
}

// dropLost ends the job before blocks after which there is no state any more: they would be computed again.
func (j *kvJob) dropLost(b *blocks) {
	for n := len(j.worth) - 1; n >= 0 && j.worth[n] >= j.next && j.stateAfter(j.worth[n], b.size) == noSlot; n-- {
		j.worth, j.contents = j.worth[:n], j.contents[:0]
		if n > 0 {
			j.contents = j.contents[:j.worth[n-1]+1]
		}
		j.needs = b.needs(len(j.contents))
	}
}

// stateGroup is the group of the recurrent state in the records of the file.
func (j *kvJob) stateGroup() int { return len(j.id.BlockBytes) - 1 }

// complete reports whether there is nothing more to save: a block that every row needs holds something else
// by now.
func (j *kvJob) complete() bool {
	if j.next >= len(j.contents) {
		return true
	}
	for g, id := range j.contents[j.next].blocks {
		if id == none && j.next >= j.needs[g] {
			return true
		}
	}
	return false
}

// write is the goroutine of a job that saves: it appends the blocks that the file lacks.
func (k *kvFiles) write(j *kvJob) error {
	f, err := k.dir.Open(j.file.Name, j.id)
	if errors.Is(err, fs.ErrNotExist) { // the chat was deleted
		j.drain(len(j.contents), k.wake)
		return nil
	}
	if err != nil {
		j.drain(len(j.contents), k.wake)
		return err
	}
	defer f.Close()
	k.report(j, f)
	n := j.stored(f)
	if n < len(j.contents) {
		err = f.Truncate(n)
	}
	j.first <- n
	k.wake()
	size := j.id.Positions
	for r := range j.blocks {
		if err == nil {
			err = k.append(j, f, j.tokens[n*size:(n+1)*size], r)
			n++
		}
		j.free <- r.buffer
		k.wake()
	}
	if errors.Is(err, errLimit) {
		err = nil
	}
	if err == nil {
		err = f.Touch()
	}
	return errors.Join(err, k.dir.Evict(j.file.Limit))
}

// stored returns how many records of f can stay: the first that lacks a block that rows after all of them read,
// or the recurrent state after the last, is written again. So is the first that has recurrent state of an earlier
// turn, which is larger than the blocks of many records and would stay forever.
func (j *kvJob) stored(f *kvfile.File) int {
	n := f.Match(j.tokens)
	for g, from := range j.needs {
		for i := from; i < n; i++ {
			if !f.Has(i).Has(g) {
				n = i
			}
		}
	}
	if j.states == nil {
		return n
	}
	for i := range n {
		needless := f.Has(i).Has(j.stateGroup()) && !slices.Contains(j.worth, i)
		missing := !f.Has(i).Has(j.stateGroup()) && i == j.worth[len(j.worth)-1]
		if needless || missing {
			return i
		}
	}
	return n
}

// errLimit ends a save at the limit of all files.
var errLimit = errors.New("the KV cache of the chat is larger than the limit of all files")

// append appends a record, unless the limit of all files or the disk has no room for it.
func (k *kvFiles) append(j *kvJob, f *kvfile.File, tokens []int32, r kvRecord) error {
	if f.Bytes()+j.id.RecordBytes(r.has) > j.file.Limit {
		return errLimit
	}
	if free, err := k.dir.Free(); err == nil && free < kvSpare+int64(len(r.data)) {
		return fmt.Errorf("the disk has %d bytes left, and %d are left to others", free, int64(kvSpare))
	}
	return f.Append(tokens, r.has, r.data)
}

// drain takes the blocks of a save that is not written.
func (j *kvJob) drain(first int, wake func()) {
	j.first <- first
	wake()
	for r := range j.blocks {
		j.free <- r.buffer
	}
}

// report logs what of a file is not valid.
func (k *kvFiles) report(j *kvJob, f *kvfile.File) {
	if why := f.Discarded(); why != "" {
		k.log.Warn("stored KV cache of a chat discarded", "chat", j.file.Name, "valid_blocks", f.Blocks(), "reason", why)
	}
}

// restoreSome copies blocks that were read into the cache.
func (k *kvFiles) restoreSome(j *kvJob, b *blocks, forward forwarder) (moved bool, err error) {
	for copied := 0; copied < kvStepBytes; {
		var r kvRecord
		select {
		case next, ok := <-j.blocks:
			if !ok {
				<-j.done // it has only to close the file
				k.endRestore(j, b)
				return true, nil
			}
			r = next
		default:
			if j.late.Load() {
				k.log.Warn("stored KV cache of a chat not used: the disk is too slow", "chat", j.file.Name, "restored_blocks", len(j.table.chain)-j.have)
				k.endRestore(j, b)
				return true, nil
			}
			return moved, nil
		}
		i := len(j.table.chain)
		if !b.extend(&j.table, r.use.Has) { // no memory
			k.endRestore(j, b)
			return true, nil
		}
		b.write(&j.table, i*b.size, (i+1)*b.size)
		if err := j.restoreBlocks(i, b.size, r, forward); err != nil {
			return moved, err
		}
		b.commit(&j.table, j.tokens[:(i+1)*b.size])
		j.alarm.Reset(j.patience())
		j.late.Store(false)
		copied += len(r.data)
		j.free <- r.buffer
		moved = true
	}
	return moved, nil
}

// restoreBlocks copies the blocks of a record that are used into block i of the table, and the recurrent state
// into a snapshot.
func (j *kvJob) restoreBlocks(i, size int, r kvRecord, forward forwarder) error {
	data := r.data
	for g, n := range j.id.BlockBytes {
		if !r.has.Has(g) {
			continue
		}
		switch {
		case !r.use.Has(g):
		case j.states != nil && g == j.stateGroup():
			if slot := j.states.add(j.tokens[:(i+1)*size], j.audience); slot != noSlot {
				if err := forward.WriteState(slot, data[:n]); err != nil {
					return err
				}
			}
		default:
			if err := forward.WriteBlock(g, j.table.groups[g].ids[i], data[:n]); err != nil {
				return err
			}
		}
		data = data[n:]
	}
	return nil
}

// endRestore makes the blocks of j idle and lets its sequence run.
func (k *kvFiles) endRestore(j *kvJob, b *blocks) {
	k.leave(j)
	b.close(&j.table, j.tokens[:len(j.table.chain)*b.size])
}

// leave lets the goroutine of the current job end, and the sequence that waits for it run.
func (k *kvFiles) leave(j *kvJob) {
	k.current, k.ending = nil, j.done
	close(j.stop)
	if j.seq == nil && !j.sent {
		close(j.blocks)
	}
	if j.seq != nil {
		j.seq.restoring = false
	}
	if j.alarm != nil {
		j.alarm.Stop()
	}
}

// read is the goroutine of a job that restores: it reads the blocks that the cache lacks, as far as rows after
// them find all that they read. A damaged block ends the file. Of b it uses the sizes alone.
func (k *kvFiles) read(j *kvJob, b *blocks) error {
	defer close(j.blocks)
	f, err := k.dir.Open(j.file.Name, j.id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	k.report(j, f)
	if f.Discarded() != "" {
		err = f.Truncate(f.Blocks())
	}
	n := j.usable(f, b)
	for i := j.have; i < n && err == nil; i++ {
		var buffer []byte
		select {
		case buffer = <-j.free:
		case <-j.stop:
			return nil
		}
		size := j.id.DataBytes(f.Has(i))
		r := kvRecord{data: slices.Grow(buffer[:0], size)[:size], has: f.Has(i), buffer: buffer}
		for g, from := range b.needs(n) {
			if i >= from {
				r.use = r.use.With(g)
			}
		}
		if j.states != nil && i == n-1 {
			r.use = r.use.With(j.stateGroup())
		}
		if err = f.Read(i, r.data); err != nil {
			k.log.Warn("stored KV cache of a chat discarded", "chat", j.file.Name, "valid_blocks", i, "reason", err)
			return f.Truncate(i)
		}
		j.blocks <- r
		k.wake()
	}
	return errors.Join(err, f.Touch())
}

// usable returns how many blocks of f, with those that the cache has, a row can be computed after.
func (j *kvJob) usable(f *kvfile.File, b *blocks) int {
	for n := f.Match(j.tokens); ; n-- {
		n = b.usable(n, func(g, i int) bool { return f.Has(i).Has(g) || i < j.have && i >= j.needs[g] })
		if j.states == nil || n <= j.have || f.Has(n-1).Has(j.stateGroup()) {
			return n
		}
	}
}

// forget ends the jobs of q, which will not run.
func (k *kvFiles) forget(q *sequence, b *blocks) {
	if !q.restoring {
		return
	}
	k.queue = slices.DeleteFunc(k.queue, func(j *kvJob) bool { return j.seq == q })
	if j := k.current; j != nil && j.seq == q {
		k.endRestore(j, b)
	}
	q.restoring = false
}

// finish waits, not for long, until all saves are done, and drops the other jobs.
func (k *kvFiles) finish(b *blocks, forward forwarder, wake <-chan struct{}) {
	if j := k.current; j != nil && j.seq != nil {
		k.endRestore(j, b)
	}
	k.dropRestores()
	deadline := time.NewTimer(kvFinish)
	defer deadline.Stop()
	for k.active() {
		moved, err := k.progress(b, forward)
		if err != nil {
			return
		}
		if moved {
			continue
		}
		select {
		case <-wake:
		case <-deadline.C:
			return
		}
	}
}

// abandon drops all jobs: the cache is gone.
func (k *kvFiles) abandon() {
	k.dropRestores()
	k.queue = nil
	if k.current != nil {
		k.leave(k.current)
	}
}

// program returns the SHA-256 of this program's file: another one may compute other bits. Where the file
// cannot be read, it is a random number, so that nothing of an earlier process is used.
var program = sync.OnceValue(func() string {
	h := sha256.New()
	path, err := os.Executable()
	if err == nil {
		var f *os.File
		if f, err = os.Open(path); err == nil {
			defer f.Close()
			_, err = io.Copy(h, f)
		}
	}
	if err != nil {
		return rand.Text()
	}
	return hex.EncodeToString(h.Sum(nil))
})

// identity returns what KV caches of the model on these devices belong to. It reads the mapped weights of
// the file.
func identity(m *openModel, p placed, cache device.CacheType, blockBytes []int, state bool) kvfile.Identity {
	h := sha256.New()
	extended := p.plan.Context > m.config.OriginalContext // with other RoPE factors
	fmt.Fprintf(h, "%s %d %s %s %q %v %v\n", m.hash, m.info.ModifiedUnix, cache, program(), p.converted, extended, p.promptsApart(m))
	for _, s := range append(slices.Clip(p.stages), p.experts) {
		if s.Layers > 0 {
			info := s.Device.Info()
			fmt.Fprintf(h, "%d layers: %q %q %q\n", s.Layers, info.Kind, info.Name, info.Path)
		}
	}
	// Files with one header have other weights if they were tuned further.
	for _, t := range m.file.Tensors() {
		const sample = 512
		for _, from := range []int{0, len(t.Data) / 2, len(t.Data) - sample} {
			from = max(0, from)
			h.Write(t.Data[from:min(from+sample, len(t.Data))])
		}
	}
	return kvfile.Identity{Model: m.info.Name, Key: hex.EncodeToString(h.Sum(nil)), BlockBytes: blockBytes, State: state, Positions: device.BlockSize}
}
