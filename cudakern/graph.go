package cudakern

// #include "driver.h"
import "C"

// Graph is work captured from a stream.
type Graph struct {
	driver *Driver
	graph  C.CUgraph
}

// BeginCapture makes the stream record work instead of running it, until EndCapture, which must be
// called on the same OS thread. Until then, the thread must not wait for the device or allocate.
func (s *Stream) BeginCapture() error {
	const threadLocal = 1
	return s.driver.check("cuStreamBeginCapture_v2", C.call_cuStreamBeginCapture_v2(s.driver.calls, s.stream, threadLocal))
}

// EndCapture returns the captured work. It must also be called after a failed capture, to make the
// stream usable again.
func (s *Stream) EndCapture() (*Graph, error) {
	g := &Graph{driver: s.driver}
	if err := s.driver.check("cuStreamEndCapture", C.call_cuStreamEndCapture(s.driver.calls, s.stream, &g.graph)); err != nil {
		return nil, err
	}
	return g, nil
}

// Close frees the graph. Executables instantiated from it stay valid.
func (g *Graph) Close() error {
	if g.graph == nil { // the driver returns NULL for a failed capture
		return nil
	}
	return g.driver.check("cuGraphDestroy", C.call_cuGraphDestroy(g.driver.calls, g.graph))
}

// Executable is an instantiated graph.
type Executable struct {
	driver *Driver
	exec   C.CUgraphExec
}

// Instantiate prepares the graph for launches.
func (g *Graph) Instantiate() (*Executable, error) {
	x := &Executable{driver: g.driver}
	if err := g.driver.check("cuGraphInstantiateWithFlags", C.call_cuGraphInstantiateWithFlags(g.driver.calls, &x.exec, g.graph, 0)); err != nil {
		return nil, err
	}
	return x, nil
}

// Launch enqueues the whole graph in the stream.
func (x *Executable) Launch(s *Stream) error {
	return x.driver.check("cuGraphLaunch", C.call_cuGraphLaunch(x.driver.calls, x.exec, s.stream))
}

// Close frees the executable. It must not be running.
func (x *Executable) Close() error {
	return x.driver.check("cuGraphExecDestroy", C.call_cuGraphExecDestroy(x.driver.calls, x.exec))
}
