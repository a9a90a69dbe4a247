package engine

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
)

// slowly makes each step of an engine take a second.
func slowly(b *bench, o *Options) {
	b.onStep = func(int, *device.Batch) error {
		time.Sleep(time.Second)
		return nil
	}
}

// toldOf returns what the queue said to an answer.
func toldOf(events []infer.Event) (told []infer.Queued) {
	for _, e := range events {
		if e.Queued != nil {
			told = append(told, *e.Queued)
		}
	}
	return told
}

func TestWait_IsAboutWhatAnAnswerWaits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		places int
		before []int // tokens of those that are asked for before
		ended  int   // answers of so many tokens have ended before; 0: none has
		model  string
		want   float64 // what is told first
	}{
		{"a place is free", 2, []int{40}, 0, "toy", 0},
		{"the one before it ends soon", 1, []int{10}, 0, "toy", 7},
		{"the one before it gives way", 1, []int{90}, 0, "toy", 15},
		{"it comes before the second of another client", 1, []int{90, 90}, 0, "toy", 15},
		{"another model waits until all have ended", 2, []int{60, 30}, 0, "other", 60},
		{"answers are expected to be as long as the last", 2, []int{60, 30}, 20, "other", 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, func(b *bench, o *Options) { o.Parallel = tt.places; slowly(b, o) })
				if tt.ended > 0 {
					b.ask(request(span(200, 203), tt.ended))
				}
				var streams []*stream
				for i, n := range tt.before {
					streams = append(streams, b.stream(request(span(int32(20*i), int32(20*i+3)), n), nil))
				}
				time.Sleep(2500 * time.Millisecond)
				if got := b.Status().EndS; tt.model == "other" && got != tt.want {
					t.Errorf("the status says that all answers have ended in %g s, want %g", got, tt.want)
				}
				r := request(span(100, 103), 3)
				r.Model, r.Client = tt.model, "late"
				asked := time.Now()
				var began time.Duration
				late := b.stream(r, func(e infer.Event) {
					if began == 0 && e.Queued == nil {
						began = time.Since(asked)
					}
				})
				<-late.ended
				for _, s := range streams {
					<-s.ended
				}
				if late.reply.err != nil {
					t.Fatal(late.reply.err)
				}
				told := toldOf(late.reply.events)
				first := infer.Queued{}
				if len(told) > 0 {
					first = told[0]
				}
				t.Logf("it was told %+v and began after %v", told, began)
				if first.WaitS != tt.want {
					t.Errorf("it is told %g s at first, want %g", first.WaitS, tt.want)
				}
				if wait := time.Duration(first.WaitS * float64(time.Second)); tt.ended == 0 && (began > wait+2*time.Second || began < wait*3/4-2*time.Second) {
					t.Errorf("it is told %v and begins after %v", wait, began)
				}
				if s := b.Status(); s.WaitS != 0 || s.EndS != 0 {
					t.Errorf("while nobody waits, and nothing is written, the status says %g s and %g s", s.WaitS, s.EndS)
				}
			})
		})
	}
}

func TestWait_NothingIsSaidOfWhatIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		b := newBench(t, func(b *bench, o *Options) { o.Parallel, b.onStep = 1, g.wait }) // steps take no time
		first := b.stream(request(span(0, 3), 30), nil)
		g.next(1)
		second := b.stream(request(span(20, 23), 3), nil)
		g.next(1)
		g.open()
		<-first.ended
		<-second.ended
		if told := toldOf(second.reply.events); !slices.Equal(told, []infer.Queued{{Position: 1}}) {
			t.Errorf("it is told %+v, want its position alone", told)
		}
	})
}

// One person asks ten times, then another once.
func TestTurns_ThePersonWhoAskedTenTimesWaitsBehindTheOneWhoAskedOnce(t *testing.T) {
	for _, places := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(places, " places"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := make(gate)
				asked, began := 0, map[int32]int{} // step in which the first token of a prompt was computed
				b := newBench(t, func(b *bench, o *Options) {
					o.Parallel = places
					b.onStep = func(step int, batch *device.Batch) error {
						_ = g.wait(step, batch)
						for row, id := range batch.Tokens {
							if batch.Pos[row] == 0 {
								began[id] = step
							}
						}
						return nil
					}
				})
				var streams []*stream
				ask := func(client string, first int32) {
					r := request(span(first, first+3), 40)
					r.Client = client
					streams = append(streams, b.stream(r, nil))
					synctest.Wait()
				}
				for n := range int32(10) {
					ask("anna", 10+10*n)
				}
				g.next(3)
				b.mu.Lock()
				asked = b.steps
				b.mu.Unlock()
				ask("ben", 200)
				g.open()
				for _, s := range streams {
					<-s.ended
				}
				bens, tenth := began[200], began[100]
				t.Logf("ben's first answer began %d steps after he asked, anna's tenth %d steps later", bens-asked, tenth-bens)
				if bens-asked > sliceSteps+1 {
					t.Errorf("ben's first answer began after %d steps, want at most a time slice of %d", bens-asked, sliceSteps)
				}
				if tenth < bens {
					t.Errorf("anna's tenth answer began at step %d, before ben's first at %d", tenth, bens)
				}
			})
		})
	}
}
