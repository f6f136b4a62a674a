import { connect, Socket } from 'node:net';
import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import type {
  DialOwner,
  HeadOwner,
  HoldOwner,
  KnownAddress,
  RelayOwner,
  TcpClient,
  TcpDial,
  TcpRelay,
} from '../../tcp/transport.ts';
import type { MakeSocket } from './accept.ts';
import { Direction, type CopyMemory } from './direction.ts';
import { NodeRelay, resetSocket } from './relay.ts';

/** An accepted socket, which is not read until it is held or relayed. */
export class NodeTcpClient implements TcpClient {
  readonly memory: CopyMemory;
  readonly socket: Socket;
  /** From the client to the endpoint. */
  readonly inward: Direction;
  /** Set from the first endpoint on that took the connection. */
  relay: NodeRelay | undefined;
  #hold: HoldOwner | undefined;
  #readsHead = false;

  /** A paused socket from a 'connection' event, which emits 'data', or a factory of one that reads into our buffers. */
  constructor(memory: CopyMemory, socket: Socket | MakeSocket) {
    this.memory = memory;
    this.inward = new Direction(memory);
    this.socket =
      socket instanceof Socket
        ? socket.on('data', (chunk: Buffer) => this.inward.pass(chunk))
        : socket(this.inward.onread);
    this.inward.from(this.socket);
    // Without a relay it only means that the client has left, as 'close' or the next read will show.
    this.socket.on('error', () => this.relay?.reset('client-reset'));
    this.socket.on('end', () => this.#onEnd());
    this.socket.on('close', () => this.#onClose());
  }

  remoteAddress(): KnownAddress {
    const { remoteAddress: address, remotePort: port } = this.socket;
    return { address, port };
  }

  localAddress(): KnownAddress {
    const { localAddress: address, localPort: port } = this.socket;
    return { address, port };
  }

  reset(): void {
    this.#hold = undefined;
    resetSocket(this.socket);
  }

  hold(owner: HoldOwner): void {
    this.#hold = owner;
    this.inward.hold();
  }

  release(): void {
    this.#hold = undefined;
    this.inward.pause();
  }

  readHead(owner: HeadOwner): void {
    this.#hold = owner;
    this.#readsHead = true;
    this.inward.readHead({
      head: (bytes) => (this.#hold === owner ? owner.head(bytes) : undefined),
      headTaken: () => {
        if (this.#hold !== owner) return;
        this.#hold = undefined;
        this.#readsHead = false;
        owner.headTaken();
      },
    });
  }

  dial(endpoint: BalancerEndpoint, owner: DialOwner): TcpDial {
    return new Dial(this, endpoint, owner);
  }

  #onEnd(): void {
    if (this.relay !== undefined) this.relay.ended(this.inward);
    // Except a client that has sent something: it may still expect the answer.
    else if (this.#readsHead || this.inward.heldBytes === 0) this.#gone();
  }

  #onClose(): void {
    if (this.relay !== undefined) this.relay.closed();
    else this.#gone();
  }

  #gone(): void {
    const owner = this.#hold;
    this.#hold = undefined;
    owner?.clientGone();
  }
}

/** The socket of an endpoint while it connects. */
class Dial implements TcpDial {
  readonly #client: NodeTcpClient;
  readonly #socket: Socket;
  readonly #outward: Direction;
  /** Undefined when the outcome is known, or no longer matters. */
  #owner: DialOwner | undefined;
  #relay: NodeRelay | undefined;

  constructor(client: NodeTcpClient, { address, port }: BalancerEndpoint, owner: DialOwner) {
    this.#client = client;
    this.#owner = owner;
    this.#outward = new Direction(client.memory);
    const { onread } = this.#outward;
    // An address literal needs no resolver.
    const options = { host: address, port, allowHalfOpen: true, noDelay: true, onread };
    this.#socket = connect(options, () => this.#takeOwner()?.dialed());
    this.#outward.from(this.#socket);
    this.#socket.on('error', (error) => this.#onError(error));
  }

  localAddress(): KnownAddress {
    const { localAddress: address, localPort: port } = this.#socket;
    return { address, port };
  }

  /** The 'error' listener stays: destroying a connecting socket may still report how it ended. */
  abandon(): void {
    this.#owner = undefined;
    resetSocket(this.#socket);
  }

  join(owner: RelayOwner): TcpRelay {
    const client = this.#client;
    const relay = (client.relay ??= new NodeRelay(client.socket, client.inward, owner));
    this.#relay = relay;
    relay.use(this.#socket, this.#outward);
    this.#socket.on('end', () => relay.ended(this.#outward));
    this.#socket.on('close', () => relay.closed());
    return relay;
  }

  #onError(error: Error): void {
    if (this.#relay === undefined) this.#takeOwner()?.dialFailed(error);
    else this.#relay.endpointFailed(this.#socket, error);
  }

  #takeOwner(): DialOwner | undefined {
    const owner = this.#owner;
    this.#owner = undefined;
    return owner;
  }
}
