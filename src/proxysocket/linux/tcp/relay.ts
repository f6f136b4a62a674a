import type { RelayEnd, RelayOwner, TcpRelay, ByteCounters } from '../../tcp/transport.ts';
import type { Loop, Pollable } from '../loop.ts';
import * as k from '../sys/abi.ts';
import { Pinned } from '../sys/memory.ts';
import type { RelayMemory, Kept } from './memory.ts';

/** The relay of one client; see the relay contract in `tcp/transport.ts`. */
export class Relay implements TcpRelay {
  readonly loop: Loop;
  readonly memory: RelayMemory;
  readonly #owner: RelayOwner;
  readonly #client: Side;
  #endpoint: Side | undefined;
  #mask = 0;
  #isWatched = false;
  #halfClosed = false;
  isOver = false;

  constructor(loop: Loop, memory: RelayMemory, clientFd: number, owner: RelayOwner) {
    this.loop = loop;
    this.memory = memory;
    this.#owner = owner;
    this.#client = new Side(clientFd, this, owner.counters, true);
  }

  get bytesIn(): number {
    return this.#client.bytes;
  }

  get bytesOut(): number {
    return this.#endpoint?.bytes ?? 0;
  }

  /** Relays to this endpoint, whose socket it now owns. Call `start` next. */
  use(endpointFd: number, mask: number): void {
    const endpoint = new Side(endpointFd, this, this.#owner.counters, false);
    this.#endpoint = endpoint;
    this.#mask = mask;
    endpoint.peer = this.#client;
    this.#client.peer = endpoint;
  }

  start(header?: Uint8Array): void {
    const endpoint = this.#endpoint;
    if (endpoint === undefined) return;
    this.loop.handOver(endpoint.fd, endpoint);
    const isFirst = !this.#isWatched;
    this.#isWatched = true;
    // What the client has sent already comes as an event.
    if (isFirst && this.loop.watch(this.#client.fd, this.#client) < 0) {
      this.reset('destroyed');
      return;
    }
    if (header !== undefined) this.#client.precede(header);
    if (this.#endpoint !== endpoint) return;
    endpoint.ready(this.#mask);
    if (!isFirst) this.#client.ready(0);
  }

  keepAlive(idleMs: number): void {
    if (this.#endpoint !== undefined) this.loop.sys.setKeepAlive(this.#endpoint.fd, idleMs);
  }

  unsent(): number {
    const { sys } = this.loop;
    return sys.queued(this.#client.fd) + sys.queued(this.#endpoint?.fd ?? -1);
  }

  /** A side has read its peer's FIN; everything before it has been written. */
  fin(side: Side): void {
    const other = side === this.#client ? this.#endpoint : this.#client;
    if (other === undefined) return;
    if (other.ended) {
      // Closing sends the FIN, behind what the kernel still has to send.
      this.#end('closed', false);
      return;
    }
    this.loop.sys.c.shutdown(other.fd, k.SHUT_WR);
    this.#halfClosed = true;
    this.#owner.halfClosed();
  }

  /** A socket has been reset or has failed; `errno` may be 0. */
  broken(side: Side, errno: number): void {
    if (this.isOver) return;
    const isUntouched = this.bytesIn === 0 && this.bytesOut === 0;
    const isLost = side !== this.#client && !this.#halfClosed && isUntouched;
    if (isLost && this.#replacesEndpoint(errno)) return;
    this.reset(side === this.#client ? 'client-reset' : 'endpoint-reset');
  }

  reset(reason: RelayEnd): void {
    this.#end(reason, true);
  }

  #replacesEndpoint(errno: number): boolean {
    const endpoint = this.#endpoint;
    if (endpoint === undefined) return false;
    this.#endpoint = undefined;
    this.#client.peer = undefined;
    endpoint.release();
    this.loop.close(endpoint.fd);
    return this.#owner.endpointLost(k.systemError(errno === 0 ? k.ECONNRESET : errno, 'read'));
  }

  #end(reason: RelayEnd, withReset: boolean): void {
    if (this.isOver) return;
    this.isOver = true;
    const { loop } = this;
    for (const side of [this.#client, this.#endpoint]) {
      if (side === undefined) continue;
      if (withReset) loop.reset(side.fd);
      else loop.close(side.fd);
      side.release();
    }
    this.#owner.relayEnded(reason);
  }
}

/** What one side of a relay may pass on before other descriptors are served. Bytes. */
const BUDGET = 1024 * 1024;

const BULK_READ = 64 * 1024;
/** After this many consecutive reads below this many bytes it is not a bulk one any more. */
const SMALL_READS = 16;
const SMALL_READ = 16 * 1024;

const CLOSING = k.EPOLLHUP | k.EPOLLRDHUP | k.EPOLLERR;
const INCOMING = k.EPOLLIN | CLOSING;

/**
 * One socket of a relay, and the direction from it to the other one. It is watched edge-triggered: the next event comes
 * only after everything was read, or a write was short. So `#readable` remembers.
 */
class Side implements Pollable {
  readonly fd: number;
  readonly #relay: Relay;
  readonly #counters: ByteCounters;
  readonly #isClient: boolean;
  /** The destination of this side's data; undefined while there is no endpoint. */
  peer: Side | undefined;
  /** The data that the other side has not taken yet. Nothing is read before it has. */
  #kept: Kept | undefined;
  #readable = false;
  /** A FIN was announced: keep reading until it comes, since no further event will. */
  #closing = false;
  bytes = 0;
  ended = false;
  #isBulk = false;
  #smallReads = 0;

  constructor(fd: number, relay: Relay, counters: ByteCounters, isClient: boolean) {
    this.fd = fd;
    this.#relay = relay;
    this.#counters = counters;
    this.#isClient = isClient;
  }

  ready(mask: number): void {
    const relay = this.#relay;
    const peer = this.peer;
    if (relay.isOver) return;
    if ((mask & INCOMING) !== 0) {
      this.#readable = true;
      if ((mask & CLOSING) !== 0) this.#closing = true;
    }
    const isRead = peer !== undefined && this.#kept === undefined && !this.ended;
    if ((mask & k.EPOLLERR) !== 0 && !isRead) {
      // The socket is broken, and no read would reveal it.
      relay.broken(this, relay.loop.sys.takeError(this.fd));
      return;
    }
    if (peer === undefined) return;
    if (peer.#kept !== undefined && (mask & (k.EPOLLOUT | k.EPOLLERR)) !== 0) peer.#flush();
    if (this.#readable && this.#kept === undefined && !this.ended && !relay.isOver) this.#pump();
  }

  failed(): void {
    this.#relay.reset('destroyed');
  }

  /** Sends this to the new peer, whose socket has room for it, ahead of all other data. */
  precede(header: Uint8Array): void {
    const peer = this.peer;
    if (peer === undefined) return;
    const { memory, loop } = this.#relay;
    memory.current.bytes.set(header);
    const taken = loop.sys.write(peer.fd, memory.current, header.length);
    if (taken < header.length) this.#relay.broken(peer, Math.max(0, -taken));
  }

  release(): void {
    if (this.#kept !== undefined) this.#relay.memory.release(this.#kept);
    this.#kept = undefined;
    this.peer = undefined;
    this.#setBulk(false);
  }

  /** Reads and writes until no data is left, or the other side accepts no more; in bulk through a pipe. */
  #pump(): void {
    const relay = this.#relay;
    const { peer } = this;
    if (peer === undefined) return;
    const { memory, loop } = relay;
    const { sys } = loop;
    const pipe = this.#isBulk ? memory.takePipe() : undefined;
    for (let budget = BUDGET; budget > 0;) {
      const limit = pipe === undefined ? memory.readLimit : Infinity;
      const length =
        pipe === undefined ? sys.read(this.fd, memory.current, limit) : sys.fillPipe(pipe, this.fd);
      if (length <= 0) {
        if (pipe !== undefined) memory.givePipe(pipe);
        this.#stopped(length);
        return;
      }
      budget -= length;
      this.#took(length);
      const taken =
        pipe === undefined
          ? sys.write(peer.fd, memory.current, length)
          : sys.emptyPipe(pipe, peer.fd, length);
      const passed = Math.max(0, taken);
      if (passed > 0) this.#passed(passed);
      if (passed < length) {
        this.#kept =
          pipe === undefined ? memory.keep(passed, length) : memory.keepPipe(pipe, length - passed);
        // If none of it has been sent yet, another endpoint can have it.
        if (taken < 0 && taken !== -k.EAGAIN) relay.broken(peer, -taken);
        return;
      }
      if (pipe === undefined && length < limit && !this.#closing) {
        this.#readable = false;
        return;
      }
      if (pipe !== undefined && !this.#isBulk) break;
    }
    if (pipe !== undefined) memory.givePipe(pipe);
    loop.again(this);
  }

  #passed(length: number): void {
    this.bytes += length;
    if (this.#isClient) this.#counters.bytesIn += length;
    else this.#counters.bytesOut += length;
  }

  #took(length: number): void {
    if (length >= BULK_READ) this.#setBulk(true);
    if (length >= SMALL_READ) this.#smallReads = 0;
    else if (this.#isBulk) {
      this.#smallReads += 1;
      if (this.#smallReads >= SMALL_READS) this.#setBulk(false);
    }
  }

  #setBulk(isBulk: boolean): void {
    if (isBulk === this.#isBulk) return;
    this.#isBulk = isBulk;
    this.#smallReads = 0;
    this.#relay.memory.noteBulk(isBulk);
  }

  /** A read returned no data: it would block, is at the end, or failed. */
  #stopped(result: number): void {
    this.#readable = false;
    if (result === -k.EAGAIN) return;
    if (result === 0) {
      this.ended = true;
      this.#relay.fin(this);
    } else {
      this.#relay.broken(this, -result);
    }
  }

  #flush(): void {
    const relay = this.#relay;
    const kept = this.#kept;
    const peer = this.peer;
    if (kept === undefined || peer === undefined) return;
    const { sys } = relay.loop;
    const taken =
      kept.in instanceof Pinned
        ? sys.write(peer.fd, kept.in, kept.left, kept.start)
        : sys.emptyPipe(kept.in, peer.fd, kept.left);
    if (taken === -k.EAGAIN) return;
    if (taken < 0) {
      relay.broken(peer, -taken);
      return;
    }
    kept.start += taken;
    kept.left -= taken;
    this.#passed(taken);
    if (kept.left > 0) return;
    relay.memory.release(kept);
    this.#kept = undefined;
    if (this.#readable && !this.ended) this.#pump();
  }
}
