import { connect, Socket } from 'node:net';
import type { BalancerEndpoint } from '../../../roundrobin/endpoint.ts';
import type {
  ClientOwner,
  KnownAddress,
  RelayEnd,
  TcpClient,
  TcpDial,
} from '../../tcp/transport.ts';
import type { MakeSocket } from './accept.ts';
import { HELD_BYTES, type CopyMemory } from './buffers.ts';
import { Side, resetSocket, whenFin } from './side.ts';

/** An accepted socket, not read until it is held or relayed; then its relay, too: see `tcp/transport.ts`. */
export class NodeTcpClient extends Side implements TcpClient {
  owner!: ClientOwner;
  readonly socket: Socket;
  /** It is held, or its head is read. */
  #isWaiting = false;
  /** The owner looks for a head in all kept bytes. */
  #readsHead = false;
  /** Read before there was an endpoint, or refused by one that was lost. */
  #kept: Buffer | undefined;
  /** From the first endpoint on that took the connection. */
  #isRelayed = false;
  #endpoint: Endpoint | undefined;
  #open = 1;
  #halfClosed = false;
  #reason: RelayEnd | undefined;

  /** A paused socket from a 'connection' event, which emits 'data', or a factory of one that reads into our buffers. */
  constructor(memory: CopyMemory, socket: Socket | MakeSocket) {
    super(memory, true);
    this.socket =
      socket instanceof Socket
        ? socket.on('data', (chunk: Buffer) => this.pass(chunk))
        : socket(this.onread);
    this.watch();
  }

  get bytesIn(): number {
    return this.bytes;
  }

  get bytesOut(): number {
    return this.#endpoint?.bytes ?? 0;
  }

  remoteAddress(): KnownAddress {
    const { remoteAddress: address, remotePort: port } = this.socket;
    return { address, port };
  }

  localAddress(): KnownAddress {
    return localAddress(this.socket);
  }

