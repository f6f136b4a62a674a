import type { Family } from '../../../util/family.ts';
import * as k from './abi.ts';
import { importFfi, openLibrary, type FfiModule, type Library } from './library.ts';
import { addressOf, DescriptorLedger, Pinned } from './memory.ts';

const FLAGS = k.NONBLOCK | k.CLOEXEC;
/** Between two keepalive probes, and how many get no answer before the peer counts as gone: as libuv sets them. */
const PROBE_SECONDS = 1;
const PROBES = 10;

/** Capacity of a pipe. Unprivileged users may have no larger ones (`fs.pipe-max-size`). */
const PIPE_BYTES = 1024 * 1024;
const SPLICE_FLAGS = k.SPLICE_F_MOVE | k.SPLICE_F_NONBLOCK;

/** Bytes pass through it from one socket to another: the kernel hands its own pages over without copying them. */
export interface Pipe {
  readonly readFd: number;
  readonly writeFd: number;
}

/**
 * The system calls of one thread. Structures and addresses stay in this folder; outside, descriptors are numbers and
 * memory is `Pinned`. Methods do not block, and return what the C function returns, or a negative error number.
 * Descriptors that they open are in the ledger until `close`.
 */
export class Sys implements Library {
  readonly ffi: Library['ffi'];
  readonly c: Library['c'];
  readonly ledger: DescriptorLedger;
  /** For options and addresses: a value of up to 32 bytes, and a length at 32. */
  readonly #scratch: Pinned;
  readonly #value: bigint;
  readonly #length: bigint;
  /** Addresses that were connected to, as the kernel's structure. */
  readonly #peers = new WeakMap<k.SocketAddress, { memory: Pinned; length: number }>();

  constructor({ ffi, c }: Library, ledger = new DescriptorLedger()) {
    this.ffi = ffi;
    this.c = c;
    this.ledger = ledger;
    this.#scratch = new Pinned(ffi, k.SOCKADDR_BYTES + 4);
    this.#value = this.#scratch.address;
    this.#length = addressOf(this.#scratch, k.SOCKADDR_BYTES);
  }

  stream(family: Family): number {
    return this.#open(k.SOCK_STREAM, family);
  }

  datagram(family: Family): number {
    return this.#open(k.SOCK_DGRAM, family);
  }

  /** An eventfd, which wakes a thread that waits for events, for the caller to close. Throws the system's error. */
  wakeUp(): number {
    const fd = this.c.eventfd(0, k.CLOEXEC | k.NONBLOCK);
    if (fd < 0) throw k.systemError(-fd, 'eventfd');
    return fd;
  }

