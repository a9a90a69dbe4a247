package live

import "slices"

// Hooks are functions of a package that has something about the chats of a Service in memory. The
// Service calls them when that ends; nil: nothing is called. None of them may wait for a
// command of a chat, or call one of its methods.
type Hooks struct {
	DropCaches    func(chat string)  // it left the memory, or messages of it were deleted
	Sent          func(chat string)  // its owner has sent a message; the chat is locked
	ChatDeleted   func(chat string)  // it went to the trash, or was a temporary one and is gone
	PersonRemoved func(owner string) // whose chats have ended
	Tick          func()             // some time has passed; it is called where chats are stored
	Closed        func()             // the server is shutting down: Context has ended; the answers are waited for afterwards
}

// AddHooks has functions called until the Service is closed.
func (s *Service) AddHooks(h Hooks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = append(slices.Clip(s.hooks), h)
}

// call calls one of the functions of each of the hooks.
func (s *Service) call(which func(Hooks) func()) {
	s.mu.Lock()
	hooks := s.hooks
	s.mu.Unlock()
	for _, h := range hooks {
		if f := which(h); f != nil {
			f()
		}
	}
}

// callWith is call for functions of a name.
func (s *Service) callWith(name string, which func(Hooks) func(string)) {
	s.call(func(h Hooks) func() {
		f := which(h)
		if f == nil {
			return nil
		}
		return func() { f(name) }
	})
}
