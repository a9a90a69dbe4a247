package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/picture"
	"m40-llm/infer/units"
)

// The tower of a companion file is on the first device of its model if that has a memory of its own with room for both, else on the CPU.
// On the CPU it has threads of its own. On the first device it takes turns with the steps of the model: the loop runs one of its stages
// after each step, so that an answer waits for one of them at most.

// towerJob is a use of the first device that the step loop runs between two steps.
type towerJob struct {
	run     func() error
	started atomic.Bool // by the loop, or by who gave up waiting for it
	ended   chan error  // has room for one
}

// betweenSteps runs f in the step loop, between two steps.
func (b *inbox) betweenSteps(ctx context.Context, f func() error) error {
	job := &towerJob{run: f, ended: make(chan error, 1)}
	if err := b.addJob(job); err != nil {
		return err
	}
	select {
	case err := <-job.ended:
		return err
	case <-ctx.Done():
		if job.started.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		return <-job.ended
	}
}

// runJob runs the oldest job, if there is one.
func (l *loop) runJob() {
	for len(l.jobs) > 0 {
		job := l.jobs[0]
		l.jobs = l.jobs[1:]
		if !job.started.CompareAndSwap(false, true) {
			continue
		}
		job.ended <- contain(l.options.Logger, func() error {
			if l.loaded != nil {
				l.takeTurn()
				for _, dev := range l.loaded.devices {
					if y, ok := dev.(device.Yielder); ok {
						if err := y.Yield(); err != nil {
							return err
						}
					}
				}
			}
			return job.run()
		})
		return
	}
}

// refuseJobs ends all jobs that were not started.
func (l *loop) refuseJobs() {
	for _, job := range l.jobs {
		if job.started.CompareAndSwap(false, true) {
			job.ended <- errClosed
		}
	}
	l.jobs = nil
}

// towerPlace is where the tower of a model is.
type towerPlace struct {
	first bool   // on the first device
	why   string // it is not, although that has a memory of its own; empty: no reason is told
}

// where returns where a picture of size s is encoded, by the plan of the model, or as if it had room if it was not loaded yet.
func (v *vision) where(s picture.Size) towerPlace {
	if v.openFirst == nil {
		return towerPlace{} // that computes in main memory
	}
	place := towerPlace{first: true}
	if planned := v.planned.Load(); planned != nil {
		place = *planned
	}
	if place.first && v.tooLarge > 0 && s.TilePixels() >= v.tooLarge {
		return towerPlace{why: v.whyTooLarge}
	}
	return place
}

// identity returns the part of a picture's identity that tells where it is encoded: the bits of its vectors depend on that.
func (v *vision) identity(p towerPlace) string {
	if p.first {
		return v.hash + "@first"
	}
	return v.hash
}

// bytesOn returns what the tower takes of dev; see model.TowerBytesOn. Only the loop calls it.
func (v *vision) bytesOn(dev device.Device) (bytes model.TowerBytes, err error) {
	name := ""
	if dev != nil {
		name = dev.Info().Name
	}
	if known, ok := v.bytes[name]; ok {
		return known, nil
	}
	s, err := model.UsualPicture(v.file, v.limits)
	if err == nil {
		err = readable(v.file, func() (err error) {
			bytes, err = model.TowerBytesOn(dev, v.file, s)
			return err
		})
	}
	if err == nil {
		v.bytes[name] = bytes
	}
	return bytes, err
}

// towerContext is what a second device on the same hardware takes apart from what it allocates.
const towerContext = 192 << 20

// leaveRoomForTower takes the memory that the tower of m needs from that of the first device, 0 if that is not known. It returns what is left.
func (l *loop) leaveRoomForTower(p *placed, m *openModel, dev device.Device, free int64) (int64, error) {
	bytes, err := m.vision.bytesOn(dev)
	if err != nil {
		return free, err
	}
	p.tower.bytes = bytes
	if free == 0 {
		return 0, nil // not known
	}
	needs := bytes.Total()
	if dev.Info().Dedicated {
		needs = max(0, needs+towerContext-m.vision.held.Load())
	}
	return max(free-needs, 1), nil
}

// plannedTower is the part of a plan about the tower of a model.
type plannedTower struct {
	wanted bool // on the first device
	bytes  model.TowerBytes
	why    string // it is on the CPU although the first device has a memory of its own
}

