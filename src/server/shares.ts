import {
  status,
  type Server,
  type ServerDuplexStream,
  type ServerWritableStream,
} from '@grpc/grpc-js';
import ipaddr from 'ipaddr.js';
import { serverLimitReached } from './events.ts';
import { http2StreamOf } from './watch.ts';

/**
 * The client whose share a connection counts towards: an address, or its /64 for IPv6, all of which one host may
 * have. A unix socket has no addresses, so each connection has its own share.
 */
export function peerOf(remoteAddress: string | undefined, connection: unknown): unknown {
  if (remoteAddress === undefined) return connection;
  const address = ipaddr.process(remoteAddress.replace(/%.*$/, ''));
  return address instanceof ipaddr.IPv6 ? address.parts.slice(0, 4).join(':') : address.toString();
}

/** The part of the free capacity that one client may use. */
const SHARE = 1 / 4;

/**
 * Divides a limited number among clients: each may use a quarter of what is free, and at least one. So a single
 * client gets at most a fifth, and dozens of greedy ones still leave something for the next.
 */
export class Shares {
  readonly max: number;
  readonly #byPeer = new Map<unknown, number>();
  #used = 0;

  constructor(max: number) {
    this.max = max;
  }

  /** Takes one and returns the function that releases it; undefined: the client has used its share. */
  take(peer: unknown): (() => void) | undefined {
    const has = this.#byPeer.get(peer) ?? 0;
    if (has >= (this.max - this.#used) * SHARE) return undefined;
    this.#byPeer.set(peer, has + 1);
    this.#used += 1;
    return () => {
      this.#used -= 1;
      const left = (this.#byPeer.get(peer) ?? 1) - 1;
      if (left === 0) this.#byPeer.delete(peer);
      else this.#byPeer.set(peer, left);
    };
  }
}

/** Adds services to a server whose streaming calls each take a share while they are open. */
export function sharing(server: Pick<Server, 'addService'>, shares: Shares): ServiceTarget {
  return {
    addService(definition, implementation) {
      // A handler may have either name of its method.
      const streaming = new Set(
        Object.entries(definition)
          .filter(([, { responseStream }]) => responseStream)
          .flatMap(([name, { originalName }]) => [name, originalName]),
      );
      const methods = Object.entries(implementation).map(([name, handler]) => {
        if (!streaming.has(name)) return [name, handler];
        const handle = handler as (call: StreamingCall) => void;
        return [name, (call: StreamingCall) => admit(call, shares) && handle(call)];
      });
      server.addService(definition, Object.fromEntries(methods));
    },
  };
}

export type ServiceTarget = Pick<Server, 'addService'>;
type StreamingCall = ServerDuplexStream<unknown, unknown> | ServerWritableStream<unknown, unknown>;

/** If the client has used its share, ends the call and returns false. */
function admit(call: StreamingCall, shares: Shares): boolean {
  const stream = http2StreamOf(call);
  const { session } = stream;
  const release = shares.take(peerOf(session?.socket.remoteAddress, session ?? call));
  if (release !== undefined) {
    stream.once('close', release);
    return true;
  }
  const { max } = shares;
  serverLimitReached.publish({ limit: 'max-watchers', value: max, peer: call.getPeer() });
  const message = `this client has reached its share of the limit of ${max} watchers`;
  call.emit('error', Object.assign(new Error(message), { code: status.RESOURCE_EXHAUSTED }));
  return false;
}
