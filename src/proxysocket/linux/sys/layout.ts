/** Where the two fields of an `epoll_event` are, in 32-bit words. */
export interface EpollLayout {
  /** Words from one event to the next. */
  readonly stride: number;
  /** Word of the data; the mask is word 0. */
  readonly data: number;
}

/**
 * x86-64 packs the structure into 12 bytes; everywhere else the 64-bit data is aligned, which makes 16.
 */
export const EPOLL_LAYOUTS = {
  packed: { stride: 3, data: 1 },
  aligned: { stride: 4, data: 2 },
} as const satisfies Record<string, EpollLayout>;

export function epollLayoutOf(arch: string): EpollLayout {
  return arch === 'x64' ? EPOLL_LAYOUTS.packed : EPOLL_LAYOUTS.aligned;
}

/* `msghdr`: name @0, namelen u32 @8, iov @16, iovlen @24, control @32, controllen @40, flags @48. */
export const MSGHDR_BYTES = 56;
/* `mmsghdr`: a msghdr, msg_len u32 @56, and padding. */
export const MMSGHDR_BYTES = 64;
export const MMSGHDR_LENGTH = 56;
/* `iovec`: base @0, len u64 @8. */
export const IOVEC_BYTES = 16;
/* `cmsghdr`: len u64 @0, level i32 @8, type i32 @12, data @16; each one takes a multiple of 8. */
export const CMSGHDR_BYTES = 16;
/* `in_pktinfo`: ifindex i32 @0, spec_dst @4, addr @8. `in6_pktinfo`: addr @0, ifindex @16. */
export const PKTINFO_BYTES = { 4: 12, 6: 20 } as const;
/* `sockaddr_in`: family u16 @0, port u16 big-endian @2, addr @4. */
export const SOCKADDR_IN_BYTES = 16;
/* `sockaddr_in6`: family @0, port @2, flowinfo @4, addr @8, scope u32 @24. */
export const SOCKADDR_IN6_BYTES = 28;
/** Enough for either, rounded up. */
export const SOCKADDR_BYTES = 32;
