import type { BalancerEndpoint } from '../../../roundrobin/endpoint.ts';
import {
  MAX_HEAD_BYTES,
  type ByteCounters,
  type ClientOwner,
  type KnownAddress,
  type RelayEnd,
  type TcpClient,
  type TcpDial,
} from '../../tcp/transport.ts';
import { INTEREST, type Loop, type Pollable } from '../loop.ts';
import * as k from '../sys/abi.ts';
import type { RelayMemory, Kept } from './memory.ts';

const UNKNOWN: KnownAddress = {};
const BROKEN = k.EPOLLERR | k.EPOLLHUP;
const CLOSING = BROKEN | k.EPOLLRDHUP;
const INCOMING = k.EPOLLIN | CLOSING;

/** An accepted client, then its relay, too: see `tcp/transport.ts`. Watched itself only before there is an endpoint. */
export class LinuxTcpClient implements TcpClient, Pollable {
  owner!: ClientOwner;
  readonly loop: Loop;
  readonly memory: RelayMemory;
  readonly #fd: number;
  #readsHead = false;
  /** Set from the first endpoint on that took the connection. */
  #client: Side | undefined;
  #endpoint: Side | undefined;
  #halfClosed = false;
  isOver = false;

  constructor(loop: Loop, memory: RelayMemory, fd: number) {
    this.loop = loop;
    this.memory = memory;
    this.#fd = fd;
  }

  get bytesIn(): number {
    return this.#client?.bytes ?? 0;
  }

  get bytesOut(): number {
    return this.#endpoint?.bytes ?? 0;
  }

