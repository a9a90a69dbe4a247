package cudakern

// #include "driver.h"
import "C"

// Graph is work that was captured from a stream.
type Graph struct {
	driver *Driver
	graph  C.CUgraph
}

// BeginCapture makes the stream collect its work instead of doing it, until EndCapture.
// EndCapture must be called on the same OS thread. Meanwhile the thread may not wait for the device nor allocate.
func (s *Stream) BeginCapture() error {
	const threadLocal = 1
	return s.driver.check("cuStreamBeginCapture_v2", C.call_cuStreamBeginCapture_v2(s.driver.calls, s.stream, threadLocal))
}

// EndCapture returns the collected work. It must be called after a failed capture too,
// to make the stream usable again.
func (s *Stream) EndCapture() (*Graph, error) {
	g := &Graph{driver: s.driver}
	if err := s.driver.check("cuStreamEndCapture", C.call_cuStreamEndCapture(s.driver.calls, s.stream, &g.graph)); err != nil {
		return nil, err
	}
	return g, nil
}

// Close frees the graph; executables made of it stay.
func (g *Graph) Close() error {
	if g.graph == nil { // what the driver gives for a capture that failed
		return nil
	}
	return g.driver.check("cuGraphDestroy", C.call_cuGraphDestroy(g.driver.calls, g.graph))
}

// Executable is a graph made ready to run.
type Executable struct {
	driver *Driver
	exec   C.CUgraphExec
}

// Instantiate makes the graph ready to run, on the device too.
func (g *Graph) Instantiate() (*Executable, error) {
	x := &Executable{driver: g.driver}
	if err := g.driver.check("cuGraphInstantiateWithFlags", C.call_cuGraphInstantiateWithFlags(g.driver.calls, &x.exec, g.graph, 0)); err != nil {
		return nil, err
	}
	return x, nil
}

// Launch puts the whole graph at the end of the stream.
func (x *Executable) Launch(s *Stream) error {
	return x.driver.check("cuGraphLaunch", C.call_cuGraphLaunch(x.driver.calls, x.exec, s.stream))
}

// Close frees the executable. It must not be running.
func (x *Executable) Close() error {
	return x.driver.check("cuGraphExecDestroy", C.call_cuGraphExecDestroy(x.driver.calls, x.exec))
}
