// Copies from global to shared memory that go on while the thread continues, from compute capability 8.0 on. In the emulation they are done at once.
#pragma once

#include "address.cuh"

// Copies 8 or 16 bytes to shared memory while the thread continues, until copies_wait. commit ends a group of copies.
template <int BYTES> DEVICE void copy_async(Address at, const uint8_t *from)
{
#ifdef EMU
	emu::check_aligned(at, BYTES), emu::check_aligned(from, BYTES);
	memcpy(at, from, BYTES);
#else
	if (BYTES == 16)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
	else
		asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from) : "memory");
#endif
}

DEVICE void copies_commit()
{
#ifndef EMU
	asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the last LEFT groups are still being copied.
template <int LEFT> DEVICE void copies_wait()
{
#ifndef EMU
	asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}