  remoteAddress(): KnownAddress {
    return this.loop.sys.remoteAddress(this.#fd) ?? UNKNOWN;
  }

  localAddress(): KnownAddress {
    return this.loop.sys.localAddress(this.#fd) ?? UNKNOWN;
  }

  reset(reason: RelayEnd): void {
    this.#readsHead = false;
    if (this.#client === undefined) this.loop.reset(this.#fd);
    else this.#end(reason, true);
  }

  hold(): void {
    if (this.loop.watch(this.#fd, this, INTEREST.end) < 0) this.owner.clientGone();
  }

  release(): void {
    this.loop.unwatch(this.#fd);
  }

  readHead(): void {
    this.#readsHead = true;
    if (this.loop.watch(this.#fd, this) < 0) this.owner.clientGone();
  }

  /** Held, or its head is read. */
  ready(mask: number): void {
    if (this.#readsHead) this.#peek(mask);
    else if ((mask & BROKEN) !== 0 || this.loop.sys.pending(this.#fd, k.FIONREAD) === 0)
      this.owner.clientGone();
  }

  failed(): void {
    this.owner.destroy();
  }

  dial(endpoint: BalancerEndpoint, source?: string): TcpDial | Error {
    const { loop } = this;
    const { sys } = loop;
    const fd = sys.stream(endpoint.family);
    if (fd < 0) return k.systemError(-fd, 'socket');
    sys.setNoDelay(fd);
    if (source !== undefined) {
      const bound = sys.bindSource(fd, endpoint.family, source);
      if (bound < 0) {
        loop.close(fd);
        return k.systemError(-bound, 'bind');
      }
    }
    const result = sys.connect(fd, endpoint);
    const dial = new Side(fd, this, false);
    const watched = result === 0 || result === -k.EINPROGRESS ? loop.watch(fd, dial) : result;
    if (watched >= 0) return dial;
    loop.close(fd);
    return k.systemError(-watched, 'connect');
  }

  /** `mask`: what the endpoint's socket is ready for. */
  relayTo(endpoint: Side, mask: number, header: Uint8Array | undefined): void {
    const isFirst = this.#client === undefined;
    const client = (this.#client ??= new Side(this.#fd, this, true));
    this.#endpoint = endpoint;
    endpoint.peer = client;
    client.peer = endpoint;
    // What the client has sent already comes as an event.
    if (isFirst && this.loop.watch(this.#fd, client) < 0) {
      this.reset('destroyed');
      return;
    }
    if (header !== undefined) client.precede(header);
    if (this.#endpoint !== endpoint) return;
    endpoint.ready(mask);
    if (!isFirst) client.ready(0);
  }

  keepAlive(idleMs: number): void {
    if (this.#endpoint !== undefined) this.loop.sys.setKeepAlive(this.#endpoint.fd, idleMs);
  }

  unsent(): number {
    const { sys } = this.loop;
    const unsent = (fd: number) => sys.pending(fd, k.SIOCOUTQ);
    return unsent(this.#fd) + unsent(this.#endpoint?.fd ?? -1);
  }

  /** A side has read its peer's FIN; everything before it has been written. */
  fin({ peer }: Side): void {
    if (peer === undefined) return;
    if (peer.ended) {
      // Closing sends the FIN, behind what the kernel still has to send.
      this.#end('closed', false);
      return;
    }
    this.loop.sys.c.shutdown(peer.fd, k.SHUT_WR);
    this.#halfClosed = true;
    this.owner.halfClosed();
  }

  /** A socket has been reset or has failed; `errno` may be 0. */
  broken(side: Side, errno: number): void {
    if (this.isOver) return;
    const isUntouched = this.bytesIn === 0 && this.bytesOut === 0;
    const isLost = side === this.#endpoint && !this.#halfClosed && isUntouched;
    if (isLost && this.#replacesEndpoint(side, errno)) return;
    this.reset(side === this.#client ? 'client-reset' : 'endpoint-reset');
  }

  #replacesEndpoint(endpoint: Side, errno: number): boolean {
    this.#endpoint = undefined;
    if (this.#client !== undefined) this.#client.peer = undefined;
    endpoint.release();
    this.loop.close(endpoint.fd);
    return this.owner.endpointLost(k.systemError(errno === 0 ? k.ECONNRESET : errno, 'read'));
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
    this.owner.relayEnded(reason);
  }

  /** Peeks at all bytes and removes only the head; the rest is for the relay. */
  #peek(mask: number): void {
    const { loop, memory, owner } = this;
    const { sys } = loop;
    const count = sys.peek(this.#fd, memory.current, MAX_HEAD_BYTES);
    const length = count > 0 ? owner.head(memory.current.bytes.subarray(0, count)) : undefined;
    if (!this.#readsHead) return;
    if (length !== undefined) {
      this.#readsHead = false;
      sys.read(this.#fd, memory.current, length);
      loop.unwatch(this.#fd);
      owner.headTaken();
    } else if (count === 0 || (mask & CLOSING) !== 0) owner.clientGone();
  }
}

/** What one side of a relay may pass on before other descriptors are served. Bytes. */
const BUDGET = 1024 * 1024;

const BULK_READ = 64 * 1024;
/** After this many consecutive reads below this many bytes it is not a bulk one any more. */
const SMALL_READS = 16;
const SMALL_READ = 16 * 1024;

/**
 * One socket of a relay, and the direction from it to the other one. It is watched edge-triggered: the next event comes
 * only after everything was read, or a write was short. So `#readable` remembers.
 */
class Side implements TcpDial, Pollable {
  readonly fd: number;
  readonly #relay: LinuxTcpClient;
  readonly #counters: ByteCounters;
  readonly #isClient: boolean;
  #isDialing: boolean;
  /** What it was ready for when it was connected. */
  #mask = 0;
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

  constructor(fd: number, relay: LinuxTcpClient, isClient: boolean) {
    this.fd = fd;
    this.#relay = relay;
    this.#counters = relay.owner.counters;
    this.#isClient = isClient;
    this.#isDialing = !isClient;
  }

  localAddress(): KnownAddress {
    return this.#relay.loop.sys.localAddress(this.fd) ?? UNKNOWN;
  }

  /** With a reset: a self-connected socket would keep the endpoint's port in use. */
  abandon(): void {
    this.#relay.loop.reset(this.fd);
  }

  relay(header?: Uint8Array): void {
    this.#isDialing = false;
    this.#relay.relayTo(this, this.#mask, header);
  }

  ready(mask: number): void {
    const relay = this.#relay;
    const peer = this.peer;
    if (this.#isDialing) {
      this.#dialed(mask);
      return;
    }
    if (relay.isOver) return;
    if ((mask & INCOMING) !== 0) {
      this.#readable = true;
      if ((mask & CLOSING) !== 0) this.#closing = true;
    }
    const isRead = peer !== undefined && this.#kept === undefined && !this.ended;
    if ((mask & k.EPOLLERR) !== 0 && !isRead) {
      // The socket is broken, and no read would reveal it.
      relay.broken(this, relay.loop.sys.getOption(this.fd, k.SOL_SOCKET, k.SO_ERROR));
      return;
    }
    if (peer === undefined) return;
    if (peer.#kept !== undefined && (mask & (k.EPOLLOUT | k.EPOLLERR)) !== 0) peer.#flush();
    if (this.#readable && this.#kept === undefined && !this.ended && !relay.isOver) this.#pump();
  }

  failed(): void {
    this.#relay.owner.destroy();
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

  #dialed(mask: number): void {
    const { owner, loop } = this.#relay;
    this.#mask = mask;
    const isBroken = (mask & BROKEN) !== 0;
    const errno = isBroken ? loop.sys.getOption(this.fd, k.SOL_SOCKET, k.SO_ERROR) : 0;
    if (errno === 0) owner.dialed();
    else owner.dialFailed(k.systemError(Math.abs(errno), 'connect'));
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
      const through = pipe ?? memory.current;
      const length = sys.fill(through, this.fd, limit);
      if (length <= 0) {
        if (pipe !== undefined) memory.givePipe(pipe);
        this.#stopped(length);
        return;
      }
      budget -= length;
      this.#took(length);
      const taken = sys.empty(through, peer.fd, length);
      const passed = Math.max(0, taken);
      if (passed > 0) this.#passed(passed);
      if (passed < length) {
        this.#kept = memory.keep(through, passed, length);
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
    const taken = relay.loop.sys.empty(kept.in, peer.fd, kept.left, kept.start);
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
