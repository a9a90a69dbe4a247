// Stacks that a CPU thread changes between.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && !defined(EMU_UCONTEXT)

// Saves what the ABI asks to keep, leaves the stack in *from and goes on where to was
// left.
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

inline void fiber_switch(void **from, void *to) { emu_switch(from, to); }

// A fiber that begins with entry, which never returns, on the stack that ends at top.
inline void *fiber_make(char *, char *top, void (*entry)())
{
	void **sp = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15));
	*--sp = nullptr; // where entry would return to; also aligns the stack for it
	*--sp = reinterpret_cast<void *>(entry);
	return sp - 6; // the registers, whatever they are
}

#else

#include <ucontext.h>

inline void fiber_switch(void **from, void *to)
{
	ucontext_t here;
	*from = &here;
	swapcontext(&here, static_cast<ucontext_t *>(to));
}

inline void *fiber_make(char *low, char *top, void (*entry)())
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