  bind(fd: number, to: k.SocketAddress): number {
    return this.c.bind(fd, this.#value, k.writeSockaddr(this.#scratch.view, 0, to));
  }

  /**
   * Gives a socket that is to be connected the address of a client, an IP literal. The kernel chooses the port when it
   * knows the endpoint, so that many clients may have the same one.
   */
  bindSource(fd: number, family: Family, address: string): number {
    const result = this.setTransparent(fd, family);
    if (result < 0) return result;
    this.setOption(fd, k.IPPROTO_IP, k.IP_BIND_ADDRESS_NO_PORT, 1);
    return this.bind(fd, { address, port: 0 });
  }

  /** `-EINPROGRESS` when the outcome of a stream is still open. Throws for an invalid IP literal. */
  connect(fd: number, to: k.SocketAddress): number {
    let peer = this.#peers.get(to);
    if (peer === undefined) {
      const memory = new Pinned(this.ffi, k.SOCKADDR_BYTES);
      peer = { memory, length: k.writeSockaddr(memory.view, 0, to) };
      this.#peers.set(to, peer);
    }
    return this.c.connect(fd, peer.memory.address, peer.length);
  }

  /** The non-blocking descriptor of a new connection; `-EAGAIN` if there is none. */
  accept(fd: number): number {
    const accepted = this.c.accept4(fd, 0n, 0n, FLAGS);
    if (accepted < 0) return accepted;
    this.ledger.opened(accepted);
    return accepted;
  }

  read(fd: number, into: Pinned, length: number, offset = 0): number {
    return this.c.read(fd, addressOf(into, offset), length);
  }

  /** The same without taking the bytes off. */
  peek(fd: number, into: Pinned, length: number): number {
    return this.c.recv(fd, into.address, length, k.MSG_PEEK);
  }

  /** May write fewer bytes. Node ignores SIGPIPE, so a closed peer is only an error number. */
  write(fd: number, from: Pinned, length: number, offset = 0): number {
    return this.c.write(fd, addressOf(from, offset), length);
  }

  /** The descriptor must not be used after this, nor closed twice: its number may be in use again. */
  close(fd: number): void {
    this.ledger.closed(fd);
    this.c.close(fd);
  }

  reset(fd: number): void {
    const { view } = this.#scratch;
    view.setInt32(0, 1, true);
    view.setInt32(4, 0, true);
    this.c.setsockopt(fd, k.SOL_SOCKET, k.SO_LINGER, this.#value, 8);
    this.close(fd);
  }

  localAddress(fd: number): k.SocketAddress | undefined {
    return this.#address(this.c.getsockname, fd);
  }

  /** Undefined when the peer has disconnected. */
  remoteAddress(fd: number): k.SocketAddress | undefined {
    return this.#address(this.c.getpeername, fd);
  }

  setOption(fd: number, level: number, option: number, value: number): number {
    this.#scratch.view.setInt32(0, value, true);
    return this.c.setsockopt(fd, level, option, this.#value, 4);
  }

  /** Lets a socket have addresses that the host does not have. Needs CAP_NET_ADMIN. */
  setTransparent(fd: number, family: Family): number {
    return family === 4
      ? this.setOption(fd, k.IPPROTO_IP, k.IP_TRANSPARENT, 1)
      : this.setOption(fd, k.IPPROTO_IPV6, k.IPV6_TRANSPARENT, 1);
  }

  /** As far as the system grants it. */
  setBufferSizes(fd: number, bytes: number): void {
    this.setOption(fd, k.SOL_SOCKET, k.SO_RCVBUF, bytes);
    this.setOption(fd, k.SOL_SOCKET, k.SO_SNDBUF, bytes);
  }

  setNoDelay(fd: number): void {
    this.setOption(fd, k.IPPROTO_TCP, k.TCP_NODELAY, 1);
  }

  /** Enables keep-alive probes after so much idle time; whole seconds, at least one. */
  setKeepAlive(fd: number, idleMs: number): void {
    this.setOption(fd, k.SOL_SOCKET, k.SO_KEEPALIVE, 1);
    this.setOption(fd, k.IPPROTO_TCP, k.TCP_KEEPIDLE, Math.max(1, Math.trunc(idleMs / 1000)));
    this.setOption(fd, k.IPPROTO_TCP, k.TCP_KEEPINTVL, PROBE_SECONDS);
    this.setOption(fd, k.IPPROTO_TCP, k.TCP_KEEPCNT, PROBES);
  }

  /** For SO_ERROR, the pending error of a socket, which this clears. */
  getOption(fd: number, level: number, option: number): number {
    const { view } = this.#scratch;
    view.setUint32(k.SOCKADDR_BYTES, 4, true);
    const result = this.c.getsockopt(fd, level, option, this.#value, this.#length);
    return result < 0 ? result : view.getInt32(0, true);
  }

  /**
   * Sends all clients of one address to the same of `count` sockets that share an address, in the order in
   * which they were bound; `fd` is one of them. 0, or a negative error number: then the kernel chooses.
   */
  steer(fd: number, count: number): number {
    const program = steeringProgram(this.ffi, count);
    const { view } = this.#scratch;
    view.setUint16(0, program.length / INSTRUCTION_BYTES, true);
    view.setBigUint64(8, program.address, true);
    const option = k.SO_ATTACH_REUSEPORT_CBPF;
    return this.c.setsockopt(fd, k.SOL_SOCKET, option, this.#value, 16);
  }

  /** Bytes received and not read (FIONREAD), or written and not acknowledged (SIOCOUTQ); 0 if unknown. */
  pending(fd: number, request: number): number {
    const result = this.c.ioctl(fd, request, this.#value);
    return result < 0 ? 0 : this.#scratch.view.getInt32(0, true);
  }

  /** Undefined if no descriptor is left, or only a small pipe: the kernel limits the memory of pipes of each user. */
  openPipe(): Pipe | undefined {
    if (this.c.pipe2(this.#value, FLAGS) < 0) return undefined;
    const { view } = this.#scratch;
    const pipe = { readFd: view.getInt32(0, true), writeFd: view.getInt32(4, true) };
    this.ledger.opened(pipe.readFd);
    this.ledger.opened(pipe.writeFd);
    if (this.c.fcntl(pipe.writeFd, k.F_SETPIPE_SZ, PIPE_BYTES) >= PIPE_BYTES) return pipe;
    this.closePipe(pipe);
    return undefined;
  }

  closePipe({ readFd, writeFd }: Pipe): void {
    this.close(readFd);
    this.close(writeFd);
  }

  /**
   * Takes what a socket has received, up to `limit` bytes into memory. Returns the bytes, 0 at the end of the stream, or a
   * negative error number.
   */
  fill(into: Pinned | Pipe, from: number, limit: number): number {
    if (into instanceof Pinned) return this.read(from, into, limit);
    return this.c.splice(from, 0n, into.writeFd, 0n, PIPE_BYTES, SPLICE_FLAGS);
  }

  /** Moves up to `length` bytes to a socket, until it is full. Returns how many, or a negative error number if none. */
  empty(from: Pinned | Pipe, to: number, length: number, offset = 0): number {
    if (from instanceof Pinned) return this.write(to, from, length, offset);
    let sum = 0;
    // One call may stop before the socket is full, and then no event would report its room.
    while (sum < length) {
      const taken = this.c.splice(from.readFd, 0n, to, 0n, length - sum, SPLICE_FLAGS);
      if (taken <= 0) return sum > 0 ? sum : taken;
      sum += taken;
    }
    return sum;
  }

  #address(call: Library['c']['getsockname'], fd: number): k.SocketAddress | undefined {
    const { view } = this.#scratch;
    view.setUint32(k.SOCKADDR_BYTES, k.SOCKADDR_BYTES, true);
    return call(fd, this.#value, this.#length) < 0 ? undefined : k.readSockaddr(view, 0);
  }

  #open(type: number, family: Family): number {
    const domain = family === 4 ? k.AF_INET : k.AF_INET6;
    const fd = this.c.socket(domain, type | FLAGS, 0);
    if (fd < 0) return fd;
    this.ledger.opened(fd);
    return fd;
  }
}

/** Rejects where this Node has no `node:ffi` or may not use it, and when a C function is missing. */
export async function openSys(ledger?: DescriptorLedger): Promise<Sys> {
  return new Sys(openLibrary(await importFfi()), ledger);
}

/** Where the network header of a packet begins, for classic BPF. */
const NETWORK = 0xfff00000;
const INSTRUCTION_BYTES = 8;
/** Scatters addresses that differ in a few bits (2^32 divided by the golden ratio). */
const HASH_MULTIPLIER = 0x9e3779b1;

/** Sends all packets of a client to the same socket, by its address: the last 32 bits of it, for IPv6. */
function steeringProgram(ffi: FfiModule, sockets: number): Pinned {
  /** For each instruction a code, with how many to skip if it is true in the third byte, and an operand. */
  const words = [
    // The IP version: the higher half of the first byte.
    [0x30, NETWORK],
    [0x74, 4],
    // The word of the address, of IPv4 or IPv6.
    [0x02_0015, 6],
    [0x20, NETWORK + 12],
    [0x05, 1],
    [0x20, NETWORK + 20],
    // Its hash, modulo the number of sockets, is returned.
    [0x24, HASH_MULTIPLIER],
    [0x74, 16],
    [0x94, sockets],
    [0x16, 0],
  ].flat();
  const memory = new Pinned(ffi, words.length * 4);
  for (const [index, word] of words.entries()) memory.view.setUint32(index * 4, word, true);
  return memory;
}