// setTower tells the tower of m where it is by the plan, and adds it to what people are told.
func (l *loop) setTower(r *loadedModel, m *openModel, p placed) {
	v := m.vision
	if v == nil {
		return
	}
	info, bytes := p.devices[0].Info(), p.tower.bytes
	place := towerPlace{first: info.Dedicated && bytes.Total() > 0, why: p.tower.why}
	v.planned.Store(&place)
	use := infer.MemoryUse{Device: info.Name, Kind: info.Kind}
	if !place.first {
		v.leaveFirst()
		if info.Dedicated {
			r.info.Notice = strings.TrimPrefix(r.info.Notice+"; pictures are encoded on the CPU: "+place.why, "; ")
			use = infer.MemoryUse{Device: "CPU", Kind: "cpu"}
		}
		if bytes.Total() == 0 {
			bytes, _ = v.bytesOn(nil) // readVision has recorded the tower without an error
		}
	}
	i := slices.IndexFunc(r.memory, func(u infer.MemoryUse) bool { return u.Device == use.Device || use.Kind == "cpu" && u.Kind == "cpu" })
	if i < 0 {
		i, r.memory = len(r.memory), append(r.memory, use)
	}
	r.memory[i].Pictures = bytes.Total()
}

// leaveFirst frees the memory that the tower has of the first device, unless it encodes a picture now.
func (v *vision) leaveFirst() {
	select {
	case v.turn <- struct{}{}:
		if v.at.first {
			v.closeTower()
		}
		<-v.turn
	default:
	}
}

// load loads the tower where a picture of size s is encoded, when the first picture is, and again when one is larger than those before. It
// returns where that is: the CPU if the memory of the first device does not suffice.
func (v *vision) load(s picture.Size) (at towerPlace, err error) {
	at = v.where(s)
	if v.tower != nil && v.at.first == at.first && v.tower.Fits(s) {
		return at, nil
	}
	v.closeTower()
	if at.first {
		err := v.loadOn(v.openFirst, at, s)
		if err == nil {
			return at, nil
		}
		v.closeTower()
		short, full := errors.AsType[*noRoom](err)
		switch {
		case errors.Is(err, errNotDedicated):
			v.openFirst = nil
		case full:
			v.leaveOut(s, short.Error())
		case errors.Is(err, device.ErrMemory):
			v.leaveOut(s, err.Error())
		default:
			return at, err
		}
		at = v.where(s)
	}
	return at, v.loadOn(v.open, at, s)
}

// leaveOut makes pictures of size s, and larger ones, be encoded on the CPU from now on.
func (v *vision) leaveOut(s picture.Size, why string) {
	v.tooLarge, v.whyTooLarge = s.TilePixels(), why
	v.notice(fmt.Sprintf("pictures of %d x %d pixels: %s", s.Width, s.Height, why))
}

var errNotDedicated = errors.New("the first device has no memory of its own")

// noRoom is the reason why a tower does not fit on the first device.
type noRoom struct{ needs, free int64 }

func (e *noRoom) Error() string {
	return fmt.Sprintf("they need %s, and %s are free on the GPU", units.ByteSize(e.needs), units.ByteSize(e.free))
}

func (v *vision) loadOn(open func(*gguf.File) (device.Device, error), at towerPlace, s picture.Size) error {
	dev, err := open(v.file)
	if err != nil {
		return err
	}
	v.device, v.at = dev, at
	if at.first {
		if !dev.Info().Dedicated {
			return errNotDedicated
		}
		free := dev.Info().Memory
		bytes, err := model.TowerBytesOn(dev, v.file, s)
		if err != nil {
			return err
		}
		if free > 0 && bytes.Total() > free {
			return &noRoom{bytes.Total(), free}
		}
		v.held.Store(bytes.Total() + towerContext)
	}
	v.tower, err = model.LoadTower(v.file, dev, s)
	return err
}

// turns returns how the tower uses its device.
func (v *vision) turns(ctx context.Context) func(func() error) error {
	if v.at.first {
		return func(f func() error) error { return v.betweenSteps(ctx, f) }
	}
	return func(f func() error) error { return f() }
}

// closeTower frees the tower.
func (v *vision) closeTower() {
	if v.device != nil {
		v.device.Close()
	}
	v.device, v.tower, v.at = nil, nil, towerPlace{}
	v.held.Store(0)
}
