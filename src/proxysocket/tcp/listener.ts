import { createServer, isIPv6, type AddressInfo, type Server } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { familyOf, type Family } from '../../util/family.ts';
import { takeInherited } from '../core/inherited.ts';
import type { ListenerSockets, OpenedSocket } from '../core/listener-sockets.ts';
import type { Listener, ServicePort } from '../core/service-port.ts';
import { sourceFilter, type SourceFilter } from '../core/source-ranges.ts';
import type { ListenSpec, Traffic } from '../spec.ts';
import { takeConnections } from './handle.ts';
import { incomingHandle, incomingSocket, type Incoming } from './incoming.ts';

export interface TcpListenerOptions {
  readonly backlog: number;
  readonly keepAliveMs: number;
  /** Use only what Node documents. */
  readonly documentedOnly: boolean;
  /** Opens the sockets; undefined: Node does. */
  readonly sockets?: ListenerSockets | undefined;
  /** A client has connected. */
  readonly accepted: (incoming: Incoming, listener: TcpListener) => void;
  /** A client could not be accepted. */
  readonly acceptFailed: (listener: TcpListener) => void;
  /** The listener does not listen any more. */
  readonly closed: (listener: TcpListener) => void;
}

/** A listening TCP socket. */
export class TcpListener implements Listener {
  readonly protocol = 'TCP';
  readonly address: string;
  readonly family: Family;
  readonly boundPort: number;
  readonly #server: Server;
  readonly #options: TcpListenerOptions;
  readonly #opened: OpenedSocket | undefined;
  #owner: ServicePort;
  #traffic: Traffic;
  #filter: SourceFilter | undefined;
  #closing: Promise<void> | undefined;

  constructor(
    server: Server,
    spec: ListenSpec,
    owner: ServicePort,
    options: TcpListenerOptions,
    opened?: OpenedSocket,
  ) {
    this.#server = server;
    this.#opened = opened;
    this.#options = options;
    this.address = spec.address;
    this.family = familyOf(spec.address);
    this.boundPort = (server.address() as AddressInfo).port;
    this.#owner = owner;
    this.#traffic = spec.traffic;
    this.#filter = sourceFilter(owner.name, spec.sourceRanges);
    // Node goes on accepting after an error. For want of descriptors there is not even one: libuv keeps
    // a spare descriptor to take and close what waits, so that the loop does not spin.
    server.on('error', () => options.acceptFailed(this));
    const taken =
      !options.documentedOnly &&
      takeConnections(server, options.keepAliveMs, (handle, calls) =>
        options.accepted(incomingHandle(handle, calls), this),
      );
    if (!taken) {
      server.on('connection', (socket) => options.accepted(incomingSocket(socket), this));
    }
  }

  get owner(): ServicePort {
    return this.#owner;
  }

  get traffic(): Traffic {
    return this.#traffic;
  }

  get filter(): SourceFilter | undefined {
    return this.#filter;
  }

  assign(owner: ServicePort, traffic: Traffic, sourceRanges?: readonly string[]): void {
    this.#owner = owner;
    this.#traffic = traffic;
    this.#filter = sourceFilter(owner.name, sourceRanges);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /**
   * The port is free as soon as the handle is closed, which `close` does at once. Its callback is of
   * no use: where Node counts the accepted sockets, it waits for the last of them.
   */
  async #close(): Promise<void> {
    this.#server.close();
    this.#opened?.release();
    this.#options.closed(this);
    await setImmediate();
  }
}

/** Starts to listen. Rejects with the operating system's error. */
export async function openTcpListener(
  spec: ListenSpec,
  owner: ServicePort,
  options: TcpListenerOptions,
): Promise<TcpListener> {
  const server = createServer({
    pauseOnConnect: true,
    allowHalfOpen: true,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: options.keepAliveMs,
  });
  const { promise, resolve, reject } = Promise.withResolvers<TcpListener>();
  const { address: host, port } = spec;
  const { backlog } = options;
  const opened = options.sockets?.open('TCP', spec);
  const fd = opened?.fd ?? takeInherited('TCP', host, port);
  server.once('error', (error) => {
    opened?.release();
    reject(error);
  });
  server.listen(
    fd === undefined
      ? // The IPv4 wildcard is a listener of its own.
        { host, port, backlog, ipv6Only: isIPv6(host), exclusive: true }
      : { fd, backlog },
    () => {
      server.removeAllListeners('error');
      // At once, before the loop can accept the first connection.
      resolve(new TcpListener(server, spec, owner, options, opened));
    },
  );
  return promise;
}
