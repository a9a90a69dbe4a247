// Fibers: stacks that a CPU thread switches between.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __SANITIZE_ADDRESS__
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__) && !defined(EMU_UCONTEXT)

// Saves the callee-saved registers, stores the stack pointer in *from and continues at the
// stack pointer to.
extern "C" void emu_switch(void **from, void *to);
asm(R"(
	.text
	.hidden emu_switch
	.globl emu_switch
	.type emu_switch, @function
emu_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.size emu_switch, . - emu_switch
)");

inline void change_stack(void **from, void *to) { emu_switch(from, to); }

// Returns the stack pointer of a new stack that starts with entry, which never returns.
// The memory of the stack ends at top.
inline void *new_stack(char *, char *top, void (*entry)())
{
	void **sp = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15));
	*--sp = nullptr; // return address of entry; also aligns the stack for it
	*--sp = reinterpret_cast<void *>(entry);
	return sp - 6; // the saved registers, with any values
}

#else

#include <ucontext.h>

inline void change_stack(void **from, void *to)
{
	ucontext_t here;
	*from = &here;
	swapcontext(&here, static_cast<ucontext_t *>(to));
}

inline void *new_stack(char *low, char *top, void (*entry)())
{
	ucontext_t *context = reinterpret_cast<ucontext_t *>(low);
	getcontext(context);
	context->uc_stack.ss_sp = context + 1;
	context->uc_stack.ss_size = size_t(top - reinterpret_cast<char *>(context + 1));
	context->uc_link = nullptr;
	makecontext(context, entry, 0);
	return context;
}

#endif

struct Fiber {
	void *at = nullptr;  // stack pointer to continue at
	char *low = nullptr; // lowest address of its stack
	size_t size = 0;

	// Prepares the fiber to start with entry, which calls started first and never returns.
	void make(void (*entry)())
	{
#ifdef __SANITIZE_ADDRESS__
		__asan_unpoison_memory_region(low, size); // may be poisoned by the previous use
#endif
		at = new_stack(low, low + size, entry);
	}

	// Switches from this fiber, which must be running, to another.
	void switch_to(Fiber &other)
	{
#ifdef __SANITIZE_ADDRESS__
		void *fake = nullptr;
		__sanitizer_start_switch_fiber(&fake, other.low, other.size);
		change_stack(&at, other.at);
		__sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
		change_stack(&at, other.at);
#endif
	}

	// Tells the sanitizer that the fiber runs.
	static void started()
	{
#ifdef __SANITIZE_ADDRESS__
		__sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
	}

	// Records the stack that the CPU thread was started with.
	void use_cpu_stack()
	{
#ifdef __SANITIZE_ADDRESS__
		pthread_attr_t attributes;
		void *stack;
		pthread_getattr_np(pthread_self(), &attributes);
		pthread_attr_getstack(&attributes, &stack, &size);
		pthread_attr_destroy(&attributes);
		low = static_cast<char *>(stack);
#endif
	}
};