  reset(reason: RelayEnd): void {
    this.#reason ??= reason;
    this.#isWaiting = false;
    this.#readsHead = false;
    resetSocket(this.socket);
    if (this.#endpoint !== undefined) resetSocket(this.#endpoint.socket);
  }

  hold(): void {
    this.#isWaiting = true;
    if (this.#keptBytes < HELD_BYTES) this.resume();
  }

  release(): void {
    this.#isWaiting = false;
    this.pause();
  }

  readHead(): void {
    this.#isWaiting = true;
    this.#readsHead = true;
    this.resume();
  }

  dial(endpoint: BalancerEndpoint): TcpDial {
    return new Endpoint(this, endpoint);
  }

  relayTo(endpoint: Endpoint, header: Uint8Array | undefined): void {
    this.#open += 1;
    this.#isRelayed = true;
    this.#endpoint = endpoint;
    this.pipe(endpoint, this.owner.counters);
    endpoint.pipe(this, this.owner.counters);
    if (this.socket.destroyed) {
      this.reset('client-reset');
      return;
    }
    if (header !== undefined) endpoint.socket.write(header);
    const kept = this.#kept;
    this.#kept = undefined;
    if (kept === undefined || this.write(kept)) this.resume();
    // The client's FIN arrived before the relay started.
    if (this.socket.readableEnded) this.ended(this);
  }

  unsent(): number {
    return this.socket.writableLength + (this.#endpoint?.socket.writableLength ?? 0);
  }

  keepAlive(idleMs: number): void {
    this.#endpoint?.socket.setKeepAlive(true, idleMs);
  }

  ended(side: Side): void {
    whenFin(side.socket, () => this.#fin(side));
  }

  closed(): void {
    this.#open -= 1;
    if (this.#open > 0 || !this.#isRelayed) return;
    if (this.#endpoint === undefined) this.#reason ??= 'client-reset';
    this.free();
    this.#endpoint?.free();
    this.owner.relayEnded(this.#reason ?? 'closed');
  }

  endpointFailed(endpoint: Endpoint, error: Error): void {
    if (endpoint !== this.#endpoint) return;
    const isUntouched = !this.isTouched && !endpoint.isTouched && !this.#halfClosed;
    if (isUntouched && this.#reason === undefined && !this.socket.destroyed) {
      this.#endpoint = undefined;
      endpoint.free();
      this.pause();
      if (this.owner.endpointLost(error)) return;
    }
    this.reset('endpoint-reset');
  }

  protected override get earlyBuffer(): Buffer {
    const { shared, first } = this.memory;
    return this.#kept === undefined
      ? first
      : shared.subarray(0, Math.max(1, HELD_BYTES - this.#keptBytes));
  }

  protected keep(chunk: Buffer): boolean {
    let kept = this.#kept === undefined ? Buffer.from(chunk) : Buffer.concat([this.#kept, chunk]);
    const length = this.#readsHead ? this.owner.head(kept) : undefined;
    if (length !== undefined) {
      this.#readsHead = false;
      kept = kept.subarray(length);
      // It may want to continue reading, which is impossible while a read is being handled.
      process.nextTick(() => {
        if (!this.#isWaiting) return;
        this.#isWaiting = false;
        this.owner.headTaken();
      });
    }
    this.#kept = kept.length === 0 ? undefined : kept;
    return length === undefined && kept.length < HELD_BYTES;
  }

  /** Without a relay it only means that the client has left, as 'close' or the next read will show. */
  protected onError(): void {
    if (this.#isRelayed) this.reset('client-reset');
  }

  protected onEnd(): void {
    if (this.#isRelayed) this.ended(this);
    // Except a client that has sent something: it may still expect the answer.
    else if (this.#readsHead || this.#keptBytes === 0) this.#gone();
  }

  protected onClose(): void {
    this.closed();
    this.#gone();
  }

  get #keptBytes(): number {
    return this.#kept?.length ?? 0;
  }

  #gone(): void {
    const wasWaiting = this.#isWaiting;
    this.#isWaiting = false;
    this.#readsHead = false;
    if (wasWaiting) this.owner.clientGone();
  }

  #fin(side: Side): void {
    const isLast = this.#halfClosed;
    this.#halfClosed = true;
    side.end(isLast);
    if (side === this) this.#endpoint?.keepSmall();
    else this.keepSmall();
    if (!isLast && this.#reason === undefined) this.owner.halfClosed();
  }
}

class Endpoint extends Side implements TcpDial {
  readonly socket: Socket;
  readonly #client: NodeTcpClient;
  /** `over`: it failed, or its outcome no longer matters. */
  #state: 'dialing' | 'joined' | 'over' = 'dialing';

  constructor(client: NodeTcpClient, { address, port }: BalancerEndpoint) {
    super(client.memory, false);
    this.#client = client;
    const { onread } = this;
    // An address literal needs no resolver.
    const options = { host: address, port, allowHalfOpen: true, noDelay: true, onread };
    this.socket = connect(options, () => {
      if (this.#state === 'dialing') client.owner.dialed();
    });
    this.watch();
  }

  localAddress(): KnownAddress {
    return localAddress(this.socket);
  }

  /** Destroying a connecting socket may still report how it ended. */
  abandon(): void {
    this.#state = 'over';
    resetSocket(this.socket);
  }

  relay(header?: Uint8Array): void {
    this.#state = 'joined';
    this.#client.relayTo(this, header);
  }

  protected keep(): boolean {
    return false;
  }

  protected onError(error: Error): void {
    if (this.#state === 'joined') this.#client.endpointFailed(this, error);
    if (this.#state !== 'dialing') return;
    this.#state = 'over';
    this.#client.owner.dialFailed(error);
  }

  protected onEnd(): void {
    if (this.#state === 'joined') this.#client.ended(this);
  }

  protected onClose(): void {
    if (this.#state === 'joined') this.#client.closed();
  }
}

function localAddress({ localAddress: address, localPort: port }: Socket): KnownAddress {
  return { address, port };
}
