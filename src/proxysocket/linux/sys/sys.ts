/**
 * System calls. Structures and addresses stay in this folder; outside, descriptors are numbers, memory is `Pinned`, and
 * errors are negative error numbers or Node's own errors.
 */
import { Sockaddr, type SocketAddress } from './address.ts';
import { IP_BIND_ADDRESS_NO_PORT, IPPROTO_IP, SOL_UDP, UDP_SEGMENT } from './abi.ts';
import { DatagramSlots } from './datagrams.ts';
import { DescriptorLedger } from './ledger.ts';
import { importFfi, openLibrary, type Library } from './library.ts';
import { Pinned, PeerNames } from './memory.ts';
import { Sender, type Direction } from './sender.ts';
import { Pipes } from './streams.ts';
import { Poller, Wake } from './poller.ts';
import { Sockets, Streams } from './sockets.ts';

/** The system calls of one thread. Not to be used from another one. */
export class Sys {
  readonly ledger: DescriptorLedger;
  readonly sockets: Sockets;
  readonly streams: Streams;
  readonly pipes: Pipes;
  /** Whether messages of several datagrams can be sent (UDP_SEGMENT, since Linux 4.18). */
  readonly hasUdpSegments: boolean;
  readonly #lib: Library;
  readonly #sockaddrs = new WeakMap<SocketAddress, Sockaddr>();

  /** `ledger`: where open descriptors are noted. */
  constructor(lib: Library, ledger = DescriptorLedger.create(1 << 16)) {
    this.#lib = lib;
    this.ledger = ledger;
    this.sockets = new Sockets(lib, this.ledger);
    this.streams = new Streams(lib);
    this.pipes = new Pipes(lib, this.ledger);
    this.hasUdpSegments = takesSegments(this.sockets);
  }

  /** Memory of `length` bytes, all zero. */
  alloc(length: number): Pinned {
    return Pinned.alloc(this.#lib.ffi, length);
  }

  /** Throws a RangeError for an invalid IP literal. */
  sockaddr(address: SocketAddress): Sockaddr {
    return new Sockaddr(this.#lib.ffi, address);
  }

  /** The same, cached for each object. */
  sockaddrOf(address: SocketAddress): Sockaddr {
    let found = this.#sockaddrs.get(address);
    if (found === undefined) {
      found = this.sockaddr(address);
      this.#sockaddrs.set(address, found);
    }
    return found;
  }

  /**
   * Gives a socket that is to be connected the address of a client, an IP literal. 0, or a negative error number. The
   * kernel chooses the port when it knows the endpoint, so that many clients may have the same one.
   */
  bindSource(fd: number, family: 4 | 6, address: string): number {
    const result = this.sockets.setTransparent(fd, family);
    if (result < 0) return result;
    this.sockets.setOption(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    return this.sockets.bind(fd, this.sockaddr({ address, port: 0 }));
  }

  poller(capacity: number): Poller {
    return new Poller(this.#lib, this.ledger, capacity);
  }

  datagramSlots(count: number): DatagramSlots {
    return new DatagramSlots(this.#lib, count);
  }

  sender(direction: Direction, memory: DatagramSlots): Sender {
    return new Sender(this.#lib, direction, memory);
  }

  peerNames(): PeerNames {
    return new PeerNames(this.#lib.ffi);
  }

  wake(): Wake {
    return new Wake(this.#lib, this.ledger);
  }
}

/** Sets a segment size of 0, which is the default, and an error where segmentation is not supported. */
function takesSegments(sockets: Sockets): boolean {
  const fd = sockets.datagram(4);
  if (fd < 0) return false;
  const result = sockets.setOption(fd, SOL_UDP, UDP_SEGMENT, 0);
  sockets.close(fd);
  return result === 0;
}

/** Rejects where this Node has no `node:ffi` or may not use it, and when a C function is missing. */
export async function openSys(): Promise<Sys> {
  return new Sys(openLibrary(await importFfi()));
}
