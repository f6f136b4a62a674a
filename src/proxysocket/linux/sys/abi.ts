import { isIPv4, SocketAddress as NodeAddress } from 'node:net';
import { constants, networkInterfaces } from 'node:os';
import { getSystemErrorName } from 'node:util';
import ipaddr from 'ipaddr.js';

/** The Linux ABI, 64 bits and little-endian: the same on x86-64 and arm64, but for `epoll_event`. */

export const AF_UNIX = 1;
export const AF_INET = 2;
export const AF_INET6 = 10;

export const SOCK_STREAM = 1;
export const SOCK_DGRAM = 2;

/** Of sockets, pipes and eventfds alike. */
export const NONBLOCK = 0x800;
/** Of every descriptor: the control plane starts programs, and they must not inherit any. */
export const CLOEXEC = 0x80000;

export const SOL_SOCKET = 1;
export const SO_REUSEADDR = 2;
export const SO_TYPE = 3;
export const SO_ERROR = 4;
export const SO_SNDBUF = 7;
export const SO_RCVBUF = 8;
export const SO_KEEPALIVE = 9;
export const SO_LINGER = 13;
export const SO_REUSEPORT = 15;
export const SO_PEERCRED = 17;
export const SO_ACCEPTCONN = 30;
export const SO_ATTACH_REUSEPORT_CBPF = 51;
export const SCM_RIGHTS = 1;

export const IPPROTO_IP = 0;
export const IP_PKTINFO = 8;
export const IP_TRANSPARENT = 19;
export const IP_BIND_ADDRESS_NO_PORT = 24;
export const IPPROTO_TCP = 6;
export const TCP_NODELAY = 1;
export const TCP_KEEPIDLE = 4;
export const TCP_KEEPINTVL = 5;
export const TCP_KEEPCNT = 6;
export const IPPROTO_IPV6 = 41;
export const IPV6_V6ONLY = 26;
export const IPV6_RECVPKTINFO = 49;
export const IPV6_PKTINFO = 50;
export const IPV6_TRANSPARENT = 75;
export const SOL_UDP = 17;
export const UDP_SEGMENT = 103;

export const SHUT_WR = 1;

export const MSG_PEEK = 0x2;
export const MSG_NOSIGNAL = 0x4000;
export const MSG_CMSG_CLOEXEC = 0x40000000;

export const EPOLLIN = 1;
export const EPOLLOUT = 4;
/** An error, to be read from the socket. */
export const EPOLLERR = 8;
/** Both directions are closed. */
export const EPOLLHUP = 0x10;
/** The peer's FIN has arrived, behind readable data. */
export const EPOLLRDHUP = 0x2000;
export const EPOLLET = 2 ** 31;
export const EPOLL_CTL_ADD = 1;
export const EPOLL_CTL_DEL = 2;

export const F_DUPFD_CLOEXEC = 1030;
export const F_SETPIPE_SZ = 1031;
export const SPLICE_F_MOVE = 1;
export const SPLICE_F_NONBLOCK = 2;

/** How many bytes are in the send queue of a socket. */
export const SIOCOUTQ = 0x5411;
/** Bytes that can be read. */
export const FIONREAD = 0x541b;

export const { EPERM, EINTR, EBADF, EAGAIN, EPIPE, EPROTO, EINPROGRESS } = constants.errno;
export const { EADDRINUSE, ENETDOWN, ENETUNREACH, EHOSTUNREACH } = constants.errno;
export const { ECONNABORTED, ECONNRESET, ECONNREFUSED, ENOBUFS } = constants.errno;
/** Node does not name these. */
export const ETOOMANYREFS = 109;
export const EHOSTDOWN = 112;

/**
 * Where the fields of an `epoll_event` are, in 32-bit words: the mask, and the data of two words. x86-64 packs it into 12
 * bytes; everywhere else the 64-bit data is aligned, which makes 16.
 */
export const EPOLL_EVENT_WORDS = process.arch === 'x64' ? 3 : 4;
export const EPOLL_DATA_WORD = EPOLL_EVENT_WORDS - 2;

/* `msghdr`: name @0, namelen u32 @8, iov @16, iovlen @24, control @32, controllen @40, flags @48. */
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

/** An error as Node's own socket functions make them: `code` is the name of the error number. */
export function systemError(errno: number, call: string): NodeJS.ErrnoException {
  const code = getSystemErrorName(-errno);
  return Object.assign(new Error(`${call} ${code}`), { code, errno: -errno, syscall: call });
}

export interface SocketAddress {
  /** IP literal without brackets; link-local IPv6 addresses with their zone. */
  readonly address: string;
  readonly port: number;
}

/** Returns the length of the `sockaddr`. Throws for unknown zones, and for anything but an IP literal. */
export function writeSockaddr(
  view: DataView,
  offset: number,
  { address, port }: SocketAddress,
): number {
  const isFour = isIPv4(address);
  const [literal = '', zone] = address.split('%');
  view.setUint16(offset, isFour ? AF_INET : AF_INET6, true);
  view.setUint16(offset + 2, port);
  view.setUint32(offset + 4, 0);
  const at = offset + (isFour ? 4 : 8);
  for (const [index, byte] of ipaddr.parse(literal).toByteArray().entries()) {
    view.setUint8(at + index, byte);
  }
  if (isFour) view.setBigUint64(offset + 8, 0n);
  else view.setUint32(offset + 24, zone === undefined ? 0 : zoneIndex(zone), true);
  return isFour ? SOCKADDR_IN_BYTES : SOCKADDR_IN6_BYTES;
}

/** Reads a `sockaddr`; undefined when it is neither IPv4 nor IPv6. */
export function readSockaddr(view: DataView, offset: number): SocketAddress | undefined {
  const family = view.getUint16(offset, true);
  const port = view.getUint16(offset + 2);
  if (family === AF_INET) {
    const bits = view.getUint32(offset + 4);
    const address = `${bits >>> 24}.${(bits >>> 16) & 255}.${(bits >>> 8) & 255}.${bits & 255}`;
    return { address, port };
  }
  if (family !== AF_INET6) return undefined;
  const groups = Array.from({ length: 8 }, (_, index) => view.getUint16(offset + 8 + index * 2));
  const long = groups.map((group) => group.toString(16)).join(':');
  // The shortest form, as the C library writes it.
  const { address } = new NodeAddress({ address: long, family: 'ipv6' });
  const scope = view.getUint32(offset + 24, true);
  const isLinkLocal = (Number(groups[0]) & 0xffc0) === 0xfe80;
  return { address: isLinkLocal && scope !== 0 ? `${address}%${zoneName(scope)}` : address, port };
}

function zones(): (readonly [name: string, index: number])[] {
  const interfaces = Object.entries(networkInterfaces());
  return interfaces.flatMap(([name, addresses = []]) =>
    addresses.flatMap((each) => (each.family === 'IPv6' ? [[name, each.scopeid] as const] : [])),
  );
}

function zoneIndex(zone: string): number {
  if (/^\d+$/.test(zone)) return Number(zone);
  const found = zones().find(([name, index]) => name === zone && index > 0);
  if (found !== undefined) return found[1];
  throw new RangeError(
    `the host has no interface ${JSON.stringify(zone)} with a link-local address`,
  );
}

function zoneName(wanted: number): string {
  return zones().find(([, index]) => index === wanted)?.[0] ?? String(wanted);
}
